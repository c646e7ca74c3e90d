"""`headrace.json`: what an artifact is made of, and the digests that hold it to that. Torch-free.

The file has one canonical form and carries its own digest, so any changed byte in it, or in a file it lists, is found.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, BinaryIO

from ...errors import ArtifactError, DigestError
from ...trust import open_regular

FORMAT = 1
MANIFEST = "headrace.json"
ONNX_FILE = "model.onnx"  # the graph that any machine runs
STEPS_FILE = "steps.json"  # of a decoder, beside its code
LABELS = "labels.txt"
MAX_NAME = 128

_MAX_MANIFEST = 64 << 20
_MAX_LABELS = 16 << 20
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*\Z")
_LABELS = re.compile(r"\.\./labels(_[0-9]+)?\.txt\Z")
_CHUNK = 1 << 20


def check_name(name: str) -> str:
    """The name of a model, which is also a folder's and part of URLs: letters, digits, dot, underscore and dash."""
    if not _NAME.match(name) or len(name) > MAX_NAME:
        raise ArtifactError(
            f"{name[:200]!r} cannot name a model; use up to {MAX_NAME} letters, digits, '.', '_' and '-', "
            "the first a letter or digit"
        )
    return name


def labels_file(output: int, primary: int) -> str:
    """The file beside the config that names the entries of an output: the plain one of the output that the model is for."""
    return LABELS if output == primary else f"labels_{output}.txt"


def check_file(name: object) -> str:
    """A file of the version's folder as manifests name it: relative, inside that folder, or the labels beside it."""
    parts = name.split("/") if isinstance(name, str) else []
    if not _LABELS.match(str(name)) and not (parts and all(_NAME.match(part) for part in parts)):
        raise ArtifactError(f"{MANIFEST} names the file {str(name)[:200]!r}, which may lie outside the model's folder")
    return str(name)


def write_manifest(path: Path, content: Mapping[str, Any]) -> None:
    """Write `path/headrace.json` with its own digest. Numbers that JSON cannot hold (infinite, not a number) become null."""
    values = plain(content)
    (path / MANIFEST).write_bytes(_render({**values, "self": _digest_of(values)}))


def read_manifest(path: Path) -> tuple[dict[str, Any], dict[str, bytes]]:
    """The verified content of `path/headrace.json`, and the bytes of the labels files, by their names.

    Every file it lists has been read and compared. Raises DigestError naming the file that differs, ArtifactError for
    missing files, links, names that lead elsewhere, and other formats.
    """
    content = read_content(path)
    labels: dict[str, bytes] = {}
    if not isinstance(content.get("digests"), dict):
        raise ArtifactError(f"{path / MANIFEST} lists no files")
    for name, written in content["digests"].items():
        file_path = path / check_file(name)
        if name.startswith("../"):
            with _open(file_path) as file:
                read = labels[name.removeprefix("../")] = file.read(_MAX_LABELS + 1)
            actual = "sha256:" + hashlib.sha256(read).hexdigest()
        else:
            actual = digest(file_path, inside=path)
        if actual != written:
            raise DigestError(
                f"{file_path} is not the file that was written; package the model again, or restore it from a copy"
            )
    return content, labels


def read_content(path: Path) -> dict[str, Any]:
    """The content of `path/headrace.json`, as it was written; the files that it lists are not looked at. Raises as
    `read_manifest` does."""
    where = path / MANIFEST
    with _open(where) as file:
        raw = file.read(_MAX_MANIFEST + 1)
    if len(raw) > _MAX_MANIFEST:
        raise ArtifactError(f"{where} is larger than {_MAX_MANIFEST:,} bytes; it was not written by Headrace")
    content: Any = None
    try:
        content = json.loads(raw)
        self_digest = content.pop("self")
        intact = self_digest == _digest_of(content) and raw == _render({**content, "self": self_digest})
    except (ValueError, TypeError, AttributeError, KeyError, RecursionError):
        intact = False
    other = ""  # another format may also have another way to be verified
    if isinstance(content, dict) and (type(content.get("format")) is not int or content["format"] != FORMAT):
        written_by = f"it was written by Headrace {content['headrace']!r}: use that" if "headrace" in content else "use another"
        other = (
            f"has format {content.get('format')!r}, and this version of Headrace reads format {FORMAT}; "
            f"{written_by} version, or package the model again"
        )
    if not intact:
        remedy = "package the model again, or restore it from a copy"
        raise DigestError(f"{where} is not as it was written{f', or {other}' if other else f'; {remedy}'}")
    if other:
        raise ArtifactError(f"{where} {other}")
    assert isinstance(content, dict), "what is intact is an object"
    return content


def digest(file_path: Path, *, inside: Path) -> str:
    """The digest of a regular file, no part of whose path below `inside` is a link."""
    for folder in file_path.relative_to(inside).parents:
        if (inside / folder).is_symlink():
            raise ArtifactError(f"{inside / folder} is a symbolic link; an artifact holds only files and folders of its own")
    total = hashlib.sha256()
    with _open(file_path) as file:
        while chunk := file.read(_CHUNK):
            total.update(chunk)
    return "sha256:" + total.hexdigest()


def _open(path: Path) -> BinaryIO:
    """Open a regular file that is no link, with what is wrong with any other said."""
    try:
        return open_regular(path, links=False)
    except FileNotFoundError:
        raise ArtifactError(f"{path} is missing; package the model again, or restore it from a copy") from None
    except OSError as error:
        reason = "it is a symbolic link" if path.is_symlink() else error.strerror
        raise ArtifactError(f"{path} cannot be read: {reason}; package the model again, or restore it from a copy") from error


def _digest_of(content: Mapping[str, Any]) -> str:
    canonical = json.dumps(content, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return "sha256:" + hashlib.sha256(canonical.encode()).hexdigest()


def _render(content: Mapping[str, Any]) -> bytes:
    return (json.dumps(content, indent=1, sort_keys=True, allow_nan=False) + "\n").encode()


def plain(value: Any) -> Any:
    """The value in JSON's own types, so that writing and reading give the same text; infinity and NaN become null."""
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value
