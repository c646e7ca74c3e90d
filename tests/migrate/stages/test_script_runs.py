"""Scripts run before and after: with what is here, and where that does not do, with stand-ins; never one word for both."""

import json
import math
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from headrace.migrate.proving.confined_run import Completed, Limits
from headrace.migrate.proving.rehearsal_protocol import RehearsalReport
from headrace.migrate.proving.verify import Recorded, ScriptRun
from headrace.migrate.reading.recipe import Recipe
from headrace.migrate.reporting.progress import Stages
from headrace.migrate.resolving.resolved import Resolved
from headrace.migrate.rewriting.rewrite import rewrite_all
from headrace.migrate.rewriting.rule import all_rules
from headrace.migrate.stages import script_runs
from headrace.migrate.stages.migration import Migration, Options
from headrace.migrate.stages.script_runs import OriginalRun, Originals, _proves_nothing, run_migrated, run_originals
from headrace.migrate.survey.survey import survey

pytestmark = pytest.mark.usefixtures("warm_sandbox")

MODEL = """
import torch
from torch import nn


class Net(nn.Module):
    def __init__(self, num_classes=4):
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 3, 2, 1)
        self.fc = nn.Linear(4, num_classes)

    def forward(self, x):
        return self.fc(torch.relu(self.conv(x)).mean((2, 3)))
"""
SHAPES = {"conv.weight": (4, 3, 3, 3), "conv.bias": (4,), "fc.weight": (4, 4), "fc.bias": (4,)}
SCRIPT = """
import argparse
import os

import numpy as np
import torch
from PIL import Image
from torch.utils.data import DataLoader, Dataset

from model import Net


class Photos(Dataset):
    def __init__(self, root):
        self.items = [
            (os.path.join(root, name, file), label)
            for label, name in enumerate(sorted(os.listdir(root)))
            for file in sorted(os.listdir(os.path.join(root, name)))
        ]

    def __len__(self):
        return len(self.items)

    def __getitem__(self, index):
        path, label = self.items[index]
        image = Image.open(path).convert("RGB").resize((32, 32))
        return torch.from_numpy(np.array(image)).permute(2, 0, 1).float() / 255, label


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("data", help="the folder of the photos")
    parser.add_argument("--checkpoint", required=True)
    args = parser.parse_args()
    loader = DataLoader(Photos(args.data), batch_size=64, num_workers=2, pin_memory=True)
    model = Net().cuda()
    model.load_state_dict(torch.load(args.checkpoint)["state_dict"])
    model.eval()
    correct = total = 0
    with torch.no_grad():
        for images, labels in loader:
            outputs = model(images.cuda())
            correct += (outputs.argmax(1) == labels.cuda()).sum().item()
            total += len(labels)
    print(f"accuracy {100 * correct / total:.2f} of {total}")


if __name__ == "__main__":
    main()
"""


def migration_of(root: Path, tmp_path: Path, **options) -> tuple[Migration, list]:
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    surveyed = survey(root)
    rewritten = rewrite_all(surveyed, rules=all_rules(), unsafe=False)
    changed = [change for change in rewritten.changes if change.changed]
    rules = {change.path: change.rules for change in changed}
    assert rules
    migration = Migration(
        scratch=scratch, surveyed=rewritten.survey, stages=Stages(None), rewritten=rules,
        options=Options(limits=Limits(timeout=240), **options),
    )  # fmt: skip
    migration.fresh_tree("copy")
    return migration, list(rewritten.changes)


@pytest.fixture
def repository(tmp_path):
    root = tmp_path / "thing"
    root.mkdir()
    (root / "model.py").write_text(MODEL)
    (root / "evaluate.py").write_text(SCRIPT)
    return root


def test_a_script_that_lacks_arguments_data_weights_and_a_gpu_is_executed_on_stand_ins(repository, tmp_path):
    migration, changes = migration_of(repository, tmp_path)
    originals = run_originals(migration, None)
    assert originals.why_not == {}
    original = originals.runs["evaluate.py"]
    assert {item.edge for item in original.standins} >= {"arguments", "data", "device", "network", "time"}
    assert original.run.rehearsal is not None
    assert not original.run.rehearsal.user_weights
    assert "accuracy" in original.run.done.stdout
    outcome = run_migrated(migration, changes, originals)["evaluate.py"]
    assert (outcome.status, outcome.executed_on, outcome.why) == ("passed", "stand-in data", None)
    assert outcome.agreements


def test_arguments_of_the_models_script_that_another_rejects_are_left_out(repository, tmp_path):
    choice = 'parser.add_argument("--arch", default="net", choices=sorted(name for name in ("net", "other")))'
    (repository / "evaluate.py").write_text(
        SCRIPT.replace("    args = parser.parse_args()", f"    {choice}\n    args = parser.parse_args()")
    )
    migration, _ = migration_of(repository, tmp_path)
    other = Recipe(root=str(repository), script="other.py", source="", expression="", argv=("--arch", "wide"))
    originals = run_originals(migration, Resolved(name="wide", recipe=other))
    assert originals.why_not == {}
    assert "--arch" not in originals.runs["evaluate.py"].argv


def test_a_migrated_script_that_computes_something_else_fails_on_stand_ins_too(repository, tmp_path):
    migration, _ = migration_of(repository, tmp_path)
    originals = run_originals(migration, None)
    fresh = migration.fresh_tree

    def broken(title=None):
        fresh(title)
        path = migration.tree / "model.py"
        path.write_text(path.read_text().replace("return self.fc(", "return 1 - self.fc("))

    object.__setattr__(migration, "fresh_tree", broken)
    outcome = run_migrated(migration, [], originals)["evaluate.py"]
    assert outcome.status != "passed"


def test_a_repository_whose_scripts_call_no_model_is_said_to_prove_nothing_by_them(tmp_path):
    (tmp_path / "thing").mkdir()
    (tmp_path / "thing" / "model.py").write_text(MODEL)
    (tmp_path / "scratch").mkdir()
    migration = Migration(
        scratch=tmp_path / "scratch", surveyed=survey(tmp_path / "thing"), stages=Stages(None), options=Options()
    )  # fmt: skip
    assert run_originals(migration, None) == Originals()
    (finding,) = migration.findings
    assert (finding.code, finding.severity) == ("PS408", "note")
    assert "only the package is proved" in finding.message


RUNS_AWAY = ('    print(f"accuracy', '    print(f"temperature {1e9 * float(outputs[0, 0]) % 997:.4f}")\n    print(f"accuracy')


@pytest.mark.parametrize(("otherwise", "status"), [("1e-6 + self.fc(", "passed"), ("1.5 + self.fc(", "failed")])
def test_a_number_that_rounding_changes_in_the_original_too_is_not_compared(repository, tmp_path, otherwise, status):
    (repository / "evaluate.py").write_text(SCRIPT.replace(*RUNS_AWAY))
    migration, _ = migration_of(repository, tmp_path)
    originals = run_originals(migration, None)
    fresh, done = migration.fresh_tree, []

    def broken(title=None):
        fresh(title)
        path = migration.tree / "model.py"
        path.write_text(path.read_text().replace("return self.fc(", f"return {otherwise}", 0 if done else -1))
        done.append(path)

    object.__setattr__(migration, "fresh_tree", broken)
    outcome = run_migrated(migration, [], originals)["evaluate.py"]
    assert outcome.status == status
    told = [item for item in migration.findings if item.code == "PS407"]
    assert len(told) == (status == "passed")
    if told:
        assert re.search(
            r"outputs of the original change by \S+, it prints something else, too: it printed 'temp", told[0].message
        )


def test_what_a_script_prints_otherwise_by_itself_is_a_difference(repository, tmp_path):
    (repository / "evaluate.py").write_text(SCRIPT.replace(*RUNS_AWAY))
    migration, _ = migration_of(repository, tmp_path)
    originals = run_originals(migration, None)
    fresh, done = migration.fresh_tree, []

    def broken(title=None):
        fresh(title)
        if not done:
            for name, old, new in (("model.py", "self.fc(", "1e-6 + self.fc("), ("evaluate.py", "accuracy {", "accuracy 1{")):
                path = migration.tree / name
                path.write_text(path.read_text().replace(old, new))
        done.append(title)

    object.__setattr__(migration, "fresh_tree", broken)
    outcome = run_migrated(migration, [], originals)["evaluate.py"]
    assert outcome.status == "failed"
    assert not [item for item in migration.findings if item.code == "PS407"]


def test_what_other_runs_learn_meanwhile_is_none_of_the_migrated_scripts(repository, tmp_path):
    migration, changes = migration_of(repository, tmp_path)
    originals = run_originals(migration, None)
    (memory,) = (tmp_path / "scratch" / "cache").rglob("learned.json")
    memory.write_text(json.dumps({**json.loads(memory.read_text()), "image": [48, 64]}))  # as a run with other images does
    outcome = run_migrated(migration, changes, originals)["evaluate.py"]
    assert (outcome.status, outcome.why) == ("passed", None)


BROKEN = ('    print(f"accuracy', '    raise IndexError("past the end")\n    print(f"accuracy')


def test_what_a_script_computes_before_its_own_error_stops_it_is_compared(repository, tmp_path):
    (repository / "evaluate.py").write_text(SCRIPT.replace(*BROKEN))
    migration, changes = migration_of(repository, tmp_path)
    originals = run_originals(migration, None)
    assert originals.why_not == {}
    outcome = run_migrated(migration, changes, originals)["evaluate.py"]
    assert (outcome.status, outcome.executed_on) == ("passed", "stand-in data")
    assert re.fullmatch(r"evaluate\.py:\d+", outcome.up_to)
    assert outcome.agreements
    assert re.fullmatch(r"compared up to evaluate\.py:\d+, where .* are both stopped: IndexError: past the end", outcome.why)
    assert any(finding.code == "PS406" and finding.severity == "warning" for finding in migration.findings)


@pytest.mark.parametrize(
    ("other", "said"),
    [(("past the end", "before the start"), "the migrated script: "), (BROKEN[::-1], "the migrated script came to its end")],
)
def test_a_migrated_script_that_is_stopped_otherwise_fails(repository, tmp_path, other, said):
    (repository / "evaluate.py").write_text(SCRIPT.replace(*BROKEN))
    migration, _ = migration_of(repository, tmp_path)
    originals = run_originals(migration, None)
    fresh, done = migration.fresh_tree, []

    def broken(title=None):
        fresh(title)
        path = migration.tree / "evaluate.py"
        path.write_text(path.read_text().replace(*other) if not done else path.read_text())
        done.append(path)

    object.__setattr__(migration, "fresh_tree", broken)
    outcome = run_migrated(migration, [], originals)["evaluate.py"]
    assert (outcome.status, outcome.why.startswith(said)) == ("failed", True)


@pytest.mark.parametrize(("original", "load", "status"), [(100.0, 0, "not-run"), (10.0, 0, "failed"), (10.0, 999, "not-run")])
def test_a_script_that_is_stopped_at_the_limit_fails_only_where_the_original_was_far_from_it(
    repository, tmp_path, monkeypatch, original, load, status
):
    """The clock of the original is set: no test waits for a limit."""
    monkeypatch.setattr(script_runs.os, "getloadavg", lambda: (float(load),) * 3)
    migration, changes = migration_of(repository, tmp_path)
    originals = run_originals(migration, None)
    found = originals.runs["evaluate.py"]
    done = replace(found.run.done, seconds=original)
    slow = replace(originals, runs={"evaluate.py": replace(found, run=replace(found.run, done=done))})
    stopped = replace(done, stopped="timeout", exit=137, seconds=240.0)
    monkeypatch.setattr(script_runs, "_run", lambda *given, **named: replace(found.run, done=stopped))
    outcome = run_migrated(migration, changes, slow)["evaluate.py"]
    assert outcome.status == status
    assert "stopped after 240 s, the time limit" in outcome.why
    assert {item.code for item in migration.findings} >= {"PS402" if status == "not-run" else "PS401"}


def test_the_most_useful_scripts_are_run_first_and_only_while_there_is_time(repository, tmp_path, monkeypatch):
    for name in ("bench.py", "predict.py"):
        (repository / name).write_text(SCRIPT)
    (repository / "README.md").write_text("Run `python predict.py photos`.\n")
    migration, _ = migration_of(repository, tmp_path)
    clock, limits = [0.0], {}

    def run(limited, resolved, script, *why):
        clock[0] += 200.0
        limits[script.path] = limited.options.limits.timeout
        return "stopped"

    monkeypatch.setattr(script_runs.time, "monotonic", lambda: clock[0])
    monkeypatch.setattr(script_runs, "_as_its_user", lambda *given: "no data")
    monkeypatch.setattr(script_runs, "_rehearsed", run)
    originals = run_originals(migration, None)
    assert list(limits.items()) == [("predict.py", 240.0), ("evaluate.py", 60.0)]
    assert originals.why_not["bench.py"] == "other scripts were run for 400 s; --entry bench.py runs it first"


def test_a_migrated_script_that_is_stopped_for_the_time_of_others_fails_at_nothing(repository, tmp_path, monkeypatch):
    (repository / "predict.py").write_text(SCRIPT)
    migration, changes = migration_of(repository, tmp_path)
    clock = [0.0]
    done = Completed(argv=(), exit=0, stdout="", stderr="", stopped=None, seconds=1.0, isolation={})
    ones = np.ones((2, 3), np.float32)
    found = OriginalRun(argv=[], run=ScriptRun(done=done, sites={"a.py:1": Recorded(inputs=ones, outputs=ones)}))
    ended = {
        "evaluate.py": found.run,
        "predict.py": replace(found.run, done=replace(done, stopped="timeout", exit=137, seconds=60.0)),
    }

    def run(script, *given, **named):
        clock[0] += 200.0
        return ended[script.path]

    monkeypatch.setattr(script_runs.time, "monotonic", lambda: clock[0])
    monkeypatch.setattr(script_runs, "_run", run)
    outcomes = run_migrated(migration, changes, Originals(runs=dict.fromkeys(ended, found)))
    assert [outcome.status for outcome in outcomes.values()] == ["passed", "not-run"]
    assert "--entry runs it first" in outcomes["predict.py"].why


def test_what_stops_it_even_so_is_told_with_its_place(repository, tmp_path):
    script = repository / "evaluate.py"
    script.write_text(script.read_text().replace("    model.eval()\n", "    model.eval()\n    raise ValueError('by hand')\n"))
    migration, _ = migration_of(repository, tmp_path)
    originals = run_originals(migration, None)
    assert originals.runs == {}
    why = originals.why_not["evaluate.py"]
    assert "it needs arguments that cannot be guessed: data, checkpoint" in why
    assert "ValueError: by hand (evaluate.py:" in why


def test_one_number_for_all_images_proves_nothing(repository, tmp_path):
    script = repository / "evaluate.py"
    script.write_text(
        script.read_text().replace("    model.eval()\n", "    model.eval()\n    nn.init.zeros_(model.fc.weight)\n")
    )
    script.write_text(script.read_text().replace("import torch\n", "import torch\nfrom torch import nn\n"))
    script.write_text(script.read_text().replace("    model.eval()\n", "    model.eval()\n    nn.init.zeros_(model.fc.bias)\n"))
    migration, _ = migration_of(repository, tmp_path)
    originals = run_originals(migration, None)
    assert originals.runs == {}
    assert "all that the original computed is one number, which proves nothing" in originals.why_not["evaluate.py"]


def test_numbers_of_a_library_that_is_not_here_prove_nothing():
    done = Completed(argv=(), exit=0, stdout="accuracy 0.0", stderr="", stopped=None, seconds=1.0, isolation={})
    told = RehearsalReport(ended="finished", stubs=("scorelib",))
    assert "install scorelib" in (_proves_nothing(ScriptRun(done=done, sites={}, rehearsal=told)) or "")
    zeros, ones = np.zeros((2, 3), np.float32), np.eye(3, dtype=np.float32)
    nothing = ScriptRun(done=done, sites={"a.py:1": Recorded(inputs=ones, outputs=zeros)}, rehearsal=told)
    assert "install scorelib" in (_proves_nothing(nothing) or "")
    much = ScriptRun(done=done, sites={"a.py:1": Recorded(inputs=ones, outputs=ones)}, rehearsal=told)
    assert _proves_nothing(much) is None


def test_what_an_earlier_run_could_not_do_without_is_not_tried_without(repository, tmp_path, monkeypatch):
    migration, _ = migration_of(repository, tmp_path)
    migration.stood_in["evaluate.py"] = frozenset(["data", "time"])
    monkeypatch.setattr("headrace.migrate.stages.script_runs._as_its_user", None)
    assert set(run_originals(migration, None).runs) == {"evaluate.py"}


TRAINING = """
def train(model, loader):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for images, labels in loader:
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(model(images), labels)
        loss.backward()
        optimizer.step()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--train", action="store_true")
    args = parser.parse_args()
"""


def test_a_script_that_could_train_and_only_evaluates_is_compared_by_what_it_evaluates(repository, tmp_path):
    script = repository / "evaluate.py"
    text = script.read_text()
    before, after = text.index("def main"), text.index("    loader = ")
    text = text[:before] + TRAINING.lstrip() + text[after:].replace("args.data", "'animals'").replace(".cuda()", "")
    text = text.replace(
        '    model.load_state_dict(torch.load(args.checkpoint)["state_dict"])\n',
        "    if args.train:\n        train(model, loader)\n",
    )
    script.write_text(text)
    migration, changes = migration_of(repository, tmp_path)
    assert "PS301" in migration.rewritten["evaluate.py"], migration.rewritten
    originals = run_originals(migration, None)
    assert originals.why_not == {}
    assert not originals.runs["evaluate.py"].run.losses
    outcome = run_migrated(migration, changes, originals)["evaluate.py"]
    assert (outcome.status, outcome.executed_on, outcome.loss_trace) == ("passed", "stand-in data", None)


MANY = """
import torch
from torch.utils.data import DataLoader, TensorDataset
from model import Net

net = Net()
net.load_state_dict(torch.load("net.pth"))
net.eval()
rows = TensorDataset(torch.rand(300, 3, 16, 16, generator=torch.Generator().manual_seed(0)), torch.arange(300) % 4)
seen = correct = 0
with torch.no_grad():
    for images, labels in DataLoader(rows, batch_size=32):
        outputs = net(images)
        seen += len(labels)
        correct += (outputs.argmax(1) == labels).sum().item()
{check}
print(correct / seen)
"""


@pytest.mark.parametrize(
    ("check", "options", "rows"),
    [("", {}, 140), ("", {"full": True}, 300), ("assert seen == len(rows), 'rows are missing'", {}, 300)],
)
def test_both_runs_see_the_same_slice_of_a_data_set_unless_the_whole_is_asked_for_or_needed(tmp_path, check, options, rows):
    root = tmp_path / "thing"
    root.mkdir()
    (root / "model.py").write_text(MODEL)
    (root / "evaluate.py").write_text(MANY.format(check=check))
    torch.save({name: torch.linspace(-1, 1, math.prod(shape)).view(shape) for name, shape in SHAPES.items()}, root / "net.pth")
    migration, changes = migration_of(root, tmp_path, **options)
    originals = run_originals(migration, None)
    assert originals.why_not == {}
    (recorded,) = originals.runs["evaluate.py"].run.sites.values()
    assert len(recorded.outputs) == rows
    told = [finding.message for finding in migration.findings if finding.code == "PS405"]
    assert len(told) == (rows < 300)
    assert all("140 of 300 images" in text for text in told)
    outcome = run_migrated(migration, changes, originals)["evaluate.py"]
    assert (outcome.status, outcome.executed_on, outcome.why) == ("passed", "your data", None)
    assert [agreement.rows for agreement in outcome.agreements] == [rows]


WHOLE = """
import torch
from model import Net

net = torch.load("best.pth", weights_only=False)
net.eval()
print(net(torch.linspace(0, 1, 3 * 16 * 16).view(1, 3, 16, 16)).argmax(1).item())
"""
TRAINS = """
import torch
from torch import nn
from model import Net

net = Net().cuda()
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
for step in range(2):
    images, target = torch.rand(4, 3, 16, 16), torch.arange(4)
    optimizer.zero_grad()
    loss = nn.functional.cross_entropy(net(images.cuda()), target.cuda())
    loss.backward()
    optimizer.step()
torch.save(net, "best.pth")
"""


def test_a_whole_model_that_the_training_script_saves_is_what_the_other_takes(tmp_path):
    root = tmp_path / "repository"
    root.mkdir()
    for name, text in {"model.py": MODEL, "infer.py": WHOLE, "train.py": TRAINS}.items():
        (root / name).write_text(text)
    migration, changes = migration_of(root, tmp_path)
    originals = run_originals(migration, None)
    assert sorted(originals.runs) == ["infer.py", "train.py"], originals.why_not
    scripts = run_migrated(migration, changes, originals)
    assert {path: found.status for path, found in scripts.items()} == {"infer.py": "passed", "train.py": "passed"}, scripts
    assert scripts["infer.py"].executed_on == "stand-in data"
    assert not [finding for finding in migration.findings if finding.code == "PS402"]
