"""What stands between a module and its graph, found all at once, each at the user's own file and line.

PG100  the module fails when run as it is
PG101  an input is no tensor, has no batch dimension, or has a dtype that graphs do not take
PG102  a parameter is on another device than the inputs
PG103  an output is not a tensor
PG104  an output has no batch dimension
PG105  the shape of an output depends on values
PG106  the forward pass writes to a buffer
PG107  the rows of a batch influence each other
PG108  a submodule is compiled TorchScript
PG109  the forward pass is random
PG110  a parameter or buffer holds NaN or infinity
PG111  the graph and the module compute different values
PG120  a Python decision depends on a tensor's values
PG121  the code fixes the batch size
PG122  an operation cannot be captured
"""

from __future__ import annotations

import contextlib
import inspect
import io
import os
import traceback
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

import torch
from torch.export import ExportedProgram, draft_export

from ..errors import Obstacle
from .numerics import fresh_rows, largest_difference
from .programs import in_float64, runnable
from .quiet import quiet
from .structure import flatten

_LIBRARIES = (str(Path(torch.__file__).parent), str(Path(__file__).parent), str(Path(os.__file__).parent / "contextlib.py"))
_SPECIALISED = (
    "the batch size is fixed here ({guard}); keep it as the tensor gives it: "
    "x.shape[0] or -1 in view and reshape, no int() or len(), no =="
)
_TESTS_BATCH = "look for code that tests the batch size, and for random numbers"
_DECISION = "a Python decision depends on a tensor's values; use torch.where, or compute both branches"


@contextlib.contextmanager
def printing_suppressed() -> Iterator[None]:
    """torch.export prints partial graphs when it gives up; the obstacle list replaces them."""
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        yield


def in_inputs(inputs: Sequence[Any], dtypes: Mapping[torch.dtype, str]) -> list[Obstacle]:
    if not inputs:
        return [Obstacle("PG101", "at least one example input is needed")]
    found = []
    for index, value in enumerate(inputs):
        if not isinstance(value, torch.Tensor):
            found.append(Obstacle("PG101", f"input {index} is a {type(value).__name__}; pass tensors of shape [batch, ...]"))
        elif value.ndim < 1 or 0 in value.shape:
            found.append(
                Obstacle("PG101", f"input {index} has shape {tuple(value.shape)}; it needs a batch dimension and no empty ones")
            )
        elif value.dtype not in dtypes:
            found.append(
                Obstacle(
                    "PG101", f"input {index} is {_short(value.dtype)}; use float32 (the plan chooses lower precisions itself)"
                )
            )
        elif isinstance(inputs[0], torch.Tensor) and inputs[0].ndim and value.shape[0] != inputs[0].shape[0]:
            found.append(Obstacle("PG101", f"input {index} has {value.shape[0]} rows, input 0 has {inputs[0].shape[0]}"))
    return found


def in_module(module: torch.nn.Module, inputs: Sequence[torch.Tensor]) -> list[Obstacle]:
    found = []
    for name, item in module.named_modules():
        if isinstance(item, torch.jit.ScriptModule):
            message = f"{name or 'the module'} is compiled TorchScript; build it as an ordinary nn.Module instead"
            found.append(Obstacle("PG108", message))
    for name, value in [*module.named_parameters(), *module.named_buffers()]:
        if torch.nn.parameter.is_lazy(value):
            found.append(Obstacle("PG100", f"{name} has no shape yet; run the module once before it is captured"))
        elif value.device != inputs[0].device:
            message = f"{name} is on {value.device}, the inputs on {inputs[0].device}; move one with .to()"
            found.append(Obstacle("PG102", message))
        elif value.is_floating_point() and not bool(torch.isfinite(value.detach()).all()):
            found.append(Obstacle("PG110", f"{name} holds NaN or infinity; load weights that are finite"))
    return found


def stray(where: str, value: object, module: torch.nn.Module) -> Obstacle:
    """A value in the outputs that is no tensor."""
    path, line = _home(module)
    return Obstacle("PG103", f"{where} is a {type(value).__name__}, not a tensor; return tensors only", path, line)


def in_outputs(
    leaves: Sequence[torch.Tensor], names: Sequence[str], batch: int, dtypes: Mapping[torch.dtype, str]
) -> list[Obstacle]:
    if not leaves:
        return [Obstacle("PG103", "the module returns no tensor")]
    found = []
    for value, name in zip(leaves, names, strict=True):
        if value.ndim < 1 or value.shape[0] != batch or 0 in value.shape:
            message = f"output {name} has shape {tuple(value.shape)} for {batch} rows; the first dimension must be the batch"
            found.append(Obstacle("PG104", message))
        elif value.dtype not in dtypes:
            found.append(Obstacle("PG104", f"output {name} is {_short(value.dtype)}; return it as float32"))
    return found


def in_program(program: ExportedProgram, names: Sequence[str]) -> list[Obstacle]:
    """What the captured graph shows: writes to buffers, random operations, outputs whose shape is not [batch, fixed...]."""
    found = []
    nodes = {node.name: node for node in program.graph.nodes}
    for node_name, buffer in program.graph_signature.buffers_to_mutate.items():
        found.append(
            _at(
                nodes.get(node_name),
                "PG106",
                f"the forward pass writes to {_public(buffer)}; a graph keeps no state between calls",
            )
        )
    batches = {str(node.meta["val"].shape[0]) for node in nodes.values() if node.name in program.graph_signature.user_inputs}
    for node in nodes.values():
        if node.op != "call_function":
            continue
        if _writes_buffer(node, program):
            found.append(_at(node, "PG106", "the forward pass writes to a buffer; a graph keeps no state between calls"))
        if _is_random(node):
            found.append(
                _at(node, "PG109", "random numbers are drawn in evaluation mode; give F.dropout training=self.training")
            )
    for node_name, name in zip(program.graph_signature.user_outputs, names, strict=True):
        value = nodes[node_name].meta["val"]
        if any(not isinstance(size, int) for size in value.shape[1:]):
            found.append(
                _at(
                    nodes[node_name],
                    "PG105",
                    f"the shape of output {name}, {tuple(value.shape)}, depends on values or the batch",
                )
            )
        elif str(value.shape[0]) not in batches:
            code = "PG104" if isinstance(value.shape[0], int) else "PG105"
            found.append(
                _at(nodes[node_name], code, f"the first dimension of output {name} is {value.shape[0]}, not the batch")
            )
    return found


def in_behaviour(
    module: torch.nn.Module, program: ExportedProgram, example: tuple[torch.Tensor, ...], batches: Sequence[int]
) -> list[Obstacle]:
    """Run module and graph on the same fresh rows at every batch; they must agree, and rows must not depend on each other."""
    path, line = _home(module)
    graph = runnable(program)
    rows = tuple(fresh_rows(value, max(batches), seed=index) for index, value in enumerate(example))
    alone: list[torch.Tensor] = []
    for batch in batches:
        inputs = tuple(value[:batch] for value in rows)
        try:
            expected, _ = flatten(module(*(value.clone() for value in inputs)), torch.is_tensor, lambda where, value: None)
            actual = graph(*inputs)
        except Exception as error:  # noqa: BLE001 - the user's code may raise anything; it is reported with its place
            return [from_exception(error, code="PG111", prefix=f"captured, but it fails with {batch} rows: ")]
        if any(value.ndim < 1 or value.shape[0] != batch for value in expected):
            message = f"with {batch} rows the module returns {_shapes(expected)}; give squeeze() its dimension"
            return [Obstacle("PG111", message, path, line)]
        alone = alone or [value.detach() for value in expected]
        if [value.shape for value in expected] != [value.shape for value in actual]:
            message = f"with {batch} rows the module returns {_shapes(expected)}, the graph {_shapes(actual)}; {_TESTS_BATCH}"
            return [Obstacle("PG111", message, path, line)]
        if (worst := max(largest_difference(a, b) for a, b in zip(expected, actual, strict=True))) > 1e-3:
            message = f"with {batch} rows the graph differs from the module by {worst:.1e} of its range; {_TESTS_BATCH}"
            return [Obstacle("PG111", message, path, line)]
        mixed = max(largest_difference(a, b[: a.shape[0]]) for a, b in zip(alone, expected, strict=True))
        if mixed > 1e-3 and _rows_mix(program, rows):
            message = (
                "a row's result depends on the other rows of its batch, so it cannot be batched; look for batch statistics"
            )
            return [Obstacle("PG107", message, path, line)]
    return []


def _rows_mix(program: ExportedProgram, rows: tuple[torch.Tensor, ...]) -> bool:
    """Whether rows influence each other in float64, where rounding cannot be the reason."""
    graph = runnable(in_float64(program))
    double = tuple(value.double() if value.is_floating_point() else value for value in rows)
    together = graph(*double)
    single = graph(*(value[:1] for value in double))
    return max(largest_difference(a, b[:1]) for a, b in zip(single, together, strict=True)) > 1e-6


def diagnose(module: torch.nn.Module, example: tuple[torch.Tensor, ...], shapes: Any, error: Exception) -> list[Obstacle]:
    """Why torch.export refused. draft_export goes on with the example's values, so it meets every obstacle."""
    try:
        with quiet("torch"), printing_suppressed():
            report = draft_export(module, example, dynamic_shapes=shapes, strict=False)._report
    except Exception as second:  # noqa: BLE001 - as above; the first error is then the better explanation
        places = [from_exception(cause, code=_code(cause)) for cause in (error, second)]
        return [place for place in places if place.path][:1] or places[:1]
    files = {**_interned(), **getattr(report, "str_to_filename", {})}
    found = []
    for failure in getattr(report, "failures", []):
        kind, data = failure.failure_type.name, failure.data
        if kind == "GUARD_ADDED" and data.get("prefix") != "runtime_assert":
            found.append(_placed("PG121", _SPECIALISED.format(guard=_readable(data)), data.get("user_stack"), files))
        elif kind == "DATA_DEPENDENT_ERROR":
            found.append(_placed("PG120", _DECISION, data.get("user_stack"), files))
        elif kind in ("MISSING_FAKE_KERNEL", "MISMATCHED_FAKE_KERNEL"):
            found.append(
                _placed(
                    "PG122",
                    f"the operator {data.get('op')} cannot be traced; register a fake kernel for it",
                    data.get("user_stack"),
                    files,
                )
            )
    return found or [from_exception(error, code=_code(error))]


def from_exception(error: BaseException, *, code: str, prefix: str = "") -> Obstacle:
    """The exception as an obstacle at the innermost line that is the user's own."""
    path, line = user_frame(error.__traceback__)
    lines = [text for text in str(error).splitlines() if text.strip()]
    if code == "PG120":
        return Obstacle(code, _DECISION, path, line)
    return Obstacle(code, f"{prefix}{type(error).__name__}: {lines[0] if lines else 'no message'}", path, line)


def user_frame(trace: TracebackType | None) -> tuple[str, int]:
    """File and line of the innermost frame outside torch and Penstock; ("", 0) when there is none."""
    frames = [(frame.filename, frame.lineno or 0) for frame in traceback.extract_tb(trace)]
    return next(((path, line) for path, line in reversed(frames) if _is_users(path)), ("", 0))


def _is_users(path: str) -> bool:
    return not path.startswith((*_LIBRARIES, "<"))


def _code(error: BaseException) -> str:
    name = type(error).__name__
    if "DataDependent" in name or "data-dependent" in str(error):
        return "PG120"
    return "PG121" if "Constraints violated" in str(error) else "PG122"


def _placed(code: str, message: str, stack: Sequence[Mapping[str, Any]] | None, files: Mapping[int, str]) -> Obstacle:
    frames = [(files.get(frame.get("filename", -1), ""), int(frame.get("line", 0))) for frame in stack or ()]
    path, line = next(((path, line) for path, line in reversed(frames) if path and _is_users(path)), ("", 0))
    return Obstacle(code, message, path, line)


def _interned() -> dict[int, str]:
    """File names by number, as torch's structured log knows them: a name is logged only the first time in a process."""
    from torch._logging import structured

    table: Mapping[str, int] = getattr(structured, "INTERN_TABLE", {})
    return {number: name for name, number in table.items()}


def _readable(data: Mapping[str, Any]) -> str:
    guard = str(data.get("expr", ""))
    for symbol in data.get("symbol_to_sources", {}):
        guard = guard.replace(str(symbol), "batch")
    return guard


def _at(node: torch.fx.Node | None, code: str, message: str) -> Obstacle:
    trace = (node.meta.get("stack_trace") if node is not None else None) or ""
    places = [text.strip().split('"') for text in trace.splitlines() if text.strip().startswith('File "')]
    for parts in reversed(places):
        if _is_users(parts[1]):
            return Obstacle(code, message, parts[1], int(parts[2].split("line ")[1].split(",")[0]))
    return Obstacle(code, message)


def _writes_buffer(node: torch.fx.Node, program: ExportedProgram) -> bool:
    schema = getattr(node.target, "_schema", None)
    if schema is None:
        return False
    for argument, value in zip(schema.arguments, node.args, strict=False):
        written = argument.alias_info is not None and argument.alias_info.is_write
        if written and isinstance(value, torch.fx.Node) and value.name in program.graph_signature.inputs_to_buffers:
            return True
    return False


def _is_random(node: torch.fx.Node) -> bool:
    """Whether a call draws random numbers. Attention and recurrent layers may, but not with dropout off."""
    schema = getattr(node.target, "_schema", None)
    if schema is None or torch.Tag.nondeterministic_seeded not in getattr(node.target, "tags", ()):
        return False
    given = {argument.name: argument.default_value for argument in schema.arguments}
    given |= {argument.name: value for argument, value in zip(schema.arguments, node.args, strict=False)}
    given |= node.kwargs
    switched_off = any(given.get(name) is False for name in ("train", "training"))
    never_drops = any(given.get(name) == 0 for name in ("p", "dropout", "dropout_p"))
    return not (switched_off or never_drops)


def _home(module: torch.nn.Module) -> tuple[str, int]:
    """Where the module's forward is written; ("", 0) when it has no file."""
    function = getattr(module, "source_of_forward", None) or type(module).forward
    try:
        return inspect.getsourcefile(function) or "", inspect.getsourcelines(function)[1]
    except (OSError, TypeError):
        return "", 0


def _public(name: str) -> str:
    return name.removeprefix("module.")


def _short(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def _shapes(values: Sequence[torch.Tensor]) -> str:
    return ", ".join(str(tuple(value.shape)) for value in values)
