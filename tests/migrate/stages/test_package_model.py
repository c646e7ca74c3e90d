"""Building, proving and packaging one model from its recipe, through the real worker."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from headrace.errors import AmbiguousError
from headrace.migrate.proving.confined_run import Completed, Limits
from headrace.migrate.proving.rehearsal_protocol import RehearsalReport, StandIn
from headrace.migrate.proving.verify import Recorded, ScriptRun
from headrace.migrate.reading.facts import CheckpointSite, Factory, Loop, Script, Survey
from headrace.migrate.reading.recipe import Recipe, TransformRecipe
from headrace.migrate.reporting.checkpoint_report import report_checkpoints
from headrace.migrate.reporting.progress import Stages
from headrace.migrate.reporting.report import Report
from headrace.migrate.resolving.resolved import Resolved
from headrace.migrate.stages import package_model
from headrace.migrate.stages.all_models import package_all
from headrace.migrate.stages.migration import Migration, Options
from headrace.migrate.stages.package_model import ModelOutcome
from headrace.migrate.stages.scripts.arguments import MADE_IMAGE
from headrace.migrate.stages.scripts.originals import OriginalRun, Originals
from headrace.migrate.stages.worker_client import model_name

pytestmark = pytest.mark.usefixtures("warm_sandbox")

NET = """
import torch
from torch import nn
import numpy as np
NAMES = {0: "cat", 1: "dog", 2: "owl"}
class Net(nn.Module):
    def __init__(self, pooled=True):
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(3, 8, 3, 2, 1, bias=False), nn.BatchNorm2d(8), nn.ReLU())
        self.pool = nn.AdaptiveAvgPool2d(2) if pooled else nn.Identity()
        self.head = nn.Linear(32, 3)
    def forward(self, x):
        return self.head(self.pool(self.body(x)).flatten(1))
def transform(image):
    values = np.asarray(image.convert("RGB").resize((16, 16), 2), np.float32) / 255
    return torch.from_numpy(values.transpose(2, 0, 1).copy())
"""


@pytest.fixture
def migration(tmp_path: Path) -> Migration:
    root = tmp_path / "repository"
    root.mkdir()
    (root / "net.py").write_text(NET)
    (root / "evaluate.py").write_text("import net\n")
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    options = Options(limits=Limits(timeout=200), tuning_seconds=0.3, precision="fp32", random_weights=True)
    made = Migration(scratch=scratch, surveyed=Survey(root=root), options=options, stages=Stages(None))
    made.fresh_tree("copy")
    return made


def recipe(source: str = "from net import Net\nmodel = Net()\n") -> Recipe:
    return Recipe(root="/nowhere", script="evaluate.py", source=source, expression="model")


TRANSFORM = TransformRecipe(
    root="/nowhere",
    script="evaluate.py",
    source="import net\n",
    expression="net.transform",
    takes="image",
    source_at="net.py:14",
)
NAMES = Recipe(root="/nowhere", script="evaluate.py", source="import net\n", expression="net.NAMES")


def packaged(migration: Migration, resolved: Resolved) -> ModelOutcome:
    (outcome,) = package_all(migration, [resolved], Originals(), "models")
    return outcome


def codes(migration: Migration) -> dict[str, str]:
    return {finding.code: finding.message for finding in migration.findings}


def test_a_model_with_transform_and_names_is_packaged_without_findings(migration: Migration) -> None:
    resolved = Resolved(name="my net!", recipe=recipe(), transform_recipe=TRANSFORM, class_names_recipe=NAMES)
    outcome = packaged(migration, resolved)
    assert outcome.packaged, migration.findings
    entry = outcome.model
    assert (entry.name, entry.input, entry.classes, entry.artifact) == ("my_net", [3, 16, 16], 3, "models/my_net")
    assert (entry.built, entry.captured, entry.served, entry.parity.status) == (True, True, True, "passed")
    assert entry.factory == "net.py:6"
    assert migration.findings == []
    folder = migration.scratch / "models/my_net"
    assert (folder / "labels.txt").read_text().split() == ["cat", "dog", "owl"]
    facts = json.loads((folder / "1/headrace.json").read_text())
    assert facts["preprocessing"]["steps"][1]["size"] == [16, 16]
    assert (migration.scratch / "models/my_net_classify/config.pbtxt").exists()
    assert outcome.preprocessing is not None
    assert outcome.preprocessing.source == "net.py:14"


def test_a_model_without_weights_of_the_users_is_an_error_unless_random_ones_are_asked_for(migration: Migration) -> None:
    load = "from net import Net\nimport torch\nmodel = Net(pooled=False)\nmodel.load_state_dict(torch.load('gone.pth'))\n"
    site = CheckpointSite(path="evaluate.py", line=7, expression="'gone.pth'")
    migration = replace(migration, surveyed=replace(migration.surveyed, checkpoints=(site,)))
    resolved = Resolved(
        name="Net", recipe=recipe(load), fallback_recipe=recipe("from net import Net\nmodel = Net(False)\n"),
        checkpoints=(site,), input_size=(3, 4, 4),
    )  # fmt: skip
    strict = replace(migration, options=replace(migration.options, random_weights=False), findings=[])
    outcome = packaged(strict, resolved)
    assert (outcome.packaged, outcome.model.served, outcome.model.parity.status) == (False, False, "not-run")
    assert "'gone.pth' (evaluate.py:7)" in codes(strict)["PS503"]
    assert Report(repository="/r", models=[outcome.model], findings=strict.findings).exit_status & 2
    outcome = packaged(migration, resolved)
    assert outcome.packaged, migration.findings
    assert outcome.model.random_weights
    assert "gone.pth" in codes(migration)["PS503"]
    assert "no evaluation transform" in codes(migration)["PS504"]
    manifest = json.loads((migration.sandbox.models / outcome.model.name / "1" / "headrace.json").read_text())
    assert "no evaluation transform" in manifest["provenance"]["no_preprocessing"]
    assert "class names found: none" in codes(migration)["PS505"]
    report = Report(repository="/r", models=[outcome.model], findings=migration.findings)
    report_checkpoints(report, migration.surveyed, resolved, loaded=outcome.weights_loaded is True, asked=True)
    (checkpoint,) = report.checkpoints
    assert (checkpoint.path, checkpoint.loaded, checkpoint.why) == ("gone.pth", False, "file not in the repository")
    assert outcome.model.parity.status == "passed"
    assert report.exit_status == 1


def test_stored_weights_that_cannot_be_fetched_leave_a_model_with_random_ones(migration: Migration) -> None:
    fetched = (
        "from net import Net\nimport torch\nmodel = Net(False)\n"
        "model.load_state_dict(torch.hub.load_state_dict_from_url('https://nowhere.invalid/net.pth'))\n"
    )
    outcome = packaged(migration, Resolved(name="Net", recipe=recipe(fetched), input_size=(3, 4, 4)))
    assert outcome.packaged, migration.findings
    assert (outcome.model.random_weights, outcome.model.parity.status) == (True, "passed")
    assert "does not build with its own weights" in codes(migration)["PS503"]


@pytest.mark.slow
def test_several_sizes_are_a_choice_and_one_is_not(migration: Migration) -> None:
    with pytest.raises(AmbiguousError, match="--input-size 3,224,224"):
        packaged(migration, Resolved(name="Net", recipe=recipe()))
    only_one = Resolved(name="Net", recipe=recipe("from net import Net\nmodel = Net(pooled=False)\n"))
    chosen = replace(migration, options=replace(migration.options, input_size=(3, 4, 4)))
    outcome = packaged(chosen, only_one)
    assert outcome.packaged
    assert outcome.model.input == [3, 4, 4]


@pytest.mark.slow
def test_a_transform_of_another_size_is_not_served(migration: Migration) -> None:
    asked = replace(migration, options=replace(migration.options, input_size=(3, 20, 20)))
    assert packaged(asked, Resolved(name="Net", recipe=recipe(), transform_recipe=TRANSFORM)).packaged
    assert codes(migration)["PS504"].endswith("the transform gives 3x16x16, the model takes 3x20x20")


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        ("from net import Nothing\n", "Nothing"),
        ("raise SystemExit('no GPU here')\n", "ended the process"),
        ("import time\nwhile True: time.sleep(0.1)\n", "the time limit; headrace migrate --timeout SECONDS gives it more"),
        # That it is stopped is in proving/test_confined_run.
        pytest.param("model = [bytearray(100_000_000) for _ in range(1000)]\n", "emory", marks=pytest.mark.slow),
        ("import os\nos.kill(os.getpid(), 9)\n", "137"),
    ],
)
def test_code_that_does_not_build_a_model_is_a_finding(migration: Migration, source: str, reason: str) -> None:
    bounded = replace(
        migration,
        options=replace(migration.options, limits=Limits(timeout=4 if "while" in source else 100, memory_bytes=10**9)),
    )
    outcome = packaged(bounded, Resolved(name="Net", recipe=recipe(source)))
    assert not outcome.packaged
    assert reason in codes(migration)["PS501"]
    assert Report(repository="/r", models=[outcome.model], findings=migration.findings).exit_status == 2
    assert outcome.model.parity.why is not None


def test_a_model_that_cannot_be_built_says_what_else_can_be_done(migration: Migration) -> None:
    broken = Resolved(name="Net", factory_name="Net", recipe=recipe("from net import Nothing\n"))
    packaged(migration, broken)
    assert codes(migration)["PS501"].endswith("--entry FILE takes the model of another script, --model NAME another one")
    factories = tuple(
        Factory(name=name, path="net.py", line=1, kind="function", module="net") for name in ("Net", "Small", "Large")
    )
    several = replace(migration, surveyed=replace(migration.surveyed, factories=factories), findings=[])
    several.stopped["evaluate.py"] = "EOFError: EOF when reading a line; give it one"
    packaged(several, broken)
    told = "evaluate.py, run with stand-ins, stopped too: EOFError: EOF when reading a line; give it one"
    assert codes(several)["PS501"].endswith(f"; {told}; --model NAME takes another of the recognised models: Small, Large")


def test_a_model_that_cannot_be_captured_says_where(migration: Migration) -> None:
    (migration.tree / "odd.py").write_text(
        "import torch\nclass Odd(torch.nn.Module):\n    def __init__(self):\n        super().__init__()\n"
        "        self.fc = torch.nn.Linear(48, 3)\n    def forward(self, x):\n        y = self.fc(x.flatten(1))\n"
        "        if y.sum().item() > 0:\n            return y * 2\n        return y\n"
    )
    resolved = Resolved(name="Odd", recipe=recipe("from odd import Odd\nmodel = Odd()\n"), input_size=(3, 4, 4))
    outcome = packaged(migration, resolved)
    assert not outcome.packaged
    entry = outcome.model
    assert (entry.built, entry.captured, entry.parity.status) == (True, False, "not-run")
    assert [(finding.path, finding.line) for finding in migration.findings if finding.path == "odd.py"] == [("odd.py", 8)], (
        migration.findings
    )


def test_names_fit_for_a_model_repository() -> None:
    assert [model_name(name) for name in ("resnet50", "ResNet-18/v2", "../x", "é", ".hidden")] == [
        "resnet50", "ResNet-18_v2", "x", "model", "hidden",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("standins", "names"), [((), ("cat", "dog")), ((("data", "photos"),), None), ((("time", "2 batches"),), ("cat", "dog"))]
)
def test_names_of_a_data_set_that_stood_in_are_no_labels(standins: tuple[tuple[str, str], ...], names: object) -> None:
    """Whether the run read them from the user's own data decides."""
    rows = np.zeros((2, 3, 4, 4), np.float32)
    recorded = Recorded(inputs=rows, outputs=np.zeros((2, 2), np.float32), classes=("cat", "dog"))
    done = Completed(argv=(), exit=0, stdout="", stderr="", stopped=None, seconds=1.0, isolation={})
    report = RehearsalReport(ended="finished", standins=tuple(StandIn(edge=edge, what=what) for edge, what in standins))
    run = ScriptRun(done=done, sites={"main.py:3": recorded}, rehearsal=report)
    marked = package_model._marked(OriginalRun(argv=(), run=run), recorded)
    assert (marked.classes, marked.made) == (names, names is None)


def test_an_image_that_was_made_for_an_argument_is_not_the_users() -> None:
    recorded = Recorded(inputs=np.zeros((2, 3, 4, 4), np.float32), outputs=np.zeros((2, 2), np.float32))
    done = Completed(argv=(), exit=0, stdout="", stderr="", stopped=None, seconds=1.0, isolation={})
    run = ScriptRun(done=done, sites={"main.py:3": recorded})
    made = [package_model._marked(OriginalRun(argv=argv, run=run), recorded).made for argv in ((MADE_IMAGE,), ("mine.png",))]
    assert made == [True, False]


def test_a_call_that_several_scripts_share_is_the_models_own_in_its_own_script_alone(tmp_path: Path) -> None:
    """Both evaluate by one function, each a model of its own; the one that ran last was taken for the other's."""
    call = Loop(
        path="net.py", function="evaluate", line=8, kind="evaluate", model="model", inputs="x", call_line=9, call_column=0
    )
    done = Completed(argv=(), exit=0, stdout="", stderr="", stopped=None, seconds=1.0, isolation={})
    rows = np.zeros((2, 3, 4, 4), np.float32)

    def run(number: float) -> OriginalRun:
        sites = {"net.py:9": Recorded(inputs=rows, outputs=np.full((2, 2), number, np.float32))}
        return OriginalRun(argv=(), run=ScriptRun(done=done, sites=sites))

    def of(script: str, runs: dict[str, OriginalRun]) -> tuple[float, bool]:
        made = Migration(
            scratch=tmp_path, surveyed=Survey(root=tmp_path, loops=(call,)), options=Options(), stages=Stages(None)
        )
        found = Resolved(name="Net", recipe=recipe(), script=Script(path=script, roles=("evaluate",), loops=(call,)), loop=call)
        recorded, own = package_model._recorded(made, found, Originals(runs=runs))
        assert recorded is not None
        return float(recorded.outputs[0, 0]), own

    runs = {"first.py": run(1.0), "last.py": run(2.0)}
    assert of("first.py", runs) == (1.0, True)
    assert of("last.py", runs) == (2.0, True)
    silent = OriginalRun(argv=(), run=ScriptRun(done=done, sites={}))
    assert of("first.py", {**runs, "first.py": silent}) == (2.0, False)
