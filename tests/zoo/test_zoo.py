import json
import sys
from pathlib import Path

import pytest
import torch
from torch import nn

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))

import check  # noqa: E402
import run  # noqa: E402

WORKER = """
import json, sys, pathlib
sys.path.insert(0, sys.argv[3])
item = json.loads(pathlib.Path(sys.argv[1]).read_text())
if item["model"] == "crashes":
    raise SystemExit("no such thing")
if item["model"] == "hangs":
    import time; time.sleep(600)
pathlib.Path(sys.argv[2]).write_text(json.dumps({"stage": "passed", "why": "", "backends": {"onnxruntime": "passed"}}))
"""


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.norm, self.head = nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.Linear(8, 4)

    def forward(self, x):
        if x.shape[-1] < 32:
            raise ValueError("images are too small")
        return self.head(self.norm(self.conv(x)).relu().mean((2, 3)))


class Choosy(Net):
    def forward(self, x):
        return super().forward(x) if x.sum() > 0 else super().forward(-x)


def test_a_model_that_passes_is_checked_by_both_backends_at_the_smallest_side_it_takes():
    found = check.check(Net(), [16, 40, 64])
    assert (found["stage"], found["size"]) == ("passed", 40)
    assert set(found["backends"]) == {"onnxruntime", "openvino"}
    assert "passed" in found["backends"].values()
    assert found["passes"]["fold_batch_norm"] == "applied"


def test_what_fails_says_at_which_stage_and_why():
    assert check.check(Net(), [16]) == {"stage": "run", "why": "ValueError: images are too small"}
    found = check.check(Choosy(), [40])
    assert found["stage"] == "capture"
    assert "PG120" in found["why"]


@pytest.fixture
def worker(tmp_path):
    script = tmp_path / "worker.py"
    script.write_text(WORKER)
    return lambda request, response: [sys.executable, str(script), str(request), str(response), str(HERE)]


def item(name, parameters=10):
    return {"source": "local", "family": name, "model": name, "parameters": parameters}


def test_each_family_has_a_process_and_a_time_and_a_run_goes_on_where_it_was(tmp_path, worker):
    results = tmp_path / "results.jsonl"
    wanted = [item("good"), item("crashes"), item("hangs"), item("huge", 10**9)]
    found = run.run(wanted, results, command=worker, seconds=3, most_parameters=10**6)
    assert [one["stage"] for one in found] == ["passed", "crash", "time", "not run"]
    assert "no such thing" in found[1]["why"]
    with results.open("a") as file:
        file.write('{"cut off')  # as a run that is killed leaves it

    def never(request, response):
        raise AssertionError("it was checked already")

    again = run.run(wanted, results, command=never, seconds=3, most_parameters=10**6)
    assert again == found


def test_the_report_counts_what_ran_and_explains_each_failure(tmp_path, worker):
    found = run.run([item("good"), item("crashes")], tmp_path / "results.jsonl", command=worker, seconds=20)
    text = run.report([*found, {**item("huge"), "stage": "not run", "why": "too large"}], {"torch": torch.__version__})
    assert "**1 of 2 families pass (50%)**; 1 were not run." in text
    assert "no such thing" in text
    assert str(Path.home()) + "/" not in text
    assert json.loads((tmp_path / "results.jsonl").read_text().splitlines()[0])["stage"] == "passed"
