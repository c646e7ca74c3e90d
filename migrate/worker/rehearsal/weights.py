"""Stored weights that are not here: a state that any model takes as its own, which leaves the model as it was built.

What such a file would hold is only known when a model asks for it. So the stand-in answers for every key as a checkpoint does,
and a model that loads it keeps the weights of its own seeded initialization. They are marked as not the user's.
"""

from __future__ import annotations

import contextlib
import importlib.metadata
import importlib.util
import io
import itertools
import linecache
import os
import pickle
import re
import traceback
import types
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from ....errors import ArtifactError
from ...proving.rehearsal_protocol import WANTING
from ..checkpoint import are_weights, state_of, stripped
from ..whole_model import load_with_classes
from .forms import own_checkpoints
from .places import called_by_user, frames, is_users, of_kind
from .stage import Stage

MARK = "headrace_stand_in"
TABLE = "is a table and no model, and the script takes"
"""Part of what a rehearsal says that was stopped for the want of the model itself in the checkpoint that the user gave."""
UNPACKED = "unpacked"
"""Learned: files that torch reads and that hold a data set, and in how many arrays; `AS_SET` for one of items."""
AS_SET = 0
_FORCED = "TORCH_FORCE_WEIGHTS_ONLY_LOAD"
_MODELS = ("state_dict", "model", "net", "model_state_dict", "model_state", "network", "weights", "module", "params")
_NUMBERS = re.compile(r"epoch|iter|step|acc|best|loss|prec|top|score|metric|error|f1|seed|lr", re.I)
_RESUMED = re.compile(rf"{_NUMBERS.pattern}|optim|sched|scaler|amp", re.I)
"""Keys of a checkpoint that say how far a training came."""
COUNT = re.compile(r"^(n|num|nb|number_of|no_of)_?(class(es)?|cls|labels|categories|outputs?)$", re.I)
_ARGUMENTS = "hyper_parameters"
"""The key under which Lightning keeps the arguments that a model was made with."""
_WRITER = re.compile(r"(\w[\w-]*)_version")
"""The library that wrote a checkpoint, which reads it by its version."""
_NAMES = re.compile(r"class|label|names|categor|idx|mapping", re.I)
_TAKEN = re.compile(rf"(.+) {re.escape(WANTING)} from it what has \.(\w+)$")
_GONE_THROUGH = re.compile(rf"(.+) {re.escape(WANTING)} a data set from it$")
_OF_DATA = re.compile(r"(^|[_-])(images?|imgs?|data|features|pixels|targets?|labels?|x|y)([_.-]|$)", re.I)


class StandInState(dict[str, Any]):
    """Empty, and has whatever a script takes from a checkpoint: states, numbers, names of classes."""

    classes: tuple[str, ...] = ()
    file = "the file"
    path = ""
    """Where the script looked for it, which may say what it is of."""
    wanted: tuple[str, ...] = ()
    """Keys without which the script gave up."""
    stated: Mapping[str, Any] = {}
    """What keys hold by which the script went, as by the name of a model."""
    key: str | None = None
    """The key under which a checkpoint has it, where nothing tells what it is."""
    dropped: tuple[str, ...] = ()
    """Keys that a script took out before it had a model load the rest."""
    weight_of: Callable[[str], Any] = staticmethod(lambda name: None)
    """What a weight of that name holds in a model that the script has at hand."""

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(f"{self.file} {WANTING} from it what has .{name}")

    def __call__(self, *args: Any, **named: Any) -> Any:
        raise TypeError(f"{self.file} {WANTING} the model itself from it")

    def __getitem__(self, key: Any) -> Any:
        if isinstance(key, slice | tuple):  # rows of a tensor
            return self.__getattr__("__getitem__")
        return super().__getitem__(key)

    def __missing__(self, key: Any) -> Any:
        if not isinstance(key, str):
            raise LookupError(f"{self.file} {WANTING} from it what has [{key!r}]")
        if "." in key:
            if (weight := self.weight_of(key)) is None:
                raise KeyError(key)
            return weight
        if key in self.stated:
            return self.stated[key]
        if key in _MODELS:
            return self
        if COUNT.search(key) and self.classes:
            return len(self.classes)
        if _NAMES.search(key):
            return (
                {name: i for i, name in enumerate(self.classes)} if re.search(r"idx|index|mapping", key) else list(self.classes)
            )
        if _NUMBERS.search(key) and "state" not in key:
            return 0
        if (wrote := _WRITER.fullmatch(key)) is not None:
            with contextlib.suppress(importlib.metadata.PackageNotFoundError):
                return importlib.metadata.version(wrote[1])
        part = StandInState()
        part.file, part.path, part.key = self.file, self.path, key
        return part

    def __contains__(self, key: object) -> bool:
        return super().__contains__(key) or key in _MODELS[:4] or key in self.wanted or key in self.stated

    def __bool__(self) -> bool:
        return True

    def __delitem__(self, key: str) -> None:
        self.dropped = (*self.dropped, key)

    def get(self, key: str, default: Any = None) -> Any:
        if key in _MODELS and key not in self.stated:
            return self
        return self[key] if key in self else default  # noqa: SIM401 - a key that is missing has something, too

    def pop(self, key: str, default: Any = None) -> Any:
        if key in _MODELS:
            return self
        del self[key]
        return default

    def copy(self) -> StandInState:
        return self

    def state_dict(self) -> StandInState:
        return self

    def float(self) -> StandInState:
        return self


class GivenState(dict[str, Any]):
    """What the user's checkpoint holds: weights alone answer for the key under which a script looks for them."""

    fetched = False
    """Whether a library asked, for stored weights that it would have fetched: mostly for other heads than the user's."""
    stood_in: Callable[[str], None]
    """Hears of a key at which something stood in."""

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(f"the given checkpoint {TABLE} from it what has .{name}")

    def __call__(self, *args: Any, **named: Any) -> Any:
        raise TypeError(f"the given checkpoint {TABLE} the model itself from it")

    def state_dict(self) -> GivenState:
        return self

    def __missing__(self, key: Any) -> Any:
        if key in StandInState.stated and are_weights(self):
            self.stood_in(key)
            return StandInState.stated[key]
        if key in _MODELS and are_weights(self):
            return self
        if isinstance(key, str) and are_weights(self) and _RESUMED.search(key) and "." not in key:
            self.stood_in(key)  # a script that goes on with its training asks for more than weights
            return StandInState()[key]
        raise KeyError(key)

    def __contains__(self, key: object) -> bool:
        return super().__contains__(key) or (key in _MODELS[:4] and are_weights(self))

    def get(self, key: str, default: Any = None) -> Any:
        return self if key in _MODELS and are_weights(self) else super().get(key, default)


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


def _held(stage: Stage, load: Any, args: tuple[Any, ...], named: dict[str, Any]) -> Any:
    """What a checkpoint that is not here holds: the one that the user gave, else the first that a script of the repository
    saved when it was rehearsed; None where there is none, or one that did not do."""
    known, unfit = stage.learned.get("saved"), stage.learned.get("unfit", ())
    saved = [str(path) for path in stage.saved if (known is None or path.name in known) and str(path) not in unfit]
    for path in filter(None, (stage.checkpoint, *saved)):
        try:
            with _trusted() if path in saved else contextlib.nullcontext():
                held = _loaded(stage, load, path, args, {**named, "weights_only": False} if path in saved else named)
        except Exception:  # noqa: BLE001 - a class that only the other script has, say
            stage.add("unfit", path)
            continue
        held = GivenState(held) if path == stage.request.checkpoint and isinstance(held, dict) else held
        stage.at_risk.append((path, held))
        if path in saved:
            stage.weights_stand_in("what a rehearsed script saved")
        return held
    return None


def _loaded(stage: Stage, load: Any, file: Any, args: tuple[Any, ...], named: dict[str, Any]) -> Any:
    """What torch loads, and where a file may only hold tensors, also a model of the repository's or an installed library's
    modules, for which nothing else runs than their own code."""
    try:
        return load(file, *args, **named)
    except pickle.UnpicklingError:
        path = file if isinstance(file, str | os.PathLike) else getattr(file, "name", None)  # Lightning opens the file itself
        if not isinstance(path, str | os.PathLike):
            raise
        safely = {name: value for name, value in named.items() if name not in ("weights_only", "pickle_module")}
        if named.get("weights_only") is not False:
            stage.note(
                "weights",
                f"{os.path.basename(path)} holds more than weights: torch.load takes it with weights_only=False alone",
            )

        def again() -> Any:
            if file is not path:
                file.seek(0)
            return load(file, *args, **safely, weights_only=True)

        def inert(name: str) -> None:
            stage.note(
                "weights", f"{name} in {os.path.basename(path)} is data without its code; --trust-checkpoint loads it as it is"
            )

        return load_with_classes(again, path, lambda module: _is_own(stage, module), inert)


def _is_own(stage: Stage, module: str) -> bool:
    """Whether a module is the running script or another one of the repository."""
    with contextlib.suppress(ImportError, ValueError):
        spec = importlib.util.find_spec(module) if module != "__main__" else None
        return module == "__main__" or (spec is not None and is_users(os.path.realpath(spec.origin or ""), stage.root))
    return False


@contextlib.contextmanager
def _trusted() -> Iterator[None]:
    """Within it, torch loads more than tensors: what the repository's own code wrote behind the same walls."""
    forced = os.environ.pop(_FORCED, None)
    try:
        yield
    finally:
        if forced is not None:
            os.environ[_FORCED] = forced


def unfit(stage: Stage, error: BaseException, frames: list[types.FrameType]) -> bool:
    """Whether the script stopped over what a checkpoint holds that stood in: the next attempt does without it."""
    if "size mismatch" in str(error) and stage.request.classes is not None and stage.made_flat and stage.learn("deep", True):
        return True  # the folders below it are the classes, perhaps
    over = "loading state_dict" in str(error) or isinstance(error, KeyError | AttributeError | TypeError | LookupError)
    handled = error.__cause__ or error.__context__  # the script may have put its own error in the place of that one
    frames = [*frames, *(frame for frame, _ in traceback.walk_tb(handled.__traceback__ if handled else None))]
    for path, held in stage.at_risk if over else ():
        parts = [held, *(held.values() if isinstance(held, dict) else ())]
        if any(value is part for frame in frames for value in frame.f_locals.values() for part in parts):
            stage.add("unfit", path)
            return True
    return False


def _weight(stage: Stage, name: str) -> Any:
    """The weight of that name of a model, or of a table of its weights, that a frame has; None for no such.

    So a script that takes weight by weight from a checkpoint (`state[key] = stored[key]`) leaves the model as it was built.
    """
    import torch

    for frame in frames():
        for _, held in of_kind(frame.f_locals, torch.nn.Module, dict):
            table = held.state_dict() if isinstance(held, torch.nn.Module) else held
            found = dict.get(table, name)
            if isinstance(found, torch.Tensor):
                stage.weights_stand_in(type(held).__name__ if table is not held else "a model")
                return found
    return None


def _shapes(state: dict[str, Any]) -> dict[str, Any]:
    return {name: getattr(value, "shape", None) for name, value in state.items()}


def holds_weights(value: Any) -> bool:
    """Whether what is saved is a model, or a table with the weights of one."""
    import torch

    tables = [value, *(value.values() if isinstance(value, dict) else ())]
    return any(isinstance(item, torch.nn.Module) or are_weights(item) for item in tables)


def unpacked(stage: Stage, error: BaseException, frame: types.FrameType) -> bool:
    """Whether a script took a file apart that stood in for weights: the next attempt has that many arrays in it."""
    found = re.search(r"(?:not enough|too many) values to unpack \(expected (\d+)", str(error))
    if found is None or not stage.loaded or "load(" not in linecache.getline(frame.f_code.co_filename, frame.f_lineno):
        return False
    return stage.learn(UNPACKED, {**stage.learned.get(UNPACKED, {}), stage.loaded: int(found[1])})


def data_wanted(stage: Stage, error: BaseException) -> bool:
    """Whether a script takes a file that stood in for weights for a data set, or one that is called like one of images or
    labels for a tensor."""
    import torch

    if (name := _GONE_THROUGH.match(str(error))) is not None:
        return stage.learn(UNPACKED, {**stage.learned.get(UNPACKED, {}), name[1]: AS_SET})
    found = _TAKEN.match(str(error)) if isinstance(error, AttributeError) else None
    if found is None or not _OF_DATA.search(found[1]) or not hasattr(torch.Tensor, found[2]):
        return False
    return stage.learn(UNPACKED, {**stage.learned.get(UNPACKED, {}), found[1]: 1})


def install(
    stage: Stage, torch: Any, classes: tuple[str, ...], arrays: Callable[[str, int], Sequence[np.ndarray]] = lambda *_: ()
) -> None:
    """Let models, optimizers and schedulers take such states, whole or as what a script made of them.

    `arrays` makes what a file holds that is a data set: so many arrays for a name, or those of a set of items.
    """
    StandInState.classes = classes
    GivenState.stood_in = staticmethod(
        lambda key: stage.note("network", f"{key!r} of a checkpoint, where yours holds weights alone")
    )
    StandInState.weight_of = staticmethod(lambda name: _weight(stage, name))
    StandInState.wanted = tuple(stage.learned.get("checkpoint_keys", ()))
    StandInState.stated = stage.learned.get("checkpoint_values", {})
    given: list[bool] = []
    stage.at_risk.clear()

    def load(original: Any, file: Any, *args: Any, **named: Any) -> Any:
        asked = os.path.abspath(file) if isinstance(file, str | os.PathLike) else None
        stage.loading = os.path.basename(asked or "")
        try:
            found = _loaded(stage, original, file, args, named)
        except IsADirectoryError:
            if not stage.has_made(file):  # a name without an ending was taken for that of a folder
                raise
            found = {MARK: True}
        finally:
            stage.loading = ""
        if isinstance(found, dict) and found.get(MARK) is True:
            stage.loaded = os.path.basename(asked or "")
            if (count := stage.learned.get(UNPACKED, {}).get(stage.loaded)) is not None:
                said = f"{count} array{'s' * (count > 1)}" if count != AS_SET else "a data set of images and labels"
                stage.note("data", f"{stage.loaded}: {said}")
                made = tuple(torch.from_numpy(array) for array in arrays(stage.loaded, count))
                return torch.utils.data.TensorDataset(*made) if count == AS_SET else made if count > 1 else made[0]
            held = _held(stage, original, args, named)
            if held is not None:
                if isinstance(held, GivenState):
                    held.fetched = not called_by_user(stage.root)
                return held
            given.append(True)
            state = StandInState()
            if known := stage.learned.get("arguments_of_a_checkpoint"):
                dict.__setitem__(state, _ARGUMENTS, dict(known))
                said = ", ".join(f"{name}={value!r}" for name, value in known.items())
                stage.note("network", f"{said}, as the sources have it, stood in for what a checkpoint says of its model")
            if isinstance(file, str | os.PathLike):
                state.file, state.path = os.path.basename(file), os.path.relpath(file, stage.root)
            for key, value in own_checkpoints.held(stage).items():
                dict.__setitem__(state, key, state[key] if value is None else value)
            return state
        own = asked is not None and asked == stage.request.checkpoint
        return GivenState(found) if own and isinstance(found, dict) else found

    def load_program(original: Any, file: Any, *args: Any, **named: Any) -> Any:
        try:
            return original(file, *args, **named)
        except (ValueError, RuntimeError) as error:
            stands_in = isinstance(file, str | os.PathLike) and not _is_program(os.fspath(file))
            if not stands_in:
                raise
            said = f"{os.path.basename(file)} {WANTING} the model itself from it"
            raise FileNotFoundError(said) from error

    def load_state(original: Any, self: Any, state_dict: Any, *args: Any, **named: Any) -> Any:
        if isinstance(state_dict, StandInState):
            stage.weights_stand_in(type(self).__name__)
            missing = [key for key in self.state_dict() if key in state_dict.dropped]
            return torch.nn.modules.module._IncompatibleKeys(missing, [])
        if isinstance(state_dict, GivenState):
            with contextlib.suppress(ArtifactError):  # else torch says how it does not fit
                asked, state_dict = state_dict, stripped(state_of(dict(state_dict), "the checkpoint"), set(self.state_dict()))
                if asked.fetched and _shapes(state_dict) != _shapes(self.state_dict()):
                    stage.weights_stand_in(type(self).__name__)
                    return torch.nn.modules.module._IncompatibleKeys([], [])
        if given and not set(self.state_dict()) <= set(state_dict):
            stage.weights_stand_in(type(self).__name__)
            return original(self, state_dict, strict=False)
        return original(self, state_dict, *args, **named)

    def restore(original: Any, self: Any, state_dict: Any, *args: Any, **named: Any) -> Any:
        return None if isinstance(state_dict, StandInState) else original(self, state_dict, *args, **named)

    def goes_through(original: Any, *args: Any, **named: Any) -> Any:
        taken = [*args, *named.values()]
        kinds = torch.utils.data.Subset, torch.utils.data.ConcatDataset
        held = [getattr(value, "datasets", None) or [value.dataset] for value in taken if isinstance(value, kinds)]
        parts = [*taken, *itertools.chain(*held)]
        if (found := next((part for part in parts if isinstance(part, StandInState)), None)) is not None:
            raise TypeError(f"{found.file} {WANTING} a data set from it")
        return original(*args, **named)

    stage.wrap(torch.utils.data.DataLoader, "__init__", goes_through)
    stage.wrap(torch.utils.data, "random_split", goes_through)
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
