"""Triton's `onnxruntime` backend where the real one is not at hand: a Python-based backend that runs ONNX Runtime's own wheel.

`headrace triton install` copies this file as BACKENDS/onnxruntime/model.py, after which Triton takes it for every model with
`backend: "onnxruntime"`. It needs only numpy and onnxruntime, and `triton_python_backend_utils`, which Triton provides.

It reads of a config what the real backend reads on a CPU: the file's name, the parameters `intra_op_thread_count`,
`inter_op_thread_count` and `execution_mode`, and the level of `optimization.graph`; and like that one it compares the config
with the graph. It knows no GPU: a GPU's accelerators are passed over, as the real one does for instances on a CPU.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

_MODEL = "model.onnx"
_TYPES = {
    "float": "FP32", "float16": "FP16", "double": "FP64", "bfloat16": "BF16", "bool": "BOOL", "string": "STRING",
    "int8": "INT8", "int16": "INT16", "int32": "INT32", "int64": "INT64",
    "uint8": "UINT8", "uint16": "UINT16", "uint32": "UINT32", "uint64": "UINT64",
}  # fmt: skip


class TritonPythonModel:
    """The methods that Triton calls, see the README of triton-inference-server/python_backend."""

    @staticmethod
    def auto_complete_config(config: Any) -> Any:
        """Nothing is completed: a config of Headrace's says everything."""
        return config

    def initialize(self, args: dict[str, str]) -> None:
        import onnxruntime

        config = json.loads(args["model_config"])
        path = Path(args["model_repository"]) / args["model_version"] / (config.get("default_model_filename") or _MODEL)
        self.session = onnxruntime.InferenceSession(
            path, sess_options=_options(onnxruntime, config), providers=["CPUExecutionProvider"]
        )
        self.batches = config["max_batch_size"] > 0
        given, made = self.session.get_inputs(), self.session.get_outputs()
        if len(config["input"]) != len(given):
            raise ValueError(f"configuration expects {len(config['input'])} inputs, model provides {len(given)}")
        if not config["output"]:
            raise ValueError("configuration declares no output")
        self.inputs = [_checked(entry, "input", given, self.batches) for entry in config["input"]]
        self.outputs = [_checked(entry, "output", made, self.batches) for entry in config["output"]]

    def execute(self, requests: list[Any]) -> list[Any]:
        """One response per request, in order, from one run over the rows of all; if it fails, each hears why."""
        import triton_python_backend_utils as pb_utils

        given = [[pb_utils.get_input_tensor_by_name(request, name).as_numpy() for name in self.inputs] for request in requests]
        groups = [list(range(len(requests)))] if self.batches else [[index] for index in range(len(requests))]
        responses: list[Any] = [None] * len(requests)
        for group in groups:
            tensors = [np.concatenate([given[index][slot] for index in group]) for slot in range(len(self.inputs))]
            try:
                results = self.session.run(self.outputs, dict(zip(self.inputs, tensors)))  # noqa: B905 - 3.9
            except Exception as error:  # noqa: BLE001 - whatever ONNX Runtime raises is the request's answer, as in the real backend
                for index in group:
                    responses[index] = pb_utils.InferenceResponse(
                        output_tensors=[], error=pb_utils.TritonError(f"onnx runtime error: {error}")
                    )
                continue
            begin = 0
            for index in group:
                end = begin + len(given[index][0])
                wanted = requests[index].requested_output_names()
                responses[index] = pb_utils.InferenceResponse(
                    output_tensors=[
                        pb_utils.Tensor(name, np.ascontiguousarray(result[begin:end]))
                        for name, result in zip(self.outputs, results)  # noqa: B905 - 3.9
                        if name in wanted
                    ]
                )
                begin = end
        return responses


def _checked(entry: dict[str, Any], side: str, actual: list[Any], batches: bool) -> str:
    """The tensor's name, after comparing what the config says of it with the graph."""
    name, found = entry["name"], {tensor.name: tensor for tensor in actual}
    if name not in found:
        raise ValueError(f"unexpected inference {side} '{name}', allowed {side}s are: {', '.join(found)}")
    tensor = found[name]
    kind = _TYPES.get(tensor.type.removeprefix("tensor(").removesuffix(")"))
    if entry["data_type"] != f"TYPE_{kind}":
        raise ValueError(f"configuration expects {entry['data_type']} for {side} '{name}', model provides TYPE_{kind}")
    if batches and (not tensor.shape or isinstance(tensor.shape[0], int)):
        raise ValueError(f"for the model to support batching, the first dimension of '{name}' must vary, it has {tensor.shape}")
    dims = entry["reshape"]["shape"] if entry.get("reshape") is not None else entry["dims"]
    sizes = tensor.shape[1:] if batches else tensor.shape
    fits = len(dims) == len(sizes) and all(
        one == -1 or not isinstance(two, int) or int(one) == two
        for one, two in zip(dims, sizes)  # noqa: B905 - 3.9
    )
    if not fits:
        raise ValueError(f"configuration expects dims {dims} for {side} '{name}', model provides {sizes}")
    return name


def _options(onnxruntime: Any, config: dict[str, Any]) -> Any:
    """What the real backend makes of a config, see the README of triton-inference-server/onnxruntime_backend."""
    options = onnxruntime.SessionOptions()
    parameters = {name: value["string_value"] for name, value in config.get("parameters", {}).items()}
    options.intra_op_num_threads = int(parameters.get("intra_op_thread_count", 0))
    options.inter_op_num_threads = int(parameters.get("inter_op_thread_count", 0))
    accelerators = config.get("optimization", {}).get("execution_accelerators", {}).get("cpu_execution_accelerator", [])
    for accelerator in accelerators:
        raise ValueError(f"Execution Accelerator '{accelerator['name']}' is not in this build of onnxruntime")
    if parameters.get("execution_mode") == "1":
        options.execution_mode = onnxruntime.ExecutionMode.ORT_PARALLEL
    level = config.get("optimization", {}).get("graph", {}).get("level", 0)
    levels = onnxruntime.GraphOptimizationLevel
    options.graph_optimization_level = {
        -1: levels.ORT_ENABLE_BASIC,
        1: levels.ORT_ENABLE_EXTENDED,
        2: levels.ORT_DISABLE_ALL,
    }.get(level, levels.ORT_ENABLE_ALL)
    return options
