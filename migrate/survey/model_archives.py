"""TorchServe's model archives as a repository has or describes them: a manifest, or command lines of `torch-model-archiver`."""

from __future__ import annotations

import contextlib
import json
import posixpath
import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from ..reading.source import head, walk

MANIFEST = "MAR-INF/MANIFEST.json"
_DOCUMENTS = ("README", ".md", ".rst", ".sh", ".txt", "Makefile", "Dockerfile", ".ipynb", ".yml", ".yaml")
_MOST_FILES, _MOST_BYTES = 200, 500_000
_COMMAND = re.compile(r"torch-model-archiver\b")
_PLACEHOLDER = re.compile(r"[<>{}$]|\.\.\.")


@dataclass(frozen=True, kw_only=True)
class ModelArchive:
    """What one archive is made of. Files are relative to the repository's root where they are there, else as they are written.

    `handler` is a Python file, with `function` where the handler names one, or the name of one of TorchServe's own.
    """

    name: str
    handler: str
    function: str | None = None
    model_file: str | None = None
    serialized_file: str | None = None
    config_file: str | None = None
    extra_files: tuple[str, ...] = ()

    @property
    def own_handler(self) -> bool:
        """Whether the handler is a file of the repository."""
        return self.handler.endswith(".py")


def model_archives(root: Path) -> tuple[ModelArchive, ...]:
    """The archive that the repository is, unpacked; else those that its documents say how to make."""
    manifests = [path for path in walk(root, ("MANIFEST.json",)) if path.endswith(MANIFEST)]
    manifests = manifests or [MANIFEST] if (root / MANIFEST).is_file() else manifests
    found = [archive for path in manifests if (archive := _of_manifest(root, path)) is not None]
    if not found:
        paths = sorted(walk(root, _DOCUMENTS), key=lambda path: (path.count("/"), path))[:_MOST_FILES]
        found = [archive for path in paths for archive in _of_document(root, path)]
    return tuple(dict.fromkeys(found))


def _of_manifest(root: Path, path: str) -> ModelArchive | None:
    folder = posixpath.dirname(posixpath.dirname(path))
    with contextlib.suppress(OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        model = json.loads(head(root / path, _MOST_BYTES))["model"]
        given = {key: model.get(key) for key in ("modelName", "handler", "modelFile", "serializedFile", "configFile")}
        if not all(value is None or isinstance(value, str) for value in given.values()) or not given["handler"]:
            return None
        extra = [file for file in ("index_to_name.json",) if (root / folder / file).is_file()]
        return _made(root, folder, given["modelName"] or root.name, given["handler"], given["modelFile"],
                     given["serializedFile"], given["configFile"], extra)  # fmt: skip
    return None


def _of_document(root: Path, path: str) -> Iterator[ModelArchive]:
    text = ""
    with contextlib.suppress(OSError):
        text = head(root / path, _MOST_BYTES).decode(errors="replace")
    if "torch-model-archiver" not in text:
        return
    if path.endswith(".ipynb"):
        text = text.replace('\\n",', "").replace('\\"', '"').replace("\\\\", "\\")
    text = re.sub(r"\\\s*\n\s*\"?", " ", text)
    folder = posixpath.dirname(path)
    for line in text.splitlines():
        for start in _COMMAND.finditer(line):
            given = _options(line[start.end() :])
            handler = given.get("handler")
            if handler and not _PLACEHOLDER.search(handler):
                extra = [item.strip() for item in given.get("extra-files", "").split(",") if item.strip()]
                yield _made(root, folder, given.get("model-name", root.name), handler, given.get("model-file"),
                            given.get("serialized-file"), given.get("config-file"), extra)  # fmt: skip


def _options(text: str) -> dict[str, str]:
    """The options of a command line, each with its value."""
    try:
        words = shlex.split(text)
    except ValueError:
        words = [word.strip("\"'`,") for word in text.split()]
    found: dict[str, str] = {}
    for index, word in enumerate(words):
        if word in ("&&", ";", "|") or word.startswith("#"):
            break
        if word.startswith("--"):
            name, equals, value = word[2:].partition("=")
            following = words[index + 1] if index + 1 < len(words) else ""
            value = value if equals else "" if following.startswith("-") else following
            found.setdefault(name, value.strip("\"'`,"))
    return found


def _made(
    root: Path,
    folder: str,
    name: str,
    handler: str,
    model: str | None,
    serialized: str | None,
    config: str | None,
    extra: list[str],
) -> ModelArchive:
    handler, _, function = handler.partition(":")
    here = _placed(root, folder, handler if handler.endswith(".py") else f"{handler}.py", there=True)
    return ModelArchive(
        name=name,
        handler=here or posixpath.basename(handler),
        function=function or None,
        model_file=_placed(root, folder, model) if model else None,
        serialized_file=_placed(root, folder, serialized) if serialized else None,
        config_file=_placed(root, folder, config) if config else None,
        extra_files=tuple(placed for item in extra if (placed := _placed(root, folder, item)) is not None),
    )


def _placed(root: Path, folder: str, written: str, *, there: bool = False) -> str | None:
    """Where a file is that a document in `folder` names: as it is written, seen from the root or from there, else the only one
    of its name. Where it is nowhere its name alone, or None if it must be `there`."""
    written = written.replace("\\", "/")
    parts = PurePosixPath(written).parts
    if not parts or ".." in parts[1:] or _PLACEHOLDER.search(written):
        return None if there or not parts else parts[-1]
    for base in (folder, ""):
        place = posixpath.normpath(posixpath.join(base, written.lstrip("/")))
        if not place.startswith("..") and (root / place).is_file():
            return place
    named = [path for path in walk(root, (parts[-1],)) if posixpath.basename(path) == parts[-1]]
    beside = [path for path in named if posixpath.dirname(path) == folder]
    if len(beside or named) == 1:
        return (beside or named)[0]
    return None if there else parts[-1]
