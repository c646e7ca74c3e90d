import signal

import numpy as np
import pytest

from headrace.runtime.artifact.artifact import load_artifact
from headrace.runtime.artifact.split.link import Kind
from tests.runtime.artifact.split.by_hand import answer, by_hand


@pytest.fixture
def start(thirds):
    """Start the middle rank by hand, with its START changed; the process and the link to it."""
    artifact = load_artifact(thirds[1])
    part = artifact.mesh.parts[1]
    with by_hand("headrace.runtime.artifact.split.rank", artifact, part, classes=part.classes) as begin:
        yield begin


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
