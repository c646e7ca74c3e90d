"""A config completed from its graph, held against it, or refused."""

import pytest

from headrace.errors import ArtifactError
from headrace.runtime.artifact.formats import GraphTensor, OpenedGraph
from headrace.runtime.artifact.model_config import parse_config
from headrace.serving.models.foreign.config import check_supported, completed, instance_count

X = 'input { name: "x" data_type: TYPE_FP32 dims: [ 4 ] }'
Y = 'output { name: "y" data_type: TYPE_FP32 dims: [ 4 ] }'


def graph(shape=(-1, 4), datatype="FP32") -> OpenedGraph:
    x, y = (GraphTensor(name=name, datatype=datatype, shape=shape) for name in "xy")
    return OpenedGraph(inputs=(x,), outputs=(y,), session=None)


def full(text="", shape=(-1, 4), datatype="FP32"):
    return completed(parse_config(text), graph(shape, datatype), name="m", backend="onnxruntime")


def test_without_a_config_everything_is_the_graphs():
    config = full()
    assert (config.name, config.backend, config.max_batch_size, config.queue_delay_us) == ("m", "onnxruntime", 4, 0)
    assert [(one.name, one.datatype, one.dims) for one in (*config.inputs, *config.outputs)] == [
        ("x", "FP32", (4,)), ("y", "FP32", (4,)),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("shape", "batch", "dims", "inner"),
    [
        ((3, 4), 0, (3, 4), (3, 4)),  # no batch
        ((-1, -1, 7), 4, (-1, 7), (-1, 7)),
        ((-1,), 4, (1,), ()),  # a number per row
    ],
)
def test_sizes_that_the_graph_says(shape, batch, dims, inner):
    config = full(shape=shape)
    assert (config.max_batch_size, config.inputs[0].dims, config.inputs[0].shape) == (batch, dims, inner)


def test_what_a_config_says_stays():
    config = full(f"max_batch_size: 8 {X} {Y}")
    assert (config.max_batch_size, config.queue_delay_us) == (8, None)
    whole = full('max_batch_size: 0 input { name: "x" data_type: TYPE_FP32 dims: [ 2, 4 ] }')
    assert (whole.max_batch_size, whole.inputs[0].dims, whole.outputs[0].dims) == (0, (2, 4), (-1, 4))


def test_what_a_graph_does_not_say_has_to_be_declared():
    with pytest.raises(ArtifactError, match="input 'x' needs dims"):
        full(shape=None)
    config = full(f"max_batch_size: 2 {X}", shape=None)
    assert config.outputs[0].dims == (-1,)


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        (f"max_batch_size: 8 {X.replace('x', 'z')} {Y}", "input 'z' does not exist; the model has x"),
        (f"max_batch_size: 8 {X.replace('x', 'z')} {Y}", "input 'x' is not declared"),
        (f"max_batch_size: 8 {X} {Y.replace(chr(34) + 'y', chr(34) + 'z')}", "output 'z' does not exist"),
        (f"max_batch_size: 8 {X.replace('FP32', 'INT8')} {Y}", "declared TYPE_INT8, the model's is TYPE_FP32"),
        (f"max_batch_size: 8 {X.replace('4', '5')} {Y}", r"input 'x' is declared \[-1, 5\], the model's is \[-1, 4\]"),
        (f"max_batch_size: 8 {X} {Y.replace('4', '4, 4')}", r"output 'y' is declared \[-1, 4, 4\]"),
        (f"{X} {Y}", r"input 'x' is declared \[4\], the model's is \[-1, 4\]"),
    ],
)
def test_a_config_that_contradicts_its_graph(text, wrong):
    with pytest.raises(ArtifactError, match=wrong):
        full(text)


def test_a_graph_of_one_batch_size_takes_no_other():
    with pytest.raises(ArtifactError, match="'x' has 3 rows in the model, always; set max_batch_size to 0"):
        full(f"max_batch_size: 8 {X} {Y}", shape=(3, 4))


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        ("sequence_batching { }", "no state is kept"),
        ("model_transaction_policy { decoupled: true }", "a request has one answer here"),
        ('model_operations { op_library_filename: "evil.so" }', "native code, which is not loaded"),
        ("batch_input { }", "ragged batches"),
        (X.replace("dims", "optional: true dims"), "'x': optional is not done here"),
        (X.replace("dims", "allow_ragged_batch: true dims"), "allow_ragged_batch is not done here"),
        ('name: "other"', "the name is 'other', the folder is 'm'"),
        ("max_batch_size: 2147483647", "at most 16,384 rows"),
        (X.replace("4", "0"), "each must be -1 or from 1"),
        (X.replace("4", "-2"), "each must be -1 or from 1"),
        (X.replace("4", "4611686018427387904"), "each must be -1 or from 1"),
        (X.replace("4", ",".join("1" * 100)), "each must be -1 or from 1"),
        (X.replace("[ 4 ]", "[ 4 ] reshape { shape: [ 3 ] }"), "different numbers of elements"),
        (X.replace("[ 4 ]", "[ -1, -1 ] reshape { shape: [ -1 ] }"), "one on each side"),
        (X + X, "declared twice"),
    ],
)
def test_what_is_refused_before_the_graph_is_opened(text, wrong):
    with pytest.raises(ArtifactError, match=wrong):
        check_supported(parse_config(text), name="m")


def test_reshaped_tensors_and_plain_ones_are_not_refused():
    check_supported(parse_config(X.replace("[ 4 ]", "[ 4 ] reshape { shape: [ 2, 2 ] }") + Y), name="m")
    config = full("max_batch_size: 8 " + X.replace("[ 4 ]", "[ 4 ] reshape { shape: [ 2, 2 ] }"), shape=(-1, 2, 2))
    assert (config.inputs[0].dims, config.inputs[0].shape) == ((4,), (2, 2))


def test_instances():
    assert instance_count({}) == 1
    assert instance_count(parse_config("instance_group { count: 2 } instance_group { }").message) == 3
