"""The zoo's runner on modules of our own, through its command line: no torchvision, no timm."""

import json
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

pytestmark = pytest.mark.slow

ZOO = Path(__file__).parent


def command(folder, *families, **options):
    named = [f"--{name}={value}" for name, value in options.items()]
    places = ["--catalog", str(ZOO / "own_families.py"), "--build", str(folder / "build"), "--out", str(folder / "docs")]
    return [sys.executable, str(ZOO / "run.py"), *families, *places, *named]


def zoo(folder, *families, **options):
    done = subprocess.run(command(folder, *families, **options), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def results(folder):
    """Every line, in the order in which they were written; also those that a later line replaces."""
    return [json.loads(line) for line in (folder / "build" / "results.jsonl").read_text().splitlines()]


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """A run of what ends by itself."""
    folder = tmp_path_factory.mktemp("zoo")
    zoo(folder, *(f"own/{name}" for name in ("convolutions", "crash", "fixed_batch", "large", "untranslatable")))
    return folder


def outcome(folder, name):
    (item,) = [item for item in results(folder) if item["family"] == f"own/{name}"]
    return item


def test_a_family_passes_where_a_backend_computes_what_the_module_does(finished):
    item = outcome(finished, "convolutions")
    assert item["status"] == "passed"
    assert item["passes"] == {**item["passes"], "fold_batch_norm": "applied"}
    assert {name: outcome["status"] for name, outcome in item["backends"].items()} == {
        "onnxruntime": "passed",
        "openvino": "passed",
    }
    assert all(outcome["max_abs"] <= outcome["tolerance"] for outcome in item["backends"].values())


def test_a_capture_that_fails_names_the_line_that_did_it(finished):
    item = outcome(finished, "fixed_batch")
    assert (item["status"], item["stage"]) == ("failed", "capture")
    (place,) = {(Path(obstacle["path"]).name, obstacle["code"]) for obstacle in item["obstacles"]}
    assert place == ("own_families.py", "PG121")


def test_an_operator_without_translation_is_the_exporters(finished):
    item = outcome(finished, "untranslatable")
    assert (item["status"], item["stage"]) == ("failed", "backends")
    page = (finished / "docs" / "zoo.md").read_text()
    assert "| own/untranslatable | untranslatable | ONNX exporter (captured; eager only) |" in page


def test_a_crash_is_its_familys_outcome(finished):
    item = outcome(finished, "crash")
    assert (item["status"], item["stage"]) == ("failed", "crash")
    assert "SIGSEGV" in item["why"]


def test_the_report_counts_what_ran_and_says_what_remains(finished):
    page = (finished / "docs" / "zoo.md").read_text()
    assert "**1 of 4 families pass (25.0%); 1 not run.** The run is not finished: 2 remain." in page
    assert "| own/large | the smallest variant has 200 M parameters |" in page
    assert str(ZOO.parents[1]) not in page
    assert json.loads((finished / "docs" / "zoo.json").read_text())["score"].startswith("1 of 4")


@pytest.mark.parametrize(
    ("family", "options", "stage"), [("hang", {"seconds": 4}, "time"), ("memory", {"gigabytes": 1.0}, "memory")]
)
def test_limits_end_a_family_and_not_the_run(tmp_path, family, options, stage):
    zoo(tmp_path, f"own/{family}", **options)
    assert (outcome(tmp_path, family)["status"], outcome(tmp_path, family)["stage"]) == ("failed", stage)


def test_a_killed_run_goes_on_where_it_was(tmp_path):
    process = subprocess.Popen(command(tmp_path, "own/large", "own/hang", jobs=1), stdout=subprocess.DEVNULL)
    path = tmp_path / "build" / "results.jsonl"
    try:
        while not path.exists() or len(psutil.Process(process.pid).children()) != 1:
            assert process.poll() is None
            time.sleep(0.05)
        children = psutil.Process(process.pid).children()
        process.send_signal(signal.SIGKILL)
        process.wait()
        gone, alive = psutil.wait_procs(children, timeout=30)
    finally:
        process.kill()
    assert (len(gone), alive) == (1, [])  # the family's process does not outlive the run
    before = path.read_text()
    path.write_text(before + '{"family": "own/cra')  # what a killed run may leave
    zoo(tmp_path, "own/large", "own/crash")
    first, torn, second = path.read_text().splitlines()
    assert (first + "\n", torn) == (before, '{"family": "own/cra')
    assert [json.loads(line)["family"] for line in (first, second)] == ["own/large", "own/crash"]


def test_an_interrupt_ends_the_run_at_once_and_leaves_nothing_behind(tmp_path):
    process = subprocess.Popen(
        command(tmp_path, "own/hang", "own/memory", jobs=1), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        while len(psutil.Process(process.pid).children()) != 1 or not (tmp_path / "build").exists():
            assert process.poll() is None
            time.sleep(0.05)
        children = psutil.Process(process.pid).children()
        process.send_signal(signal.SIGTERM)
        assert process.wait() == 143
    finally:
        process.kill()
    assert not any(child.is_running() for child in children)
    assert not (tmp_path / "build" / "results.jsonl").exists()


def test_only_failures_are_run_again_and_only_when_asked(finished, tmp_path):
    shutil.copytree(finished, tmp_path, dirs_exist_ok=True)
    before = len(results(tmp_path))
    zoo(tmp_path, "own/large", "own/crash")
    assert len(results(tmp_path)) == before
    zoo(tmp_path, "own/large", "own/crash", "--retry")
    assert [item["family"] for item in results(tmp_path)[before:]] == ["own/crash"]


def test_an_unknown_family_is_refused_by_name(tmp_path):
    done = subprocess.run(command(tmp_path, "own/nothing"), capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "own/nothing" in done.stderr
    assert "own/convolutions" in done.stderr
