"""Data: what a script reads and is not here is made in the form that it expects; what is here is never touched."""

from __future__ import annotations

import ast
import contextlib
import linecache
import os
import pickle
import re
import shutil
import traceback
from collections.abc import Callable, Iterator
from typing import Any

from .. import hints, hugging_face_sets, torchvision_sets
from ..forms import arrays, class_labels, image_endings, json_files, keyed_arrays, line_lists, parted_folders, splits, tables
from ..forms.bare_folders import is_bare
from ..making import IMAGES, MADE_NAME, NAMES, NO_FOLDERS, STEMS, TABLES, WEIGHTS, Maker, names_files
from ..paths import Paths
from ..places import is_users, other_folder
from ..settings import configurations
from ..stage import Stage
from ..weights import holds_weights

_SIZES = (224, 32, 28, 64, 96, 128, 299, 384, 48)
"""Sides of images to try, one after the other, for models that take one size only and sources that do not say which."""
_EMPTY = re.compile(
    r"num_samples=0|n_samples=0|empty|division by zero|at least one|out of range|no .*(images|files|samples|data|rows|records)"
    r"|\b(0|zero)( ?/ ?\d+| of \d+)? (images|files|samples|rows|records)|no objects to concatenate|0 sample"
    r"|\b(no|none|nothing)\b.*\b(found|could|match(ed|es)?|left|remains?|available|loaded)\b|could(n't| not) be matched",
    re.I,
)
"""What is said of a list of images that has none."""
_UNBOUND = re.compile(r"(?:variable|name) '(\w+)'")
_CHANNELS = re.compile(r"expected input\[.*\] to have (\d) channels, but got \d channels")
_MODES = {"1": "L", "3": "RGB", "4": "RGBA"}
"""How images are stored whose tensors have so many channels, where a script takes them as they are."""
_SETTINGS = (".yaml", ".yml", ".toml", ".ini", ".cfg", ".conf", ".env")
"""Endings of files that hold how a script is to run, not its data."""
_MOST_BYTES = 600_000_000
"""A larger checkpoint is not kept."""
_MOST_WANTED = 3
"""So many files that a script skipped are made at once."""
_MOST_BESIDE = 1_000
"""So many folders beside one another are made at once."""
_TOO_FEW_EACH = re.compile(
    r"least populated class|members in each class|size = \d+ should be greater or equal to the number of classes", re.I
)
"""What scikit-learn says of labels that it cannot share out class by class."""
_REFUSED = re.compile(r"\b(?:path|file|directory|folder) ['\"]([^'\"]+)['\"] does not exist", re.I)
"""What a command line's parser says of an argument that must be there."""
_LINE = re.compile(rf"{MADE_NAME.pattern} \d+")
_OF_DATA = (ArithmeticError, AssertionError, IndexError, OSError, RuntimeError, SystemExit, ValueError)
"""What a script may end with that found no images."""
_SET_UP: dict[int, Paths] = {}


@contextlib.contextmanager
def stand_in(stage: Stage) -> Iterator[None]:
    maker = Maker(stage)
    paths = Paths(stage, maker)
    maker.home = paths.home
    paths.install()
    _SET_UP[id(stage)] = paths
    stage.when_imported("datasets", lambda library: hugging_face_sets.install(stage, maker, library))
    stage.when_imported("torchvision.datasets", lambda library: torchvision_sets.install(stage, maker, library))
    stage.when_imported(
        "torchvision.io", lambda library: _readers(stage, paths, library, ("read_image", "read_file", "decode_image"))
    )
    stage.when_imported("cv2", lambda library: _readers(stage, paths, library, ("imread", "VideoCapture")))
    stage.when_imported("torch", lambda library: stage.wrap(library, "save", _saved(stage, paths)))
    stage.when_imported("h5py", lambda library: keyed_arrays.watch(stage, paths.opened, library))
    stage.when_imported("pandas", lambda library: tables.watch(stage, library))
    stage.when_imported(
        "pandas", lambda library: _readers(stage, paths, library, ("read_parquet", "read_feather", "read_excel"))
    )
    stage.when_imported("torch.utils.data", lambda library: splits.wrap_around(stage, library))
    yield
    del _SET_UP[id(stage)]


def in_vain(stage: Stage) -> bool:
    """A script that called no model left out what is not here: rows that no table has, or checkpoints that it looked for."""
    if _fill(stage) or _keep_rows(stage) or _lie_otherwise(stage):
        return True
    return _looked_for(stage, lambda path: path.endswith(WEIGHTS)) or _looked_for(stage, lambda path: path.endswith(IMAGES))


def last_in_vain(stage: Stage) -> bool:
    """It may also have looked for the table or the folder of its data, said that it is not here, and come to its end."""
    return _looked_for(stage, lambda path: path.endswith(TABLES) or not os.path.splitext(path)[1])


def _looked_for(stage: Stage, fits: Callable[[str], bool]) -> bool:
    """Have the next attempt find what this one looked for in vain, where that `fits`."""
    paths, wanted = _SET_UP[id(stage)], dict(stage.learned.get("wanted", {}))
    looked = [(path, place) for path, place in paths.probed.items() if fits(path.lower()) and not stage.has_made(path)]
    missing = {os.path.abspath(path): place for path, place in looked if paths.may_want(path)}
    more = [(path, place) for path, place in missing.items() if path not in wanted][:_MOST_WANTED]
    return bool(more) and stage.learn("wanted", {**wanted, **dict(more)})


def _lie_otherwise(stage: Stage) -> bool:
    """Have the next attempt's images end otherwise, lie in other folders, or be called as tables call them."""
    return image_endings.end_otherwise(stage) or _flatten(stage) or _deepen(stage) or _agree(stage)


def _fill(stage: Stage) -> bool:
    """Have images lie in the folders that the script listed, which are here and hold no data."""
    wanted = dict(stage.learned.get("wanted", {}))
    fresh = {path: place for path, place in _SET_UP[id(stage)].bare.items() if path not in wanted}
    return bool(fresh) and stage.learn("wanted", {**wanted, **fresh})


def _flatten(stage: Stage) -> bool:
    """Have the next attempt's images lie where the script lists files: it looked into no folder of a class."""

    def for_classes(folder: str) -> bool:
        """Whether it names those of another place, and was read for its classes: `train` beside `val/cat`, but not `cat`."""
        others = {os.path.basename(other) for other in stage.entered if os.path.dirname(other) != os.path.dirname(folder)}
        return not others.isdisjoint(os.listdir(folder))

    listed = [folder for folder, entered in stage.entered.items() if not entered and not for_classes(folder)]
    known = stage.learned.get("flat", [])
    if any(folder not in known for folder in listed):
        _agree(stage)
    return bool(listed) and stage.learn("flat", [*known, *(folder for folder in listed if folder not in known)])


def _deepen(stage: Stage) -> bool:
    """Have the next attempt's images lie in a folder for each class: it opened none of those that lay in one folder."""
    return not all(stage.made_flat.values()) and stage.learn("deep", True)


def _agree(stage: Stage, wanted: str | None = None) -> bool:
    """Have the files in the next attempt's folders named as its tables do: a script that looks into both matches them.

    The tables' names have endings or not: as `wanted`, a name that was searched for, else as the sources treat names.
    """
    if not stage.names_images:
        return False
    bare = not os.path.splitext(wanted)[1] if wanted else hints.adds_endings(stage.root, stage.request.script)
    first, second = (STEMS, NAMES) if bare else (NAMES, STEMS)
    tried = stage.learned.get("agreed")
    return (tried is None or (tried == first and wanted is None)) and stage.learn("agreed", second if tried else first)


def _is_made(stage: Stage, name: object) -> bool:
    """Whether it is the name of a file in a made folder without folders of classes, with its ending or without."""
    stem = os.path.splitext(name)[0] if isinstance(name, str) else ""
    return any(re.fullmatch(rf"{re.escape(own)}_\d{{4}}", stem) for own in [*Maker(stage).names, "image"])


def _keep_rows(stage: Stage) -> bool:
    """Have the next tables hold the values for which this attempt's were searched in vain."""
    searched = [value for values in stage.filters.values() for value in values if isinstance(value, str)]
    if any(_LINE.fullmatch(value) for value in searched) and stage.learn("bare_lines", True):
        return True  # the lines of a list are names, not names and classes
    files = [value for value in searched if _is_made(stage, value)]
    if files and _agree(stage, str(files[0])):
        return True
    named = {value for name, values in stage.filters.items() if names_files(name) for value in values}
    if named and named <= set(Maker(stage).names) and _flatten(stage):
        return True  # they are the list of a folder, which was made with a folder for each class
    known: dict[str, list[Any]] = stage.learned.get("values", {})
    wanted = {name: [item for item in values if not _is_made(stage, item)] for name, values in stage.filters.items()}
    more = {name: [*known.get(name, ()), *(item for item in values if item not in known.get(name, ()))]
            for name, values in wanted.items() if values}  # fmt: skip
    return stage.learn("values", {**known, **more}) if more else False


def _readers(stage: Stage, paths: Paths, library: Any, names: tuple[str, ...]) -> None:
    """Functions that open a path without Python's `open`."""

    def opened(value: Any) -> Any:
        return paths.opened(os.fspath(value)) if isinstance(value, str | os.PathLike) else value

    def read(original: Any, *args: Any, **named: Any) -> Any:
        named = {name: opened(value) if name in ("filename", "path") else value for name, value in named.items()}
        return original(*map(opened, args[:1]), *args[1:], **named)

    for name in names:
        if isinstance(getattr(library, name, None), type):
            continue
        stage.wrap(library, name, read)


def _saved(stage: Stage, paths: Paths) -> Any:
    """torch writes a file without Python's `open`, and not into a folder that its user will have made once. The weights that it
    writes are kept for the scripts that look for them."""

    def save(original: Any, value: Any, f: Any, *args: Any, **named: Any) -> Any:
        named_file = isinstance(f, str | os.PathLike)
        if named_file and not os.access(os.path.dirname(os.path.abspath(f)), os.W_OK):
            f = paths.for_output(os.fspath(f))
        there = named_file and os.path.isfile(f)
        before = there and not stage.has_made(f)
        answer = original(value, f, *args, **named)
        if named_file and not there:
            stage.keep(os.fspath(f))  # the next attempt does not go on with the training of this one
        if before and os.path.abspath(f).startswith(stage.root + os.sep) and holds_weights(value):
            stage.saved_over[os.path.relpath(f, stage.root)] = None
        kept = stage.made.with_suffix(".saved.pth")
        fresh = kept not in stage.saved and named_file  # the first of each script, so that runs agree
        if fresh and holds_weights(value) and os.path.getsize(f) < _MOST_BYTES:
            stage.saved.append(kept)
            shutil.copyfile(f, kept.with_suffix(".part"))
            os.replace(kept.with_suffix(".part"), kept)
        return answer

    return save


def lesson(stage: Stage, error: BaseException) -> bool:
    """What the error says of the data that the next attempt should make."""
    text = f"{type(error).__name__}: {error}"
    frames = [frame for frame, _ in traceback.walk_tb(error.__traceback__)]
    if _keep_rows(stage):
        return True
    own = [frame for frame in frames if is_users(frame.f_code.co_filename, stage.root)]
    empty = _EMPTY.search(text) is not None or _went_through_nothing(error, own)
    if line_lists.lesson(stage, error, own, empty=empty):
        return True
    place = _SET_UP[id(stage)].found
    if image_endings.lesson(stage, error, frames, place) or parted_folders.lesson(stage, error, place):
        return True
    if (parted_folders.has_no_classes(error) or _passed_over(error, own)) and last_in_vain(stage):
        return True  # it took another folder, or went on without, for the want of those for which it looked first
    if empty and (_fill(stage) or _lie_otherwise(stage)):
        return True
    if isinstance(error, TypeError) and "NoneType" in text and not stage.computed and _flatten(stage):
        return True  # what predicts image after image gave none: Lightning's trainer of a loader without batches
    named = empty and tables.has_table(stage) and hints.numbers_names(stage.root, stage.request.script)
    if named and stage.learn("labels", "text"):
        return True  # rows were passed over whose classes have no name
    if json_files.lesson(stage, error):
        return True
    if isinstance(error, KeyError) and error.args and _is_made(stage, error.args[0]) and _agree(stage, str(error.args[0])):
        return True
    names = [frame.f_code.co_filename for frame in frames]
    if isinstance(error, RuntimeError) and (found := _CHANNELS.search(text)) is not None:
        return found[1] in _MODES and stage.learn("mode", _MODES[found[1]])
    if (learned := class_labels.lesson(stage, error, frames)) is not None:
        return learned
    if "Too many dimensions: 3 > 2" in text:  # gray images were made of an array of colors
        return stage.learn("mode", "L")
    if arrays.lesson(stage, text) or keyed_arrays.lesson(stage, error):
        return True
    if tables.wider(stage, error, own) or tables.narrower(stage, error, own):
        return True
    if _TOO_FEW_EACH.search(text) and stage.learn("full", True):
        return True
    if re.search(
        r"Target \d+ is out of bounds|Assertion .t >= 0|index \d+ is out of bounds for dimension|list index out of range", text
    ):
        return class_labels.fewer(stage, frames)
    if re.search(
        r"mat1 and mat2 shapes cannot be multiplied|size of tensor a .* must match|Expected .*input size|doesn't match model"
        r"|shape '\[-1, \d+\]' is invalid for input of",
        text,
    ):
        return _next_size(stage)
    if re.search(
        r"Sum of input lengths|out of range|out of bounds|index .* is out|num_samples=0|larger sample|sample larger", text, re.I
    ):
        return stage.learn("full", True)
    if empty and any(item.what.startswith("torchvision's ") for item in stage.standins) and stage.learn("full", True):
        return True  # fewer than a batch
    if (learned := tables.lesson(stage, error, frames)) is not None:
        return learned
    if isinstance(error, KeyError) and ("npz" in text or any("numpy" in name for name in names) or _has_keys(stage)):
        return stage.add("keys", str(error.args[0]).split(" is not")[0].strip("'\""))
    if (learned := class_labels.numbers_and_names(stage, error, own)) is not None:
        return learned
    if "invalid literal for int()" in text and _flatten(stage):
        return True  # of a path to a folder, where one to an image has a number
    if isinstance(error, IsADirectoryError | PermissionError) and error.filename:
        return stage.add("flat", os.path.normpath(os.path.dirname(str(error.filename))))
    if isinstance(error, NotADirectoryError) and error.filename:
        return False
    return _want(stage, error, frames) or (isinstance(error, _OF_DATA) and _deepen(stage))


def _has_keys(stage: Stage) -> bool:
    """Whether files were made whose parts have names: a KeyError may be one that they should have."""
    keyed = any(item.edge == "data" and item.what.lower().endswith((".mat", *keyed_arrays.PICKLES)) for item in stage.standins)
    return keyed or bool(stage.learned.get("keys"))


def remedy(stage: Stage, error: BaseException) -> str | None:
    if isinstance(error, ImportError | NameError | AttributeError | TypeError) or " is not here, and " in str(error):
        return None
    if isinstance(error, pickle.UnpicklingError) and ("holds more than weights" in str(error) or "Weights only" in str(error)):
        return "--trust-checkpoint lets checkpoints of which you know where they come from execute code while they load"
    if isinstance(error, FileNotFoundError | NotADirectoryError | pickle.UnpicklingError) or re.search(
        r"dataset|no such file|not found", str(error), re.I
    ):
        named = str(getattr(error, "filename", None) or error).rstrip("'\". ")
        if named.lower().endswith(WEIGHTS):
            return "give the file of the weights with --checkpoint FILE"
        if named.lower().endswith(_SETTINGS):
            return 'add the file to this copy, or name one that is here with --entry "SCRIPT ARGUMENTS"'
        return "give the folder of the data with --data DIR"
    return None


def _went_through_nothing(error: BaseException, own: list[Any]) -> bool:
    """Whether a name has no value that only loops give one: they found nothing to go through."""
    return _is_bound_within(error, own, ast.For)


def _passed_over(error: BaseException, own: list[Any]) -> bool:
    """Whether a name has no value that an `if` alone gives one: of what is not here, as `if os.path.isdir(folder):` asks."""
    return _is_bound_within(error, own, ast.If)


def _is_bound_within(error: BaseException, own: list[Any], kind: type[ast.stmt]) -> bool:
    found = _UNBOUND.search(str(error)) if isinstance(error, NameError) else None
    return found is not None and bool(own) and hints.bound_within(own[-1].f_code, found[1], kind)


def _next_size(stage: Stage) -> bool:
    tried = stage.learned.get("sizes", 0)
    if tried >= 4:
        return False
    sizes = [stage.request.image[0], *_SIZES] if stage.request.image else list(_SIZES)
    stage.learn("image", [sizes[tried], sizes[tried]])
    return stage.learn("sizes", tried + 1)


def _want(stage: Stage, error: BaseException, frames: list[Any]) -> bool:
    """A path that the script could not go on without: the error names it, or the script looked for it and then gave up."""
    if isinstance(error, FileExistsError):
        return False
    paths = _SET_UP[id(stage)]
    wanted: dict[str, str] = dict(stage.learned.get("wanted", {}))
    own = [frame for frame in frames if is_users(frame.f_code.co_filename, stage.root)]
    where = f"{os.path.relpath(own[-1].f_code.co_filename, stage.root)}:{own[-1].f_lineno}" if own else ""
    named = getattr(error, "filename", None)
    text = str(error)
    candidates = [named] if isinstance(named, str) else []
    candidates += [path for path in reversed(paths.probed) if path and path in text]
    listed = [frame.f_locals.get("directory") for frame in reversed(frames) if "torchvision" in frame.f_code.co_filename]
    candidates += listed
    if isinstance(error, OSError | RuntimeError | ValueError):
        candidates += re.findall(r"[\"']([^\"']+\.\w{2,5}|[^\"' ]*/[^\"' ]+)[\"']", text)
    if isinstance(error, FileNotFoundError):  # of a library, in its own words
        candidates += re.findall(r"[\w./=-]+\.\w{2,5}\b", text)
    candidates += _REFUSED.findall(text)
    candidates += paths.missed_by(frames[-1]) if frames else []
    if own and _gave_up(error, own[-1]):
        file, _, line = where.rpartition(":")
        near = [path for path, place in paths.probed.items() if place.rpartition(":")[0] == file]
        candidates += sorted(near, key=lambda path: abs(int(paths.probed[path].rpartition(":")[2]) - int(line)))[:1]
    for path in candidates:
        if not isinstance(path, str) or "://" in path or configurations.has_another(stage, path):
            continue
        if "directory" not in stage.learned and (folder := other_folder(stage.root, stage.request.script, path)) is not None:
            return stage.learn("directory", folder)  # it is there: the script's user runs it in another folder
        full = os.path.abspath(path)
        wants = paths.may_want(path, is_bare) if path in listed else paths.may_want(path)
        can = paths.maker.can(path) or not os.path.splitext(path)[1]
        loaded = not can and path in paths.probed and bool(own) and _loads(own[-1])  # net.pth2, say
        if full not in wanted and (can or loaded) and wants:
            for other in _beside(paths, path):
                wanted.setdefault(os.path.abspath(other), paths.probed.get(other, where))
                if other in paths.as_file or loaded:
                    stage.add(NO_FOLDERS, os.path.abspath(other))
            return stage.learn("wanted", wanted)
    return False


def _loads(frame: Any) -> bool:
    """Whether torch reads files in the file of a frame, so that one of which nothing else tells may be a checkpoint."""
    return "torch.load(" in "".join(linecache.getlines(frame.f_code.co_filename))


def _beside(paths: Paths, path: str) -> list[str]:
    """A missing path, and of a folder those beside it for which the same line looked: those of the other classes, or of the
    other parts. One of those whose names differ in case alone, the first: `cat`, or else `Cat`."""
    if path not in paths.probed or os.path.splitext(path)[1]:
        return [path]
    found = (
        other
        for other, place in paths.probed.items()
        if place == paths.probed[path] and os.path.dirname(other) == os.path.dirname(path) and not os.path.splitext(other)[1]
    )
    named: dict[str, str] = {}
    for other in (*[other for other in found if paths.may_want(other)][:_MOST_BESIDE], path):
        named.setdefault(other.lower(), other)
    return [*named.values()]


def _gave_up(error: BaseException, frame: Any) -> bool:
    """Whether the user's own line ended the script: by `raise`, `assert`, `exit`."""
    line = linecache.getline(frame.f_code.co_filename, frame.f_lineno)
    return isinstance(error, SystemExit | AssertionError) or line.strip().startswith("raise ")
