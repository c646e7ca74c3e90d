"""`headrace plan-parallel` as a user meets it."""

import json

from headrace.runtime.parallel.planner.saved import read_plan

NETS = """
from torch import nn
def face(classes=1_000_000):
    first = nn.Conv2d(3, 64, 3, stride=2)
    return nn.Sequential(first, nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, classes))
class Deciding(nn.Module):
    def forward(self, x):
        return x + 1 if x.sum() > 0 else x
class Counting(nn.Module):  # its code wants real numbers
    def __init__(self):
        super().__init__()
        import torch
        self.layer = nn.Linear(8, int(torch.ones(4).sum()))
    def forward(self, x):
        return self.layer(x)
"""
RATES = {
    "linear": 5e13, "conv": 4e13, "matmul": 5e13, "memory": 1e12, "operator": 1e-5,
    "links": [{"latency": 1e-5, "bandwidth": 1e9}],
}  # fmt: skip


def test_plans_and_mistakes(forked_headrace, tmp_path):
    (tmp_path / "nets.py").write_text(NETS)
    (tmp_path / "rates.json").write_text(json.dumps(RATES))
    given = ["--mesh", "2x4", "--memory", "80GB", "--rates", "rates.json"]

    def planned(*arguments):
        return forked_headrace("plan-parallel", *arguments, cwd=tmp_path)

    image = ["--input-size", "3,112,112"]
    done = planned("nets.py:face", *given, *image)
    assert done.returncode == 0, done.stderr
    assert "4.weight split over data and model" in done.stdout
    assert "but 4.weight: (split(0), split(0))" in done.stdout
    assert "the others" in done.stdout
    assert "slower" in done.stdout

    done = planned(
        "nets.py:face",
        *given,
        *image,
        "--keep",
        "4=broadcast",
        "--batch",
        "64",
        "--save-rates",
        "again.json",
        "--save",
        "plan.json",
        "--format",
        "json",
    )
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout)
    assert answer["rows"] == 64
    assert answer["plan"]["layouts"] == {}
    assert json.loads((tmp_path / "plan.json").read_text()) == answer
    applied, program = read_plan(tmp_path / "plan.json")
    assert (applied.title, program.mesh, program.input) == (answer["plan"]["title"], (2, 4), (64, 3, 112, 112))
    assert program.parameters["4.weight"] == (1_000_000, 64)
    assert json.loads((tmp_path / "again.json").read_text())["links"][0]["bandwidth"] == 1e9

    done = planned("nets.py:Counting", *given, "--input-size", "8")
    assert done.returncode == 0, done.stderr

    for arguments, message in (
        (["nets.py:face", *given], "--input-size"),
        (["nets.py:Deciding", *given, "--input-size", "8"], "only a graph can be planned"),
        (["nets.py:face", "--mesh", "2by4", *given[2:], *image], "--mesh"),
        (["nets.py:face", *given[:4], "--rates", "none.json", *image], "none.json"),
        (["nets.py:face", *given, "--input-size", "big"], "--input-size"),
        (["nets.py:face", *given, *image, "--batch", "0"], "--batch"),
        (["nets.py:face", "--mesh", "8x8", "--memory", "80GB", *image], "torchrun"),
        (["nonsense", *given], "FILE.py:EXPRESSION"),
        (["nets.py:face", *given, *image, "--save", "nowhere/plan.json"], "--save nowhere/plan.json: No such file"),
    ):
        done = planned(*arguments)
        assert done.returncode == 2, (arguments, done.stdout)
        assert message in done.stderr.replace("\n", " "), done.stderr
        assert "Traceback" not in done.stderr
