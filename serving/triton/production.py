"""What a configuration gets for production: instances, queue policy, warm-up, and what the plan says of Triton's backend.

Each function changes a `ModelConfig` message and returns caveats for people. Field meanings: Triton's model_configuration.md
and the README of its onnxruntime_backend.
"""

from __future__ import annotations

import io
import struct
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ...runtime.artifact.artifact import Artifact
from ...runtime.artifact.plan import Plan
from ..models.warmup import sample_inputs
from .config import Settings

_IMAGE = "image"
_FILE = "model.onnx"
_TENSORRT_PRECISIONS = ("fp32", "fp16")


def tensor_settings(config: Any, artifact: Artifact, settings: Settings, warmup: Path) -> list[str]:
    """The settings of a tensor model whose graph ONNX Runtime runs. `warmup` is the folder for what its warm-up sends."""
    plan, caveats = _plan(artifact, settings)
    gpu = settings.device != "cpu"
    _instances(config, "KIND_GPU" if gpu else "KIND_CPU", settings.instances)
    _queue(config, settings)
    if plan is not None:
        caveats += _file_of_plan(config, plan, settings)
        if plan.threads and not gpu:
            config.parameters["intra_op_thread_count"].string_value = str(plan.threads)
    if settings.device == "tensorrt":
        caveats += _tensorrt(config, plan, settings)
    _warm_up(config, plan, artifact, warmup)
    return caveats


def decoder_settings(config: Any, settings: Settings, warmup: Path) -> list[str]:
    """The settings of the Python model that decodes: always on CPUs. `warmup` is the folder for its warm-up's image."""
    _instances(config, "KIND_CPU", settings.decoders)
    _queue(config, settings)
    (tensor,) = config.input
    source = config.model_warmup.add(name="one image", batch_size=1).inputs[tensor.name]
    source.data_type = tensor.data_type
    source.dims.extend(tensor.dims)
    source.input_data_file = _IMAGE
    warmup.mkdir(exist_ok=True)
    (warmup / _IMAGE).write_bytes(_gray_image())
    return []


def _gray_image() -> bytes:
    """A PNG in the form of a BYTES tensor's element: its length as little-endian uint32, then the file."""
    from PIL import Image

    data = io.BytesIO()
    Image.new("RGB", (64, 64), (128, 128, 128)).save(data, "PNG")
    return struct.pack("<I", len(data.getvalue())) + data.getvalue()


def _plan(artifact: Artifact, settings: Settings) -> tuple[Plan | None, list[str]]:
    device = "cpu" if settings.device == "cpu" else "cuda"
    for plan in artifact.plans:
        if plan.device == device and not plan.portable:
            cpu, gpus = plan.fingerprint.get("cpu"), plan.fingerprint.get("gpus") or ()
            where = ", ".join(map(str, gpus)) if device == "cuda" and gpus else cpu
            return plan, [f"settings from the plan measured on {where}; measure on the serving machine for others"]
    return None, [f"no plan was measured for {device}: ONNX Runtime's own settings; headrace tune measures there"]


def _file_of_plan(config: Any, plan: Plan, settings: Settings) -> list[str]:
    """Open the plan's own graph where ONNX Runtime runs it for every batch size, so that answers stay those of the plan."""
    choices = set(plan.choices.values())
    if all(choice.backend == "onnxruntime" for choice in choices):
        files = {choice.files[0] for choice in choices}
        if len(files) == 1 and (file := files.pop()) != _FILE:
            config.default_model_filename = file
            return [f"Triton opens {file}, as the plan does ({next(iter(choices))})"]
        if not files:
            return []
    if settings.device == "tensorrt" and all(choice.backend == "tensorrt" for choice in choices):
        return []
    caveats = []
    for choice in sorted(choices, key=str):
        if choice.backend == "onnxruntime" and choice.files[:1] == (_FILE,):
            continue
        sizes = ", ".join(str(bucket) for bucket, one in plan.choices.items() if one == choice)
        caveats.append(
            f"the plan runs batches of {sizes} with {choice}, which Triton's onnxruntime backend does not: it runs {_FILE} "
            "in fp32. Answers differ by what the precisions do, and speed by what was measured"
        )
    return caveats


def _instances(config: Any, kind: str, count: int) -> None:
    from ...runtime.artifact.triton_messages import model_config as schema

    del config.instance_group[:]
    config.instance_group.add(kind=schema.ModelInstanceGroup.Kind.Value(kind), count=count)


def _queue(config: Any, settings: Settings) -> None:
    """The embedded server's admission in Triton's terms, but that Triton's deadlines end where computing begins."""
    policy = config.dynamic_batching.default_queue_policy
    policy.timeout_action = policy.REJECT
    policy.default_timeout_microseconds = round(settings.timeout_seconds * 1e6)
    policy.allow_timeout_override = True
    policy.max_queue_size = settings.max_queue


def _tensorrt(config: Any, plan: Plan | None, settings: Settings) -> list[str]:
    accelerators = config.optimization.execution_accelerators.gpu_execution_accelerator
    del accelerators[:]
    parameters = accelerators.add(name="tensorrt").parameters
    planned = (
        {choice.precision.name for choice in plan.choices.values() if choice.backend == "tensorrt"}
        if plan is not None
        else set()
    )
    precision = planned.pop() if len(planned) == 1 and planned <= set(_TENSORRT_PRECISIONS) else "fp32"
    parameters["precision_mode"] = precision.upper()
    caveats = [
        f"TensorRT computes in {precision}{'' if plan is not None else '; a lower precision needs a plan that proved it'}"
    ]
    fixed = all(size > 0 for tensor in config.input for size in tensor.dims)
    if fixed:  # one engine for all batch sizes, instead of a new one for every size that is first met
        usual = max(plan.buckets) if plan is not None else config.max_batch_size
        for kind, rows in (("min", 1), ("opt", min(usual, config.max_batch_size)), ("max", config.max_batch_size)):
            parameters[f"trt_profile_{kind}_shapes"] = ",".join(_profile(tensor, rows) for tensor in config.input)
    if settings.engine_cache is not None:
        parameters["trt_engine_cache_enable"] = "1"
        parameters["trt_engine_cache_path"] = settings.engine_cache
    else:
        caveats.append("engines are built at every start, which takes minutes; --engine-cache DIR keeps them")
    return caveats


def _profile(tensor: Any, rows: int) -> str:
    dims = tensor.reshape.shape if tensor.HasField("reshape") else tensor.dims
    return f"{tensor.name}:{'x'.join(str(size) for size in (rows, *dims))}"


def _warm_up(config: Any, plan: Plan | None, artifact: Artifact, folder: Path) -> None:
    """Every batch size of the plan once, so that no request pays for kernels that are chosen at first use.

    Triton's own random_data are random bytes, among them numbers that are none, and on some of those a good model fails. So
    it gets the noise that the embedded server warms up with: one row, which Triton repeats.
    """
    if any(size < 1 for tensor in config.input for size in tensor.dims):
        return
    rows_of = dict(zip((spec.name for spec in artifact.signature.inputs), sample_inputs(artifact.signature, 1), strict=True))
    folder.mkdir(exist_ok=True)
    for index, tensor in enumerate(config.input):
        (folder / f"input{index}").write_bytes(rows_of[tensor.name].tobytes())
    for rows in _warm_sizes(plan, config.max_batch_size):
        sample = config.model_warmup.add(name=f"{rows} row{'s' * (rows > 1)}", batch_size=rows)
        for index, tensor in enumerate(config.input):
            source = sample.inputs[tensor.name]
            source.data_type = tensor.data_type
            source.dims.extend(tensor.dims)
            source.input_data_file = f"input{index}"


def _warm_sizes(plan: Plan | None, largest: int) -> Sequence[int]:
    planned = plan.buckets if plan is not None else ()
    return sorted({1, *(size for size in planned if size < largest), largest})
