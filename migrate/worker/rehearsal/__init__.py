"""Run a user's script as its user would, met by stand-ins at the edges of its world. Only a sandboxed process imports this."""

from ...proving.rehearsal_protocol import Rehearsal, RehearsalReport, StandIn
from .stage import Enough, Stage, Taken

__all__ = ["Enough", "Rehearsal", "RehearsalReport", "Stage", "StandIn", "Taken", "rehearse"]


def __getattr__(name: str) -> object:
    if name != "rehearse":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from .rehearse import rehearse

    return rehearse
