"""Scripts run as they were: which, in which order, and why the others are not."""

import types
from dataclasses import replace

import numpy as np
import pytest
from PIL import Image

from headrace.migrate.proving.confined_run import Completed
from headrace.migrate.proving.rehearsal_protocol import RehearsalReport
from headrace.migrate.proving.verify import Recorded, ScriptRun
from headrace.migrate.reading.recipe import Recipe
from headrace.migrate.reporting.progress import Stages
from headrace.migrate.resolving.resolved import Resolved
from headrace.migrate.stages.migration import Migration, Options
from headrace.migrate.stages.scripts.originals import Originals, _proves_nothing, run_originals
from headrace.migrate.survey.survey import survey

STAGE = "headrace.migrate.stages.scripts.originals"
pytestmark = pytest.mark.usefixtures("warm_sandbox")


def test_a_repository_whose_scripts_call_no_model_is_said_to_prove_nothing_by_them(model_text, tmp_path):
    (tmp_path / "thing").mkdir()
    (tmp_path / "thing" / "model.py").write_text(model_text)
    (tmp_path / "scratch").mkdir()
    migration = Migration(
        scratch=tmp_path / "scratch", surveyed=survey(tmp_path / "thing"), stages=Stages(None), options=Options()
    )  # fmt: skip
    assert run_originals(migration, None) == Originals()
    (finding,) = migration.findings
    assert (finding.code, finding.severity) == ("PS408", "note")
    assert finding.message.startswith("no script was found")
    assert "only the package is proved" in finding.message
    run_originals(migration, types.SimpleNamespace(script=types.SimpleNamespace(path="probe.py")))
    assert migration.findings[1].message.startswith("no call of the model of probe.py is one that rules rewrite")


def test_the_most_useful_scripts_are_run_first_and_only_while_there_is_time(migration_of, repository, monkeypatch):
    for name in ("bench.py", "predict.py"):
        (repository / name).write_text((repository / "evaluate.py").read_text())
    (repository / "README.md").write_text("Run `python predict.py photos`.\n")
    migration, _ = migration_of(repository)
    clock, limits = [0.0], {}

    def run(limited, resolved, script, *why):
        clock[0] += 200.0
        limits[script.path] = limited.options.limits.timeout
        return "stopped"

    monkeypatch.setattr(f"{STAGE}.time.monotonic", lambda: clock[0])
    monkeypatch.setattr(f"{STAGE}._as_its_user", lambda *given: "no data")
    monkeypatch.setattr(f"{STAGE}._rehearsed", run)
    originals = run_originals(migration, None)
    assert list(limits.items()) == [("predict.py", 240.0), ("evaluate.py", 60.0)]
    assert originals.why_not["bench.py"] == "other scripts were run for 400 s; --entry bench.py runs it first"


def test_what_answers_requests_is_not_waited_for(migration_of, repository, monkeypatch):
    """A server comes to no end by itself: it is run with stand-ins at once."""
    (repository / "app.py").write_text("import gradio as gr\n" + (repository / "evaluate.py").read_text())
    migration, _ = migration_of(repository)
    waited, rehearsed = [], []
    monkeypatch.setattr(f"{STAGE}._as_its_user", lambda limited, resolved, script: waited.append(script.path) or "no data")
    monkeypatch.setattr(
        f"{STAGE}._rehearsed", lambda limited, resolved, script, why: rehearsed.append(script.path) or "stopped"
    )
    run_originals(migration, None)
    assert (waited, sorted(rehearsed)) == (["evaluate.py"], ["app.py", "evaluate.py"])


def test_what_stops_it_even_so_is_told_with_its_place(migration_of, repository):
    script = repository / "evaluate.py"
    script.write_text(script.read_text().replace("    model.eval()\n", "    model.eval()\n    raise ValueError('by hand')\n"))
    migration, _ = migration_of(repository)
    originals = run_originals(migration, None)
    assert originals.runs == {}
    why = originals.why_not["evaluate.py"]
    assert "it needs arguments that cannot be guessed: data, checkpoint" in why
    assert "ValueError: by hand (evaluate.py:" in why


def test_one_number_for_all_images_proves_nothing(migration_of, repository):
    script = repository / "evaluate.py"
    script.write_text(
        script.read_text().replace("    model.eval()\n", "    model.eval()\n    nn.init.zeros_(model.fc.weight)\n")
    )
    script.write_text(script.read_text().replace("import torch\n", "import torch\nfrom torch import nn\n"))
    script.write_text(script.read_text().replace("    model.eval()\n", "    model.eval()\n    nn.init.zeros_(model.fc.bias)\n"))
    migration, _ = migration_of(repository)
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


def test_what_an_earlier_run_could_not_do_without_is_not_tried_without(migration_of, repository, monkeypatch):
    migration, _ = migration_of(repository)
    migration.stood_in["evaluate.py"] = frozenset(["data", "time"])
    monkeypatch.setattr(f"{STAGE}._as_its_user", None)
    assert set(run_originals(migration, None).runs) == {"evaluate.py"}


ANSWERS = """
import os

import numpy as np
import torch
from PIL import Image
from model import Net

model = Net()
model.eval()
with torch.no_grad():
    for name in sorted(os.listdir("photos")):
        image = np.array(Image.open(os.path.join("photos", name)).convert("RGB"), dtype=np.float32) / 255
        scores = model(torch.from_numpy(image).permute(2, 0, 1)[None])
        print(name, scores.argmax(1).item())
"""


def test_the_models_script_is_run_though_nothing_in_it_was_rewritten(migration_of, repository):
    """What it prints is held to the package; what is not rewritten is compared with nothing."""
    (repository / "photos").mkdir()
    for number in range(3):
        noise = np.random.default_rng(number).integers(0, 255, (16, 16, 3), np.uint8)
        Image.fromarray(noise).save(repository / f"photos/{number}.png")
    (repository / "answer.py").write_text(ANSWERS)
    (repository / "other.py").write_text(ANSWERS)
    migration, _ = migration_of(repository)
    scripts = {script.path: script for script in migration.surveyed.scripts}
    migration = replace(migration, rewritten={})
    recipe = Recipe(root=str(repository), script="answer.py", source="", expression="model")
    originals = run_originals(migration, Resolved(name="Net", recipe=recipe, script=scripts["answer.py"]))
    assert (originals.runs, [*originals.unchanged]) == ({}, ["answer.py"])
    assert originals.why_not["answer.py"] == originals.why_not["other.py"] == "nothing in it was rewritten"
    ran = originals.of("answer.py")
    assert ran is not None
    assert len(ran.run.done.stdout.splitlines()) == 3
    assert originals.of("other.py") is None
    assert originals.on_own_data("answer.py")
