"""Foreign models opened and asked, as they stand; what cannot be opened says why, and nothing stays open."""

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from headrace.errors import ArtifactError, BackendError, ExecutionError, InputError

FLOAT, STRING = TensorProto.FLOAT, TensorProto.STRING
X = np.arange(8, dtype=np.float32).reshape(2, 4)


def test_a_graph_without_a_config(foreign, load, run):
    foreign.add("m", 3.0)
    model = load("m")
    assert model.whole(model.config.inputs[0].shape) == [-1, 4]
    np.testing.assert_array_equal(run(model, X)[0], X + 3)


def test_a_model_without_a_batch(foreign, load, run):
    foreign.add("m", shape=(3, "any"))
    model = load("m")
    assert (model.config.max_batch_size, model.whole(model.config.inputs[0].shape)) == (0, [3, -1])
    for width in (1, 5):
        given = np.full((3, width), 2, np.float32)
        np.testing.assert_array_equal(run(model, given)[0], given + 1)
    with pytest.raises(InputError, match=r"Expected \[3, -1\], got \[2, 4\]"):
        run(model, X)


def test_a_scalar_without_a_batch(foreign, load, run):
    foreign.onnx("m", [helper.make_node("ReduceSum", ["x"], ["y"], keepdims=0)], [("x", FLOAT, (4,))], [("y", FLOAT, ())])
    foreign.config("m", 'output { name: "y" data_type: TYPE_FP32 dims: [ 1 ] reshape { shape: [ ] } }')
    np.testing.assert_array_equal(run(load("m"), X[0])[0], [6.0])


def test_strings(foreign, load, run):
    foreign.copy("m", STRING)
    model = load("m")
    given = np.array([["", "é\0\n"], ["b" * 5000, "\U0001f600"]], object)
    encoded = np.vectorize(str.encode, otypes=[object])(given)
    assert run(model, encoded)[0].tolist() == encoded.tolist()
    encoded[1, 1] = b"\xff"
    with pytest.raises(InputError, match="no UTF-8, and model 'm' takes text"):
        run(model, encoded)


def test_a_reshaped_tensor(foreign, load, run):
    foreign.add("m", shape=("batch", 2, 2))
    foreign.config(
        "m",
        'max_batch_size: 4 input { name: "x" data_type: TYPE_FP32 dims: [ 4 ] reshape { shape: [ 2, 2 ] } }'
        'output { name: "y" data_type: TYPE_FP32 dims: [ 4 ] reshape { shape: [ 2, 2 ] } }',
    )
    np.testing.assert_array_equal(run(load("m"), X)[0], X + 1)


def test_requests_run_alone_unless_the_config_batches(foreign, load, run):
    """The model's answers tell who was in the batch; no row is ever padded."""
    foreign.mean("alone")
    foreign.config("alone", "max_batch_size: 7")
    alone = load("alone")
    for rows in (1, 3, 5, 7):
        given = np.random.default_rng(rows).normal(size=(rows, 4)).astype(np.float32)
        np.testing.assert_allclose(run(alone, given)[0], given - given.mean(0), atol=1e-6)


def test_together_only_with_rows_of_the_same_size(foreign, load):
    foreign.mean("m")
    foreign.config("m", "max_batch_size: 8 dynamic_batching { preferred_batch_size: 4 max_queue_delay_microseconds: 10000 }")
    model = load("m", max_queue_delay_seconds=60.0)
    model.batcher._policy = type(model.batcher._policy)(max_delay=60.0, preferred=(4,))
    tickets = []
    for width in (2, 2, 3, 3):
        tickets.append(model.batcher.admit(1, timeout=60))
        model.batcher.submit(tickets[-1], [np.full((1, width), float(len(tickets)), np.float32)])
    for ticket in tickets[:2]:
        ticket.future.result(60)
    assert [ticket.batch for ticket in tickets[:2]] == [2, 2]
    np.testing.assert_array_equal(tickets[0].future.result()[0], [[-0.5, -0.5]])


@pytest.mark.parametrize(("kind", "dtype"), [(TensorProto.INT64, "INT64"), (TensorProto.BFLOAT16, None)])
def test_types(foreign, load, kind, dtype):
    foreign.copy("m", kind)
    if dtype is None:
        with pytest.raises(BackendError, match="'x' is a tensor.bfloat16., for which the protocol has no name"):
            load("m")
    else:
        assert load("m").config.inputs[0].datatype == dtype


def test_instances_share_the_weights_and_are_bounded_by_the_cores(foreign, load, monkeypatch):
    from headrace.serving.models.foreign import loading

    monkeypatch.setattr(loading, "available_cores", lambda: 2)
    foreign.add("m")
    foreign.config("m", "max_batch_size: 4 instance_group { count: 1000000 kind: KIND_CPU }")
    assert load("m").instances == 2
    assert load("m", instances=3).instances == 3


def test_nothing_is_written(foreign, load):
    foreign.add("m")
    before = {path: path.stat().st_mtime_ns for path in foreign.root.rglob("*")}
    load("m")
    assert {path: path.stat().st_mtime_ns for path in foreign.root.rglob("*")} == before


def test_a_graph_cut_short_and_one_that_claims_more_than_it_has(foreign, load):
    path = foreign.add("m")
    whole = path.read_bytes()
    for cut in (0, 1, len(whole) // 2, len(whole) - 1):
        path.write_bytes(whole[:cut])
        with pytest.raises((ArtifactError, BackendError)):
            load("m")
    for claim in (b"\x3a\xff\xff\xff\xff\x07", b"\x3a\xff\xff\xff\xff\xff\xff\xff\xff\x7f"):  # a graph of 2 GiB, of 2^63
        path.write_bytes(claim + whole)
        with pytest.raises(BackendError, match=r"model\.onnx cannot be loaded"):
            load("m")


@pytest.mark.parametrize("location", ["../../../secret.bin", "../../m/1/../../../secret.bin", "{root}/../secret.bin"])
def test_data_beside_a_graph_lie_in_its_folder(foreign, load, location):
    secret = foreign.root.parent / "secret.bin"
    secret.write_bytes(np.arange(4, dtype=np.float32).tobytes())
    weights = TensorProto(name="w", data_type=FLOAT, dims=[4], data_location=TensorProto.EXTERNAL)
    for key, value in {"location": location.format(root=foreign.root), "offset": "0", "length": "16"}.items():
        entry = weights.external_data.add()
        entry.key, entry.value = key, value
    nodes = [helper.make_node("Add", ["x", "w"], ["y"])]
    foreign.onnx("m", nodes, [("x", FLOAT, ("b", 4))], [("y", FLOAT, ("b", 4))], initializers=[weights])
    with pytest.raises(BackendError, match="External data path"):
        load("m")


def test_data_beside_a_graph_may_be_cut_short_while_it_serves(foreign, load, run):
    """A mapped file would end the process (SIGBUS)."""
    path = foreign.add("m", shape=("batch", 4096))
    model = onnx.load(path)
    model.graph.initializer[0].CopyFrom(numpy_helper.from_array(np.ones(4096, np.float32), "value"))
    onnx.save_model(model, path, save_as_external_data=True, location="data.bin", size_threshold=0)
    served = load("m")
    with (path.parent / "data.bin").open("r+b") as file:
        file.truncate(0)
    assert run(served, np.zeros((1, 4096), np.float32))[0].sum() == 4096


def test_a_model_goes_on_when_its_folder_is_gone(foreign, load, run):
    path = foreign.add("m")
    model = load("m")
    path.unlink()
    path.parent.rmdir()
    np.testing.assert_array_equal(run(model, X)[0], X + 1)


def test_huge_sizes_are_not_tried_out(foreign, load):
    foreign.add("m", shape=("batch", 1 << 38))
    assert load("m").batcher.table.largest == 4  # nothing of that size was made to measure it


def test_what_the_model_gives_is_what_was_declared(foreign, load, run):
    foreign.onnx("m", [helper.make_node("Unique", ["x"], ["y"])], [("x", FLOAT, ("b", 4))], [("y", FLOAT, ("n",))])
    model = load("m")
    with pytest.raises(ExecutionError, match="failed on this request"):
        run(model, np.ones((3, 4), np.float32))  # a row for three


def test_front_ends_in_processes_have_none(foreign):
    from headrace.serving.config import ServeConfig
    from headrace.serving.models.foreign.loading import load_foreign

    foreign.add("m")
    with pytest.raises(ArtifactError, match="--frontends 0"):
        load_foreign(foreign.root / "m", ServeConfig.of(models=foreign.root, frontends=2), print, version=1)


def test_code_runs_of_trusted_repositories_only(foreign, load, monkeypatch):
    monkeypatch.delenv("HEADRACE_TRUST_REPOSITORY", raising=False)
    (foreign.folder("m") / "model.pt").write_bytes(b"not even read")
    with pytest.raises(ArtifactError, match="would run code that it holds.*--trust-repository"):
        load("m")
