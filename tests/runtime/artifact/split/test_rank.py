import json
import os
import signal
import socket
import subprocess
import sys

import numpy as np
import pytest

from headrace.runtime.artifact.artifact import load_artifact
from headrace.runtime.artifact.split.link import Kind, Link


@pytest.fixture
def start(thirds):
    """Start the middle rank by hand, with its START changed; the process and the link to it."""
    artifact = load_artifact(thirds[1])
    running = []

    def begin(parent=None, **changed):
        ours, theirs = socket.socketpair()
        with theirs:
            command = [sys.executable, "-P", "-m", "headrace.runtime.artifact.split.rank"]
            command += [str(theirs.fileno()), str(parent or os.getpid())]
            process = subprocess.Popen(command, pass_fds=(theirs.fileno(),))
        part = artifact.mesh.parts[1]
        wanted = {"folder": str(artifact.path), "file": part.file, "digest": part.digest, "classes": part.classes}
        link = Link(ours)
        running.append((process, link))
        link.send(Kind.START, 0, 0, json.dumps({**wanted, "backend": "onnxruntime", "threads": 1, **changed}).encode())
        return process, link

    yield begin
    for process, link in running:
        process.kill()
        process.wait()
        link.close()


def answer(link):
    """The next message that is no sign of life."""
    while (message := link.receive()).kind is Kind.ALIVE:
        pass
    return message


def test_it_serves_until_the_session_is_gone(start):
    process, link = start()
    ready = answer(link)
    assert (ready.kind, ready.value) == (Kind.READY, 24)
    for number in (signal.SIGTERM, signal.SIGINT):
        process.send_signal(number)
    link.send(Kind.COMPUTE, 5, 0, np.ones((2, 24), np.float32))
    result = answer(link)
    assert result[:2] == (Kind.RESULT, 5)
    assert len(result.data) == 2 * 334 * 4
    link.close()
    assert process.wait(60) in (0, 1)


def test_it_shows_that_it_lives(start):
    _, link = start()
    assert answer(link).kind is Kind.READY
    link.limit_silence(60)
    assert [link.receive().kind for _ in range(2)] == [Kind.ALIVE] * 2


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        ({"digest": "sha256:0"}, "not the file that was loaded"),
        ({"file": "part-9.onnx"}, "is missing"),
        ({"classes": 9}, "scores of 9 classes"),
        ({"backend": "none"}, "no backend"),
    ],
)
def test_what_it_cannot_open_is_said(start, changed, why):
    process, link = start(**changed)
    message = answer(link)
    assert message.kind is Kind.FAILED
    assert why in message.data.decode()
    assert process.wait(60) == 0


def test_it_does_not_begin_for_a_process_that_is_gone(start):
    process, _ = start(parent=1)
    assert process.wait(60) == 1
