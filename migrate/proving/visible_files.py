"""What the user's code may read beside its own: Python, its packages, the system's libraries, the user's stored weights.

Nothing of the home folder but these; no key, no configuration, no socket.
"""

from __future__ import annotations

import functools
import importlib.metadata
import json
import os
import re
import site
import sys
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import unquote, urlsplit

_PACKAGE = Path(__file__).resolve().parents[2]
SYSTEM = (
    *("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/opt", "/nix/store", "/gnu/store", "/sys"),
    *("/etc/ld.so.cache", "/etc/ld.so.conf", "/etc/ld.so.conf.d", "/etc/alternatives", "/etc/localtime", "/etc/timezone"),
    *("/etc/ssl/certs", "/etc/ssl/openssl.cnf", "/etc/pki/tls/certs", "/etc/ca-certificates", "/etc/fonts", "/etc/mime.types"),
    *("/etc/protocols", "/etc/services", "/etc/magic", "/etc/OpenCL", "/etc/vulkan", "/etc/os-release", "/etc/debian_version"),
)


def visible_files(environment: Mapping[str, str]) -> list[str]:
    """Paths that a program with this environment needs to read, beside its own."""
    named = [
        environment.get(name, "") for name in ("PYTHONPATH", "LD_LIBRARY_PATH", "CUDA_HOME", "VIRTUAL_ENV", "CONDA_PREFIX")
    ]
    weights = [f"{path}/hub" if name == "TORCH_HOME" else path for name, path in stored_weights().items()]
    return [*SYSTEM, *_python(), *_harmless([path for text in named for path in text.split(os.pathsep)]), *weights]


@functools.cache
def _python() -> tuple[str, ...]:
    """This interpreter and what it imports from, packages installed as links to their sources included."""
    folders = [sys.prefix, sys.base_prefix, sys.exec_prefix, sys.base_exec_prefix, str(_PACKAGE)]
    if site.ENABLE_USER_SITE:
        folders.append(site.getusersitepackages())
    beside = {os.getcwd(), os.path.dirname(os.path.abspath(getattr(sys.modules["__main__"], "__file__", None) or "x"))}
    folders += [path for path in sys.path if path not in beside]  # where a script happens to lie is no part of Python
    for package in importlib.metadata.distributions():
        origin = json.loads(package.read_text("direct_url.json") or "{}")  # PEP 610
        if origin.get("dir_info", {}).get("editable"):
            folders.append(unquote(urlsplit(origin["url"]).path))
    return tuple(dict.fromkeys(_harmless(folders)))


def _harmless(paths: list[str]) -> list[str]:
    """Those that exist and do not hold the home folder."""
    home = Path.home().resolve()
    known = [path for path in paths if os.path.isabs(path) and os.path.exists(path)]
    return [path for path in known if not home.is_relative_to(Path(path).resolve())]


_CACHED = re.compile(r"/hub/|huggingface|\.cache/")
"""Where libraries keep what they download."""


def remedy(why: str | None) -> str:
    """What to do about an error of a program that looked for a file which is there, but which it was not shown, or that would
    have downloaded one; or nothing."""
    for path in re.findall(r"'(/[^'\0]*)'|\"(/[^\"\0]*)\"", why or ""):
        named = path[0] or path[1]
        if "No such file" in (why or "") and os.path.exists(named):
            return f"; {named} is there, but the sandbox does not show it: name it, or its folder, with --data or --checkpoint"
        if "Read-only file system" in (why or "") and _CACHED.search(named):
            return "; that would be downloaded, and is not here: run the script once by yourself, so that it lies in your cache"
    return ""


def stored_weights() -> dict[str, str]:
    """The variables that name the user's own stored weights, where there are any."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    torch = Path(os.environ.get("TORCH_HOME") or cache / "torch")
    hugging_face = Path(os.environ.get("HF_HUB_CACHE") or Path(os.environ.get("HF_HOME") or cache / "huggingface") / "hub")
    found = {"TORCH_HOME": (torch, torch / "hub/checkpoints"), "HF_HUB_CACHE": (hugging_face, hugging_face)}
    return {name: str(path) for name, (path, needed) in found.items() if os.path.isdir(needed)}
