"""The report's JSON form is the documented one, its exit status adds up, and its terminal form holds no user markup."""

from __future__ import annotations

import io
import json
import shlex

import pytest
from rich.console import Console

from headrace.migrate.proving.worker_protocol import Duel
from headrace.migrate.reading.finding import Finding
from headrace.migrate.reporting.render import render
from headrace.migrate.reporting.report import (
    CheckpointReport,
    ModelReport,
    Parity,
    PreprocessingReport,
    Report,
    ScriptReport,
    Speedup,
)
from headrace.migrate.resolving.resolved import ChainStep
from headrace.specs import Preprocessing, Resize


def full() -> Report:
    parity = Parity(status="passed", max_abs=1e-6, top1_agreement=1.0, batches=[1, 2, 5])
    return Report(
        repository="/r",
        models=[
            ModelReport(
                name="resnet18", factory="m.py:7", input=[3, 32, 32], classes=10, built=True, captured=True, parity=parity,
                artifact="models/resnet18", served=True,
            ),
            ModelReport(name="vgg", factory="m.py:9", parity=Parity(why="not asked for")),
        ],
        scripts=[
            ScriptReport(path="main.py", roles=["evaluate"], rewritten=True, rules=["PS201"], executed="passed",
                         executed_on="stand-in data", standins=[STANDIN]),
            ScriptReport(path="train.py", roles=["train"], why="it trains"),
        ],
        preprocessing=[PreprocessingReport(source="main.py:3", for_models=["resnet18"], steps=[{"op": "decode"}])],
        checkpoints=[CheckpointReport(source="main.py:8", path="c.pth", key="net", strip="module.", why="no file")],
        findings=[Finding("b.py", 2, 0, "PS104", "[bold]not markup[/]", "note"), Finding("a.py", 9, 4, "PS505", "n", "note")],
        chain=(ChainStep("factory", "m.py", 7, "resnet18(num_classes=[10])"),),
        out="build/r",
    )  # fmt: skip


STANDIN = {"edge": "data", "what": "x.png", "where": "main.py:3"}


def test_a_script_is_told_by_whose_data_it_was_executed_on() -> None:
    stood_in, not_run = full().scripts
    assert (stood_in.told, not_run.told) == ("passed, executed on stand-in data", "not executed")
    stood_in.executed_on = "your data"
    assert stood_in.told == "passed, executed on your data"
    stood_in.only_prints = True
    assert stood_in.told == "passed by what it prints alone, executed on your data"


def test_a_script_that_an_error_stopped_before_and_after_counts_for_none_that_was_executed() -> None:
    report = full()
    assert report.scores()["executed"] == [1, 1]
    report.scripts[0].up_to = "main.py:9"
    assert report.scripts[0].told == "passed, executed on stand-in data up to main.py:9"
    assert report.scores()["executed"] == [0, 1]


def test_the_json_form_is_the_documented_one() -> None:
    data = json.loads(json.dumps(full().to_json()))
    assert list(data) == [
        "schema", "repository", "exit_status", "models", "scripts", "preprocessing", "checkpoints", "findings", "scores",
    ]  # fmt: skip
    assert (data["schema"], data["exit_status"]) == (1, 0)
    assert data["models"][0] == {
        "name": "resnet18", "factory": "m.py:7", "input": [3, 32, 32], "classes": 10, "recognised": True, "built": True,
        "random_weights": False, "captured": True, "artifact": "models/resnet18", "served": True, "speed": [],
            "speed_unknown": None, "outputs": [],
        "parity": {"status": "passed", "max_abs": 1e-6, "top1_agreement": 1.0, "decision_agreement": None, "cosine": None,
                   "batches": [1, 2, 5], "why": None},
    }  # fmt: skip
    assert data["scripts"][0] == {
        "path": "main.py", "roles": ["evaluate"], "rewritten": True, "rules": ["PS201"], "executed": "passed", "why": None,
        "loss_trace": None, "up_to": None, "only_prints": False, "executed_on": "stand-in data", "standins": [STANDIN],
    }  # fmt: skip
    assert data["preprocessing"] == [{"source": "main.py:3", "for": ["resnet18"], "steps": [{"op": "decode"}]}]
    assert data["checkpoints"] == [
        {
            "source": "main.py:8", "path": "c.pth", "key": "net", "strip": "module.", "loaded": False,
            "why": "no file",
        }
    ]  # fmt: skip
    assert [finding["path"] for finding in data["findings"]] == ["a.py", "b.py"]
    assert set(data["findings"][0]) == {"code", "severity", "path", "line", "column", "message", "fix"}
    assert data["scores"] == {
        "recognised": [2, 2], "rewritten": [1, 2], "executed": [1, 1], "parity_passed": [1, 1], "faster": [0, 0],
    }  # fmt: skip


def test_exit_status_bits_add_up() -> None:
    report = Report(repository="/r")
    assert report.exit_status == 0
    report.would_change = True
    assert report.exit_status == 1
    report.out = "somewhere"
    assert report.exit_status == 0
    report.findings.append(Finding("a.py", 1, 0, "PS101", "mended", "error", "applied"))
    assert report.exit_status == 0
    report.findings.append(Finding("a.py", 1, 0, "PS504", "w", "warning"))
    assert report.exit_status == 1
    report.findings.append(Finding("a.py", 1, 0, "PS001", "e", "error"))
    assert report.exit_status == 3
    report.parity_failed = True
    assert report.exit_status == 7
    assert Report(repository="/r", models=[ModelReport(name="m", parity=Parity(status="failed"))]).exit_status == 4


def test_terminal_form_is_complete_and_takes_no_markup_from_the_user() -> None:
    stream = io.StringIO()
    report = full()
    render(report, Console(file=stream, width=160))
    text = stream.getvalue()
    for expected in (
        "resnet18(num_classes=[10])",
        "[bold]not markup[/]",
        "3x32x32",
        "100.00%",
        "it trains",
        "executed 1/1",
        "--model",
    ):
        assert expected in text
    assert "headrace serve build/r/models" in text


def test_commands_to_go_on_with_can_be_copied() -> None:
    """At any width, with folders of any name."""
    report = full()
    report.out = "a folder/it's new"
    stream = io.StringIO()
    render(report, Console(file=stream, width=40))
    (line,) = (line for line in stream.getvalue().splitlines() if line.startswith("Serve it:"))
    assert shlex.split(line.removeprefix("Serve it:")) == ["headrace", "serve", "a folder/it's new/models"]
    report.out, report.written = None, ["a.py"]
    render(report, Console(file=stream, width=40))
    (line,) = (line for line in stream.getvalue().splitlines() if line.startswith("Changed in place"))
    command = line.partition(".  ")[2].removesuffix("takes it back")
    assert shlex.split(command) == ["headrace", "undo", report.repository]


def test_a_step_that_changes_nothing_is_not_shown() -> None:
    for mean, shown in ((0.0, "decode > layout"), (0.5, "decode > normalize > layout")):
        steps = [{"op": "decode"}, {"op": "normalize", "mean": [mean] * 3, "std": [1.0] * 3}, {"op": "layout"}]
        report = Report(repository="/r", preprocessing=[PreprocessingReport(source="m.py:3", for_models=["m"], steps=steps)])
        stream = io.StringIO()
        render(report, Console(file=stream, width=160))
        assert shown in stream.getvalue()


@pytest.mark.parametrize(
    ("resize", "shown"),
    [
        (Resize(size=(32, 48)), "resize 32x48 bilinear"),
        (Resize(size=256, interpolation="bicubic"), "resize short side 256 bicubic floor"),
        (Resize(size=64, side="long", long_side="ratio"), "resize long side 64 bilinear ratio"),
    ],
)
def test_a_resize_is_shown_with_the_side_that_is_meant(resize: Resize, shown: str) -> None:
    steps = list(Preprocessing(geometry=(resize,)).to_json()["steps"])
    report = Report(repository="/r", preprocessing=[PreprocessingReport(source="m.py:3", for_models=["m"], steps=steps)])
    stream = io.StringIO()
    render(report, Console(file=stream, width=160))
    assert f" > {shown} > " in stream.getvalue()


def test_what_is_said_of_many_places_is_said_once() -> None:
    found = [Finding(f"{name}.py", 3, 0, "PS113", "torch.load reads only tensors", "note") for name in "abcdefg"]
    found.append(Finding("x.py", 1, 0, "PS113", "another", "note"))
    stream = io.StringIO()
    render(Report(repository="/r", findings=found), Console(file=stream, width=200))
    text = stream.getvalue()
    assert "Findings: 8 notes" in text
    assert text.count("reads only") == 1
    assert "torch.load reads only tensors; also at b.py:3:0, c.py:3:0, d.py:3:0 and 3 more" in " ".join(text.split())
    assert text.count("another") == 1


def test_the_diff_shows_only_when_nothing_was_written() -> None:
    stream = io.StringIO()
    render(Report(repository="/r", diff="--- a/x.py\n+++ b/x.py\n", would_change=True), Console(file=stream))
    assert "+++ b/x.py" in stream.getvalue()
    assert "Nothing was written" in stream.getvalue()


def duel(eager: list[float], graph: list[float], others: float = 0.0) -> Duel:
    return Duel(batch=2, chosen="openvino fp32", eager=tuple(eager), graph=tuple(graph), others=others)


@pytest.mark.parametrize(
    ("fought", "why"),
    [
        (duel([9.0] * 5, [4.0] * 5, others=0.4), "other programs took 40% of the machine"),
        (duel([9.0] * 2, [4.0] * 2), "measured 2 times only"),
        (duel([9.0, 1.0, 9.0, 1.0, 9.0], [1.0] * 5), "from turn to turn it was 1.00 to 9.00 times as fast"),
    ],
)
def test_a_speed_that_nobody_should_believe_is_not_told(fought: Duel, why: str) -> None:
    told = Speedup.of(fought)
    assert isinstance(told, str)
    assert why in told
    stream = io.StringIO()
    render(Report(repository="/r", models=[ModelReport(name="m", speed_unknown=told)]), Console(file=stream, width=200))
    assert why in stream.getvalue()


def test_faster_is_what_most_turns_were() -> None:
    one = Speedup.of(duel([0.009, 0.009, 0.009, 0.008, 0.0095], [0.008] * 5))
    assert isinstance(one, Speedup)
    assert (one.batch, one.eager_ms, one.graph_ms, one.chosen) == (2, 9.0, 8.0, "openvino fp32")
    assert (one.ratio, one.ratio_low, one.ratio_high) == (1.125, 1.125, 1.125)
    even = Speedup.of(duel([0.008] * 4, [0.009, 0.007, 0.009, 0.007]))
    assert isinstance(even, Speedup)
    models = [ModelReport(name="a", speed=[one]), ModelReport(name="b", speed=[even]), ModelReport(name="c")]
    assert Report(repository="/r", models=models).scores()["faster"] == [1, 2]
    stream = io.StringIO()
    built = ModelReport(name="m", built=True, speed=[one])
    render(Report(repository="/r", models=[built]), Console(file=stream, width=200))
    assert "1.12x (1.12 to 1.12) at 2" in stream.getvalue()
