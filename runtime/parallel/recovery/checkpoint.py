"""Checkpoints of a training that runs on many ranks: each writes its part, and any number of ranks goes on from them."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch import nn
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict

from ....errors import InputError
from ..mesh import rank
from ..stage_parameters import elsewhere, parts

if TYPE_CHECKING:
    from torch.optim import Optimizer

_KEPT = 2
_NAME = re.compile(r"step-(\d+)")
_COMPLETE = ".metadata"  # written last, when every rank has written its part


def save(folder: str | Path, step: int, module: nn.Module, optimizer: Optimizer, **more: Any) -> Path:
    """Write the state of a module and its optimizer after that many steps, and what `more` has a state_dict (a schedule).

    All ranks call it alike; of a pipeline each rank writes its stages. A checkpoint that was being written when a rank ended is
    never read; the two newest are kept.
    Raises InputError for a negative step.
    """
    if not isinstance(step, int) or step < 0:
        raise InputError(f"step counts the steps that were taken, got {step!r}")
    path = Path(folder) / f"step-{step:08d}"
    if rank() == 0:
        shutil.rmtree(path, ignore_errors=True)  # what an ended run left of this very step
        path.mkdir(parents=True)
    _together()
    dcp.save(_state(module, optimizer, more), checkpoint_id=str(path))
    _together()
    if rank() == 0:
        for old in _complete(Path(folder))[:-_KEPT]:
            shutil.rmtree(old)
    return path


def resume(folder: str | Path, module: nn.Module, optimizer: Optimizer, **more: Any) -> int:
    """Load the newest complete checkpoint into these, which may lie otherwise than when it was written; gives its step.

    0, with nothing loaded, where there is none. All ranks call it alike, on any number of ranks. Raises InputError where the
    checkpoint is of another module, or the module's stages have begun to run as a pipeline.
    """
    if elsewhere(module):
        raise InputError("resume a pipeline before its first step; this rank has no room for the other stages any more")
    found = _complete(Path(folder))
    if not found:
        return 0
    state = _state(module, optimizer, more)
    try:
        dcp.load(state, checkpoint_id=str(found[-1]))
    except dcp.CheckpointException as error:
        raise InputError(f"{found[-1]} is no checkpoint of this module and optimizer: {error}") from error
    set_state_dict(module, optimizer, model_state_dict=state["module"], optim_state_dict=state["optimizer"])
    for name, value in more.items():
        value.load_state_dict(state["more"][name])
    match = _NAME.fullmatch(found[-1].name)
    assert match is not None
    return int(match.group(1))


def _state(module: nn.Module, optimizer: Optimizer, more: dict[str, Any]) -> dict[str, Any]:
    of_module, of_optimizer = get_state_dict(module, optimizer)
    own = parts(module)
    of_module |= {name: part for name, part in own.items() if name in of_module}
    for name in elsewhere(module) - set(own):
        of_module.pop(name, None)
        of_optimizer["state"].pop(name, None)  # type: ignore[union-attr]
    return {
        "module": of_module,
        "optimizer": of_optimizer,
        "more": {name: value.state_dict() for name, value in more.items()},
    }


def _complete(folder: Path) -> list[Path]:
    """The checkpoints that every rank has written, oldest first."""
    return sorted(path for path in folder.glob("step-*") if _NAME.fullmatch(path.name) and (path / _COMPLETE).is_file())


def _together() -> None:
    if dist.is_initialized():
        dist.barrier()
