"""Weights from a checkpoint file, whatever wrapper it was saved in."""

from __future__ import annotations

import functools
import pickle
from collections import OrderedDict
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeGuard, TypeVar

import torch

from ...errors import ArtifactError
from ..survey.pointers import pointer_in
from .whole_model import Inert, read_pickled, weights_in

T = TypeVar("T")

# Where training scripts keep the weights, most specific first (a scan of twelve well-known repositories).
KEYS = ("state_dict", "model_state_dict", "model_state", "model", "net", "network", "weights", "model_ema", "state_dict_ema")
UNREADABLE = (pickle.UnpicklingError, RuntimeError, EOFError, OSError, ValueError)
"""What reading a file raises that holds no checkpoint, a broken one, or more than weights."""
# DataParallel and DDP, torch.compile, Lightning.
PREFIXES = ("module.", "_orig_mod.", "model.")


def load_weights(model: torch.nn.Module, path: str | Path) -> None:
    """Load a checkpoint into `model` in place, on the CPU, without executing anything the file may hold.

    The state dict may be bare or under one of `KEYS`, or be that of a whole model that was pickled there, and its names may
    carry `PREFIXES`, or lack that of the one child that holds all. Raises ArtifactError when the file cannot be read, holds no
    weights, or does not fit the model exactly; the message lists what differs.
    """
    try:
        content = read_checkpoint(path)
    except FileNotFoundError:
        raise ArtifactError(f"{path}: no such checkpoint") from None
    except UNREADABLE as error:
        if (pointer := pointer_in(Path(path))) is not None:
            raise ArtifactError(f"{path}: {pointer}") from error
        raise ArtifactError(f"{path}: not a checkpoint that can be read safely ({_first_line(error)})") from error
    state = stripped(state_of(content, path), set(model.state_dict()))
    missing = sorted(set(model.state_dict()) - set(state))
    unexpected = sorted(set(state) - set(model.state_dict()))
    if missing or unexpected:
        raise ArtifactError(f"{path} does not fit the model: missing {_some(missing)}, unexpected {_some(unexpected)}")
    try:
        take_state(model, state)
    except RuntimeError as error:
        raise ArtifactError(f"{path} does not fit the model: {error}") from error


def take_state(model: torch.nn.Module, state: Mapping[str, Any]) -> None:
    """`model.load_state_dict(state)` where the state is a plain table: modules that ask for the version that it was saved with
    (torchvision's MNASNet refuses none) are told that of the model."""
    if not hasattr(state, "_metadata"):
        versions = getattr(model.state_dict(), "_metadata", None)
        state = OrderedDict(state)
        vars(state)["_metadata"] = versions
    model.load_state_dict(state)


def read_checkpoint(path: str | Path) -> Any:
    """What a checkpoint holds, on the CPU, of torch's own format (see `read_pickled`) or of safetensors. Raises
    FileNotFoundError, or one of `UNREADABLE`."""
    if Path(path).suffix == ".safetensors":
        try:
            from safetensors import SafetensorError
            from safetensors.torch import load_file
        except ModuleNotFoundError:
            raise ValueError("pip install safetensors reads it") from None
        try:
            return load_file(path, device="cpu")
        except SafetensorError as error:
            raise ValueError(str(error)) from error
    return read_pickled(path)


def classes_in(build: Callable[[], torch.nn.Module], path: str | Path, classes: int) -> int:
    """As many as the checkpoint's layers have outputs where the model, as `build` makes it, has `classes`; `classes` itself
    where nothing else fits, and whoever loads the file says what is wrong."""
    try:
        with torch.device("meta"):
            model = build()
    except RuntimeError:  # a constructor that computes with values, such as widths by torch.linspace
        model = build()
    own = {name: tuple(value.shape) for name, value in model.state_dict().items()}
    stored = stripped(shapes(path) or {}, set(own))
    differing = [(shape, stored[name]) for name, shape in own.items() if name in stored and stored[name] != shape]
    heads = {found[:1] for shape, found in differing if shape[:1] == (classes,) and shape[1:] == found[1:]}
    return heads.pop()[0] if len(heads) == 1 and all(shape[:1] == (classes,) for shape, _ in differing) else classes


def outputs_of(path: str | Path) -> int | None:
    """How many rows the last matrix or kernel of a checkpoint has, which mostly are the classes; None where nothing tells."""
    heads = [shape[0] for shape in (shapes(path) or {}).values() if len(shape) >= 2]
    return heads[-1] if heads and heads[-1] > 1 else None


def fits(model: torch.nn.Module, path: str | Path) -> bool | None:
    """Whether a checkpoint holds just the weights of a model, by their names and shapes; None where it cannot be read."""
    own = {name: tuple(value.shape) for name, value in model.state_dict().items()}
    stored = shapes(path)
    return None if stored is None else own == stripped(stored, set(own))


@functools.cache
def shapes(path: str | Path) -> dict[str, tuple[int, ...]] | None:
    """Of the weights in a checkpoint, which may be large and is asked about for each model; None where it cannot be read."""
    try:
        state = state_of(read_checkpoint(path), path)
    except (ArtifactError, *UNREADABLE):
        return None  # whoever loads it says what is wrong
    return {name: tuple(value.shape) for name, value in state.items()}


def are_weights(value: Any) -> TypeGuard[Mapping[str, torch.Tensor]]:
    """Whether it is a table of tensors, and not empty."""
    return isinstance(value, Mapping) and bool(value) and all(isinstance(part, torch.Tensor) for part in value.values())


def state_of(content: Any, path: str | Path) -> Mapping[str, torch.Tensor]:
    for key in ("", *KEYS):
        found = content if not key else content.get(key) if isinstance(content, Mapping) else None
        found = weights_in(found) if isinstance(found, Inert) else found
        if are_weights(found):
            return found
    keys = sorted(map(str, content)) if isinstance(content, Mapping) else type(content).__name__
    raise ArtifactError(f"{path}: no weights under any of {', '.join(KEYS)}; the file holds {keys}")


def stripped(state: Mapping[str, T], expected: set[str]) -> dict[str, T]:
    """Drop prefixes for as long as that makes the names fit better; a model may itself have a child called `model`.

    Names of a network that the model, a LightningModule say, holds as its only child with weights get that child's before them.
    """
    stripped = dict(state)
    while stripped and (prefix := next((p for p in PREFIXES if all(name.startswith(p) for name in stripped)), None)):
        if set(stripped) & expected:
            break
        stripped = {name.removeprefix(prefix): value for name, value in stripped.items()}
    if stripped and not set(stripped) & expected:
        first = next(iter(stripped))
        for own in sorted(name for name in expected if name.endswith(f".{first}")):
            held = {f"{own.removesuffix(first)}{name}": value for name, value in stripped.items()}
            if set(held) == expected:
                return held
    return stripped


def _some(names: list[str]) -> str:
    return f"{len(names)} ({', '.join(names[:3])}{', ...' if len(names) > 3 else ''})" if names else "none"


def _first_line(error: BaseException) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]
