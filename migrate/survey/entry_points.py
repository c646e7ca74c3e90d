"""The commands that installing a repository would make: `net-train` is `python -m net.cli`, or calls a function of it."""

from __future__ import annotations

import configparser
import contextlib
import re
import tomllib
from pathlib import Path

from ..reading.source import head

_MOST_BYTES = 500_000
_POINT = re.compile(r"([A-Za-z][\w.-]*)\s*=\s*([A-Za-z_][\w.]*)\s*:\s*([\w.]+)")


def entry_points(root: Path) -> dict[str, str]:
    """The modules that the commands stand for, as `python -m` takes them."""
    found = {}
    for name, (module, _) in _stated(root).items():
        package = module.rpartition(".")[0]
        path = _file(root, module)
        if package and not _runs(path) and _file(root, f"{package}.__main__") is not None:
            found[name] = package
        elif path is not None:
            found[name] = module
    return found


def called_by_commands(root: Path) -> dict[str, str]:
    """What the commands call of files that run nothing by themselves, by the path of the file; the first of several."""
    modules = set(entry_points(root).values())
    found: dict[str, str] = {}
    for module, function in _stated(root).values():
        path = _file(root, module)
        if path is not None and module in modules and not _runs(path):
            found.setdefault(path.relative_to(root).as_posix(), function)
    return found


def _stated(root: Path) -> dict[str, tuple[str, str]]:
    """The modules and their functions that pyproject.toml, setup.cfg and setup.py name, by the command."""
    lines: list[str] = []
    with contextlib.suppress(OSError, ValueError, AttributeError):
        project = tomllib.loads(_read(root / "pyproject.toml"))
        tables = (project.get("project", {}), project.get("tool", {}).get("poetry", {}))
        lines += [f"{name}={value}" for table in tables for name, value in table.get("scripts", {}).items()]
    with contextlib.suppress(OSError, configparser.Error, KeyError):
        configuration = configparser.ConfigParser(interpolation=None)
        configuration.read_string(_read(root / "setup.cfg"))
        lines += configuration["options.entry_points"]["console_scripts"].splitlines()
    with contextlib.suppress(OSError):
        lines += re.findall(r"[\"']([^\"'\n]+=[^\"'\n]+:[^\"'\n]+)[\"']", _read(root / "setup.py"))
    return {found[1]: (found[2], found[3]) for line in lines if (found := _POINT.fullmatch(line.strip())) is not None}


def _runs(path: Path | None) -> bool:
    with contextlib.suppress(OSError):
        return path is not None and re.search(r"__name__\s*==\s*[\"']__main__[\"']", _read(path)) is not None
    return False


def _file(root: Path, module: str) -> Path | None:
    name = module.replace(".", "/") + ".py"
    return next((path for path in (root / name, root / "src" / name) if path.is_file()), None)


def _read(path: Path) -> str:
    return head(path, _MOST_BYTES).decode(errors="replace")
