"""The command line as a user meets it: subprocesses, exit statuses, messages."""

import errno
import importlib.metadata
import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from headrace import cli
from headrace.runtime.base.session import visible_gpus


def headrace(*arguments, cwd=None):
    command = [sys.executable, "-m", "headrace", *map(str, arguments)]
    return subprocess.run(command, check=False, capture_output=True, text=True, cwd=cwd, timeout=240)


@pytest.fixture
def headrace_warm(forked_headrace):
    """`headrace` where it is about what is answered."""
    return forked_headrace


def test_version():
    done = headrace("--version")
    assert (done.returncode, done.stdout.strip()) == (0, f"headrace {importlib.metadata.version('headrace')}")


def test_no_arguments_show_the_commands():
    shown = headrace()
    shown = shown.stdout + shown.stderr
    for command in ("migrate", "compile", "serve", "bench", "doctor"):
        assert command in shown


def test_what_is_printed_to_a_closed_stream_is_printed_to_nobody(tmp_path):
    command = f"exec {sys.executable} -m headrace migrate {tmp_path} <&- >&-"
    done = subprocess.run(["/bin/sh", "-c", command], check=False, stderr=subprocess.PIPE, text=True, timeout=240)
    assert (done.returncode, len(done.stderr.splitlines())) == (2, 1), done.stderr
    assert "holds no Python file" in done.stderr


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (OSError(errno.ENOSPC, "No space left", "/a/b"), "No space left (/a/b); free space there, or name a folder"),
        (OSError(errno.ENOSPC, "No space left"), "No space left; free space where it writes (TMPDIR, --out), or name a folder"),
        (
            OSError(errno.EFBIG, "File too large", "/a/b"),
            "File too large (/a/b); raise the limit on the size of a file (ulimit -f)",
        ),
    ],
)
def test_what_the_disk_does_not_take_is_told_with_what_to_do(monkeypatch, capsys, error, said):
    def fails():
        raise error

    monkeypatch.setattr(cli, "app", fails)
    monkeypatch.setattr(signal, "signal", lambda *_: None)
    with pytest.raises(SystemExit) as ended:
        cli.main()
    assert ended.value.code == 2
    assert capsys.readouterr().err.startswith(f"error: {said}")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no disk that is always full")
def test_a_full_disk_is_one_line_and_no_traceback():
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "headrace", "rules"], check=False, stdout=full, stderr=subprocess.PIPE, text=True
        )
    assert done.returncode == 2
    assert done.stderr.startswith("error: No space left on device; ")
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize(
    "arguments",
    [
        ["compile", "net.py:net", "--input-size", "1,4,4", "--random-weights", "--out", "file"],
        ["compile", "net.py:net", "--input-size", "1,4,4", "--random-weights", "--out=file/models"],
    ],
)
def test_a_place_that_is_something_else_is_one_line_and_no_traceback(tmp_path, arguments, headrace_warm):
    (tmp_path / "net.py").write_text("import torch\nnet = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(16, 3))\n")
    (tmp_path / "file").write_text("mine")
    done = headrace_warm(*arguments, cwd=tmp_path)
    assert done.returncode == 2
    assert "Traceback" not in done.stderr
    assert (tmp_path / "file").read_text() == "mine"


def test_sigterm_while_a_pool_starts_a_thread_ends_the_command_after_it():
    """Its end would wait for a thread that nobody tells to end."""
    code = """
import concurrent.futures.thread as pools, os, signal, time
from headrace.cli import _end_in_order_on_sigterm

class Threads(type(pools._threads_queues)):
    def __setitem__(self, thread, queue):
        os.kill(os.getpid(), signal.SIGTERM)
        super().__setitem__(thread, queue)

pools._threads_queues = Threads()
_end_in_order_on_sigterm()
pool = pools.ThreadPoolExecutor()
pool.submit(len, "")
time.sleep(60)
"""
    done = subprocess.run([sys.executable, "-c", code], check=False, capture_output=True, text=True, timeout=50)
    assert done.returncode == 128 + signal.SIGTERM, done.stderr


def test_sigterm_while_a_library_of_cpp_is_imported_ends_the_command_after_it():
    """Such a library turns the exit into an ImportError, or crashes: onnxruntime did either, once in fifty times."""
    program = """
import os, signal, time
from importlib.machinery import ExtensionFileLoader
from headrace.cli import _end_in_order_on_sigterm

class Library(ExtensionFileLoader):
    def create_module(self, spec):
        try:
            os.kill(os.getpid(), signal.SIGTERM)
            time.sleep(0.2)
        except BaseException as error:
            print("broken by", repr(error))

_end_in_order_on_sigterm()
Library("library", "library.so").create_module(None)
print("imported", flush=True)
time.sleep(60)
"""
    done = subprocess.run([sys.executable, "-c", program], check=False, capture_output=True, text=True, timeout=120)
    assert done.returncode == 128 + signal.SIGTERM, done.stderr
    assert "broken" not in done.stdout


@pytest.mark.parametrize(
    ("typed", "meant"), [("predct", "'predict'"), ("serv", "'serve'"), ("plan-paralel", "'plan-parallel'")]
)
def test_a_command_that_is_none_is_said_with_those_that_are_near(typed, meant, warm_headrace):
    done = warm_headrace(typed, "models")
    assert done.returncode == 2
    assert f"No such command {typed!r}. Did you mean {meant}" in done.stderr


def test_doctor_names_devices_backends_and_versions(headrace_warm):
    done = headrace_warm("doctor")
    assert done.returncode == 0, done.stderr
    for name in ("onnxruntime", "openvino", "inductor", "eager", importlib.metadata.version("torch")):
        assert name in done.stdout


@pytest.mark.parametrize("content", [None, "print('hello')\n"])
def test_a_folder_without_pytorch_is_refused_with_what_was_looked_for(warm_headrace, tmp_path, content):
    if content:
        (tmp_path / "hello.py").write_text(content)
    done = warm_headrace("migrate", tmp_path)
    assert done.returncode == 2
    assert "error:" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["migrate", "no-such-folder"], "no-such-folder"),
        (["serve", "no-such-folder"], "no-such-folder"),
        (["bench", "no-such-folder"], "no-such-folder"),
        (["compile", "no_such.py:model", "--out", "models"], "no_such.py"),
        (["compile", "nonsense", "--out", "models"], "FILE.py:EXPRESSION"),
        (["migrate", ".", "--input-size", "large"], "C,H,W"),
        (["compile", "tiny.py:tiny", "--device", "tpu"], "device must be one of auto, cpu, cuda, got 'tpu'"),
        (["tune", "models/tiny", "--device", "tpu"], "device must be one of auto, cpu, cuda"),
    ],
)
def test_mistakes_get_a_message_and_status_2(headrace_warm, tmp_path, arguments, message):
    done = headrace_warm(*arguments, cwd=tmp_path)
    assert done.returncode == 2, done.stderr
    assert message in done.stderr
    assert "Traceback" not in done.stderr


MODEL = """
import torch
from torch import nn

class Tiny(nn.Module):
    def __init__(self, classes=5):
        super().__init__()
        self.conv = nn.Conv2d(3, 8, 3, padding=1, bias=False)
        self.bn = nn.BatchNorm2d(8)
        self.fc = nn.Linear(8, classes)

    def forward(self, x):
        return self.fc(torch.relu(self.bn(self.conv(x))).mean(dim=(2, 3)))

def tiny(classes=5):
    torch.manual_seed(0)
    return Tiny(classes)
"""


def test_compile_writes_a_model_that_loads_and_computes_the_same(tmp_path, headrace_warm, warm_python):
    import torch

    import headrace as package

    (tmp_path / "tiny.py").write_text(MODEL)
    setup = "import torch, tiny; m = tiny.tiny(7); torch.save({'state_dict': m.state_dict()}, 'weights.pth')\n"
    setup += "x = torch.rand(3, 3, 20, 24); torch.save([x, m.eval()(x)], 'expected.pt')"
    assert warm_python(["-c", setup], cwd=tmp_path).returncode == 0
    options = [
        "--input-size",
        "3,20,24",
        "--checkpoint",
        "weights.pth",
        "--out",
        "models",
        "--name",
        "small",
        "--max-tuning-seconds",
        "0.2",
    ]
    done = headrace_warm("compile", "tiny.py:Tiny(classes=7)", *options, cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    images, expected = torch.load(tmp_path / "expected.pt")
    torch.testing.assert_close(package.load(tmp_path / "models" / "small")(images), expected, rtol=1e-4, atol=1e-5)
    plans = json.loads((tmp_path / "models" / "small" / "1" / "headrace.json").read_text())["plans"]
    assert plans[0]["measurements"]


NO_GPU = visible_gpus() == 0


def test_a_plan_is_made_for_the_device_that_is_asked_for(tmp_path, headrace_warm):
    (tmp_path / "tiny.py").write_text(MODEL)
    options = ["--input-size", "3,20,24", "--out", "models", "--max-tuning-seconds", "0.2"]
    done = headrace_warm("compile", "tiny.py:tiny", *options, "--device", "cpu", cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    record = tmp_path / "models" / "Tiny" / "1" / "headrace.json"
    assert [plan["device"] for plan in json.loads(record.read_text())["plans"]] == ["cpu"]
    tuning = ["--buckets", "1", "--max-tuning-seconds", "0.2", "--format", "json"]
    done = headrace_warm("tune", "models/Tiny", *tuning, "--device", "cpu", cwd=tmp_path)
    assert json.loads(done.stdout)["device"] == "cpu", done.stderr
    if NO_GPU:
        before = record.read_bytes()
        done = headrace_warm("tune", "models/Tiny", *tuning, "--device", "cuda", cwd=tmp_path)
        assert (done.returncode, done.stdout) == (2, "")
        assert "no NVIDIA GPU for --device cuda" in done.stderr
        assert record.read_bytes() == before


@pytest.mark.skipif(not NO_GPU, reason="this machine has a GPU")
def test_a_device_that_is_not_there_is_refused_before_anything_is_built(tmp_path, headrace_warm):
    (tmp_path / "tiny.py").write_text(MODEL)
    done = headrace_warm("compile", "tiny.py:tiny", "--device", "cuda", "--out", "models", cwd=tmp_path)
    assert done.returncode == 2
    assert "no NVIDIA GPU for --device cuda" in done.stderr
    assert "--device cpu" in done.stderr
    assert not (tmp_path / "models").exists()


def test_compile_lists_each_obstacle_once_with_its_place(tmp_path, headrace_warm):
    source = (
        MODEL
        + """

class Both(Tiny):
    def forward(self, images):
        if images.sum() > 0:
            images = images * 2
        return torch.from_numpy(super().forward(images).numpy())
"""
    )
    (tmp_path / "tiny.py").write_text(source)
    done = headrace_warm("compile", "tiny.py:Both", "--input-size", "3,8,8", "--out", "models", cwd=tmp_path)
    assert done.returncode == 2
    lines = source.splitlines()
    wanted = {
        "PG120": next(number for number, line in enumerate(lines, 1) if "images.sum()" in line),
        "PG122": next(number for number, line in enumerate(lines, 1) if "from_numpy" in line),
    }
    told = [line.split() for line in done.stderr.splitlines() if " PG1" in line]
    assert [(place, code) for place, code, *_ in told] == [(f"tiny.py:{line}:", code) for code, line in wanted.items()]


def test_compile_says_which_input_sizes_fit_when_none_is_given(tmp_path, headrace_warm):
    (tmp_path / "tiny.py").write_text(MODEL)
    done = headrace_warm("compile", "tiny.py:tiny", "--out", "models", cwd=tmp_path)
    assert done.returncode == 2
    assert "--input-size" in done.stderr
