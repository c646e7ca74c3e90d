import signal
import socket

import numpy as np
import pytest

from headrace.errors import ArtifactError
from headrace.runtime.artifact.artifact import load_artifact
from headrace.runtime.artifact.pipeline.channel import Inlet, LinkLostError, Outlet
from headrace.runtime.artifact.pipeline.shares import Totals
from headrace.runtime.artifact.pipeline.stage import Part
from headrace.runtime.artifact.split.link import Kind, Link
from tests.runtime.artifact.split.by_hand import answer, by_hand
from tests.runtime.artifact.split.models import images


@pytest.fixture
def start(thirds):
    """Start the first stage by hand, with its START changed; the process and the link to it."""
    artifact = load_artifact(thirds[1])
    stage = artifact.mesh.stages[0]
    program = "headrace.runtime.artifact.pipeline.stage"
    with by_hand(program, artifact, stage, takes=["images"], gives=stage.gives) as begin:
        yield begin


def wire(link):
    """New hops to the stage, and from it."""
    before, its_before = socket.socketpair()
    its_behind, behind = socket.socketpair()
    with its_before, its_behind:
        link.send(Kind.WIRE, descriptors=[its_before.fileno(), its_behind.fileno()])
    return Outlet(Link(before)), Inlet(Link(behind))


def test_it_serves_until_the_session_is_gone(start):
    process, link = start()
    assert answer(link).kind is Kind.READY
    for number in (signal.SIGTERM, signal.SIGINT):
        process.send_signal(number)
    outlet, inlet = wire(link)
    for serial in (5, 6):
        outlet.send(serial, [images(serial)])
        arrived = inlet.receive()
        assert arrived.serial == serial
        assert all(len(value) == serial for value in arrived.values)
        inlet.give_back(arrived.slot)
    link.close()
    assert process.wait(60) in (0, 1)


def test_it_takes_new_hops_in_place_of_old_ones(start):
    """What was on its way in the old ones never comes out of the new ones."""
    _, link = start()
    assert answer(link).kind is Kind.READY
    for generation in range(5):
        outlet, inlet = wire(link)
        for serial in range(2):
            outlet.send(10 * generation + serial, [images(3)])
        assert inlet.receive().serial == 10 * generation
        if generation % 2:  # else it is told by the new ones alone
            inlet.link.close()
    outlet, inlet = wire(link)
    outlet.send(99, [images(1)])
    assert inlet.receive().serial == 99


def test_an_end_on_one_side_is_one_on_the_other(start):
    _, link = start()
    assert answer(link).kind is Kind.READY
    outlet, inlet = wire(link)
    outlet.link.close()
    with pytest.raises(LinkLostError):
        inlet.receive()


def test_a_batch_that_it_cannot_compute_fails_alone(start):
    _, link = start()
    assert answer(link).kind is Kind.READY
    outlet, inlet = wire(link)
    outlet.send(7, [np.zeros((1, 3, 9, 9), np.float32)])
    failed = answer(link)
    assert (failed.kind, failed.serial) == (Kind.FAILED, 7)
    assert "9, 9" in failed.data.decode()
    outlet.send(8, [images(1)])
    assert inlet.receive().serial == 8


def test_it_shows_that_it_lives_and_what_it_does(start):
    _, link = start()
    assert answer(link).kind is Kind.READY
    link.limit_silence(60)
    first, second = (Totals.unpack(link.receive().data) for _ in range(2))
    assert second.starved > first.starved
    assert second.busy == second.blocked == 0
    outlet, inlet = wire(link)
    for serial in range(4):  # two lie in the slots behind it, the next one finds none
        outlet.send(serial, [images(1)])
    while Totals.unpack(link.receive().data).blocked == 0:
        pass
    inlet.give_back(inlet.receive().slot)


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        ({"digest": "sha256:0"}, "not the file that was loaded"),
        ({"file": "stage-9.onnx"}, "is missing"),
        ({"file": "../../../secret.onnx"}, "secret"),
        ({"takes": ["pictures"]}, "takes 'images', which no stage before it gives"),
        ({"gives": ["nothing"]}, "does not give 'nothing'"),
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


class Doubling:
    """A session from "a" to "b" and "c"."""

    tensors = ([("a", "", ())], [("b", "", ()), ("c", "", ())])

    def run(self, inputs):
        return [inputs[0] * 2, inputs[0] * 3]


def test_what_the_graph_leaves_alone_passes_by():
    part = Part(Doubling(), "file", ["x", "a"], ["c", "x", "b"])
    given = part.run([np.float32([5]), np.float32([1])])
    assert [value.tolist() for value in given] == [[3], [5], [2]]


@pytest.mark.parametrize(("takes", "gives", "why"), [(["x"], ["b"], "takes 'a'"), (["a"], ["b", "d"], "not give 'd'")])
def test_values_that_do_not_fit_together(takes, gives, why):
    with pytest.raises(ArtifactError, match=why):
        Part(Doubling(), "file", takes, gives)
