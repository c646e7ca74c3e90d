"""TorchScript programs, whose tensors only a config names."""

import numpy as np
import pytest

from headrace.errors import BackendError
from headrace.runtime.artifact.formats import GraphTensor
from headrace.runtime.artifact.formats.torchscript import FORMAT

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")


class Difference(torch.nn.Module):
    def forward(self, first, second):
        return first - second, first + second


@pytest.fixture
def saved(tmp_path):
    path = tmp_path / "model.pt"
    torch.jit.script(Difference()).save(str(path))
    return path


def opened(path, inputs, outputs, datatype="FP32"):
    declared = [[GraphTensor(name=name, datatype=datatype, shape=(-1, 2)) for name in side] for side in (inputs, outputs)]
    return FORMAT.open(path, tuple(map(tuple, declared)), threads=1, parameters={})


A, B = np.array([[5, 6]], np.float32), np.array([[1, 2]], np.float32)


@pytest.mark.parametrize(
    ("inputs", "outputs", "difference"),
    [
        (("second", "first"), ("difference", "sum"), [[-4, -4]]),  # by the arguments' names
        (("IN__1", "IN__0"), ("OUT__0", "OUT__1"), [[-4, -4]]),  # by number
        (("a", "b"), ("c", "d"), [[4, 4]]),  # as they are listed
        (("a", "b"), ("OUT__1", "OUT__0"), [[6, 8]]),
        (("a", "b"), ("c",), [[4, 4]]),
    ],
)
def test_the_order_of_tensors(saved, inputs, outputs, difference):
    session = opened(saved, inputs, outputs).session
    found = session.run([A, B])
    assert found[0].tolist() == difference
    assert len(found) == len(outputs)
    assert session.twin().run([A, B])[0].tolist() == difference


@pytest.mark.parametrize(
    ("inputs", "outputs", "datatype", "wrong"),
    [
        ((), (), "FP32", "declare input and output"),
        (("a", "b"), ("c",), "BYTES", "'a' is BYTES"),
        (("a", "b"), ("c",), "INVALID", "'a' is INVALID"),
        (("IN__0", "IN__0"), ("c",), "FP32", "give two tensors one place"),
        (("IN__0", "IN__5"), ("c",), "FP32", "leave out an argument"),
        (("second",), ("c",), "FP32", "leave out an argument"),
    ],
)
def test_tensors_that_it_cannot_have(saved, inputs, outputs, datatype, wrong):
    with pytest.raises(BackendError, match=wrong):
        opened(saved, inputs, outputs, datatype)


def test_a_program_that_fails_and_one_that_is_none(saved, tmp_path):
    with pytest.raises(BackendError, match="failed on inputs of shape"):
        opened(saved, ("a",), ("c",)).session.run([A])
    with pytest.raises(BackendError, match="failed on inputs of shape"):
        opened(saved, ("a", "b"), ("OUT__7",)).session.run([A, B])
    saved.write_bytes(saved.read_bytes()[:100])
    with pytest.raises(BackendError, match=r"model\.pt cannot be loaded by torch"):
        opened(saved, ("a", "b"), ("c",))


def test_a_clients_rows_are_not_changed(tmp_path):
    class InPlace(torch.nn.Module):
        def forward(self, x):
            return x.add_(1)

    path = tmp_path / "model.pt"
    torch.jit.script(InPlace()).save(str(path))
    given = np.zeros((1, 2), np.float32)
    given.setflags(write=False)
    assert opened(path, ("x",), ("y",)).session.run([given])[0].tolist() == [[1, 1]]
    assert given.tolist() == [[0, 0]]
