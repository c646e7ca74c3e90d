"""What each node of a graph takes, and what crosses between nodes: found by running it. Needs onnx and onnxruntime."""

from __future__ import annotations

import json
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from ....errors import BackendError
from ....scratch import ScratchFolder
from ..agreement import Array
from ..split.cutting import like, needed, reads
from .cutting import Chain, Value

if TYPE_CHECKING:
    from onnx import NodeProto

ROWS = 4  # a batch as it comes under load, of the six known rows
_LEAST_RUNS, _SECONDS = 4, 3.0
_BATCH = "batch"  # what the portable graph calls its first dimension


class Measured(NamedTuple):
    """The seconds of each node of a chain for `ROWS` rows, the least of some runs, and by name the tensors that cross. What is
    no tensor is not there."""

    seconds: list[float]
    values: dict[str, Value]


def measure(chain: Chain, places: Sequence[int], rows: Sequence[Array], *, threads: int) -> Measured:
    """Run the graph as it is, operator by operator, on the first rows. Raises BackendError."""
    import onnx
    import onnxruntime
    from onnx import helper

    graph = chain.model.graph
    weights = {weight.name: weight for weight in graph.initializer}
    inputs = [value.name for value in graph.input if value.name not in weights]
    outputs = [value.name for value in graph.output]
    crossing = list(dict.fromkeys(name for place in places for name in chain.crossing[place]))
    looked_at = [name for name in crossing if name not in (*inputs, *outputs)]
    names = [f"headrace-{number}" for number in range(len(chain.nodes))]
    nodes = [_named(node, name) for node, name in zip(chain.nodes, names, strict=True)]
    read = {name for node in nodes for name in reads(node)}
    constants = needed(chain.model, read - {name for node in nodes for name in node.output})
    ends = [*graph.output, *map(helper.make_empty_tensor_value_info, looked_at)]
    with ScratchFolder() as folder:
        path = folder / "graph.onnx"
        whole = like(chain.model, [*constants, *nodes], list(graph.input), ends, list(weights.values()))
        onnx.save_model(whole, str(path), save_as_external_data=True, location="weights")
        del whole
        options = onnxruntime.SessionOptions()
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL  # which would fuse nodes
        options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
        options.log_severity_level = 4
        options.enable_profiling, options.profile_file_prefix = True, str(folder / "profile")
        try:
            session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
            seen = []
            for count in (1, ROWS):
                given = dict(zip(inputs, [value[:count] for value in rows], strict=True))
                found = session.run([*outputs, *looked_at], given)
                seen.append({**given, **dict(zip([*outputs, *looked_at], found, strict=True))})
            begin, runs = time.perf_counter(), 0
            while runs < _LEAST_RUNS or (time.perf_counter() - begin < _SECONDS and runs < 10 * _LEAST_RUNS):
                session.run(outputs, {name: seen[1][name] for name in inputs})
                runs += 1
            profile = json.loads(Path(session.end_profiling()).read_text(encoding="utf-8"))
        except Exception as error:  # whatever the library raises
            raise BackendError(f"the graph cannot be measured: {error}") from error
    spent = defaultdict(list)
    for event in profile:
        if event.get("cat") == "Node" and event["name"].endswith("_kernel_time"):
            spent[event["name"].removesuffix("_kernel_time")].append(event["dur"] / 1e6)
    # the first two runs were of other rows, and cold
    seconds = [min(spent[name][2:], default=0.0) for name in names]
    values = {name: value for name in crossing if (value := _value(name, *seen)) is not None}
    return Measured(seconds, values)


def _named(node: NodeProto, name: str) -> NodeProto:
    made = type(node)()
    made.CopyFrom(node)
    made.name = name
    return made


def _value(name: str, one: Mapping[str, Array], more: Mapping[str, Array]) -> Value | None:
    """What a value is, from what it is for one row and for `ROWS`: dimensions that are the same then are always."""
    sides = one[name], more[name]
    if not all(isinstance(side, np.ndarray) and not side.dtype.hasobject for side in sides) or sides[0].ndim != sides[1].ndim:
        return None
    shape: list[int | str] = []
    for axis, (single, several) in enumerate(zip(sides[0].shape, sides[1].shape, strict=True)):
        moving = _BATCH if (axis, single, several) == (0, 1, ROWS) else f"{name}_{axis}"
        shape.append(single if single == several else moving)
    return Value(sides[1].dtype, tuple(shape), sides[1].nbytes)
