import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parent))
import by_hand

_CHECK = """
import importlib.util, pathlib, sys
import numpy as np, torch
from torch import nn
import by_hand

torch.manual_seed(0)
net = nn.Sequential(nn.Conv2d(3, 16, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(16, 5)).eval()
random = np.random.default_rng(0)
rows = (random.normal(size=(32, 3, 16, 16)) + 3 * random.normal(size=(32, 3, 1, 1))).astype(np.float32)
with torch.no_grad():
    wanted = net(torch.from_numpy(rows)).numpy()
forms = by_hand.by_hand(net, rows, pathlib.Path(sys.argv[1]))
if not importlib.util.find_spec("nncf"):  # which `make bench-by-hand` installs
    forms = {name: make for name, make in forms.items() if not name.startswith("openvino int8")}
assert {name.split(",")[0] for name in forms} >= {"openvino fp32", "onnxruntime fp32", "onnxruntime int8", "inductor bf16"}
for name, make in forms.items():
    run = make(8)
    given = run(rows[:8])
    if "fp32" in name:
        np.testing.assert_allclose(given, wanted[:8], atol=1e-4, err_msg=name)
    else:
        assert np.corrcoef(given.ravel(), wanted[:8].ravel())[0, 1] > 0.9, name
    assert by_hand.agreement(run, rows, wanted, 8) >= (1.0 if "fp32" in name else 0.8), name
"""


@pytest.mark.slow  # over a minute: inductor compiles for two batch sizes
def test_every_form_by_hand_computes_the_model(tmp_path):
    """In a process of its own: after inductor has compiled in a test worker, a signal ends that worker."""
    here = Path(__file__).parent
    done = subprocess.run([sys.executable, "-c", _CHECK, str(tmp_path)], check=False, cwd=here, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_ratios_are_to_the_fastest_and_to_the_fastest_that_agrees():
    times = {"ours": [0.010, 0.010, 0.012, 0.010], "quick": [0.008] * 4, "right": [0.011] * 4}
    line = by_hand.compared(times, {"quick": 0.9, "right": 1.0}, "openvino bf16", 0.999)
    assert (line["best"], line["best_agreeing"]) == ("quick", "right")
    assert (line["ratio"], line["ratio_agreeing"]) == (pytest.approx(0.8), pytest.approx(1.1))
    assert line["ours"]["low_ms"] <= line["ours"]["median_ms"] <= line["ours"]["high_ms"]
    assert line["ours"]["median_ms"] == pytest.approx(10)


def test_all_take_turns_and_the_hopeless_stop_early(monkeypatch):
    log, now = [], [0.0]
    monkeypatch.setattr(by_hand.time, "perf_counter", lambda: now[0])
    monkeypatch.setattr(by_hand.time, "monotonic", lambda: now[0])
    monkeypatch.setattr(by_hand.time, "sleep", lambda seconds: None)

    def takes(name, seconds):
        def run(rows):
            log.append(name)
            now[0] += seconds

        return run

    found = by_hand.interleaved(
        {"ours": takes("ours", 0.5), "fast": takes("fast", 0.03), "slow": takes("slow", 0.2)}, np.zeros((1, 3)), 0.0
    )
    assert {name: len(seconds) for name, seconds in found.items()} == {"ours": 7, "fast": 7, "slow": 3}
    assert found["fast"] == pytest.approx([0.03] * 7)
    assert log[6:9] != log[12:15]  # the order turns


def test_what_is_done_is_not_done_again_and_figures_of_machines_do_not_mix(monkeypatch, tmp_path, capsys):
    line = by_hand.compared({"ours": [0.01, 0.01], "other": [0.02, 0.02]}, {"other": 1.0}, "openvino fp32", 1.0)
    model = {
        "date": "today", "batches": {"1": line}, "left_out": {"inductor bf16, batch 1": "none"}, "load": [0.1, 0.2],
        "plan": {"choices": {"1": "openvino fp32"}, "cut": "too short"}, "tuning": {"wall_seconds": 30.0, "cpu_seconds": 50.0},
    }  # fmt: skip
    asked = []
    monkeypatch.setattr(
        by_hand, "in_process", lambda name, seconds: asked.append(name) or (model if name != "swin_t" else None)
    )
    out = tmp_path / "found.json"

    def run(*more):
        monkeypatch.setattr(sys, "argv", ["by_hand", "--out", str(out), "--models", "resnet50,swin_t", *more])
        by_hand.main()
        return json.loads(out.read_text())["machines"][-1]

    assert set(run()["runs"]["0"]) == {"resnet50"}
    assert set(run("--busy", "1")["runs"]) == {"0", "1"}
    run()
    assert asked == ["resnet50", "swin_t", "resnet50", "swin_t", "swin_t"]
    text = out.with_suffix(".md").read_text()
    assert (
        "| resnet50 | 1 | 10 (10-10) | openvino fp32 | other 20 (20-20) | 2.00 | other | 2.00 | 0.1-0.2 | 30 s, 50 CPU-s |"
        in text
    )
    assert "- resnet50: too short" in text
    found = json.loads(out.read_text())
    found["machines"][0]["fingerprint"]["cpu"] = "another"
    out.write_text(json.dumps(found))
    assert set(run()["runs"]) == {"0"}
    assert len(json.loads(out.read_text())["machines"]) == 2
    assert "its process failed" in capsys.readouterr().out


def test_what_attends_is_told_by_its_layers():
    from torch import nn

    assert by_hand.is_transformer(nn.Sequential(nn.TransformerEncoderLayer(8, 2)))
    assert not by_hand.is_transformer(nn.Sequential(nn.Linear(3, 3), nn.Conv2d(3, 3, 1)))


def test_each_machine_keeps_its_own_figures():
    machines = []
    amd = {"cpu": "AMD", "flags": ["avx2"], "cores": 2, "versions": {"torch": "2.13"}}
    by_hand.of_machine(machines, amd)["runs"]["0"] = {"resnet50": "figures"}
    by_hand.of_machine(machines, amd | {"cpu": "Intel"})["runs"]["0"] = {"resnet50": "others"}
    assert by_hand.of_machine(machines, amd)["runs"] == {"0": {"resnet50": "figures"}}
    assert by_hand.of_machine(machines, amd | {"versions": {"torch": "2.14"}})["runs"] == {}
    assert [machine["fingerprint"]["cpu"] for machine in machines] == ["AMD", "Intel"]
