"""A model's folder is written whole, or what stood there stays."""

import os
import signal
import subprocess
import sys
import threading
import time

import pytest

from headrace.errors import ArtifactError
from headrace.runtime.artifact.artifact import load_artifact
from headrace.runtime.artifact.write_artifact import write_artifact
from tests.runtime.artifact.tiny import SIGNATURE, WEIGHTS, contents, plan, write_onnx


@pytest.mark.parametrize("name", ["", ".hidden", "a/b", "a\\b", "ä", "x" * 129, "-x", "a b", "a\n"])
def test_names_are_strict(tmp_path, files, name):
    with pytest.raises(ArtifactError, match="cannot name a model"):
        write_artifact(
            tmp_path / "m", name=name, files_from=files, signature=SIGNATURE, parity={}, plans=[plan()], provenance={}
        )


def test_only_models_are_replaced(write, tmp_path):
    (tmp_path / "models/tiny").mkdir(parents=True)
    (tmp_path / "models/tiny/thesis.tex").write_text("years of work")
    with pytest.raises(ArtifactError, match="holds no model; it is left as it is"):
        write()
    assert (tmp_path / "models/tiny/thesis.tex").read_text() == "years of work"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"labels": ["a", "b"]}, "2 labels for an output of 5 classes"),
        ({"labels": ["a", "b", "c", "d", "e\nf"]}, "line break"),
        ({"labels": [1, 2, 3, 4, 5]}, "label 1 is no text"),
        ({"plans": [plan("eager", files=("gone.pt2",))]}, r"opens 'gone\.pt2', which is not in"),
    ],
)
def test_a_failed_write_leaves_the_old_model(write, changes, message):
    path = write()
    before = contents(path.parent)
    with pytest.raises(ArtifactError, match=message):
        write(**changes)
    assert contents(path.parent) == before
    load_artifact(path)


def test_links_in_the_files_are_refused(write, files):
    (files / "link").symlink_to("/etc/hostname")
    with pytest.raises(ArtifactError, match="link"):
        write()


def test_replaces_a_model_while_it_is_being_read(write, files):
    path = write()
    stop, failures, loads = threading.Event(), [], 0

    def read():
        nonlocal loads
        while not stop.is_set():
            try:
                assert (path / "config.pbtxt").is_file()
                loads += 1
            except AssertionError:
                failures.append("the model was gone")

    reader = threading.Thread(target=read)
    reader.start()
    for _ in range(10):
        write_onnx(files / "model.onnx", WEIGHTS + 1)
        write()
    stop.set()
    reader.join()
    assert loads
    assert not failures
    load_artifact(path)


WRITER = """
import resource, sys
from pathlib import Path
from headrace.runtime.artifact.write_artifact import write_artifact
from headrace.errors import ArtifactError
from headrace.specs import Signature, TensorSpec
import signal
limit, models, files = int(sys.argv[1]), Path(sys.argv[2]), Path(sys.argv[3])
if limit:
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
signature = Signature(
    inputs=(TensorSpec(name="images", dtype="float32", shape=("batch", 3, 4, 4)),),
    outputs=(TensorSpec(name="logits", dtype="float32", shape=("batch", 5)),),
)
print("writing", flush=True)
try:
    write_artifact(models / "tiny", name="tiny", files_from=files, signature=signature, parity={}, plans=[], provenance={})
except ArtifactError as error:
    print("ArtifactError", error)
"""


def test_a_full_disk_leaves_the_old_model(write, files):
    path = write()
    before = contents(path.parent)
    (files / "big.bin").write_bytes(os.urandom(1 << 20))
    done = subprocess.run(
        [sys.executable, "-c", WRITER, str(300_000), path.parent, files], capture_output=True, text=True, timeout=60, check=True
    )
    assert "ArtifactError cannot write" in done.stdout
    assert "nothing was changed" in done.stdout
    assert contents(path.parent) == before


def test_a_killed_writer_leaves_the_old_model_and_its_rest_is_cleared(write, files):
    path = write()
    before = contents(path)
    with (files / "big.bin").open("wb") as file:
        file.truncate(3 << 30)
    writer = subprocess.Popen([sys.executable, "-c", WRITER, "0", path.parent, files], stdout=subprocess.PIPE, text=True)
    assert writer.stdout.readline() == "writing\n"
    deadline = time.monotonic() + 60
    while not list(path.parent.glob(".headrace-new-*/1/big.bin")) and time.monotonic() < deadline:
        time.sleep(0.005)
    writer.send_signal(signal.SIGKILL)
    writer.wait()
    writer.stdout.close()
    assert list(path.parent.glob(".headrace-new-*"))
    assert contents(path) == before
    load_artifact(path)
    (files / "big.bin").unlink()
    write()
    assert sorted(entry.name for entry in path.parent.iterdir()) == ["tiny"]


def test_writers_of_one_repository_take_turns(write, files):
    failures = []

    def work(index):
        try:
            for _ in range(5):
                write(f"model{index % 2}")
        except ArtifactError as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(index,)) for index in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
