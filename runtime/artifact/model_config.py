"""Triton's `config.pbtxt`: written for a signature, read back, and held against it. Torch-free.

Field meanings are those of Triton's docs/user_guide/model_configuration.md.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ...errors import ArtifactError
from ...specs import Signature, TensorSpec
from ...trust import open_regular

FILE = "config.pbtxt"
MOST_ROWS = 16_384
"""That a batch may have: the times of batches are planned for every number of rows up to the largest."""
_MAX_BYTES = 1 << 20
_MAX_DEPTH = 20  # of JSON; the message itself is no deeper

# Tensor dtype -> the Open Inference Protocol's name; Triton's own enum is the same with "TYPE_" in front.
DATATYPES: Mapping[str, str] = {
    "float32": "FP32",
    "float16": "FP16",
    "bfloat16": "BF16",
    "float64": "FP64",
    "int64": "INT64",
    "int32": "INT32",
    "int16": "INT16",
    "int8": "INT8",
    "uint8": "UINT8",
    "bool": "BOOL",
}


@dataclass(frozen=True, kw_only=True)
class ConfigTensor:
    """An input or output in a config: `datatype` is the protocol's name ("FP32", "BYTES"; "INVALID" where the config says
    none). `dims` are those of a row as clients have it, `shape` as the model has it: another where the config reshapes it."""

    name: str
    datatype: str
    shape: tuple[int, ...]
    label_filename: str = ""
    dims: tuple[int, ...] = ()


@dataclass(frozen=True, kw_only=True)
class ModelConfig:
    """What a `config.pbtxt` says. `message` is the whole of it as JSON, in Triton's field names.

    `backend` is "onnxruntime", "python" or "ensemble"; `max_batch_size` 0 means that the model takes no batches;
    `queue_delay_us` is how long the batcher may wait for more rows, and None where dynamic batching is off.
    """

    name: str
    backend: str
    max_batch_size: int
    inputs: tuple[ConfigTensor, ...]
    outputs: tuple[ConfigTensor, ...]
    queue_delay_us: int | None = None
    message: Mapping[str, Any] = field(default_factory=dict, compare=False, repr=False)


def config_text(
    signature: Signature,
    *,
    name: str,
    backend: str = "onnxruntime",
    max_batch_size: int = 16,
    queue_delay_us: int = 1000,
    label_filenames: Mapping[str, str] | None = None,
) -> str:
    """The config of a tensor model; `label_filenames` are those of outputs whose entries have names."""
    from .triton_messages import model_config as schema

    config = schema.ModelConfig(name=name, backend=backend, max_batch_size=max_batch_size)
    for spec, message in [(spec, config.input.add()) for spec in signature.inputs] + [
        (spec, config.output.add()) for spec in signature.outputs
    ]:
        message.name = spec.name
        message.data_type = schema.DataType.Value(f"TYPE_{DATATYPES[spec.dtype]}")
        message.dims.extend(spec.row_shape or (1,))
        if not spec.row_shape:  # Triton has no scalar rows: they are declared as one element and reshaped
            message.reshape.SetInParent()
    for spec, message in zip(signature.inputs, config.input, strict=True):
        if len(spec.row_shape) == 3:  # what clients that send images ask
            form = "NHWC" if signature.takes_pixels else "NCHW" if spec.row_shape[0] in (1, 3) else "NONE"
            message.format = schema.ModelInput.Format.Value(f"FORMAT_{form}")
    for message in config.output:
        message.label_filename = (label_filenames or {}).get(message.name, "")
    config.dynamic_batching.max_queue_delay_microseconds = queue_delay_us
    config.instance_group.add(kind=schema.ModelInstanceGroup.KIND_AUTO, count=1)
    return to_text(config)


def to_text(config: Any) -> str:
    """A protobuf message in the text format, one field per line."""
    from google.protobuf import text_format

    return text_format.MessageToString(config, as_utf8=True)


def read_config(path: str | Path) -> ModelConfig:
    """Read a model's folder or its `config.pbtxt`. Raises ArtifactError with the line on whatever Triton would not accept."""
    path = Path(path)
    path = path / FILE if path.is_dir() else path
    try:
        with open_regular(path) as file:
            raw = file.read(_MAX_BYTES + 1)
    except FileNotFoundError:
        raise ArtifactError(f"{path} is missing; it names the model's inputs and outputs") from None
    except OSError as error:
        raise ArtifactError(f"{path} cannot be read: {error.strerror}") from error
    if len(raw) > _MAX_BYTES:
        raise ArtifactError(f"{path} is larger than {_MAX_BYTES:,} bytes; it is no model configuration")
    try:
        return parse_config(raw.decode("utf-8"), where=str(path))
    except UnicodeDecodeError as error:
        raise ArtifactError(f"{path} is not UTF-8 text (byte {error.start})") from error


def parse_config(text: str, *, where: str = FILE) -> ModelConfig:
    """Read the text format; `where` names the file in errors. Raises ArtifactError with the line."""
    from google.protobuf import text_format

    from .triton_messages import model_config as schema

    try:
        config = text_format.Parse(text, schema.ModelConfig())
    except text_format.ParseError as error:
        at = f"{where}:{error.GetLine()}" if error.GetLine() else where
        reason = str(error).partition(" : ")[2] or str(error)
        raise ArtifactError(f"{at}: not a Triton model configuration: {reason}") from error
    return _of_message(config, where)


def parse_config_json(text: str, *, where: str) -> ModelConfig:
    """Read the JSON form, as the protocol's load request carries it. Raises ArtifactError naming the field."""
    from google.protobuf import json_format

    from .triton_messages import model_config as schema

    try:
        config = json_format.Parse(text, schema.ModelConfig(), max_recursion_depth=_MAX_DEPTH)
    except json_format.ParseError as error:
        raise ArtifactError(f"{where} is not a Triton model configuration in JSON: {error}") from error
    return _of_message(config, where)


def _of_message(config: Any, where: str) -> ModelConfig:
    from google.protobuf import json_format

    from .triton_messages import model_config as schema

    if config.max_batch_size < 0:
        raise ArtifactError(f"{where}: max_batch_size must not be negative, got {config.max_batch_size}")
    return ModelConfig(
        name=config.name,
        backend=config.backend or config.platform.removesuffix("_onnx"),
        max_batch_size=config.max_batch_size,
        inputs=tuple(_tensor(message, schema, where) for message in config.input),
        outputs=tuple(_tensor(message, schema, where) for message in config.output),
        queue_delay_us=(config.dynamic_batching.max_queue_delay_microseconds if config.HasField("dynamic_batching") else None),
        message=json_format.MessageToDict(config, preserving_proto_field_name=True, always_print_fields_with_no_presence=True),
    )


def check_config(config: ModelConfig, signature: Signature, *, name: str, where: str = FILE) -> None:
    """Raise ArtifactError listing all points in which a config and a model's signature differ; the config may be edited."""
    wrong = []
    if config.name not in ("", name):
        wrong.append(f"the name is {config.name!r}, the folder is {name!r}")
    if not 1 <= config.max_batch_size <= MOST_ROWS:
        wrong.append(f"max_batch_size must be from 1 to {MOST_ROWS:,}, got {config.max_batch_size:,}")
    for side, tensors, specs in (("input", config.inputs, signature.inputs), ("output", config.outputs, signature.outputs)):
        declared, actual = {tensor.name: tensor for tensor in tensors}, {spec.name: spec for spec in specs}
        wrong += [
            f"{side} {extra!r} does not exist; the model has {', '.join(actual)}" for extra in declared if extra not in actual
        ]
        if len(declared) != len(tensors):
            wrong.append(f"an {side} is declared twice")
        for spec in specs:
            wrong += _differences(side, declared.get(spec.name), spec)
    if wrong:
        raise ArtifactError(f"{where} does not fit the model:\n" + "\n".join(f"  {point}" for point in wrong))


def _differences(side: str, tensor: ConfigTensor | None, spec: TensorSpec) -> list[str]:
    if tensor is None:
        return [f"{side} {spec.name!r} is not declared"]
    wrong = []
    if tensor.datatype != DATATYPES[spec.dtype]:
        wrong.append(f"{side} {spec.name!r} is declared TYPE_{tensor.datatype}, the model's is TYPE_{DATATYPES[spec.dtype]}")
    fits = len(tensor.shape) == len(spec.row_shape) and all(
        size in (-1, actual) for size, actual in zip(tensor.shape, spec.row_shape, strict=True)
    )
    if not fits:
        wrong.append(f"{side} {spec.name!r} is declared with dims {list(tensor.shape)}, the model's are {list(spec.row_shape)}")
    return wrong


def _tensor(message: Any, schema: Any, where: str) -> ConfigTensor:
    try:
        kind = schema.DataType.Name(message.data_type).removeprefix("TYPE_")
    except ValueError:  # JSON may have a number for it
        raise ArtifactError(f"{where}: tensor {message.name!r} has data type {message.data_type}, which there is not") from None
    shape = message.reshape.shape if message.HasField("reshape") else message.dims
    return ConfigTensor(
        name=message.name,
        datatype="BYTES" if kind == "STRING" else kind,
        shape=tuple(shape),
        label_filename=getattr(message, "label_filename", ""),
        dims=tuple(message.dims),
    )
