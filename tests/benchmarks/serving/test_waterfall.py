"""The waterfall from end to end, and its values, table and page."""

import io
import json
import re
import sys
from dataclasses import replace
from pathlib import Path

import psutil
import pytest
from rich.console import Console

from headrace.errors import BenchError
from headrace.serving.bench.config import BenchConfig
from headrace.serving.bench.images import ImageSet
from headrace.serving.bench.reporting.result import BenchResult, Measurement, Spread
from tests.benchmarks.serving.load_results import load
from tests.benchmarks.serving.waterfall import divided, other_answers, waterfall
from tests.benchmarks.serving.waterfall_report import waterfall_plot, waterfall_report
from tests.benchmarks.serving.waterfall_result import Waterfall
from tests.benchmarks.serving.waterfall_steps import Step, make_steps, write_forms


def processes():
    return {child.pid for child in psutil.Process().children(recursive=True)}


@pytest.mark.slow
def test_every_step_is_a_real_server_and_answers_as_the_first(colors, tmp_path):
    console = Console(file=io.StringIO(), width=160)
    config = BenchConfig(
        models=colors.models,
        out=tmp_path / "out",
        baseline=colors.recipe,
        trust_repository=True,
        concurrency=(3,),
        rounds=2,
        restart=False,
        seconds=0.3,
        warm_up_seconds=0.1,
    )
    before = processes()
    found = waterfall(config, frontends=1, console=console)
    assert processes() <= before
    assert found.bench.ok, found.bench.warnings
    results = {one.step.name: one for one in found.results}
    linux = ["processes"] if sys.platform == "linux" else []
    measured = ["baseline", "server", "batching", "graph", "layout", "compiled", "fast", "scaled", "pixels", *linux]
    assert [name for name, one in results.items() if one.measured] == measured
    assert "has them already" in results["persistent"].step.why
    assert "did not try" in results["int8"].step.why
    # 24 images, of which 4 are kept for the ranges of int8.
    assert all(one.agreed == one.compared == 20 for one in results.values() if one.measured)
    assert set(found.bench.accuracy.values()) == {1.0}
    assert results["compiled"].to_start.median > 0
    assert results["baseline"].to_start is None
    assert results["batching"].rss_bytes >= results["batching"].pss_bytes > 1 << 20
    data = json.loads((tmp_path / "out" / "waterfall.json").read_text())
    assert [step["name"] for step in data["waterfall"]] == list(results)
    assert data["waterfall"][0]["requests_per_second"]["median"] > 0
    page = (tmp_path / "out" / "waterfall.md").read_text()
    assert "](waterfall.png)" in page
    assert not re.findall(r"<script|<link|<img|src=|url\((?!#)", page)
    assert (tmp_path / "out" / "waterfall.png").read_bytes().startswith(b"\x89PNG")
    text = console.file.getvalue()
    assert "Not there: int8" in text
    assert "data/test of the repository" in text


RATES = {"baseline": (10.0, 20.0), "batching": (20.0, 60.0), "int8": (60.0, 90.0)}


def values():
    measurements = [
        Measurement(
            service=name,
            concurrency=16,
            round=number,
            load=load(rate, answers=(0, 1, 2)),
            server_cpu_ms=1.0,
            other_cores=0.0,
            memory_bytes=200 << 20,
            pss_bytes=(100 + number) << 20 if name != "baseline" else None,
        )
        for name, rates in RATES.items()
        for number, rate in enumerate(rates)
    ]
    bench = BenchResult(
        model="net<b>",
        services=tuple(RATES),
        concurrency=(16,),
        rounds=2,
        measurements=tuple(measurements),
        answers={"baseline": (0, 1, 2), "batching": (0, 1, 2), "int8": (0, 1, None)},
        images={"source": "3 images given", "synthetic": False, "files": []},
        answered="top-1 answer",
        accuracy={},
        errors={name: {} for name in RATES},
        plan={"winners": {}, "device": "cpu"},
        environment={"fingerprint": {"cpu": "a <cpu>"}},
        servers={},
        settings={},
        warnings=("a note",),
    )
    steps = (
        Step(name="baseline", title="a PyTorch service", runs="eager"),
        Step(name="layout", title="layout", why="no convolution <here>"),
        Step(name="batching", title="dynamic batching", runs="eager"),
        Step(name="int8", title="int8 $", runs="openvino int8"),
    )
    return Waterfall(bench=bench, steps=steps)


def test_ratios_are_to_the_last_measured_step_and_to_the_start():
    first, absent, batching, int8 = values().results
    assert (first.to_previous, first.to_start) == (None, None)
    assert not absent.measured
    assert batching.to_previous == batching.to_start == Spread(median=2.5, low=2.0, high=3.0)
    assert int8.to_previous == Spread(median=2.25, low=1.5, high=3.0)
    assert int8.to_start == Spread(median=5.25, low=4.5, high=6.0)
    assert (int8.agreed, int8.compared) == (2, 2)
    assert (batching.pss_bytes, first.pss_bytes) == (101 << 20, None)


def test_a_step_with_other_answers_is_told_of():
    found = values()
    assert other_answers(found.steps, found.bench) == []
    wrong = replace(found.bench, answers={**found.bench.answers, "int8": (0, 2, 2)})
    (said,) = other_answers(found.steps, wrong)
    assert said.startswith("int8 $ (openvino int8) has the same top-1 class for only 2 of 3 images: something is wrong")


def test_the_table_and_the_page_name_every_step_and_reason():
    console = Console(file=io.StringIO(), width=140)
    console.print(waterfall_report(values()).terminal())
    text = console.file.getvalue()
    for part in ("dynamic batching", "5.25x", "(4.50-6.00)", "Not there: layout: no convolution <here>.", "101 MB", "a note"):
        assert part in text
    page = waterfall_report(values()).markdown("waterfall.png")
    for part in ("no convolution &lt;here&gt;", "net&lt;b&gt;", '"cpu": "a <cpu>"', "](waterfall.png)", "5.25x (4.50-6.00)"):
        assert part in page
    assert "<b>" not in page
    assert waterfall_plot(values()).startswith(b"\x89PNG")
    json.dumps(values().to_json(), allow_nan=False)


def forms(tmp_path, **absent):
    names = ("unbatched", "eager", "graph", "layout", "compiled", "precision", "int8", "pixels")
    return [
        {"form": name, "models": None if name in absent else str(tmp_path / name), "runs": name, "why": absent.get(name, "")}
        for name in names
    ]


def test_a_step_keeps_all_changes_before_it(tmp_path):
    steps = {step.name: step for step in make_steps(forms(tmp_path, int8="refused", pixels="no colors"), "/x", frontends=3)}
    commands = {name: " ".join(step.service.command) for name, step in steps.items() if step.service}
    assert "--instances 1" in commands["server"]
    assert "--instances" not in commands["batching"]
    assert all(
        "--decoding exact" in commands[name] for name in ("server", "batching", "graph", "layout", "compiled", "precision")
    )
    assert (steps["int8"].why, steps["pixels"].why) == ("refused", "no colors")
    # Without int8, what comes after it goes on from the step before.
    assert str(tmp_path / "precision") in commands["fast"]
    assert "--decoding fast" in commands["fast"]
    assert "--decoding scaled" in commands["scaled"]
    if "processes" in commands:
        assert "--frontends 3" in commands["processes"]
        assert "--decoding scaled" in commands["processes"]


def test_without_any_form_there_is_nothing_to_measure(tmp_path):
    with pytest.raises(BenchError, match="cannot be captured"):
        make_steps(forms(tmp_path, **dict.fromkeys([form["form"] for form in forms(tmp_path)], "cannot be captured")), "/x")


def test_images_that_set_ranges_are_not_sent():
    files = tuple(Path(f"{number}.png") for number in range(320))
    images = ImageSet(files=files, classes=tuple(str(number % 7) for number in range(320)), source="all")
    calibrating, sent = divided(images)
    assert len(calibrating) == 64
    assert set(calibrating) | set(sent.files) == set(files)
    assert not set(calibrating) & set(sent.files)
    assert sent.classes == tuple(str(int(path.stem) % 7) for path in sent.files)
    few = replace(images, files=files[:3], classes=("a", "b", "c"))
    assert divided(few) == ([], few)


def test_what_it_needs_is_said(colors, tmp_path):
    config = BenchConfig(models=colors.models, out=tmp_path, concurrency=(4,))
    with pytest.raises(BenchError, match="--baseline REPO"):
        waterfall(config)
    with pytest.raises(BenchError, match="one concurrency"):
        waterfall(replace(config, baseline=colors.recipe, concurrency=(1, 4)))


def test_a_model_that_cannot_be_built_is_said_with_its_error(colors, tmp_path):
    recipe = {**colors.recipe, "source": "raise RuntimeError('weights are missing')"}
    with pytest.raises(BenchError, match="weights are missing"):
        write_forms(recipe, colors.models / "colors", tmp_path / "out", [], logs=tmp_path)
