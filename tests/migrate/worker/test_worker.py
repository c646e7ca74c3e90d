"""The worker as its callers use it: a process, a request file, a response file, progress on standard output."""

import json
import os
import re
import subprocess
import sys

import numpy as np
import pytest
import torch

from headrace.errors import Obstacle
from headrace.migrate.proving.worker_protocol import Failed, ModelPackaged, decode
from headrace.runtime.artifact.artifact import load_artifact
from headrace.specs import Preprocessing

MODEL = """
import torch
from torch import nn

class Net(nn.Module):
    def __init__(self, classes=5):
        super().__init__()
        self.conv = nn.Conv2d(3, 6, 3, padding=1, bias=False)
        self.bn = nn.BatchNorm2d(6)
        self.fc = nn.Linear(6, classes)

    def forward(self, images):
        x = torch.relu(self.bn(self.conv(images)))
        return self.fc(x.mean((2, 3)))

class FullyConvolutional(Net):
    def __init__(self):
        super().__init__()
        self.fc = nn.Conv2d(6, 5, 1)

    def forward(self, images):
        return self.fc(nn.functional.adaptive_avg_pool2d(torch.relu(self.bn(self.conv(images))), 1))

class ZeroHead(Net):
    def __init__(self):
        super().__init__()
        nn.init.zeros_(self.fc.weight)
        nn.init.zeros_(self.fc.bias)

class Branches(Net):
    def forward(self, images):
        if images.sum() > 0:
            images = images * 2
        if images.mean() > 1:
            images = images + 1
        return super().forward(images)
"""

SOURCE = """
import torch
import model as models
print("PROGRESS is what I print too", end="")
net = models.Net()
net.load_state_dict({name.replace("module.", ""): value for name, value in torch.load("ckpt.pth")["state_dict"].items()})
"""


@pytest.fixture(scope="module")
def repository(tmp_path_factory):
    """A repository with a checkpoint saved through DataParallel, and what its script computed on 80 images."""
    root = tmp_path_factory.mktemp("repository")
    (root / "model.py").write_text(MODEL)
    (root / "evaluate.py").write_text("# the script\n")
    space = {}
    exec(MODEL, space)
    torch.manual_seed(0)
    net = space["Net"]().eval()
    with torch.no_grad():
        net.bn.running_mean.normal_(std=0.2)
        net.bn.running_var.uniform_(0.5, 2.0)
        net.fc.weight.mul_(20)
        torch.save({"state_dict": torch.nn.DataParallel(net).state_dict(), "epoch": 3}, root / "ckpt.pth")
        images = 2 * torch.randn(80, 3, 12, 12) + torch.randn(80, 3, 1, 1)
        outputs = net(images)
    np.savez(root / "images.npz", images=images.numpy(), outputs=outputs.numpy(), labels=outputs.argmax(1).numpy())
    np.savez(root / "other.npz", images=images.numpy(), outputs=outputs.numpy() + 0.01)
    return root


@pytest.fixture
def answered():
    """What the worker printed, for each request."""
    return []


@pytest.fixture
def ask(repository, tmp_path, answered, warm_python):
    def work(kind, source=SOURCE, model="net", **changes):
        recipe = {
            "root": str(repository),
            "directory": ".",
            "script": "evaluate.py",
            "argv": [],
            "source": source,
            "expression": model,
        }
        request = {"kind": kind, "recipe": recipe, "input": [3, 12, 12]}
        if kind == "Package":
            request |= {
                "name": "net",
                "out": str(tmp_path / "models/net"),
                "images": None,
                "labels": [],
                "preprocessing": None,
                "precision": "fp32",
                "backend": "eager",  # no export to wait for, except where a test asks for it
                "threads": 1,
                "randomize": False,
                "buckets": [1, 4],
                "max_tuning_seconds": 1,
                "provenance": {"a": 1},
            }
        (tmp_path / "request.json").write_text(json.dumps({**request, **changes}))
        environment = {**os.environ, "TORCH_FORCE_WEIGHTS_ONLY_LOAD": "1", "OMP_NUM_THREADS": "1"}
        arguments = ["-P", "-m", "headrace.migrate.worker.worker", tmp_path / "request.json", tmp_path / "response.json"]
        if kind == "Inspect" and not changes and source == SOURCE:  # once as the migrator starts it
            command = [sys.executable, *arguments]
            done = subprocess.run(
                command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=200, check=False
            )
        else:
            done = warm_python(arguments, cwd=tmp_path, env=environment, timeout=200)
        assert done.returncode == 0, done.stderr
        answer = decode((tmp_path / "response.json").read_text())
        assert sorted(path.name for path in tmp_path.glob("*response*")) == ["response.json"]
        answered.append(done.stdout)
        return answer

    return work


def test_inspect(ask, answered):
    answer = ask("Inspect")
    assert (answer.class_name, answer.factory, answer.classes) == ("Net", "model.py:5", 5)
    assert (answer.input, answer.output) == ((3, 12, 12), "logits")
    assert "PROGRESS 1.000 inspected" in answered[-1].splitlines()


@pytest.mark.parametrize(
    ("source", "where", "text"),
    [
        ("import model\nnet = model.Net('five')\n", "model.py:10", "TypeError"),
        ("import nothing_like_this\n", "evaluate.py:1", "nothing_like_this"),
        (
            "import os\nos.dup2(os.open('/dev/null', 1), 1)\nimport sys\nsys.stdout = None\nraise SystemExit\n",
            "evaluate.py:5",
            "ended",
        ),
    ],
)
def test_a_model_that_cannot_be_built_is_a_response(ask, source, where, text):
    answer = ask("Inspect", source)
    assert isinstance(answer, Failed)
    assert answer.stage == "build"
    assert answer.where == where
    assert text in answer.error


def test_a_forward_that_fails_is_a_response(ask):
    answer = ask("Inspect", input=[4, 12, 12])
    assert isinstance(answer, Failed)
    assert "--input-size" in answer.error
    bad = "import torch\nclass Bad(torch.nn.Module):\n    def forward(self, x):\n        raise MemoryError\nnet = Bad()\n"
    answer = ask("Inspect", bad)
    assert isinstance(answer, Failed)
    assert answer.where == "evaluate.py:4"


@pytest.mark.parametrize("request_text", ["", "[]", "{}", '{"kind": "Dance", "recipe": {"root": "/"}}'])
def test_a_broken_request_is_a_response(tmp_path, request_text, warm_python):
    (tmp_path / "request.json").write_text(request_text)
    done = warm_python(["-m", "headrace.migrate.worker.worker", "request.json", "response.json"], cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert isinstance(decode((tmp_path / "response.json").read_text()), Failed)


def test_usage_without_arguments(warm_python, tmp_path):
    done = warm_python(["-m", "headrace.migrate.worker.worker"], cwd=tmp_path)
    assert done.returncode == 2
    assert "usage" in done.stderr


def test_package_for_a_device(ask, tmp_path):
    answer = ask("Package", device="cpu")
    assert load_artifact(answer.artifact).plan_here().device == "cpu"
    if not torch.cuda.is_available():
        answer = ask("Package", device="cuda", name="other", out=str(tmp_path / "models/other"))
        assert answer.stage == "package"
        assert "no usable CUDA device" in answer.error
        assert not (tmp_path / "models/other").exists()


@pytest.mark.cuda
@pytest.mark.skipif(not torch.cuda.is_available(), reason="torch finds no usable CUDA device on this machine")
def test_package_for_the_gpu_a_model_that_was_built_on_the_cpu(ask):
    answer = ask("Package", device="cuda")
    assert isinstance(answer, ModelPackaged), answer
    assert load_artifact(answer.artifact).plan_here().device == "cuda"


def test_package_with_a_checkpoint_and_the_scripts_own_outputs(ask, repository, tmp_path, answered):
    recovered = Preprocessing(mean=(0.5, 0.5, 0.5), std=(0.25, 0.25, 0.25), source="evaluate.py:1")
    labels = ["a", "b", "c", "d", "e"]
    images = str(repository / "images.npz")
    answer = ask("Package", images=images, labels=[labels], preprocessing=recovered.to_json(), backend="onnxruntime")
    assert isinstance(answer, ModelPackaged), answer
    assert answer.parity.status == "passed"
    assert answer.parity.top1_agreement == 1.0
    assert 0 <= answer.parity.max_abs < 1e-3
    assert set(answer.parity.batches) >= {1, 2, 5}
    assert load_artifact(answer.artifact).plan_here().choices[4].backend == "onnxruntime"
    fractions = [float(line.split()[1]) for line in answered[-1].splitlines() if re.match(r"PROGRESS \d", line)]
    assert fractions == sorted(fractions)
    assert fractions[-1] == 1.0

    assert sorted(path.name for path in (tmp_path / "models").iterdir()) == ["net", "net_classify", "net_decode"]
    artifact = load_artifact(answer.artifact)
    assert artifact.labels.names == tuple(labels)
    assert artifact.preprocessing == recovered
    assert not artifact.task.heads[0].probabilities
    assert artifact.max_batch_size == 4
    assert artifact.provenance["a"] == 1
    assert [spec.name for spec in artifact.signature.inputs] == ["images"]
    recorded = np.load(repository / "images.npz")
    code = (
        "import sys, numpy as np\nfrom headrace.runtime.artifact.artifact import load_artifact\n"
        "session = load_artifact(sys.argv[1]).open(4, threads=1)\n"
        "np.save(sys.argv[2], session.run([np.load(sys.argv[3])['images'][:7]])[0])\nprint('torch' in sys.modules)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, answer.artifact, tmp_path / "served.npy", repository / "images.npz"],
        cwd="/", capture_output=True, text=True, timeout=60, check=True,
    )  # fmt: skip
    assert done.stdout.strip() == "False"
    np.testing.assert_allclose(np.load(tmp_path / "served.npy"), recorded["outputs"][:7], rtol=1e-3, atol=1e-4)


def test_outputs_that_differ_from_the_scripts_are_refused(ask, repository, tmp_path):
    answer = ask("Package", images=str(repository / "other.npz"))
    assert isinstance(answer, Failed)
    assert answer.stage == "parity"
    assert "does not compute what the script computed" in answer.error
    assert not (tmp_path / "models/net").exists()


def test_fresh_weights_are_randomised_for_parity_only(ask, tmp_path):
    """A zero head agrees with anything: proved on drawn weights, packaged with its own."""
    answer = ask("Package", "from model import ZeroHead\nnet = ZeroHead()\n", randomize=True)
    assert isinstance(answer, ModelPackaged), answer
    assert answer.parity.status == "passed"
    artifact = load_artifact(answer.artifact)
    assert artifact.provenance["randomised_for_parity"]
    rows = artifact.open(2, threads=1).run([np.ones((2, 3, 12, 12), np.float32)])[0]
    np.testing.assert_array_equal(rows, np.zeros((2, 5), np.float32))
    assert sorted(path.name for path in (tmp_path / "models").iterdir()) == ["net"]


def test_a_fully_convolutional_networks_scores_are_classes(ask):
    """Its rows are [classes, 1, 1]: they keep that shape, and have labels and a top-1 class."""
    source = "from model import FullyConvolutional\nnet = FullyConvolutional()\n"
    assert ask("Inspect", source).classes == 5
    answer = ask("Package", source, randomize=True, labels=[list("abcde")])
    assert isinstance(answer, ModelPackaged), answer
    assert (answer.parity.status, answer.parity.top1_agreement) == ("passed", 1.0)
    artifact = load_artifact(answer.artifact)
    assert artifact.signature.outputs[0].row_shape == (5, 1, 1)
    assert artifact.labels.names == tuple("abcde")


def test_a_trained_model_with_constant_outputs_never_passes(ask):
    answer = ask("Package", "from model import ZeroHead\nnet = ZeroHead()\n")
    if isinstance(answer, ModelPackaged):
        assert answer.parity.status != "passed"
        assert "does not depend on its input" in answer.parity.why
    else:
        assert answer.stage == "parity"


def test_a_failed_capture_lists_its_obstacles(ask, tmp_path):
    answer = ask("Package", "from model import Branches\nnet = Branches()\n", randomize=True)
    assert isinstance(answer, Failed)
    assert answer.stage == "capture"
    assert answer.obstacles
    for obstacle in answer.obstacles:
        assert isinstance(obstacle, Obstacle)
    assert {(obstacle.path, obstacle.code) for obstacle in answer.obstacles} == {("model.py", "PG120")}
    summary, *listed = answer.error.splitlines()
    assert summary == "Branches cannot become one graph"
    assert [line.split(": ")[0].strip() for line in listed] == [f"model.py:{item.line}" for item in answer.obstacles]
    assert len(listed) == 2
    assert not (tmp_path / "models").exists()


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"labels": [["only", "two"]]}, "2 labels for an output of 5 classes"),
        ({"precision": "int8"}, "eager does not compute in int8"),
        ({"name": "../net"}, "cannot name a model"),
        ({"images": "absent.npz"}, "absent.npz"),
    ],
)
def test_what_cannot_be_packaged_is_a_response(ask, tmp_path, changes, text):
    answer = ask("Package", **changes)
    assert isinstance(answer, Failed)
    assert answer.stage == "package"
    assert text in answer.error
    assert not (tmp_path / "models/net").exists()


def test_pickles_in_the_images_file_are_refused(ask, tmp_path):
    np.savez(tmp_path / "evil.npz", images=np.array([{"a": 1}], dtype=object))
    answer = ask("Package", images=str(tmp_path / "evil.npz"))
    assert isinstance(answer, Failed)
    assert "pickle" in answer.error
