"""Which file of settings a script is run with, where it was not told one, or one that is not here."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Callable, Sequence
from pathlib import Path

from ....reading.scopes import apart
from ....reading.source import readme_text
from ..stage import Stage

_TAKEN, _UNFIT = "configuration", "unfit_configurations"
"""Learned: the file of settings that was guessed, and those before it, which lack what the script takes from them."""
_MOST = 4
_ENDINGS = (".yaml", ".yml", ".json", ".toml", ".cfg", ".ini")
_LIKELY = re.compile(r"conf|cfg|experiment|option", re.I)
_OF_IMAGES = re.compile(r"imag|mnist|cifar|svhn|res_?net|vgg|efficient_?net|mobile_?net|dense_?net|vit|swin|convnext", re.I)
_PLAIN = re.compile(
    r"(yaml|yml|json|toml)?(conf|config|configuration|cfg|settings|file|path|name|yaml|yml|json|toml)s?|the|to|of"
)
_OPTION = re.compile(r"conf|cfg|settings|opt(ions?)?$|ya?ml", re.I)


def guessed(stage: Stage, option: str = "") -> str:
    """The file of settings that the script is given for an option, relative to where it runs.

    Where a file is called as the option says (`--data-config`), that one; before it one of a folder that is called so, among
    folders of such files (`configs/models/lenet.json`, `configs/run/long.json`).
    """
    words = [word for word in re.split(r"\W|_", option.lower()) if word and not _PLAIN.fullmatch(word)]
    if words:
        named = _nearest(stage, lambda path: _is_of_kind(stage, path, words))
        named = named or _nearest(stage, lambda path: any(word in os.path.basename(path).lower() for word in words))
        if named:
            return named
    known = stage.learned.get(_TAKEN) if stage.learned.get(_UNFIT) else None
    taken = known or _nearest(stage) or "config.yaml"
    stage.learn(_TAKEN, taken)
    return taken


def _is_of_kind(stage: Stage, path: str, words: Sequence[str]) -> bool:
    """Whether a file lies in a folder that is called by one of the words, beside another folder of files of its format."""
    folder = Path(stage.directory(), path).resolve().parent
    if folder == Path(stage.root) or folder.name.lower() not in {name for word in words for name in (word, f"{word}s")}:
        return False
    beside = {other.parent for other in folder.parent.glob(f"*/*{os.path.splitext(path)[1]}")}
    return len(beside) > 1


def has_another(stage: Stage, path: str) -> bool:
    """Whether an option names this missing file of settings, and others of its format are here: one of those says what the
    script takes, and a made one does not."""
    return _option(stage, path) is not None and _instead_of(stage, path) is not None


def take_for_missing(stage: Stage, error: BaseException) -> bool:
    """Have the next attempt take another file for one that an option names and that is not here."""
    for flag, value in stage.options.items():
        if not isinstance(value, str | os.PathLike) or _option(stage, value) != flag or os.path.exists(value):
            continue
        told = getattr(error, "filename", None) or error
        if not isinstance(error, SystemExit) and os.path.basename(value) not in str(told):
            continue
        taken = _instead_of(stage, os.fspath(value))
        choices = {**stage.learned.get("choices", {}), flag: taken}
        return taken is not None and stage.learn(_TAKEN, taken) and stage.learn("choices", choices)
    return False


def names(stage: Stage, module: str | None) -> bool:
    """Whether the configuration that was guessed names this module."""
    taken = stage.learned.get(_TAKEN)
    if taken is None or not module:
        return False
    with contextlib.suppress(OSError):
        return module in Path(stage.directory(), taken).read_text(encoding="utf-8", errors="replace")
    return False


def take_another(stage: Stage, *, of_another_kind: bool = False) -> bool:
    """The configuration that was guessed lacks what the script takes from it: another one of its folder and format is taken.

    Where it asks for what the script does not know, it is one for other scripts: the next is of another folder beside.
    """
    tried, unfit = stage.learned.get(_TAKEN), stage.learned.get(_UNFIT, [])
    if tried is None or tried in unfit or len(unfit) >= _MOST:
        return False
    folder, known = os.path.dirname(tried), {os.path.dirname(path) for path in (tried, *unfit)}

    def fits(path: str) -> bool:
        own = os.path.dirname(path)
        if path == tried or os.path.splitext(path)[1] != os.path.splitext(tried)[1]:
            return False
        beside = (os.path.dirname(own) or own) == (os.path.dirname(folder) or folder)
        return beside and own not in known if of_another_kind else own == folder

    following = _nearest(stage, fits)
    if following is None:
        return False
    choices = stage.learned.get("choices", {})
    stage.learn("choices", {flag: following if value == tried else value for flag, value in choices.items()})
    stage.learn(_TAKEN, following)
    return stage.add(_UNFIT, tried)


def take_any_other(stage: Stage) -> bool:
    """Another one of the folder and format of that which was guessed, and where there is none left one of a folder beside."""
    return take_another(stage) or take_another(stage, of_another_kind=True)


def _option(stage: Stage, path: str | os.PathLike[str]) -> str | None:
    """The option whose value this file of settings is."""
    if os.path.splitext(path)[1].lower() not in _ENDINGS:
        return None
    full = os.path.abspath(path)
    for flag, value in stage.options.items():
        if isinstance(value, str | os.PathLike) and _OPTION.search(flag) and os.path.abspath(value) == full:
            return flag
    return None


def _instead_of(stage: Stage, path: str) -> str | None:
    """Of the format of a missing file the one that is likeliest to be for the script, and no table of labels."""
    ending = os.path.splitext(path)[1]
    return _nearest(stage, lambda other: other.endswith(ending) and _LIKELY.search(other) is not None)


def _nearest(stage: Stage, fits: Callable[[str], bool] = lambda path: True) -> str | None:
    """The configuration file that the README names, else the nearest, of these one for evaluation, then one whose name
    says images, else the first.

    None that was found to lack something. Paths are relative to where the script runs.
    """
    root = Path(stage.root)
    directory = stage.directory()
    here = os.path.relpath(directory, root)
    told = readme_text(root)
    found = [path.relative_to(root) for end in _ENDINGS for path in root.rglob(f"*{end}")]
    found = [path for path in found if not any(part.startswith(".") for part in path.parts)]

    def relative(path: Path) -> str:
        return os.path.relpath(root / path, directory)

    def rank(path: Path) -> tuple[object, ...]:
        text = path.as_posix()
        return (
            _LIKELY.search(text) is None,
            text not in told,
            path.name not in told,
            apart(text, f"{here}/."),
            re.search(r"eval|test|val", path.stem, re.I) is None,
            _OF_IMAGES.search(path.stem) is None,
            len(path.parts),
            text,
        )

    left = (path for path in found if relative(path) not in stage.learned.get(_UNFIT, ()) and fits(relative(path)))
    best = min(left, key=rank, default=None)
    return relative(best) if best is not None else None
