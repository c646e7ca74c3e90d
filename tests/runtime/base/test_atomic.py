"""Disks that fail while a model is prepared. What happens to the folder itself is in test_artifact.py."""

import contextlib
import errno
import os
import subprocess
import sys

import numpy as np
import pytest
import torch
from torch import nn

import headrace
from headrace import GraphConfig
from headrace.errors import ArtifactError
from headrace.runtime.artifact.artifact import load_artifact
from headrace.runtime.base.atomic import old_model_stays, replacing, replacing_file, write_aside

# A limit on the size of files is what a process can give itself; writes over it fail with EFBIG as on a full disk with ENOSPC.
FULL = """
import resource, signal, sys
from pathlib import Path
import torch, headrace
from torch import nn
from headrace import GraphConfig
from headrace.errors import HeadraceError
from headrace.runtime.tuning.retune import retune
torch.manual_seed(1)
module, folder = nn.Sequential(nn.Flatten(), nn.Linear(192, 1000), nn.ReLU(), nn.Linear(1000, 5)).eval(), Path(sys.argv[1])
config = GraphConfig(backend="onnxruntime", buckets=(1, 2), threads=1, max_tuning_seconds=1)
graph = headrace.compile(module, torch.randn(2, 3, 8, 8), config=config)
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[2]),) * 2)
def compiled(backend):
    headrace.compile(module, torch.randn(2, 3, 8, 8), config=GraphConfig(backend=backend, buckets=(1,), threads=1))
tasks = {"save": lambda: graph.save(folder), "tune": lambda: retune(folder, config)}
tasks |= {backend: lambda backend=backend: compiled(backend) for backend in ("eager", "onnxruntime")}
for name, task in tasks.items():
    try:
        task()
        print(name, "done")
    except HeadraceError as error:
        print(name, type(error).__name__, " ".join(str(error).split()))
"""


@pytest.mark.skipif(sys.platform == "win32", reason="no limit on the size of files")
def test_a_full_disk_is_explained_and_the_old_model_stays(tmp_path, warm_python):
    torch.manual_seed(0)
    module = nn.Sequential(nn.Flatten(), nn.Linear(192, 1000), nn.ReLU(), nn.Linear(1000, 5)).eval()
    images = torch.randn(2, 3, 8, 8)
    graph = headrace.compile(module, images, config=GraphConfig(backend="onnxruntime", buckets=(1, 2), threads=1))
    folder = graph.save(tmp_path / "models/net")
    before = {path: path.read_bytes() for path in (tmp_path / "models").rglob("*") if path.is_file()}
    done = warm_python(["-c", FULL, folder, "200000"], cwd=tmp_path)
    lines = dict(line.split(" ", 1) for line in done.stdout.splitlines())
    assert list(lines) == ["save", "tune", "eager", "onnxruntime"], done.stderr
    for name in ("save", "tune"):
        assert lines[name].startswith("ArtifactError cannot write the model: File too large"), lines[name]
        assert "nothing was changed; free space there, or name another temporary folder in TMPDIR" in lines[name]
    for name in ("eager", "onnxruntime"):
        assert lines[name].startswith("BackendError no candidate could be built"), lines[name]
        assert "File too large" in lines[name]
    assert {path: path.read_bytes() for path in (tmp_path / "models").rglob("*") if path.is_file()} == before
    load_artifact(folder)
    np.testing.assert_allclose(headrace.load(folder)(images).numpy(), module(images).detach().numpy(), rtol=1e-4, atol=1e-5)


WRITTEN = """
import resource, signal, sys
from pathlib import Path
import numpy as np, openvino
from headrace.runtime.base.atomic import library_writes
from openvino import opset13 as ops
row = ops.parameter([1, 1000], np.float32)
model = openvino.Model([ops.matmul(row, ops.constant(np.random.rand(1000, 1000).astype(np.float32)), False, False)], [row])
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (200000, 200000))
for name, size in ((sys.argv[1], 4000000), (sys.argv[1], 100000)):
    try:
        with library_writes(Path(name), size):
            openvino.save_model(model, f"{name}/net.xml", compress_to_fp16=False)
    except Exception as error:
        print(type(error).__name__, error)
"""


@pytest.mark.skipif(sys.platform == "win32", reason="no limit on the size of files")
def test_of_a_library_that_says_no_more_than_that_it_failed_the_disk_is_told(tmp_path):
    done = subprocess.run([sys.executable, "-c", WRITTEN, tmp_path], capture_output=True, text=True, check=True)
    of_the_disk, other = done.stdout.strip().splitlines()
    assert of_the_disk == f"OSError [Errno {errno.EFBIG}] File too large: '{tmp_path}'"
    assert other.startswith("RuntimeError ")  # a file so small is not what the disk would not take


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO])
def test_a_failing_disk_names_the_file_and_the_remedy(code):
    @old_model_stays
    def write():
        raise OSError(code, "what the system says", "/somewhere/model.onnx")

    with pytest.raises(
        ArtifactError, match=r"what the system says \(/somewhere/model\.onnx\); nothing was changed; free space"
    ):
        write()


def test_other_errors_pass_through():
    @old_model_stays
    def read():
        raise FileNotFoundError(errno.ENOENT, "no such file", "images/cat.png")

    with pytest.raises(FileNotFoundError):
        read()


def test_written_files_are_whole_or_absent(tmp_path, monkeypatch):
    write_aside(tmp_path / "bench.json", b"one")

    def full(descriptor):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        write_aside(tmp_path / "bench.json", b"two")
    assert [path.name for path in tmp_path.iterdir()] == ["bench.json"]
    assert (tmp_path / "bench.json").read_bytes() == b"one"


_KILLED = """
import os, sys
from pathlib import Path
from headrace.runtime.base.atomic import replacing_file
with replacing_file(Path(sys.argv[1])) as path:
    path.write_bytes(b"half")
    os.kill(os.getpid(), 9)
"""


def test_a_file_is_replaced_whole_or_not_at_all(tmp_path):
    target = tmp_path / "net.onnx"
    for content in (b"one", b"two"):
        with replacing_file(target) as path:
            path.write_bytes(content)
        assert target.read_bytes() == content
    subprocess.run([sys.executable, "-c", _KILLED, str(target)], check=False)
    assert target.read_bytes() == b"two"
    assert len(list(tmp_path.iterdir())) == 2
    with contextlib.suppress(KeyError), replacing_file(target) as path:
        path.write_bytes(b"half")
        raise KeyError
    assert list(tmp_path.iterdir()) == [target]  # what the killed one left is cleared too
    assert target.read_bytes() == b"two"


def test_what_others_keep_beside_it_stays(tmp_path):
    """A migrated folder has a .headrace-written.json; the journal of `migrate --write` and a user may have such names too."""
    (tmp_path / ".headrace-written.json").write_text("{}")
    (tmp_path / ".headrace-notes").mkdir()
    with replacing_file(tmp_path / "net.onnx") as path:
        path.write_bytes(b"one")
    with replacing(tmp_path, ["folder"]) as (folder,):
        (folder / "file").write_text("two")
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        ".headrace-notes",
        ".headrace-written.json",
        "folder",
        "net.onnx",
    ]
