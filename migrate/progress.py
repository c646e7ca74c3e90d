"""One progress line per stage on the terminal; silent where there is none."""

from __future__ import annotations

from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING

from rich.progress import BarColumn, Progress, SpinnerColumn, TaskID, TextColumn, TimeElapsedColumn

if TYPE_CHECKING:
    from rich.console import Console


class Stages:
    """`start(title)` ends the stage before and gives a function that takes a fraction (0 to 1) and what is at hand."""

    def __init__(self, console: Console | None) -> None:
        self._progress = Progress(
            SpinnerColumn(finished_text="[green]✓"),
            TextColumn("{task.description}"),
            BarColumn(bar_width=24),
            TimeElapsedColumn(),
            TextColumn("[dim]{task.fields[detail]}", markup=True),
            console=console,
            disable=console is None or not console.is_terminal,
        )
        self._task: TaskID | None = None

    def start(self, title: str) -> Callable[[float, str], None]:
        self._finish()
        task = self._task = self._progress.add_task(title, total=1.0, detail="")

        def update(fraction: float, detail: str) -> None:
            self._progress.update(task, completed=fraction, detail=detail[-60:].replace("[", "("))

        return update

    def _finish(self) -> None:
        if self._task is not None:
            self._progress.update(self._task, completed=1.0, detail="")

    def __enter__(self) -> Stages:
        self._progress.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if kind is None:
            self._finish()
        self._progress.stop()
