"""The portable graph of a model that nobody measured yet, compared with the model: what is served until there is a plan."""

from __future__ import annotations

import contextlib
from pathlib import Path

from ...errors import ParityError
from ...runtime.artifact.known_answers import known_rows
from ...runtime.artifact.parity import Gate, ParityRecord, compare, unusable
from ...runtime.backends.shared.torch_session import TorchSession
from ...runtime.base.config import GraphConfig
from ...runtime.base.session import Target
from ...runtime.capture.capture import CapturedGraph
from ...runtime.capture.programs import computing
from ...runtime.tuning.random_rows import random_rows
from ...runtime.tuning.reference import noise_where_off
from ...runtime.tuning.retune import PortableSource

_ROWS = 5


def portable_parity(captured: CapturedGraph, directory: Path, config: GraphConfig) -> ParityRecord:
    """Hold the portable graph in the directory, as any machine runs it, to the graph run eagerly, on rows that differ clearly.

    "not-run" where the model's outputs tell no rows apart. Raises ParityError when they differ, BackendError where nothing here
    runs it.
    """
    target = Target(device="cpu", threads=config.threads)
    inputs = known_rows(captured.signature) or random_rows(captured.signature, _ROWS)
    wanted = TorchSession(computing(captured.program), target).run(inputs)
    with contextlib.closing(PortableSource(captured.signature, directory, captured.task).open(target)) as session:
        given = session.run(inputs)
    if why := unusable(wanted, captured.task, ()):
        return ParityRecord(status="not-run", why=why, rows=len(inputs[0]))

    def compared(noise: tuple[float, ...]) -> ParityRecord:
        return compare(wanted, given, Gate(tolerance=config.tolerance, noise=noise), task=captured.task)

    record = compared(())
    if not record.passed:  # how far eager alone varies takes longer to find than all else here
        record = compared(noise_where_off(captured, target, inputs, wanted, given))
    if not record.passed:
        raise ParityError(f"the portable graph does not compute what the model computes: {record.why}")
    return record
