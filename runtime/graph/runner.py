"""Runs a plan: tensors in, tensors out, each batch by the session that its bucket chose."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from ...errors import BackendError
from ...specs import Signature
from .. import backends
from ..artifact.plan import Choice, Plan
from ..base.session import Session
from ..tuning.judging_data import check_input


class Runner:
    """Sessions of a plan over a folder of files, opened when first needed. One call at a time: the caller holds a lock."""

    def __init__(self, signature: Signature, plan: Plan, directory: Path) -> None:
        self.signature = signature
        self.plan = plan
        self.directory = directory
        self._sessions: dict[Choice, Session] = {}

    def run(self, inputs: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """All outputs on the inputs' device. Batches over the largest bucket are run in parts of that size.

        Raises InputError when shape or dtype is not what the graph takes.
        """
        for spec, value in zip(self.signature.inputs, inputs, strict=True):
            check_input(spec, tuple(value.shape), str(value.dtype).removeprefix("torch."), "graph call")
        rows, largest = inputs[0].shape[0], max(self.plan.buckets)
        if rows <= largest:
            return self._run(inputs)
        parts = [self._run([value[start : start + largest] for value in inputs]) for start in range(0, rows, largest)]
        return [torch.cat(values) for values in zip(*parts, strict=True)]

    def close(self) -> None:
        """Close every session."""
        for session in self._sessions.values():
            session.close()
        self._sessions.clear()

    def _run(self, inputs: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        session: Any = self.session(inputs[0].shape[0])
        device = inputs[0].device
        detached = [value.detach() for value in inputs]
        # Tensors stay on a GPU only if the session takes them; on the CPU an array is the same memory.
        if device.type != "cpu" and hasattr(session, "run_tensors"):
            return [value.to(device) for value in session.run_tensors(detached)]
        arrays = [value.cpu().contiguous().numpy() for value in detached]
        return [torch.from_numpy(value).to(device) for value in session.run(arrays)]

    def session(self, rows: int) -> Session:
        """The one that runs so many rows, opened when it is first asked for."""
        choice = self.plan.choice(rows)
        if choice not in self._sessions:
            if missing := [name for name in choice.files if not (self.directory / name).exists()]:
                raise BackendError(f"{choice} needs {missing[0]}, which is not in {self.directory}; compile again")
            opened = backends.get(choice.backend).open(self.directory, self.plan.target(rows), choice.files)
            self._sessions[choice] = opened
        return self._sessions[choice]
