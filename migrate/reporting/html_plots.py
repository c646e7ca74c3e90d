"""The plots of the HTML report, drawn as SVG that takes its colours from the page."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import groupby

from ..proving.measurements import DECADES, Agreement, Losses, Speed
from .html_diff import safe

_WIDTH, _HEIGHT, _LEFT, _BOTTOM, _TOP, _RIGHT = 360, 260, 52, 40, 12, 12


def scatter(agreement: Agreement) -> str:
    """Outputs of the migrated script over those of the original; what agrees lies on the diagonal."""
    low = min(*agreement.reference, *agreement.migrated, 0.0)
    high = max(*agreement.reference, *agreement.migrated)
    span = (high - low) or 1.0
    low, high = low - 0.04 * span, high + 0.04 * span

    def x(value: float) -> float:
        return _LEFT + (value - low) / (high - low) * (_WIDTH - _LEFT - _RIGHT)

    def y(value: float) -> float:
        return _HEIGHT - _BOTTOM - (value - low) / (high - low) * (_HEIGHT - _BOTTOM - _TOP)

    pairs = zip(agreement.reference, agreement.migrated, strict=True)
    dots = "".join(f'<circle cx="{x(one):.1f}" cy="{y(other):.1f}" r="2.4"/>' for one, other in pairs)
    body = [f'<line class="ideal" x1="{x(low):.1f}" y1="{y(low):.1f}" x2="{x(high):.1f}" y2="{y(high):.1f}"/>']
    for tick in _ticks(low, high):
        body.append(_x_tick(x(tick), f"{tick:g}"))
        body.append(_y_tick(y(tick), f"{tick:g}"))
    body.append(f'<g class="dots">{dots}</g>')
    return _svg(body, "output of the original", "output of the migrated", f"{len(agreement.reference)} outputs of both runs")


def loss_curve(losses: Losses) -> str:
    """The losses by training step: a line for the original, a dot for each of the migrated; what agrees lies on the line."""
    finite = [value for value in (*losses.original, *losses.migrated) if math.isfinite(value)]
    if not finite:
        return ""
    low, high = min(finite), max(finite)
    span = (high - low) or abs(high) or 1.0
    low, high = low - 0.06 * span, high + 0.06 * span
    count = max(len(losses.original), len(losses.migrated))

    def x(step: float) -> float:
        return _LEFT + (step - 0.5) / count * (_WIDTH - _LEFT - _RIGHT)

    def y(value: float) -> float:
        return _HEIGHT - _BOTTOM - (value - low) / (high - low) * (_HEIGHT - _BOTTOM - _TOP)

    body = [_y_tick(y(tick), f"{tick:g}") for tick in _ticks(low, high)]
    body += [_x_tick(x(step), str(step)) for step in range(1, count + 1, max(1, count // 8))]
    steps = [
        list(group) for known, group in groupby(enumerate(losses.original, 1), lambda pair: math.isfinite(pair[1])) if known
    ]
    for run in steps:
        points = " ".join(f"{x(step):.1f},{y(value):.1f}" for step, value in run)
        body.append(f'<polyline class="curve" points="{points}"/>')
    dots = "".join(
        f'<circle cx="{x(step):.1f}" cy="{y(value):.1f}" r="3"/>'
        for step, value in enumerate(losses.migrated, 1)
        if math.isfinite(value)
    )
    body.append(f'<g class="dots">{dots}</g>')
    return _svg(
        body, "training step", "loss (line: original, dots: migrated)", f"the losses of {count} training steps in both runs"
    )


def histogram(agreement: Agreement) -> str:
    """How many outputs differ by how much: none at all, then by power of ten."""
    counts = agreement.differences
    used = [index for index, count in enumerate(counts) if count]
    first, last = 1, max([*used, 4])
    if used and used[-1] > 0:
        first = max(1, min(index for index in used if index > 0) - 1)
    shown = [0, *range(first, last + 1)]
    total, most = sum(counts), max(counts) or 1
    step = (_WIDTH - _LEFT - _RIGHT) / len(shown)
    body = []
    for share in (0.0, 0.5, 1.0):
        height = _HEIGHT - _BOTTOM - share * (_HEIGHT - _BOTTOM - _TOP)
        body.append(_y_tick(height, f"{100 * share * most / total:.0f}%"))
    for place, index in enumerate(shown):
        tall = counts[index] / most * (_HEIGHT - _BOTTOM - _TOP)
        left, top = _LEFT + place * step, _HEIGHT - _BOTTOM - tall
        label = "0" if index == 0 else f"1e{DECADES[0] + index - 1}"
        title = f"<title>{counts[index]} of {total} outputs</title>"
        body.append(
            f'<rect class="bar" x="{left + 2:.1f}" y="{top:.1f}" width="{step - 4:.1f}" height="{tall:.1f}">{title}</rect>'
        )
        if len(shown) <= 8 or place % 2 == 0:
            body.append(_x_tick(left + step / 2, label))
    return _svg(body, "difference (equal, then from this power of ten on)", "share of outputs", "differences between both runs")


def speed_bars(speeds: Sequence[Speed]) -> str:
    """Two bars per batch size, as long as the times: before above, after below."""
    if not speeds:
        return ""
    rows = []
    for speed in speeds:
        slowest = max(speed.eager_ms, speed.chosen_ms)
        times = speed.eager_ms / speed.chosen_ms
        both = (("before", speed.eager_ms, "eager"), ("after", speed.chosen_ms, speed.chosen))
        bars = "".join(_bar(kind, 100 * value / slowest, f"{value:,.2f} ms {what}") for kind, value, what in both)
        rows.append(f'<div class="speed"><b>batch {speed.batch}</b><div>{bars}</div><em>{times:.2f}&times;</em></div>')
    return "".join(rows)


def _bar(kind: str, percent: float, words: str) -> str:
    return f'<div class="track"><i class="{kind}" style="width:{percent:.1f}%"></i><span>{safe(words)}</span></div>'


def _svg(body: Sequence[str], below: str, beside: str, label: str) -> str:
    middle = (_HEIGHT - _BOTTOM + _TOP) / 2
    return (
        f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" aria-label="{safe(label)}">{"".join(body)}'
        f'<text class="axis" x="{(_WIDTH + _LEFT) / 2:.0f}" y="{_HEIGHT - 6}" text-anchor="middle">{safe(below)}</text>'
        f'<text class="axis" transform="translate(12 {middle:.0f}) rotate(-90)" text-anchor="middle">{safe(beside)}</text>'
        "</svg>"
    )


def _x_tick(x: float, label: str) -> str:
    base = _HEIGHT - _BOTTOM
    mark = f'<line class="tick" x1="{x:.1f}" y1="{base}" x2="{x:.1f}" y2="{base + 4}"/>'
    return f'{mark}<text x="{x:.1f}" y="{base + 15}" text-anchor="middle">{label}</text>'


def _y_tick(y: float, label: str) -> str:
    line = f'<line class="grid" x1="{_LEFT}" y1="{y:.1f}" x2="{_WIDTH - _RIGHT}" y2="{y:.1f}"/>'
    return f'{line}<text x="{_LEFT - 6}" y="{y + 3.5:.1f}" text-anchor="end">{label}</text>'


def _ticks(low: float, high: float) -> Iterator[float]:
    """Round numbers between low and high, about five of them."""
    rough = (high - low) / 5
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(power * factor for factor in (1, 2, 5, 10) if power * factor >= rough)
    tick = math.ceil(low / step) * step
    while tick <= high:
        yield 0.0 if abs(tick) < step / 1e6 else float(f"{tick:.6g}")
        tick += step
