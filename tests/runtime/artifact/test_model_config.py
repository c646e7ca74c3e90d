import subprocess
import sys

import pytest
from google.protobuf import text_format
from hypothesis import given, settings
from hypothesis import strategies as st
from tritonclient.grpc import model_config_pb2

from headrace.errors import ArtifactError
from headrace.runtime.artifact.model_config import (
    DATATYPES,
    check_config,
    config_text,
    parse_config,
    parse_config_json,
    read_config,
)
from headrace.specs import DTYPES, Signature, TensorSpec


def signature(*, dtype="float32", row=(3, 32, 32), outputs=(("logits", "float32", (10,)),)):
    return Signature(
        inputs=(TensorSpec(name="images", dtype=dtype, shape=("batch", *row)),),
        outputs=tuple(TensorSpec(name=name, dtype=kind, shape=("batch", *shape)) for name, kind, shape in outputs),
    )


def test_every_dtype_has_a_triton_type():
    assert set(DATATYPES) == DTYPES
    for datatype in DATATYPES.values():
        assert model_config_pb2.DataType.Value(f"TYPE_{datatype}")


@settings(max_examples=40)
@given(
    dtype=st.sampled_from(sorted(DTYPES)),
    row=st.lists(st.integers(1, 999), max_size=4),
    outputs=st.integers(1, 3),
    batch=st.integers(1, 512),
)
def test_what_is_written_reads_back_and_fits(dtype, row, outputs, batch):
    spec = signature(dtype=dtype, row=tuple(row), outputs=[(f"o{i}", dtype, tuple(row[:i])) for i in range(outputs)])
    text = config_text(spec, name="a.model-1", max_batch_size=batch, queue_delay_us=250, label_filenames={"o0": "labels.txt"})
    config = parse_config(text)
    check_config(config, spec, name="a.model-1")
    assert (config.name, config.backend, config.max_batch_size, config.queue_delay_us) == (
        "a.model-1",
        "onnxruntime",
        batch,
        250,
    )
    assert config.outputs[0].label_filename == "labels.txt"
    assert config.inputs[0].shape == tuple(row)
    assert config.message["max_batch_size"] == batch
    raw = text_format.Parse(text, model_config_pb2.ModelConfig())
    assert all(tensor.dims for tensor in (*raw.input, *raw.output))  # Triton refuses tensors without dims


def test_a_hand_written_config_is_read():
    config = parse_config(
        """
        # as in Triton's documentation
        platform: "onnxruntime_onnx"
        max_batch_size: 8
        input [ { name: "images" data_type: TYPE_FP32 dims: [ 3, -1, -1 ] } ]
        output [ { name: "logits" data_type: TYPE_FP32 dims: [ 10 ] } ]
        instance_group [ { kind: KIND_GPU } ]
        """
    )
    assert config.backend == "onnxruntime"
    assert config.queue_delay_us is None
    assert config.outputs[0].label_filename == ""
    check_config(config, signature(), name="whatever")


def test_strings_are_bytes():
    config = parse_config(
        'name: "d" backend: "python" max_batch_size: 4 input { name: "IMAGE" data_type: TYPE_STRING dims: 1 }'
    )
    assert config.inputs[0].datatype == "BYTES"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('name: "a"\nmax_batch_sze: 3\n', r'here:2: not a Triton model configuration: .*no field named "max_batch_sze"'),
        ('name: "a"\n\nmax_batch_size: "x"', "here:3: .*parse integer"),
        ('name: "a" {', "here:1: "),
        ('input [ { name: "x" data_type: TYPE_FP99 } ]', "here:1: .*TYPE_FP99"),
        ("max_batch_size: -1", "here: max_batch_size must not be negative"),
        ("\0\1\2", "here:1: "),
    ],
)
def test_bad_syntax_names_the_line(text, message):
    with pytest.raises(ArtifactError, match=message):
        parse_config(text, where="here")


def test_unreadable_files_say_so(tmp_path):
    with pytest.raises(ArtifactError, match="missing"):
        read_config(tmp_path)
    (tmp_path / "config.pbtxt").write_bytes(b'name: "\xff\xfe"')
    with pytest.raises(ArtifactError, match="not UTF-8"):
        read_config(tmp_path)
    (tmp_path / "config.pbtxt").write_bytes(b"# " + b"x" * (1 << 21))
    with pytest.raises(ArtifactError, match="larger than"):
        read_config(tmp_path)


def test_a_data_type_by_a_number_that_there_is_not():
    with pytest.raises(ArtifactError, match="given: tensor 'x' has data type 99, which there is not"):
        parse_config_json('{"input": [{"name": "x", "data_type": 99}]}', where="given")


def test_all_differences_are_listed_at_once():
    config = parse_config(
        """
        name: "other"
        input [ { name: "images" data_type: TYPE_FP16 dims: [ 3, 32, 31 ] }, { name: "mask" data_type: TYPE_FP32 dims: 1 } ]
        output [ { name: "probabilities" data_type: TYPE_FP32 dims: 10 } ]
        """
    )
    with pytest.raises(ArtifactError) as caught:
        check_config(config, signature(), name="mine")
    text = str(caught.value)
    for part in (
        "the name is 'other', the folder is 'mine'",
        "max_batch_size must be from 1 to 16,384, got 0",
        "input 'mask' does not exist; the model has images",
        "declared TYPE_FP16, the model's is TYPE_FP32",
        "dims [3, 32, 31], the model's are [3, 32, 32]",
        "output 'probabilities' does not exist; the model has logits",
        "output 'logits' is not declared",
    ):
        assert part in text


def test_reading_never_imports_torch():
    code = "from headrace.runtime.artifact.model_config import parse_config\nparse_config('')\n"
    code += "import sys\nprint('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.strip() == "False"


@pytest.mark.parametrize(
    ("dtype", "row", "form"),
    [
        ("float32", (3, 32, 32), "NCHW"), ("float32", (1, 28, 28), "NCHW"), ("uint8", (32, 32, 3), "NHWC"),
        ("float32", (4, 8, 8), "NONE"), ("float32", (10,), "NONE"),
    ],
)  # fmt: skip
def test_clients_that_send_images_are_told_how_they_lie(dtype, row, form):
    config = text_format.Parse(config_text(signature(dtype=dtype, row=row), name="net"), model_config_pb2.ModelConfig())
    assert model_config_pb2.ModelInput.Format.Name(config.input[0].format) == f"FORMAT_{form}"
