"""A models folder as Triton reads it: messages instead of the embedded server's own, narrower view of a configuration."""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ...runtime.artifact.model_config import FILE

_MAX_BYTES = 1 << 20
_NO_FIELD = re.compile(r'Message type "inference\.([\w.]+)" has no field named "(\w+)"')


class UnreadableError(Exception):
    """A `config.pbtxt` that is none; `where` is the file with the line."""

    def __init__(self, where: str, message: str) -> None:
        super().__init__(message)
        self.where = where


@dataclass(frozen=True, kw_only=True)
class ModelFolder:
    """One model: its folder, and its configuration as Triton's message. `backend` is what its platform or backend says."""

    name: str
    folder: Path
    config: Any
    backend: str

    @property
    def is_ensemble(self) -> bool:
        return self.backend == "ensemble"

    @property
    def versions(self) -> list[int]:
        """The versions that Triton sees: folders named by a number without leading zeros, ascending."""
        return sorted(int(entry.name) for entry in self.folder.iterdir() if entry.is_dir() and _is_version(entry.name))

    @property
    def wanted_versions(self) -> list[int]:
        """Those of `versions` that the version policy lets serve."""
        policy, found = self.config.version_policy, self.versions
        kind = policy.WhichOneof("policy_choice")
        if kind == "specific":
            return [version for version in found if version in policy.specific.versions]
        if kind == "all":
            return found
        count = policy.latest.num_versions if kind == "latest" else 1
        return found[-count:] if count else []


@dataclass(frozen=True, kw_only=True)
class Repository:
    """The models by name. `gpus` is how many GPUs the machine has that Triton is to run on."""

    models: Mapping[str, ModelFolder]
    unreadable: Mapping[str, UnreadableError] = field(default_factory=dict)
    gpus: int = 0


def read_repository(root: Path, *, gpus: int) -> Repository:
    """Every folder with a `config.pbtxt`; hidden ones, which `headrace` writes aside, are none."""
    models, unreadable = {}, {}
    for folder in sorted(root.iterdir()):
        if not folder.is_dir() or folder.name.startswith(".") or not (folder / FILE).is_file():
            continue
        try:
            config = read_message(folder / FILE)
        except UnreadableError as reason:
            unreadable[folder.name] = reason
            continue
        backend = config.backend or config.platform.removesuffix("_onnx")
        models[folder.name] = ModelFolder(name=folder.name, folder=folder, config=config, backend=backend)
    return Repository(models=models, unreadable=unreadable, gpus=gpus)


def read_message(path: Path) -> Any:
    """The `ModelConfig` message of a file. Raises UnreadableError with the line, and what a misspelt field is near to."""
    from google.protobuf import text_format

    from ...runtime.artifact.triton_messages import model_config as schema

    try:
        with path.open("rb") as file:
            raw = file.read(_MAX_BYTES + 1)
        if len(raw) > _MAX_BYTES:
            raise UnreadableError(path.name, f"it is larger than {_MAX_BYTES:,} bytes; it is no model configuration")
        return text_format.Parse(raw.decode("utf-8"), schema.ModelConfig())
    except OSError as error:
        raise UnreadableError(path.name, f"it cannot be read: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise UnreadableError(path.name, f"it is not UTF-8 text (byte {error.start})") from None
    except text_format.ParseError as error:
        where = f"{path.name}:{error.GetLine()}" if error.GetLine() else path.name
        message = str(error).partition(" : ")[2] or str(error)
        raise UnreadableError(where, message.strip().rstrip(".") + _nearest(message, schema)) from None


def datatype_name(value: int) -> str:
    """TYPE_FP32 and the like."""
    from ...runtime.artifact.triton_messages import model_config as schema

    return str(schema.DataType.Name(value))


def _nearest(message: str, schema: Any) -> str:
    """The field that a misspelt one probably is."""
    found = _NO_FIELD.search(message)
    if found is None:
        return ""
    descriptor = schema.DESCRIPTOR
    for part in found[1].split("."):
        types = descriptor.message_types_by_name if descriptor is schema.DESCRIPTOR else descriptor.nested_types_by_name
        descriptor = types[part]
    near = difflib.get_close_matches(found[2], list(descriptor.fields_by_name), n=1)
    return f"; did you mean {near[0]!r}?" if near else f"; it has {', '.join(sorted(descriptor.fields_by_name))}"


def _is_version(name: str) -> bool:
    return name.isdecimal() and name.isascii() and (name == "0" or not name.startswith("0"))
