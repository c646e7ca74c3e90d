"""What this machine can do at most, measured: matrix products per precision, copying, and a packaged model in batches.

    python tests/benchmarks/serving/roofline.py MODELS/NAME OUT.json [--seconds 1]

A peak is the best that any library here reached on one large matrix product (torch, and every backend that has the
precision), so it is what can be had, not what a data sheet promises. After S. Williams, A. Waterman and D. Patterson,
"Roofline", Communications of the ACM 52 (2009): a model's roof is the lower of peak over operations and bandwidth over bytes.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from headrace.errors import ArtifactError, BackendError, HeadraceError
from headrace.runtime import backends
from headrace.runtime.artifact.artifact import Artifact, load_artifact
from headrace.runtime.base.calibration import Calibration
from headrace.runtime.base.session import Target, default_threads
from headrace.runtime.lowering.portable import ONNX_FILE, PortableGraph
from headrace.runtime.tuning.measure import measure
from headrace.runtime.tuning.random_rows import random_rows
from headrace.specs import Precision, Signature, TensorSpec

PRECISIONS = ("fp32", "bf16", "fp16", "int8")
ELEMENT_BYTES = {"fp32": 4.0, "bf16": 2.0, "fp16": 2.0, "int8": 1.0}
_SIDE = {"cpu": 2048, "cuda": 8192}
_ROWS = {"cpu": 1024, "cuda": 8192}
_COPIED = {"cpu": 256 << 20, "cuda": 2 << 30}  # bytes; far beyond every cache


def roofline(folder: Path, *, seconds: float = 1.0) -> dict[str, Any]:
    """Peaks, bandwidth, the model's work per row, its batches and its roofs, as plain values. Each measurement takes `seconds`.

    Roofs are rows per second by precision and batch size. `operations_per_row` and the roofs are missing, with the reason in
    `unknown`, where the portable graph does not tell its sizes.
    """
    artifact = load_artifact(folder, trusted=True)
    plan = artifact.plan_here()
    peaks = matmul_peaks(plan.device, seconds=seconds)
    bandwidth = copy_bandwidth(plan.device, seconds=seconds)
    found: dict[str, Any] = {
        "device": plan.device,
        "threads": default_threads(),
        "peaks": peaks,
        "copy_bytes_per_second": bandwidth,
        "batches": batches(artifact, seconds=seconds),
        "roofs": {},
    }
    try:
        if ONNX_FILE not in artifact.files:
            raise ArtifactError(f"the model has no {ONNX_FILE}, so its operations are not counted")
        work = work_of(artifact.path / ONNX_FILE)
    except ArtifactError as error:
        return {**found, "unknown": str(error)}
    found["operations_per_row"] = work.operations
    for precision, peak in peaks.items():
        found["roofs"][precision] = {
            str(batch): min(
                peak["operations_per_second"] / max(1, work.operations),
                bandwidth / work.bytes_per_row(batch, ELEMENT_BYTES[precision]),
            )
            for batch in plan.buckets
        }
    return found


def matmul_peaks(device: str, *, seconds: float) -> dict[str, dict[str, Any]]:
    """{"operations_per_second", "by"} for each precision that some library here computes products in."""
    peaks: dict[str, dict[str, Any]] = {}
    for precision in PRECISIONS:
        for name, call in _products(device, precision):
            best = 2 * _ROWS[device] * _SIDE[device] ** 2 / _shortest(call, seconds)
            if precision not in peaks or best > peaks[precision]["operations_per_second"]:
                peaks[precision] = {"operations_per_second": best, "by": name}
    return peaks


def copy_bandwidth(device: str, *, seconds: float) -> float:
    """Bytes per second that a copy of a large array moves, reading and writing counted."""
    import torch

    source = torch.zeros(_COPIED[device], dtype=torch.uint8, device=device)
    target = torch.zeros_like(source)
    return 2 * _COPIED[device] / _shortest(_waited(lambda: target.copy_(source), device), seconds)


def batches(artifact: Artifact, *, seconds: float) -> list[dict[str, Any]]:
    """Rows per second of the plan's session at each of its batch sizes, alone on the machine, on random rows."""
    plan, found = artifact.plan_here(), []
    for bucket in plan.buckets:
        inputs = random_rows(artifact.signature, bucket)
        session = artifact.open(bucket)
        try:
            (samples,) = measure([session], inputs, seconds=seconds)
        finally:
            session.close()
        low, median, high = (float(np.percentile([bucket / one for one in samples.seconds], share)) for share in (25, 50, 75))
        found.append(
            {
                "batch": bucket,
                "runs": str(plan.choice(bucket)),
                "precision": plan.choice(bucket).precision.name,
                "rows_per_second": {"median": median, "low": low, "high": high},
            }
        )
    return found


def _products(device: str, precision: str) -> Iterator[tuple[str, Callable[[], object]]]:
    """One large product, by every library here that has the precision."""
    if (call := _by_torch(device, precision)) is not None:
        yield "torch", call
    target = Target(device=device, precision=Precision(precision))
    side, rows = _SIDE[device], _ROWS[device]
    for name, backend in backends.discover().items():
        if backend.format != "onnx" or backend.supports(target) is not None or name == "tensorrt":
            continue
        values = np.random.default_rng(0).standard_normal((rows, side)).astype(np.float32)
        with tempfile.TemporaryDirectory(prefix="headrace-") as scratch:
            _write_product(Path(scratch), side)
            graph = PortableGraph(
                Signature(
                    inputs=(TensorSpec(name="rows", dtype="float32", shape=("batch", side)),),
                    outputs=(TensorSpec(name="products", dtype="float32", shape=("batch", side)),),
                ),
                Calibration([values[:64]]),
            )
            try:
                session = backend.open(Path(scratch), target, backend.prepare(graph, target, Path(scratch)))
            except BackendError:  # another library's figure stands for the precision
                continue
        yield name, partial(session.run, [values])
        session.close()


def _by_torch(device: str, precision: str) -> Callable[[], object] | None:
    import torch

    torch.set_num_threads(default_threads())
    side, rows = _SIDE[device], _ROWS[device]
    if precision == "int8":
        left = torch.randint(-128, 128, (rows, side), dtype=torch.int8, device=device)
        right = torch.randint(-128, 128, (side, side), dtype=torch.int8, device=device)
        return _waited(lambda: torch._int_mm(left, right), device)
    if device == "cpu" and precision == "fp16":
        return None
    dtype = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}[precision]
    one, other = (torch.randn(size, side, device=device, dtype=dtype) for size in (rows, side))
    return _waited(lambda: torch.mm(one, other), device)


def _waited(call: Callable[[], object], device: str) -> Callable[[], object]:
    if device == "cpu":
        return call
    import torch

    def complete() -> None:
        call()
        torch.cuda.synchronize()

    return complete


def _write_product(directory: Path, side: int) -> None:
    import onnx
    from onnx import TensorProto, helper, numpy_helper

    weights = np.random.default_rng(1).standard_normal((side, side)).astype(np.float32)
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["rows", "weights"], ["products"], name="product")],
        "product",
        [helper.make_tensor_value_info("rows", TensorProto.FLOAT, ["batch", side])],
        [helper.make_tensor_value_info("products", TensorProto.FLOAT, ["batch", side])],
        [numpy_helper.from_array(weights, "weights")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    onnx.save(model, directory / ONNX_FILE)


def _shortest(call: Callable[[], object], seconds: float) -> float:
    """The shortest of the calls that fit into so many seconds, at least three, after one to warm up."""
    call()
    times: list[float] = []
    end = time.perf_counter() + seconds
    while len(times) < 3 or time.perf_counter() < end:
        begin = time.perf_counter()
        call()
        times.append(time.perf_counter() - begin)
    return min(times)


@dataclass(frozen=True, kw_only=True)
class Work:
    """`operations` per row: two (a product and a sum) for each multiply-accumulate of convolutions and matrix products.

    `weights` counts their elements, which a batch reads at least once; `elements` those of a row's inputs and outputs.
    """

    operations: int
    weights: int
    elements: int

    def bytes_per_row(self, batch: int, element_bytes: float) -> float:
        """The least that must cross the memory per row: the weights once per batch, inputs and outputs in 4 bytes."""
        return self.weights * element_bytes / batch + 4 * self.elements


def work_of(path: Path) -> Work:
    """The work of an ONNX graph whose first dimension is a symbolic batch. Raises ArtifactError where sizes are not known."""
    import onnx

    model = onnx.load(path, load_external_data=False)
    graph = model.graph
    for value in (*graph.input, *graph.output, *graph.value_info):
        if value.type.tensor_type.shape.dim and value.type.tensor_type.shape.dim[0].dim_param:
            value.type.tensor_type.shape.dim[0].dim_value = 1
    del graph.value_info[:]
    graph = onnx.shape_inference.infer_shapes(model, data_prop=True).graph
    weights = {item.name: tuple(item.dims) for item in graph.initializer}
    shapes = {value.name: _shape(value) for value in (*graph.input, *graph.output, *graph.value_info)} | weights
    operations = read = 0
    for node in graph.node:
        if node.op_type in ("Conv", "Gemm", "MatMul"):
            operations += 2 * _accumulations(node, shapes, path)
            read += sum(math.prod(weights[name]) for name in node.input if name in weights)
    ends = [value.name for value in (*graph.input, *graph.output) if value.name not in weights]
    return Work(operations=operations, weights=read, elements=sum(_size(shapes[name], path) for name in ends))


def _accumulations(node: Any, shapes: dict[str, tuple[int, ...]], path: Path) -> int:
    result = _size(shapes.get(node.output[0], ()), path)
    if node.op_type == "Conv":
        return result * _size(shapes.get(node.input[1], ())[1:], path)
    left = shapes.get(node.input[0], ())
    if not left:
        raise _unknown(path)
    transposed = any(item.name == "transA" and item.i for item in node.attribute)
    return result * (left[0] if transposed else left[-1])


def _shape(value: Any) -> tuple[int, ...]:
    return tuple(size.dim_value if size.HasField("dim_value") else 0 for size in value.type.tensor_type.shape.dim)


def _size(shape: tuple[int, ...], path: Path) -> int:
    if not shape or not all(shape):
        raise _unknown(path)
    return math.prod(shape)


def _unknown(path: Path) -> ArtifactError:
    return ArtifactError(f"the sizes in {path.name} cannot be told without running it, so its operations are not counted")


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("model", type=Path, help="a model's folder in a model repository")
    parser.add_argument("out", type=Path, help="where the figures go as JSON")
    parser.add_argument("--seconds", type=float, default=1.0, help="of each measurement (default 1)")
    given = parser.parse_args(arguments)
    try:
        found = roofline(given.model, seconds=given.seconds)
    except HeadraceError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    aside = given.out.with_name(f".{given.out.name}.{os.getpid()}")
    aside.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    aside.replace(given.out)
    return 0


if __name__ == "__main__":
    sys.exit(main())
