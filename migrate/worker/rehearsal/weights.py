"""Stored weights that are not here: a state that any model takes as its own, which leaves the model as it was built.

What such a file would hold is only known when a model asks for it. So the stand-in answers for every key as a checkpoint does,
and a model that loads it keeps the weights of its own seeded initialization. They are marked as not the user's.
"""

from __future__ import annotations

import ast
import contextlib
import io
import linecache
import os
import re
import types
import zipfile
from typing import Any

from .stage import Stage

MARK = "headrace_stand_in"
_MODELS = ("state_dict", "model", "net", "model_state_dict", "model_state", "network", "weights", "module", "params")
_NUMBERS = re.compile(r"epoch|iter|step|acc|best|loss|prec|top|score|metric|error|f1|seed|lr", re.I)
_NAMES = re.compile(r"class|label|names|categor|idx|mapping", re.I)


class StandInState(dict[str, Any]):
    """Empty, and has whatever a script takes from a checkpoint: states, numbers, names of classes."""

    classes: tuple[str, ...] = ()
    file = "the file"
    wanted: tuple[str, ...] = ()
    """Keys without which the script gave up."""

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(f"{self.file} is not here, and the script takes from it what has .{name}")

    def __call__(self, *args: Any, **named: Any) -> Any:
        raise TypeError(f"{self.file} is not here, and the script takes the model itself from it")

    def __missing__(self, key: Any) -> Any:
        if not isinstance(key, str):
            raise LookupError(f"{self.file} is not here, and the script takes from it what has [{key!r}]")
        if "." in key:
            raise KeyError(key)
        if key in _MODELS:
            return self
        if _NAMES.search(key):
            return (
                {name: i for i, name in enumerate(self.classes)} if re.search(r"idx|index|mapping", key) else list(self.classes)
            )
        return 0 if _NUMBERS.search(key) and "state" not in key else self

    def __contains__(self, key: object) -> bool:
        return key in _MODELS[:4] or key in self.wanted

    def __bool__(self) -> bool:
        return True

    def __delitem__(self, key: str) -> None: ...

    def get(self, key: str, default: Any = None) -> Any:
        return self if key in _MODELS else self[key] if key in self.wanted else default

    def pop(self, key: str, default: Any = None) -> Any:
        return self if key in _MODELS else default

    def copy(self) -> StandInState:
        return self

    def state_dict(self) -> StandInState:
        return self

    def float(self) -> StandInState:
        return self


def missed_key(frame: types.FrameType) -> str | None:
    """The key that a frame looked for last, before its running line, in a state that stands in."""
    states = {name for name, value in frame.f_locals.items() if isinstance(value, StandInState)}
    asked: list[tuple[int, str]] = []
    with contextlib.suppress(SyntaxError):
        for node in ast.walk(ast.parse("".join(linecache.getlines(frame.f_code.co_filename)))) if states else ():
            match node:
                case ast.Call(func=ast.Attribute(value=ast.Name(id=name), attr="get"), args=[ast.Constant(value=str(key)), *_]):
                    pass
                case ast.Compare(left=ast.Constant(value=str(key)), comparators=[ast.Name(id=name)]):
                    pass
                case _:
                    continue
            if name in states and frame.f_code.co_firstlineno <= node.lineno <= frame.f_lineno:
                asked.append((node.lineno, key))
    return max(asked)[1] if asked else None


def stand_in_file() -> bytes:
    """A checkpoint that `torch.load` opens and that says of itself that it stands in."""
    import torch

    file = io.BytesIO()
    torch.save({MARK: True}, file)
    return file.getvalue()


def _is_program(path: str) -> bool:
    """Whether the file is here and is TorchScript's, so that an error in loading is its own."""
    return (
        os.path.isfile(path) and zipfile.is_zipfile(path) and any("/code/" in name for name in zipfile.ZipFile(path).namelist())
    )


def install(stage: Stage, torch: Any, classes: tuple[str, ...]) -> None:
    """Let models, optimizers and schedulers take such states, whole or as what a script made of them."""
    StandInState.classes = classes
    StandInState.wanted = tuple(stage.learned.get("checkpoint_keys", ()))
    given: list[bool] = []

    def load(original: Any, file: Any, *args: Any, **named: Any) -> Any:
        found = original(file, *args, **named)
        if isinstance(found, dict) and found.get(MARK) is True:
            given.append(True)
            state = StandInState()
            state.file = os.path.basename(file) if isinstance(file, str | os.PathLike) else state.file
            return state
        return found

    def load_program(original: Any, file: Any, *args: Any, **named: Any) -> Any:
        try:
            return original(file, *args, **named)
        except (ValueError, RuntimeError) as error:
            stands_in = isinstance(file, str | os.PathLike) and not _is_program(os.fspath(file))
            if not stands_in:
                raise
            said = f"{os.path.basename(file)} is not here, and the script takes the model itself from it"
            raise FileNotFoundError(said) from error

    def load_state(original: Any, self: Any, state_dict: Any, *args: Any, **named: Any) -> Any:
        if isinstance(state_dict, StandInState):
            stage.weights_stand_in(type(self).__name__)
            return torch.nn.modules.module._IncompatibleKeys([], [])
        if given and not set(self.state_dict()) <= set(state_dict):
            stage.weights_stand_in(type(self).__name__)
            return original(self, state_dict, strict=False)
        return original(self, state_dict, *args, **named)

    def restore(original: Any, self: Any, state_dict: Any, *args: Any, **named: Any) -> Any:
        return None if isinstance(state_dict, StandInState) else original(self, state_dict, *args, **named)

    stage.wrap(torch, "load", load)
    stage.wrap(torch.jit, "load", load_program)
    stage.wrap(torch.nn.Module, "load_state_dict", load_state)
    scheduler = torch.optim.lr_scheduler
    for kind in (torch.optim.Optimizer, scheduler.LRScheduler, scheduler.ReduceLROnPlateau, torch.amp.GradScaler):
        stage.wrap(kind, "load_state_dict", restore)

    def load_tensors(original: Any, filename: Any, *args: Any, **named: Any) -> Any:
        with open(filename, "rb") as file:
            if file.read(2) == b"PK":  # no file of safetensors begins so, and every stand-in does
                given.append(True)
                return StandInState()
        return original(filename, *args, **named)

    stage.when_imported("safetensors.torch", lambda library: stage.wrap(library, "load_file", load_tensors))
