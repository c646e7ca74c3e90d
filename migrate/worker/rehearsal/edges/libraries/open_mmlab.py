"""The configurations of mmcv and mmengine, where those are not installed: what scripts of other classifiers take of them."""

from __future__ import annotations

import argparse
import ast
import json
import os
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ....stub_modules import AbsentLibrary
from ...stage import Stage
from .attribute_dicts import AttributeDict

_MODULES = ("mmcv", "mmcv.utils", "mmengine", "mmengine.config")
_BASES, _DELETE = "_base_", "_delete_"
"""Keys of a configuration: the files that it begins with, and that it takes nothing from them below this one."""


class ConfigDict(AttributeDict):
    """A part of a configuration."""


class Config(ConfigDict):
    """A configuration: a file of Python, YAML or JSON, with those under it that it names as its bases."""

    @classmethod
    def fromfile(cls, filename: Any, *_: Any, **__: Any) -> Config:
        found = cls(_merged(Path(filename)))
        found.__dict__["filename"] = str(filename)
        return found

    @property
    def filename(self) -> str | None:
        return self.__dict__.get("filename")

    @property
    def pretty_text(self) -> str:
        return "".join(f"{name} = {value!r}\n" for name, value in self.to_dict().items())

    text = pretty_text

    @property
    def _cfg_dict(self) -> Config:
        return self  # which scripts ask for the items; in mmcv they lie in a dictionary of its own

    def merge_from_dict(self, options: dict[str, Any], *_: Any, **__: Any) -> None:
        """Set what is named by its path: `model.width` for the width of the model."""
        for path, value in options.items():
            *above, name = path.split(".")
            part: Any = self
            for step in above:
                part = part[int(step)] if isinstance(part, list) else part.setdefault(step, {})
            part[int(name) if isinstance(part, list) else name] = value

    def dump(self, file: Any = None) -> str | None:
        if file is None:
            return self.pretty_text
        Path(file).write_text(self.pretty_text, encoding="utf-8")
        return None


class DictAction(argparse.Action):
    """`--options model.width=2 sizes=1,2`: values by their paths."""

    def __call__(self, parser: Any, namespace: Any, values: Any, option_string: str | None = None) -> None:
        pairs = (item.partition("=") for item in values)
        setattr(namespace, self.dest, {path: _value(text) for path, _, text in pairs})


def stand_in(stage: Stage) -> None:
    """Whenever one of the libraries is imported that only a stub stands for."""
    for name in _MODULES:
        stage.when_imported(name, _adder(stage, name))


def _adder(stage: Stage, name: str) -> Callable[[types.ModuleType], None]:
    def add(module: types.ModuleType) -> None:
        if isinstance(getattr(module.__spec__, "loader", None), AbsentLibrary):
            stage.note("libraries", f"{name.partition('.')[0]} is not installed; what its Config does stood in")
            for kind in (Config, ConfigDict, DictAction):
                setattr(module, kind.__name__, kind)

    return add


def _merged(path: Path) -> dict[str, Any]:
    """What a file says, over what its bases say."""
    own = _read(path)
    bases = own.pop(_BASES, [])
    below: dict[str, Any] = {}
    for base in [bases] if isinstance(bases, str) else bases:
        below = _over(below, _merged(path.parent / base))
    return _over(below, own)


def _over(below: dict[str, Any], above: dict[str, Any]) -> dict[str, Any]:
    found = dict(below)
    for name, value in above.items():
        if isinstance(value, dict):
            under = {} if value.get(_DELETE) else found.get(name)
            own = {key: item for key, item in value.items() if key != _DELETE}
            found[name] = _over(under if isinstance(under, dict) else {}, own)
        else:
            found[name] = value
    return found


def _read(path: Path) -> dict[str, Any]:
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".json":
        return dict(json.loads(text))
    if path.suffix in (".yaml", ".yml"):
        import yaml

        return dict(yaml.safe_load(text) or {})
    names: dict[str, Any] = {"__file__": os.fspath(path), "__name__": path.stem}
    exec(compile(text, os.fspath(path), "exec"), names)  # noqa: S102 - it is Python, as the library reads it
    return {
        name: value
        for name, value in names.items()
        if not name.startswith("__") and not isinstance(value, types.ModuleType | types.FunctionType)
    }


def _value(text: str) -> Any:
    try:
        return ast.literal_eval(text)
    except (SyntaxError, ValueError):
        pass
    if text.lower() in ("true", "false"):
        return text.lower() == "true"
    return [_value(item) for item in text.split(",")] if "," in text else text
