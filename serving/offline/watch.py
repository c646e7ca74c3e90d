"""What `--watch` shows of a job that runs: its stages, as a table on a terminal, and in a line elsewhere."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING

from .stages import Shares, StageReport

if TYPE_CHECKING:
    from rich.console import RenderableType

    from .progress import Progress

# From so many columns on a table has the shares since the start too, the queues, and the workers.
_WIDE, _MIDDLE, _NARROW = 92, 66, 44
_UNKNOWN = "-"


def table(progress: Progress, reports: Sequence[StageReport], width: int) -> RenderableType:
    """How far the job is, and below that a row for each stage and each process of the model, in so many columns."""
    from rich import box
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    both = width >= _WIDE
    columns: dict[str, Callable[[StageReport], str]] = {"stage": lambda one: f"  {one.name}" if one.inner else one.name}
    if width >= _NARROW:
        columns["workers"] = lambda one: _number(one.workers)
    for number, state in enumerate(Shares._fields):
        columns[state] = partial(_percent, number=number, both=both)
    if width >= _MIDDLE:
        columns["images/s"] = lambda one: _number(one.rate)
        columns["queue"] = lambda one: _UNKNOWN if one.queue is None else "{} of {}".format(*one.queue)
    shown = Table(box=box.SIMPLE_HEAD, show_edge=False, padding=(0, 1, 0, 0))
    for name in columns:
        shown.add_column(name, justify="left" if name == "stage" else "right", no_wrap=True)
    for one in reports:
        shown.add_row(*(Text(cell(one)) for cell in columns.values()))
    told = "shares of the last seconds" + (", and in brackets since the start" if both else "")
    return Group(
        *map(Text, textwrap.wrap(str(progress), width)), shown, Text(told if reports else "no stage has told yet", style="dim")
    )


def line(progress: Progress, reports: Sequence[StageReport]) -> str:
    """The same in one line, of the shares over the last seconds alone."""
    stages = [
        f"{one.name} {'/'.join(_share(one.recent or one.shares, number) for number in range(len(Shares._fields)))}"
        for one in reports
    ]
    return " · ".join([str(progress), *(["busy/starved/blocked: " + ", ".join(stages)] if stages else [])])


def _percent(one: StageReport, *, number: int, both: bool) -> str:
    recent = _share(one.recent or one.shares, number)
    return f"{recent} ({_share(one.shares, number)})" if both and one.recent is not None else recent


def _share(shares: Shares, number: int) -> str:
    share = shares[number]
    return _UNKNOWN if share is None else f"{share:.0%}"


def _number(value: float | None) -> str:
    if value is None:
        return _UNKNOWN
    return f"{value:,.1f}" if 0 < value < 10 and not float(value).is_integer() else f"{value:,.0f}"
