"""Scripts run before and after: with what is here, and where that does not do, with stand-ins; never one word for both."""

import json
import math
import re
from dataclasses import replace

import numpy as np
import pytest
import torch

from headrace.migrate.proving.confined_run import Completed
from headrace.migrate.proving.verify import Recorded, ScriptRun
from headrace.migrate.reading.recipe import Recipe
from headrace.migrate.resolving.resolved import Resolved
from headrace.migrate.stages.migrated_copy import apply
from headrace.migrate.stages.scripts import migrated
from headrace.migrate.stages.scripts.migrated import run_migrated
from headrace.migrate.stages.scripts.originals import OriginalRun, Originals, run_once, run_originals

pytestmark = pytest.mark.usefixtures("warm_sandbox")

SHAPES = {"conv.weight": (4, 3, 3, 3), "conv.bias": (4,), "fc.weight": (4, 4), "fc.bias": (4,)}


def test_a_script_that_lacks_arguments_data_weights_and_a_gpu_is_executed_on_stand_ins(ran):
    migration, changes, originals = ran
    assert originals.why_not == {}
    original = originals.runs["evaluate.py"]
    assert {item.edge for item in original.standins} >= {"arguments", "data", "device", "network", "time"}
    assert original.run.rehearsal is not None
    assert not original.run.rehearsal.user_weights
    assert "accuracy" in original.run.done.stdout
    outcome = run_migrated(migration, changes, originals)["evaluate.py"]
    assert (outcome.status, outcome.executed_on, outcome.why) == ("passed", "stand-in data", None)
    assert outcome.agreements


def test_arguments_of_the_models_script_that_another_rejects_are_left_out(migration_of, repository):
    choice = 'parser.add_argument("--arch", default="net", choices=sorted(name for name in ("net", "other")))'
    script = repository / "evaluate.py"
    parse = "    args = parser.parse_args()"
    script.write_text(script.read_text().replace(parse, f"    {choice}\n{parse}"))
    migration, _ = migration_of(repository)
    other = Recipe(root=str(repository), script="other.py", source="", expression="", argv=("--arch", "wide"))
    originals = run_originals(migration, Resolved(name="wide", recipe=other))
    assert originals.why_not == {}
    assert "--arch" not in originals.runs["evaluate.py"].argv


def test_a_migrated_script_that_computes_something_else_fails_on_stand_ins_too(ran):
    migration, _, originals = ran
    fresh = migration.fresh_tree

    def broken(title=None):
        fresh(title)
        path = migration.tree / "model.py"
        path.write_text(path.read_text().replace("return self.fc(", "return 1 - self.fc("))

    object.__setattr__(migration, "fresh_tree", broken)
    outcome = run_migrated(migration, [], originals)["evaluate.py"]
    assert outcome.status != "passed"


RUNS_AWAY = ('    print(f"accuracy', '    print(f"temperature {1e9 * float(outputs[0, 0]) % 997:.4f}")\n    print(f"accuracy')


@pytest.mark.parametrize(("otherwise", "status"), [("1e-6 + self.fc(", "passed"), ("1.5 + self.fc(", "failed")])
def test_a_number_that_rounding_changes_in_the_original_too_is_not_compared(ran_with, otherwise, status):
    migration, _, originals = ran_with(RUNS_AWAY)
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
            r"it printed .temp.*, which was not compared: where the outputs of the original change by \S+, it prints",
            told[0].message,
        )


def test_what_a_script_prints_otherwise_by_itself_is_a_difference(ran_with):
    migration, _, originals = ran_with(RUNS_AWAY)
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


def test_what_other_runs_learn_meanwhile_is_none_of_the_migrated_scripts(migration_of, repository, tmp_path):
    migration, changes = migration_of(repository)
    originals = run_originals(migration, None)
    (memory,) = (tmp_path / "scratch" / "cache").rglob("learned.json")
    memory.write_text(json.dumps({**json.loads(memory.read_text()), "image": [48, 64]}))  # as a run with other images does
    outcome = run_migrated(migration, changes, originals)["evaluate.py"]
    assert (outcome.status, outcome.why) == ("passed", None)


def test_a_script_whose_calls_are_not_recorded_is_told_to_be_compared_by_its_prints_alone(ran):
    migration, changes, originals = ran
    found = originals.runs["evaluate.py"]
    unseen = replace(originals, runs={"evaluate.py": replace(found, run=replace(found.run, sites={}))})
    assert run_migrated(migration, changes, unseen)["evaluate.py"].only_prints
    assert not run_migrated(migration, changes, originals)["evaluate.py"].only_prints


BROKEN = ('    print(f"accuracy', '    raise IndexError("past the end")\n    print(f"accuracy')


def test_what_a_script_computes_before_its_own_error_stops_it_is_compared(ran_with):
    migration, changes, originals = ran_with(BROKEN)
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
def test_a_migrated_script_that_is_stopped_otherwise_fails(ran_with, other, said):
    migration, _, originals = ran_with(BROKEN)
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
    ran, monkeypatch, original, load, status
):
    """The clock of the original is set: no test waits for a limit."""
    monkeypatch.setattr(migrated.os, "getloadavg", lambda: (float(load),) * 3)
    migration, changes, originals = ran
    found = originals.runs["evaluate.py"]
    done = replace(found.run.done, seconds=original)
    slow = replace(originals, runs={"evaluate.py": replace(found, run=replace(found.run, done=done))})
    stopped = replace(done, stopped="timeout", exit=137, seconds=240.0)
    monkeypatch.setattr(migrated, "run_once", lambda *given, **named: replace(found.run, done=stopped))
    outcome = run_migrated(migration, changes, slow)["evaluate.py"]
    assert outcome.status == status
    assert "stopped after 240 s, the time limit" in outcome.why
    assert {item.code for item in migration.findings} >= {"PS402" if status == "not-run" else "PS401"}


@pytest.mark.parametrize(("eager", "status"), [("same", "not-run"), ("other", "failed"), ("stopped", "failed")])
def test_a_script_whose_graph_is_not_compiled_within_the_limit_fails_only_where_it_does_something_else_without(
    ran, monkeypatch, eager, status
):
    migration, changes, originals = ran
    found = originals.runs["evaluate.py"]
    done = replace(found.run.done, seconds=10.0)
    quick = replace(originals, runs={"evaluate.py": replace(found, run=replace(found.run, done=done))})
    stopped = replace(found.run, done=replace(done, stopped="timeout", exit=137, seconds=240.0))
    others = {site: replace(recorded, outputs=recorded.outputs + 1) for site, recorded in found.run.sites.items()}
    without = {"same": found.run, "other": replace(found.run, sites=others), "stopped": stopped}[eager]
    monkeypatch.setattr(migrated.os, "getloadavg", lambda: (0.0,) * 3)
    monkeypatch.setattr(migrated, "run_once", lambda *given, compiles=True, **named: stopped if compiles else without)
    outcome = run_migrated(migration, changes, quick)["evaluate.py"]
    assert outcome.status == status
    assert ("takes longer than the time limit, 240 s; without its graph it does what" in outcome.why) == (status == "not-run")
    assert {item.code for item in migration.findings} >= {"PS402" if status == "not-run" else "PS401"}


def test_a_script_that_is_not_to_compile_calls_its_model_eagerly(ran):
    migration, changes, originals = ran
    original = originals.runs["evaluate.py"]
    script = next(script for script in migration.surveyed.scripts if script.path == "evaluate.py")
    seconds = {}
    for compiles in (True, False):
        migration.fresh_tree()
        apply(changes, migration.tree)
        path = migration.tree / "evaluate.py"
        path.write_text(
            path.read_text().replace('print(f"accuracy', "print(os.environ['HEADRACE_PATIENCE'])\n    print(f\"accuracy")
        )
        run = run_once(script, original.argv, migration, (), migrated=True, compiles=compiles, **original.again)
        assert run.done.ok, run.done.stderr
        seconds[compiles] = float(run.done.stdout.splitlines()[0])
    assert seconds[True] == 0
    assert seconds[False] > 1e6


def test_a_migrated_script_that_is_stopped_for_the_time_of_others_fails_at_nothing(migration_of, repository, monkeypatch):
    (repository / "predict.py").write_text((repository / "evaluate.py").read_text())
    migration, changes = migration_of(repository)
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

    monkeypatch.setattr(migrated.time, "monotonic", lambda: clock[0])
    monkeypatch.setattr(migrated, "run_once", run)
    outcomes = run_migrated(migration, changes, Originals(runs=dict.fromkeys(ended, found)))
    assert [outcome.status for outcome in outcomes.values()] == ["passed", "not-run"]
    assert "--entry runs it first" in outcomes["predict.py"].why


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


def test_a_script_that_could_train_and_only_evaluates_is_compared_by_what_it_evaluates(migration_of, repository):
    script = repository / "evaluate.py"
    text = script.read_text()
    before, after = text.index("def main"), text.index("    loader = ")
    text = text[:before] + TRAINING.lstrip() + text[after:].replace("args.data", "'animals'").replace(".cuda()", "")
    text = text.replace(
        '    model.load_state_dict(torch.load(args.checkpoint)["state_dict"])\n',
        "    if args.train:\n        train(model, loader)\n",
    )
    script.write_text(text)
    migration, changes = migration_of(repository)
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
    [
        ("", {}, 140),
        pytest.param("", {"full": True}, 300, marks=pytest.mark.slow),  # the whole, as where the script needs it
        ("assert seen == len(rows), 'rows are missing'", {}, 300),
    ],
)
def test_both_runs_see_the_same_slice_of_a_data_set_unless_the_whole_is_asked_for_or_needed(
    model_text, migration_of, tmp_path, check, options, rows
):
    root = tmp_path / "thing"
    root.mkdir()
    (root / "model.py").write_text(model_text)
    (root / "evaluate.py").write_text(MANY.format(check=check))
    torch.save({name: torch.linspace(-1, 1, math.prod(shape)).view(shape) for name, shape in SHAPES.items()}, root / "net.pth")
    migration, changes = migration_of(root, **options)
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
net.eval()
with torch.no_grad():
    print(net(images.cuda()).argmax(1))
torch.save(net, "best.pth")
"""


def test_a_whole_model_that_the_training_script_saves_is_what_the_other_takes(model_text, migration_of, tmp_path):
    root = tmp_path / "repository"
    root.mkdir()
    for name, text in {"model.py": model_text, "infer.py": WHOLE, "train.py": TRAINS}.items():
        (root / name).write_text(text)
    migration, changes = migration_of(root)
    originals = run_originals(migration, None)
    assert sorted(originals.runs) == ["infer.py", "train.py"], originals.why_not
    scripts = run_migrated(migration, changes, originals)
    assert {path: found.status for path, found in scripts.items()} == {"infer.py": "passed", "train.py": "passed"}, scripts
    assert scripts["infer.py"].executed_on == "stand-in data"
    assert not [finding for finding in migration.findings if finding.code == "PS402"]
