"""One progress line per stage: live on a terminal, a line when it is done in a log, nothing without a console."""

from __future__ import annotations

import time
from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING

from rich.progress import BarColumn, Progress, SpinnerColumn, TaskID, TextColumn, TimeElapsedColumn
from rich.table import Column

if TYPE_CHECKING:
    from rich.console import Console


class Stages:
    """`start(title)` ends the stage before and gives a function that takes a fraction (0 to 1) and what is at hand."""

    def __init__(self, console: Console | None) -> None:
        self._console = console
        self._live = console is not None and console.is_terminal
        self._progress = Progress(
            SpinnerColumn(finished_text="[green]✓"),
            TextColumn("{task.description}", table_column=Column(no_wrap=True)),
            BarColumn(bar_width=16),
            TimeElapsedColumn(),
            TextColumn("[dim]{task.fields[detail]}", table_column=Column(ratio=1, no_wrap=True, overflow="ellipsis")),
            console=console,
            disable=not self._live,
        )
        self._task: TaskID | None = None
        self._title, self._started = "", 0.0
        self.prefix = ""
        """Put before every title."""

    def start(self, title: str) -> Callable[[float, str], None]:
        self._finish()
        title = f"{self.prefix}{title}"
        task = self._task = self._progress.add_task(title, total=1.0, detail="")
        self._title, self._started = title, time.monotonic()

        def update(fraction: float, detail: str) -> None:
            self._progress.update(task, completed=fraction, detail=detail[-60:].replace("[", "("))

        return update

    def note(self, text: str) -> None:
        """A line that stays."""
        if self._console is not None:
            self._console.print(text, highlight=False, markup=False)

    def _finish(self) -> None:
        if self._task is None:
            return
        self._progress.update(self._task, completed=1.0, detail="")
        if self._console is not None and not self._live:
            seconds = time.monotonic() - self._started
            self._console.print(f"{self._title}: {seconds:.1f} s", highlight=False, markup=False)

    def __enter__(self) -> Stages:
        self._progress.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if kind is None:
            self._finish()
        self._progress.stop()
