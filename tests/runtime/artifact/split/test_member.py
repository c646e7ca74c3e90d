import socket
import subprocess
import sys

import numpy as np
import pytest

from headrace.errors import ArtifactError, DigestError
from headrace.runtime.artifact.artifact import load_artifact
from headrace.runtime.artifact.split.link import Kind, Link
from headrace.runtime.artifact.split.member import open_part


def wanted(thirds, **changed):
    artifact = load_artifact(thirds[1])
    part = artifact.mesh.parts[0]
    start = {"folder": str(artifact.path), "file": part.file, "digest": part.digest, "backend": "onnxruntime", "threads": 1}
    return start | changed


def test_the_file_with_that_digest_is_opened(thirds):
    session = open_part(wanted(thirds))
    assert session.run([np.zeros((2, 24), np.float32)])[0].shape == (2, 333)
    session.close()


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        ({"digest": "sha256:0"}, "part-0.onnx is not the file that was loaded; load the model again"),
        ({"file": "trunk.onnx"}, "trunk.onnx is not the file that was loaded"),
        ({"file": "gone.onnx"}, "missing"),
    ],
)
def test_another_file_is_not(thirds, changed, why):
    with pytest.raises((ArtifactError, DigestError), match=why):
        open_part(wanted(thirds, **changed))


LIVING = """
import socket, sys, threading
from headrace.runtime.artifact.split.link import Link
from headrace.runtime.artifact.split.member import show_life
reports = iter([b"one", b"two", b"three", *[b"more"] * 1000])
show_life(Link(socket.socket(fileno=int(sys.argv[1]))), lambda: next(reports))
threading.Event().wait()
"""


def test_life_is_shown_until_nobody_hears_of_it():
    ours, theirs = socket.socketpair()
    with theirs:
        process = subprocess.Popen([sys.executable, "-c", LIVING, str(theirs.fileno())], pass_fds=(theirs.fileno(),))
    link = Link(ours)
    try:
        for report in (b"one", b"two", b"three"):
            message = link.receive()
            assert (message.kind, message.data) == (Kind.ALIVE, report)
        link.close()
        assert process.wait(60) == 1
    finally:
        process.kill()
