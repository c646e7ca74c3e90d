"""A graph as `print` shows it: the tree of its modules, and below it what was captured and what runs it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch
from torch import nn

from ...specs import Signature
from ..artifact.parity import ParityRecord
from ..artifact.plan import Plan
from ..base.passes import PassRecord
from ..base.task import Task

_DEPTH = 2  # levels below a graph's own modules


def framed(title: str, lines: Iterable[str]) -> str:
    """The lines, indented, between `title(` and `)`."""
    return "\n".join([f"{title}(", *(f"  {line}" for line in lines), ")"])


def module_lines(modules: Sequence[tuple[str, nn.Module]], depth: int = _DEPTH) -> list[str]:
    """Named modules as a tree, so many levels below them; numbered neighbors that look alike share a line, as in torch."""
    lines = []
    for label, count, module in _collapsed(modules):
        times, each = (f"{count} x ", "each ") if count > 1 else ("", "")
        children = list(module.named_children())
        name = type(module).__name__ if children else f"{module._get_name()}({' '.join(module.extra_repr().split())})"
        hidden = "(...)" if children and not depth else ""
        sizes = [f"{each}{text}" for text in _sizes(module)]
        lines.append(f"({label}): {times}{', '.join([f'{name}{hidden}', *sizes])}")
        if depth:
            lines += [f"  {line}" for line in module_lines(children, depth - 1)]
    return lines


def signature_lines(signature: Signature, task: Task) -> list[str]:
    """A line for each input and each output, and what that is."""
    remarks = [*("" for _ in signature.inputs), *(f", {head}" if str(head) else "" for head in task.heads)]
    sides = [*(("input", spec) for spec in signature.inputs), *(("output", spec) for spec in signature.outputs)]
    return [
        f"{side} {spec.name}: {spec.dtype} {list(spec.shape)}{remark}"
        for (side, spec), remark in zip(sides, remarks, strict=True)
    ]


def pass_lines(passes: Sequence[PassRecord]) -> list[str]:
    """Which passes were applied, and which not."""
    if not passes:
        return []
    # Several choices may be lowered by one pass, so its name may come more than once.
    applied = ", ".join(dict.fromkeys(record.name for record in passes if record.status == "applied")) or "none applied"
    rest = ", ".join(
        f"{record.name} {record.status}{f' ({record.why})' if record.why else ''}"
        for record in passes
        if record.status != "applied"
    )
    return [f"passes: {applied}{f'; {rest}' if rest else ''}"]


def plan_lines(plan: Plan) -> list[str]:
    """What runs each batch size, its time, and eager's where that was measured beside it."""
    where = f"plan for {plan.device}" + (f" (threads: {plan.threads})" if plan.threads else "")
    lines = [f"{where}, not measured here: {plan.reason}" if plan.portable else where]
    times = {(item.bucket, item.candidate): item.median_ms for item in plan.measurements}
    for bucket, choice in plan.choices.items():
        own, eager = times.get((bucket, str(choice))), times.get((bucket, "eager fp32"))
        speed = f", {own:.3g} ms" if own else ""
        beside = f" (eager {eager:.3g} ms)" if own and eager and str(choice) != "eager fp32" else ""
        lines.append(f"  batch {bucket}: {choice}{speed}{beside}")
    return lines


def parity_line(parity: ParityRecord) -> str:
    """How the plan's choices compare with eager."""
    facts = [f"differs by up to {parity.max_abs:.1e}"] if parity.max_abs is not None else []
    facts += [f"top-1 agrees on {parity.top1_agreement:.1%}"] if parity.top1_agreement is not None else []
    facts += [f"labels agree on {parity.decision_agreement:.1%}"] if parity.decision_agreement is not None else []
    facts += [f"cosine at least {parity.cosine:.4f}"] if parity.cosine is not None else []
    return f"parity {parity.status}" + "".join(f", {fact}" for fact in facts) + (f": {parity.why}" if parity.why else "")


def optimizer_lines(optimizer: torch.optim.Optimizer, options: Mapping[str, Any], updates: int) -> list[str]:
    """The optimizer with the settings of each group, what else belongs to a step, and how many updates there were."""
    lines = [f"trained by {type(optimizer).__name__}, updates so far: {updates}"]
    for group in optimizer.param_groups:
        settings = [f"{key} {_number(value)}" for key, value in group.items() if key != "params" and _tells(value)]
        lines.append(f"  {len(group['params'])} parameters: {', '.join(settings)}")
    return [*lines, *(f"  {name} {value}" for name, value in options.items())]


def _collapsed(modules: Sequence[tuple[str, nn.Module]]) -> list[tuple[str, int, nn.Module]]:
    """(label, count, module) with neighbors of equal look counted as one, where they have numbers for names."""
    groups: list[tuple[list[str], nn.Module, Any]] = []
    for name, module in modules:
        look = (repr(module), tuple(_sizes(module)))
        if groups and groups[-1][2] == look and name.isdigit() and groups[-1][0][-1].isdigit():
            groups[-1][0].append(name)
        else:
            groups.append(([name], module, look))
    return [(names[0] if len(names) == 1 else f"{names[0]}-{names[-1]}", len(names), module) for names, module, _ in groups]


def _sizes(module: nn.Module) -> list[str]:
    """How many values its parameters and buffers hold, by dtype."""
    parameters, buffers = list(module.parameters()), list(module.buffers())
    texts = []
    if parameters:
        frozen = sum(_numel(value) for value in parameters if not value.requires_grad)
        total = _by_dtype(parameters, "parameters")
        texts.append(total + (f", {frozen:,} frozen" if 0 < frozen < sum(map(_numel, parameters)) else ""))
    if buffers:
        texts.append(_by_dtype(buffers, "in buffers"))
    if any(map(nn.parameter.is_lazy, [*parameters, *buffers])):
        texts.append("some of no shape yet")
    return texts


def _by_dtype(values: Iterable[torch.Tensor], what: str) -> str:
    counts: Counter[str] = Counter()
    for value in values:
        counts[str(value.dtype).removeprefix("torch.")] += _numel(value)
    return " + ".join(f"{count:,} {dtype}" for dtype, count in counts.items()) + f" {what}"


def _numel(value: torch.Tensor) -> int:
    return 0 if nn.parameter.is_lazy(value) else value.numel()


def _tells(value: Any) -> bool:
    """Whether a setting of an optimizer is worth a word: a number or several, and not zero."""
    if isinstance(value, torch.Tensor):
        return value.numel() == 1
    return isinstance(value, int | float | tuple) and not isinstance(value, bool) and bool(value)


def _number(value: Any) -> str:
    return f"{float(value):g}" if isinstance(value, int | float | torch.Tensor) else str(value)
