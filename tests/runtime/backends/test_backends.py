import dataclasses
import subprocess
import sys
import types

import numpy as np
import pytest
import torch
from torch import nn

from headrace.errors import BackendError
from headrace.runtime import backends
from headrace.runtime.base.calibration import Calibration
from headrace.runtime.base.session import Target
from headrace.runtime.capture.capture import capture
from headrace.runtime.lowering.portable import PortableGraph
from headrace.runtime.passes import run_passes
from headrace.specs import FP32, INT8

USABLE = [
    pytest.param(name, precision, id=f"{name}-{precision}")
    for name, backend in backends.discover().items()
    if name != "inductor"  # compiles C++: test_inductor.py
    for precision in backend.precisions
    if backend.supports(Target(precision=precision)) is None
]
# What goes in and comes out is handled in one way, whatever a backend computes in.
IN_ONE = [pytest.param(*one.values, id=one.id, marks=[] if one.values[1] == FP32 else pytest.mark.slow) for one in USABLE]
HERE = {name: backend for name, backend in backends.discover().items() if backend.supports(Target()) is None}


def captured(conv_net):
    rows = np.random.default_rng(9).normal(size=(32, 3, 20, 12)).astype(np.float32)
    passed = run_passes(capture(conv_net, torch.randn(1, 3, 20, 12)))[0]
    return dataclasses.replace(passed, calibration=Calibration([rows]))


@pytest.fixture
def graph(conv_net):
    return captured(conv_net)


@pytest.fixture(scope="module")
def opened(new_conv_net, tmp_path_factory):
    """opened(name, precision) is a new session on files that are prepared once."""
    graph, made = captured(new_conv_net()), {}

    def open_session(name, precision):
        backend, target = backends.get(name), Target(precision=precision, threads=1)
        if (name, precision) not in made:
            folder = tmp_path_factory.mktemp("prepared")
            made[name, precision] = folder, backend.prepare(graph, target, folder)
        folder, files = made[name, precision]
        return backend.open(folder, target, files)

    return open_session


def test_backends_are_found_by_file_name():
    assert set(backends.discover()) == {
        "eager", "inductor", "inductor_autotuned", "kernels", "onnxruntime", "openvino", "tensorrt",
    }  # fmt: skip


def test_an_unknown_backend_is_refused_with_those_that_exist():
    with pytest.raises(BackendError, match="eager, inductor, inductor_autotuned, kernels, onnxruntime, openvino, tensorrt"):
        backends.get("nonesuch")


def test_two_files_may_not_claim_one_name():
    modules = [types.SimpleNamespace(__name__=name, BACKEND=backends.get("eager")) for name in ("one", "two")]
    with pytest.raises(BackendError, match=r"two and one both call themselves 'eager'"):
        backends.register(modules)


def test_a_file_without_a_backend_is_refused():
    with pytest.raises(BackendError, match="no BACKEND"):
        backends.register([types.SimpleNamespace(__name__="empty")])


@pytest.mark.parametrize(("name", "precision"), USABLE)
def test_any_batch_agrees_with_the_module(graph, conv_net, tmp_path, name, precision):
    backend, target = backends.get(name), Target(precision=precision, threads=1)
    files = backend.prepare(graph, target, tmp_path)
    assert {path.name for path in tmp_path.iterdir()} - {"model.onnx"} == set(files) - {"model.onnx"}
    assert backend.prepare(graph, target, tmp_path) == files
    session = backend.open(tmp_path, target, files)
    tolerance = 1e-5 if precision == FP32 else 0.1
    for batch in (1, 5, 2, 33):
        rows = np.random.default_rng(batch).normal(size=(batch, 3, 20, 12)).astype(np.float32)
        with torch.no_grad():
            expected = conv_net(torch.from_numpy(rows)).numpy()
        (actual,) = session.run([rows])
        assert actual.dtype == np.float32
        np.testing.assert_allclose(actual, expected, atol=tolerance * np.abs(expected).max())


@pytest.mark.parametrize(("name", "precision"), IN_ONE)
def test_strided_and_read_only_arrays_are_read_correctly(opened, name, precision):
    session = opened(name, precision)
    stored = np.random.default_rng(0).normal(size=(6, 20, 12, 3)).astype(np.float32)
    strided = stored.transpose(0, 3, 1, 2)[::2]
    dense = np.ascontiguousarray(strided)
    expected = session.run([dense])[0]
    stored.flags.writeable = False
    np.testing.assert_array_equal(session.run([strided])[0], expected)


@pytest.mark.parametrize(("name", "precision"), IN_ONE)
def test_results_stay_the_callers_own(opened, name, precision):
    session = opened(name, precision)
    rows = np.random.default_rng(0).normal(size=(3, 3, 20, 12)).astype(np.float32)
    first = session.run([rows])[0]
    copy = first.copy()
    session.run([rows[::-1].copy()])
    np.testing.assert_array_equal(first, copy)
    session.close()
    session.close()
    np.testing.assert_array_equal(first, copy)
    with pytest.raises(BackendError, match="closed"):
        session.run([rows])


@pytest.mark.parametrize(("name", "precision"), USABLE)
def test_a_wrong_shape_is_an_error_and_the_session_goes_on(opened, name, precision):
    session = opened(name, precision)
    with pytest.raises(BackendError, match=r"\(2, 4, 20, 12\)"):
        session.run([np.zeros((2, 4, 20, 12), np.float32)])
    assert session.run([np.zeros((2, 3, 20, 12), np.float32)])[0].shape == (2, 5)


@pytest.mark.parametrize("name", [name for name, backend in HERE.items() if backend.fixed_batch])
def test_a_session_for_one_batch_size_takes_any(graph, conv_net, tmp_path, name):
    backend, target = backends.get(name), Target(threads=1, batch=4)
    session = backend.open(tmp_path, target, backend.prepare(graph, target, tmp_path))
    for batch in (4, 1, 3, 5, 9):
        rows = np.random.default_rng(batch).normal(size=(batch, 3, 20, 12)).astype(np.float32)
        with torch.no_grad():
            expected = conv_net(torch.from_numpy(rows)).numpy()
        np.testing.assert_allclose(session.run([rows])[0], expected, atol=1e-5 * np.abs(expected).max())
    with pytest.raises(BackendError, match=r"\(4, 4, 20, 12\)"):
        session.run([np.zeros((2, 4, 20, 12), np.float32)])
    session.close()
    with pytest.raises(BackendError, match="closed"):
        session.run([rows])


@pytest.mark.parametrize("name", [name for name, backend in HERE.items() if backend.streams])
@pytest.mark.parametrize("threads", [1, 2])  # fewer threads than streams must do
def test_parts_side_by_side_are_the_batch(graph, conv_net, tmp_path, name, threads):
    backend, target = backends.get(name), Target(threads=threads, batch=6, streams=2)
    session = backend.open(tmp_path, target, backend.prepare(graph, target, tmp_path))
    for batch in (6, 1, 5, 13):
        rows = np.random.default_rng(batch).normal(size=(batch, 20, 3, 12)).astype(np.float32).transpose(0, 2, 1, 3)
        with torch.no_grad():
            expected = conv_net(torch.from_numpy(rows)).numpy()
        first = session.run([rows])[0]
        np.testing.assert_allclose(first, expected, atol=1e-5 * np.abs(expected).max())
        session.run([rows + 1])
        np.testing.assert_allclose(first, expected, atol=1e-5 * np.abs(expected).max())
    with pytest.raises(BackendError, match=r"\(6, 4, 20, 12\)"):
        session.run([np.zeros((2, 4, 20, 12), np.float32)])
    session.close()
    with pytest.raises(BackendError, match="closed"):
        session.run([rows])


@pytest.mark.parametrize("name", [name for name, backend in HERE.items() if INT8 in backend.precisions])
def test_int8_without_calibration_is_an_error(graph, tmp_path, name):
    with pytest.raises(BackendError, match="real images"):
        backends.get(name).prepare(dataclasses.replace(graph, calibration=None), Target(precision=INT8), tmp_path)


@pytest.mark.parametrize("name", list(HERE))
def test_from_the_portable_graph_alone(graph, conv_net, tmp_path, name):
    backend, portable = backends.get(name), PortableGraph(graph.signature)
    with pytest.raises(BackendError, match="compile the model itself"):
        backend.prepare(portable, Target(), tmp_path)
    if backend.format == "onnx":
        files = backend.prepare(graph, Target(), tmp_path)
        assert backend.prepare(portable, Target(), tmp_path) == files


@pytest.mark.parametrize("name", ["eager", "onnxruntime", "openvino"])
def test_a_damaged_file_is_an_error(tmp_path, name):
    backend = backends.get(name)
    file = "model.pt2" if name == "eager" else "model.onnx"
    (tmp_path / file).write_bytes(b"not a model")
    with pytest.raises(BackendError, match=file):
        backend.open(tmp_path, Target(), [file])


@pytest.mark.parametrize("name", backends.discover())
def test_what_a_backend_cannot_do_is_said_plainly(tmp_path, name):
    backend = backends.get(name)
    for target in (Target(precision=INT8), Target(device="cuda")):
        why = backend.supports(target)
        if why is None:  # a machine with CUDA
            continue
        assert why
        assert "Traceback" not in why
        with pytest.raises(BackendError):
            backend.open(tmp_path, target, ["none"])


def test_a_view_of_the_input_is_copied_out(tmp_path):
    backend = backends.get("eager")
    captured = capture(nn.Flatten(), torch.randn(2, 3, 4))
    session = backend.open(tmp_path, Target(), backend.prepare(captured, Target(), tmp_path))
    rows = np.ones((2, 3, 4), np.float32)
    (result,) = session.run([rows])
    rows[:] = 7
    assert (result == 1).all()


def test_several_inputs_and_outputs_keep_their_order_and_types(tmp_path):
    class Two(nn.Module):
        def forward(self, left, right):
            return {"sum": left + right, "class": (left - right).argmax(1)}

    captured = capture(Two(), (torch.randn(2, 5), torch.randn(2, 5)))
    left, right = (np.random.default_rng(seed).normal(size=(3, 5)).astype(np.float32) for seed in (1, 2))
    for name in ("eager", "onnxruntime", "openvino"):
        backend = backends.get(name)
        total, classes = backend.open(tmp_path, Target(), backend.prepare(captured, Target(), tmp_path)).run([left, right])
        np.testing.assert_allclose(total, left + right, rtol=1e-6)
        np.testing.assert_array_equal(classes, (left - right).argmax(1))
        assert classes.dtype == np.int64


def test_the_portable_graph_has_the_signatures_names_and_no_traces_of_the_machine(graph, tmp_path):
    import onnx

    backends.get("onnxruntime").prepare(graph, Target(), tmp_path)
    backends.get("eager").prepare(graph, Target(), tmp_path)
    model = onnx.load(tmp_path / "model.onnx")
    assert [item.name for item in model.graph.input] == ["images"]
    assert [item.name for item in model.graph.output] == ["output"]
    for value in (*model.graph.input, *model.graph.output):
        assert value.type.tensor_type.shape.dim[0].dim_param == "batch"
    for path in tmp_path.iterdir():
        assert b"conftest" not in path.read_bytes(), path.name


def test_preparing_prints_nothing_and_leaves_torchs_threads_alone(graph, tmp_path, capfd):
    before = torch.get_num_threads()
    for name in ("eager", "onnxruntime", "openvino"):
        backend, target = backends.get(name), Target(threads=before + 1)
        backend.open(tmp_path, target, backend.prepare(graph, target, tmp_path)).run([np.zeros((1, 3, 20, 12), np.float32)])
    assert torch.get_num_threads() == before
    assert capfd.readouterr() == ("", "")


@pytest.mark.slow  # a package that is opened: artifact/test_artifact, a server that never imports torch
@pytest.mark.parametrize("name", ["onnxruntime", "openvino"])
def test_opening_a_portable_graph_does_not_import_torch(graph, tmp_path, name):
    backends.get(name).prepare(graph, Target(), tmp_path)
    code = (
        "import sys, pathlib, numpy\nfrom headrace.runtime import backends\nfrom headrace.runtime.base.session import Target\n"
        f"session = backends.get({name!r}).open(pathlib.Path({str(tmp_path)!r}), Target(threads=1), ['model.onnx'])\n"
        "print(session.run([numpy.zeros((2, 3, 20, 12), numpy.float32)])[0].shape, 'torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "(2, 5) False"
