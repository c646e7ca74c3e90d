"""The report's JSON form is the documented one, its exit status adds up, and its terminal form holds no user markup."""

from __future__ import annotations

import io
import json

from rich.console import Console

from headrace.migrate.proving.worker_protocol import Timing
from headrace.migrate.reading.finding import Finding
from headrace.migrate.reporting.render import render
from headrace.migrate.reporting.report import CheckpointReport, ModelReport, Parity, PreprocessingReport, Report, ScriptReport
from headrace.migrate.resolving.resolved import ChainStep
from headrace.migrate.stages.package_model import faster, speed


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
            ScriptReport(path="main.py", roles=["evaluate"], rewritten=True, rules=["PS201"], executed="passed"),
            ScriptReport(path="train.py", roles=["train"], why="it trains"),
        ],
        preprocessing=[PreprocessingReport(source="main.py:3", for_models=["resnet18"], steps=[{"op": "decode"}])],
        checkpoints=[CheckpointReport(source="main.py:8", path="c.pth", key="net", strip="module.", why="no file")],
        findings=[Finding("b.py", 2, 0, "PS104", "[bold]not markup[/]", "note"), Finding("a.py", 9, 4, "PS505", "n", "note")],
        chain=(ChainStep("factory", "m.py", 7, "resnet18(num_classes=[10])"),),
        out="build/r",
    )  # fmt: skip


def test_the_json_form_is_the_documented_one() -> None:
    data = json.loads(json.dumps(full().to_json()))
    assert list(data) == [
        "schema", "repository", "exit_status", "models", "scripts", "preprocessing", "checkpoints", "findings", "scores",
    ]  # fmt: skip
    assert (data["schema"], data["exit_status"]) == (1, 0)
    assert data["models"][0] == {
        "name": "resnet18", "factory": "m.py:7", "input": [3, 32, 32], "classes": 10, "recognised": True, "built": True,
        "random_weights": False, "captured": True, "artifact": "models/resnet18", "served": True, "speed": [],
        "parity": {"status": "passed", "max_abs": 1e-6, "top1_agreement": 1.0, "batches": [1, 2, 5], "why": None},
    }  # fmt: skip
    assert data["scripts"][0] == {
        "path": "main.py", "roles": ["evaluate"], "rewritten": True, "rules": ["PS201"], "executed": "passed", "why": None,
        "loss_trace": None,
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


def test_the_diff_shows_only_when_nothing_was_written() -> None:
    stream = io.StringIO()
    render(Report(repository="/r", diff="--- a/x.py\n+++ b/x.py\n", would_change=True), Console(file=stream))
    assert "+++ b/x.py" in stream.getvalue()
    assert "Nothing was written" in stream.getvalue()


def test_faster_compares_with_eager_at_the_same_batch() -> None:
    def measured(backend: str, bucket: int, status: str, ms: float | None, spread: float = 0.0) -> Timing:
        off = None if ms is None else spread
        return Timing(backend=backend, precision="fp32", bucket=bucket, status=status, median_ms=ms, spread_ms=off)

    assert faster([]) == (0, 0)
    assert faster([measured("eager", 1, "lost", 9.0), measured("openvino", 1, "won", 4.0)]) == (1, 1)
    assert faster([measured("eager", 1, "won", 3.0), measured("openvino", 1, "lost", 4.0)]) == (0, 1)
    assert faster([measured("eager", 1, "skipped", None), measured("openvino", 1, "won", 4.0)]) == (0, 0)
    scattered = [measured("eager", 2, "lost", 9.0, 6.0), measured("openvino", 2, "won", 8.0, 2.0)]
    assert faster(scattered) == (0, 1)
    (one,) = speed(scattered)
    assert (one.batch, one.eager_ms, one.graph_ms, one.chosen) == (2, 9.0, 8.0, "openvino fp32")
    assert (one.ratio, one.ratio_low, one.ratio_high) == (1.125, round(6 / 9, 3), round(12 / 7, 3))
    stream = io.StringIO()
    built = ModelReport(name="m", built=True, speed=[one])
    render(Report(repository="/r", models=[built]), Console(file=stream, width=200))
    assert "1.12x (0.67 to 1.71) at 2" in stream.getvalue()
