"""The plan of a model that was quickly packaged, measured by a process of low priority while the model serves.

The process is `headrace compile` into a folder aside. What comes of it takes the place of what serves in one step, which the
server, that follows its folder, notices. If it dies, or made another model of files that were edited meanwhile, what serves
stays.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from pathlib import Path

from ...errors import ArtifactError, BackendError
from ...runtime.artifact.artifact import load_artifact, model_names
from ...runtime.artifact.package import place_package
from ...runtime.artifact.plan import Choice
from ...runtime.artifact.same_model import how_another
from ...runtime.base.child import end_with_parent
from ...scratch import ScratchFolder
from ..models.oversight.plan_account import gain

_NICE = 19
_KEPT_LINES = 40
_LONGEST = 500
_PLACING_SECONDS = 5.0  # for a thread that is putting a package in its place


def unplanned(models: Path) -> str | None:
    """The only model of a folder, if no plan was measured for it on a machine like this one; else None."""
    names = model_names(models)
    if len(names) != 1:
        return None
    try:
        return names[0] if load_artifact(models / names[0]).plan_here().portable else None
    except (ArtifactError, BackendError):  # which the server says
        return None


class Planner:
    """One such process, from `start` to its end or `stop`. `report` hears what came of it, in one line."""

    def __init__(self, what: str, arguments: Sequence[str], models: Path, name: str, report: Callable[[str], None]) -> None:
        self._compile = [sys.executable, "-P", "-m", "headrace", "compile", *arguments]
        self._what, self._models, self._name, self._report = what, models, name, report
        self._served = load_artifact(models / name)
        self._before: Choice = self._served.plan_here().first()
        self._aside: ScratchFolder | None = None
        self._stopped = threading.Event()
        self._process: subprocess.Popen[str] | None = None
        self._thread = threading.Thread(target=self._wait, name="headrace-planner", daemon=True)

    @property
    def pid(self) -> int | None:
        return None if self._process is None else self._process.pid

    def start(self) -> None:
        """Call it from the main thread, whose end ends the process."""
        self._aside = ScratchFolder()
        self._process = subprocess.Popen(
            [*self._compile, "--out", str(self._aside.path), "--", self._what], stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, start_new_session=True,
            preexec_fn=_begin,  # noqa: PLW1509 - there are no other threads yet
        )  # fmt: skip
        self._thread.start()
        self._report(f"{self._name}: serves {self._before}, unmeasured; its plan is measured meanwhile")

    def stop(self) -> None:
        """End the process, if it is not done."""
        self._stopped.set()
        if self._process is not None and self._process.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGTERM)
            try:
                self._process.wait(5)
            except subprocess.TimeoutExpired:
                os.killpg(self._process.pid, signal.SIGKILL)
                self._process.wait()
        if self._thread.is_alive():
            self._thread.join(_PLACING_SECONDS)
        if self._aside is not None:
            self._aside.cleanup()

    def _wait(self) -> None:
        assert self._process is not None
        assert self._process.stderr is not None
        lines = [line.strip() for line in self._process.stderr if line.strip()][-_KEPT_LINES:]
        status = self._process.wait()
        if self._stopped.is_set():
            return
        if status:
            why = lines[-1][:_LONGEST] if lines else f"exit status {status}"
            self._report(f"{self._name}: no plan was measured, and {self._before} goes on to serve: {why}")
            return
        try:
            self._report(f"{self._name}: {self._placed()}")
        except (ArtifactError, BackendError) as error:
            self._report(f"{self._name}: what was planned cannot be served: {error}")
        finally:
            if self._aside is not None:
                self._aside.cleanup()

    def _placed(self) -> str:
        """Put what was planned in its place if it is the model that serves; what came of it."""
        assert self._aside is not None
        made = self._aside.path
        another = how_another(self._served, load_artifact(made / self._name)) if (made / self._name).is_dir() else "name"
        if another is not None:
            return (
                f"{self._what} was edited since it was packaged, and gives a model with other {another} now, which is not put "
                f"in the place of what serves: {self._before} goes on; start headrace serve again for the edited one"
            )
        place_package(made, self._models, self._name)
        plan = load_artifact(self._models / self._name).plan_here()
        return f"planned: {gain(plan, self._before)}"


def _begin() -> None:
    """In the new process: let the server have the processors, and end with it, whatever ends that."""
    os.nice(_NICE)
    end_with_parent()
