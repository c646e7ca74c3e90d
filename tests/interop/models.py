"""Models as the tests and examples of others name them, written as ONNX graphs."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

from headrace.runtime.artifact.write_artifact import write_artifact
from headrace.specs import Signature, TensorSpec

Sizes = Mapping[str, tuple[str, tuple[int, ...]]]  # a tensor's dtype and the shape of one row, by its name

_OPSET = helper.make_opsetid("", 17)


def package(
    models: Path,
    name: str,
    scratch: Path,
    nodes: Sequence[onnx.NodeProto],
    inputs: Sizes,
    outputs: Sizes,
    *,
    constants: Mapping[str, np.ndarray] | None = None,
    labels: Mapping[str, Sequence[str]] | None = None,
    max_batch_size: int = 8,
) -> None:
    """Write the model of an ONNX graph into the repository `models`; its file is made in `scratch`."""
    files = scratch / name
    files.mkdir()
    sizes = {tensor: ["batch", *row] for side in (inputs, outputs) for tensor, (_, row) in side.items()}
    _save(files, name, nodes, inputs, outputs, sizes, constants)
    given, made = (
        tuple(TensorSpec(name=tensor, dtype=dtype, shape=("batch", *row)) for tensor, (dtype, row) in side.items())
        for side in (inputs, outputs)
    )
    write_artifact(
        models / name,
        name=name,
        files_from=files,
        signature=Signature(inputs=given, outputs=made),
        parity={},
        plans=[],
        provenance={},
        max_batch_size=max_batch_size,
        labels=labels,
    )


def unpackaged(
    models: Path,
    name: str,
    scratch: Path,
    nodes: Sequence[onnx.NodeProto],
    inputs: Sizes,
    outputs: Sizes,
    *,
    constants: Mapping[str, np.ndarray] | None = None,
    labels: Mapping[str, Sequence[str]] | None = None,
    max_batch_size: int = 8,
    more: str = "",
) -> None:
    """The same as a folder of Triton's own, which Headrace did not write: sizes may be -1, and dtypes "object".

    `more` are further lines of its config.
    """
    sizes: dict[str, list[int | str]] = {}
    config = [f'name: "{name}" platform: "onnxruntime_onnx" max_batch_size: {max_batch_size}', more]
    for side, tensors in (("input", inputs), ("output", outputs)):
        for tensor, (dtype, row) in tensors.items():
            sizes[tensor] = [*(["batch"] if max_batch_size else []), *(f"any{size}" if size == -1 else size for size in row)]
            kind = {"float32": "FP32", "float64": "FP64", "float16": "FP16", "object": "STRING"}.get(dtype, dtype.upper())
            file = f'label_filename: "{tensor}.txt"' if tensor in (labels or {}) else ""
            config.append(f'{side} {{ name: "{tensor}" data_type: TYPE_{kind} dims: {list(row)} {file} }}')
    (models / name / "1").mkdir(parents=True)
    _save(models / name / "1", name, nodes, inputs, outputs, sizes, constants)
    (models / name / "config.pbtxt").write_text("\n".join(config) + "\n")
    for tensor, lines in (labels or {}).items():
        (models / name / f"{tensor}.txt").write_text("\n".join(lines) + "\n")


def _save(
    folder: Path,
    name: str,
    nodes: Sequence[onnx.NodeProto],
    inputs: Sizes,
    outputs: Sizes,
    sizes: Mapping[str, list[int | str]],
    constants: Mapping[str, np.ndarray] | None,
) -> None:
    sides = [
        [
            helper.make_tensor_value_info(tensor, getattr(TensorProto, _onnx(dtype)), sizes[tensor])
            for tensor, (dtype, _) in side.items()
        ]
        for side in (inputs, outputs)
    ]
    initializers = [numpy_helper.from_array(value, constant) for constant, value in (constants or {}).items()]
    graph = helper.make_graph(nodes, name, *sides, initializer=initializers)
    onnx.save(helper.make_model(graph, opset_imports=[_OPSET], ir_version=9), folder / "model.onnx")


def arithmetic(
    models: Path,
    name: str,
    scratch: Path,
    *,
    dtype: str = "int32",
    to: str = "",
    other_to: str = "",
    row: tuple[int, ...] = (16,),
    signs: str = "+-",
    max_batch_size: int = 8,
    write: Callable[..., None] = package,
) -> None:
    """INPUT0 and INPUT1, their sum and their difference: `simple` of Triton's quick start.

    `to` is the outputs' dtype where it is another, `other_to` that of OUTPUT1; `signs` say what OUTPUT0 and OUTPUT1 are.
    `write` is `package` or `unpackaged`.
    """
    first, second, out, other = (f"{side}{n}" for side in ("INPUT", "OUTPUT") for n in (0, 1))
    # ONNX Runtime adds no int8.
    wide = "float32" if dtype.startswith("float") else "int64"
    kinds = {out: to or dtype, other: other_to or to or dtype}
    nodes = [
        *(
            helper.make_node("Cast", [given], [f"wide_{given}"], to=getattr(TensorProto, _onnx(wide)))
            for given in (first, second)
        ),
        *(
            helper.make_node({"+": "Add", "-": "Sub"}[sign], [f"wide_{first}", f"wide_{second}"], [f"wide_{made}"])
            for sign, made in zip(signs, (out, other), strict=True)
        ),
        *(
            helper.make_node("Cast", [f"wide_{made}"], [made], to=getattr(TensorProto, _onnx(kind)))
            for made, kind in kinds.items()
        ),
    ]
    inputs, outputs = dict.fromkeys((first, second), (dtype, row)), {made: (kind, row) for made, kind in kinds.items()}
    scores = row == (16,) and (kinds[out].startswith("float") or write is unpackaged)
    labels = {out: [f"label{number}" for number in range(16)]} if scores else None
    write(models, name, scratch, nodes, inputs, outputs, labels=labels, max_batch_size=max_batch_size)


def versions(
    models: Path,
    name: str,
    scratch: Path,
    numbers: Sequence[int],
    *,
    policy: str,
    dtype: str,
    to: str = "",
    write: Callable[..., None] = package,
) -> None:
    """`arithmetic` in several versions, of which all but the first swap the two outputs, as in NVIDIA's generator of models."""
    for number in numbers:
        own = scratch / f"{name}_{number}"
        (own / "files").mkdir(parents=True)
        arithmetic(own, name, own / "files", dtype=dtype, to=to, signs="+-" if number == 1 else "-+", write=write)
        if not (models / name).exists():
            shutil.copytree(own / name, models / name, ignore=shutil.ignore_patterns("1"))
        shutil.copytree(own / name / "1", models / name / str(number))
    with (models / name / "config.pbtxt").open("a") as config:
        config.write(f"version_policy {{ {policy} }}\n")


def identity(
    models: Path,
    name: str,
    scratch: Path,
    *,
    dtype: str = "int32",
    row: tuple[int, ...] = (16,),
    count: int = 1,
    names: tuple[str, str] = ("INPUT{}", "OUTPUT{}"),
    max_batch_size: int = 8,
    write: Callable[..., None] = package,
) -> None:
    """INPUT0 as OUTPUT0, and so `count` tensors."""
    pairs = [(names[0].format(number), names[1].format(number)) for number in range(count)]
    nodes = [helper.make_node("Identity", [given], [made]) for given, made in pairs]
    inputs, outputs = (dict.fromkeys(side, (dtype, row)) for side in zip(*pairs, strict=True))
    write(models, name, scratch, nodes, inputs, outputs, max_batch_size=max_batch_size)


def waiting(models: Path, name: str, scratch: Path, *, seconds: float) -> None:
    """INPUT0, one whole number, as OUTPUT0; for a 10 only after so long, by products that this machine is timed with."""
    probe, trial = scratch / "probe", 100
    (probe / "files").mkdir(parents=True)
    _products(probe, name, probe / "files", trial)
    session = onnxruntime.InferenceSession(probe / name / "1" / "model.onnx")
    begin = time.monotonic()
    session.run(None, {"INPUT0": np.array([[10]], np.int32)})
    _products(models, name, scratch, round(seconds / (time.monotonic() - begin) * trial))


def _products(models: Path, name: str, scratch: Path, products: int) -> None:
    """The model of `waiting`. Warm-up sends it no 10."""
    matrix = np.full((512, 512), 1 / 512, np.float32)
    body = helper.make_graph(
        [
            helper.make_node("MatMul", ["before", "matrix"], ["after"]),
            helper.make_node("Identity", ["on"], ["still"]),
        ],
        "product",
        [
            helper.make_tensor_value_info("step", TensorProto.INT64, []),
            helper.make_tensor_value_info("on", TensorProto.BOOL, []),
            helper.make_tensor_value_info("before", TensorProto.FLOAT, [512, 512]),
        ],
        [
            helper.make_tensor_value_info("still", TensorProto.BOOL, []),
            helper.make_tensor_value_info("after", TensorProto.FLOAT, [512, 512]),
        ],
    )
    nodes = [
        helper.make_node("Equal", ["INPUT0", "ten"], ["tens"]),
        helper.make_node("Cast", ["tens"], ["ones"], to=TensorProto.INT64),
        helper.make_node("ReduceMax", ["ones"], ["one"], keepdims=0),
        helper.make_node("Mul", ["one", "products"], ["steps"]),
        helper.make_node("Loop", ["steps", "", "matrix"], ["last"], body=body),
        helper.make_node("ReduceMax", ["last"], ["largest"], keepdims=0),  # below 1 / 2, so that it adds nothing
        helper.make_node("Cast", ["largest"], ["nothing"], to=TensorProto.INT32),
        helper.make_node("Add", ["INPUT0", "nothing"], ["OUTPUT0"]),
    ]
    constants = {"ten": np.array(10, np.int32), "products": np.array(products, np.int64), "matrix": matrix}
    package(models, name, scratch, nodes, {"INPUT0": ("int32", (1,))}, {"OUTPUT0": ("int32", (1,))}, constants=constants)


def _onnx(dtype: str) -> str:
    return {"float32": "FLOAT", "float64": "DOUBLE", "object": "STRING"}.get(dtype, dtype.upper())
