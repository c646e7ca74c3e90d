"""Which files of a foreign model's folder are opened, and that none of them lies outside the repository."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path, PurePosixPath

from ....errors import ArtifactError
from ....runtime.artifact.formats import Format, formats
from ....runtime.artifact.manifest import MANIFEST
from ....runtime.artifact.model_config import FILE, ModelConfig, parse_config, read_config
from ....specs import MOST_LABEL

_MOST_FILES = 10_000
_MOST_LABEL_BYTES = 16 << 20


def is_packaged(folder: Path) -> bool:
    """Whether any version in a model's folder was written by Headrace, whose record the others must have, too."""
    return next(folder.glob(f"[0-9]*/{MANIFEST}"), None) is not None


def declared_config(folder: Path) -> ModelConfig:
    """The folder's config, an empty one where there is none. Raises ArtifactError."""
    return read_config(folder) if (folder / FILE).is_file() else parse_config("")


def has_graph(folder: Path) -> bool:
    """Whether a folder without a config holds a model that can be served without one."""
    return any(next(folder.glob(f"[1-9]*/{known.file}"), None) is not None for known in formats().values())


def backend_of(config: ModelConfig, version: Path) -> str:
    """What a config says runs the model or else, as Triton has it, what its file's name says. Raises ArtifactError."""
    if config.backend:
        return config.backend
    if "ensemble_scheduling" in config.message:
        return "ensemble"
    named = config.message.get("default_model_filename", "")
    for known in formats().values():
        if named == known.file or (not named and (version / known.file).exists()):
            return known.backend
    listed = ", ".join(known.file for known in formats().values())
    raise ArtifactError(f"{FILE} names no backend, and version {version.name} holds none of {listed}")


def graph_file(root: Path, version: Path, config: ModelConfig, known: Format) -> Path:
    """The graph of a version below the repository `root`. Raises ArtifactError for one that is missing, and for a version that
    holds anything but files and folders of the repository."""
    named = config.message.get("default_model_filename") or known.file
    path = version / plain(named, "default_model_filename")
    _check_tree(root, version)
    if path.is_dir():  # as Triton has it for graphs whose data lie in files beside them
        path = path / known.file
    for needed in (path, *known.beside(path)):
        if not needed.exists():
            raise ArtifactError(f"{needed} is missing; default_model_filename in {FILE} can name another file")
        _check(root, needed)
        if not needed.is_file():
            raise ArtifactError(f"{needed} is no file")
    return path


def labels_of(root: Path, folder: Path, config: ModelConfig) -> Mapping[str, tuple[str, ...]]:
    """The labels of each output that has a label file, a line each. Raises ArtifactError."""
    found = {}
    for tensor in config.outputs:
        if tensor.label_filename:
            path = folder / plain(tensor.label_filename, "label_filename")
            if not path.is_file():
                raise ArtifactError(f"{path}, the labels of output '{tensor.name}', is missing or no file")
            _check(root, path)
            with path.open("rb") as file:
                text = file.read(_MOST_LABEL_BYTES + 1)
            if len(text) > _MOST_LABEL_BYTES:
                raise ArtifactError(f"{path} is larger than {_MOST_LABEL_BYTES:,} bytes; it holds no labels")
            names = found[tensor.name] = tuple(line.decode("utf-8", "replace") for line in text.splitlines())
            if (longest := max(map(len, names), default=0)) > MOST_LABEL:
                raise ArtifactError(f"{path} has a label of {longest:,} characters; a label may have {MOST_LABEL:,}")
    return found


def plain(name: str, field: str) -> str:
    """A file's name from a config, which leads nowhere else. Raises ArtifactError."""
    path = PurePosixPath(name)
    if path.is_absolute() or ".." in path.parts or "\0" in name or not path.parts:
        raise ArtifactError(f"{field} {name[:100]!r} must name a file inside the model's own folder")
    return name


def _check_tree(root: Path, version: Path) -> None:
    if not version.is_dir():
        raise ArtifactError(f"{version} is no folder of a version")
    _check(root, version)
    count = 0
    for place, folders, files in os.walk(version):
        for name in (*folders, *files):
            count += 1
            if count > _MOST_FILES:
                raise ArtifactError(f"{version} holds more than {_MOST_FILES:,} files; it is no version of a model")
            _check(root, Path(place) / name)


def _check(root: Path, path: Path) -> None:
    try:
        real = path.resolve(strict=True)
    except (OSError, RuntimeError):
        raise ArtifactError(f"{path} is a link to nothing") from None
    if not real.is_relative_to(root.resolve()):
        raise ArtifactError(f"{path} is a link that leads out of the repository; put the file itself there")
    if not (real.is_file() or real.is_dir()):
        raise ArtifactError(f"{path} is a special file; a model holds only files and folders")
