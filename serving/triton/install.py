"""A real Triton from the package index: the `tritonserver` in NVIDIA's `nvidia-pytriton` wheel, in an environment of its own.

That wheel carries the server and its Python backend for Linux on x86-64; the `onnxruntime` backend is
`onnxruntime_backend.py`. What lies in the folder:

    env/         a virtual environment: the wheel, onnxruntime, Pillow, and numpy 1, for the backend's stub knows no other
    backends/    python/ and onnxruntime/, as tritonserver's --backend-directory wants them
    triton.json  written last: what is installed, for which Python
"""

from __future__ import annotations

import ctypes.util
import json
import os
import platform
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from ...errors import TritonError

VERSION = "2.51.0"

# numpy 2 gives empty outputs without a word: the stub is built with a pybind11 that is older.
_PACKAGES = ("numpy<2", "onnxruntime", "pillow")
_WHEEL = "nvidia-pytriton==0.7.0"
_GLIBC = (2, 35)
_PYTHONS = (
    (3, 11),
    (3, 12),
)  # of those that the wheel has a stub for, the ones that Headrace runs on and numpy 1 has wheels for
_STAMP = "triton.json"
_STUB = "triton_python_backend_stub"


@dataclass(frozen=True, kw_only=True)
class Installed:
    """A `tritonserver` and what it needs: `arguments` and `environment` are those that it must be started with.

    `version` is None where only asking it would tell.
    """

    binary: Path
    version: str | None = None
    arguments: tuple[str, ...] = ()
    path: tuple[Path, ...] = ()
    libraries: tuple[Path, ...] = ()

    def environment(self) -> dict[str, str]:
        """This process's environment with its folders first, and without what would lead the backend's Python elsewhere."""
        kept = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV")}
        for name, folders in (("PATH", self.path), ("LD_LIBRARY_PATH", self.libraries)):
            if folders:
                kept[name] = os.pathsep.join([*map(str, folders), *filter(None, [kept.get(name)])])
        return {"ORT_DISABLE_TELEMETRY": "1", **kept, "PYTHONDONTWRITEBYTECODE": "1"}


def find(folder: Path) -> Installed:
    """The `tritonserver` on PATH, else the one that `install` put into `folder`. Raises TritonError saying how to get one."""
    if found := shutil.which("tritonserver"):
        return Installed(binary=Path(found))
    if (ready := installed(folder)) is not None:
        return ready
    raise TritonError(
        "there is no tritonserver on PATH and none installed; `headrace triton install` gets one from the package index, "
        "or use NVIDIA's image nvcr.io/nvidia/tritonserver"
    )


def installed(folder: Path) -> Installed | None:
    """What `install` put there, if it got to its end and this is still the Python it was for."""
    folder = folder.absolute()
    try:
        stamp = json.loads((folder / _STAMP).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    if stamp != _stamp() or not (folder / "backends" / "python" / _STUB).is_file():
        return None
    packages = _packages(folder)
    server = packages / "pytriton" / "tritonserver"
    libpython = _libpython()
    if libpython is None or not (server / "bin" / "tritonserver").is_file():
        return None
    return Installed(
        binary=server / "bin" / "tritonserver",
        version=VERSION,
        arguments=(f"--backend-directory={folder / 'backends'}", f"--cache-directory={server / 'caches'}"),
        path=(folder / "env" / "bin",),
        libraries=(libpython, packages / "nvidia_pytriton.libs"),
    )


def install(folder: Path, report: Callable[[str], None] = lambda _: None) -> Installed:
    """Install into `folder`, or finish what an interrupted call began there; pip checks what it downloads by its digests.

    Raises TritonError where this machine cannot run it, and when a step fails.
    """
    folder = folder.absolute()
    if (ready := installed(folder)) is not None:
        report(f"Triton {VERSION} is installed in {folder}")
        return ready
    if reason := obstacle():
        raise TritonError(f"Triton from the package index cannot run here: {reason}")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / _STAMP).unlink(missing_ok=True)
        python = folder / "env" / "bin" / "python"
        if not python.exists() or _version_of(python) != _python():
            report(f"making an environment in {folder / 'env'}")
            shutil.rmtree(folder / "env", ignore_errors=True)
            _run([getattr(sys, "_base_executable", sys.executable), "-m", "venv", str(folder / "env")], "make the environment")
        pip = [str(python), "-m", "pip", "install", "--disable-pip-version-check", "--quiet"]
        report(f"installing {', '.join(_PACKAGES)}")
        _run([*pip, *_PACKAGES], "install what the backends need")
        report(f"installing {_WHEEL}, which carries tritonserver {VERSION}")
        _run([*pip, "--no-deps", _WHEEL], "install the wheel")
        _lay_out(folder)
        (folder / _STAMP).write_text(json.dumps(_stamp(), indent=1) + "\n", encoding="utf-8")
    except OSError as error:
        raise TritonError(f"cannot install into {folder}: {error.strerror} ({error.filename}); name another folder") from error
    ready = installed(folder)
    if ready is None:
        raise TritonError(f"{_WHEEL} in {folder} is not what was expected; remove that folder and try again")
    report(f"Triton {VERSION} is installed in {folder}")
    return ready


def obstacle() -> str | None:
    """Why the wheel's tritonserver cannot run on this machine; None where it can."""
    if platform.system() != "Linux" or platform.machine() != "x86_64":
        return f"it is for Linux on x86-64, this is {platform.system()} on {platform.machine()}; use NVIDIA's image"
    name, version = platform.libc_ver()
    if name != "glibc" or tuple(int(part) for part in version.split(".")[:2]) < _GLIBC:
        needed = ".".join(map(str, _GLIBC))
        return f"it needs glibc {needed} or newer, this is {name or 'another C library'} {version}; use NVIDIA's image"
    if sys.version_info[:2] not in _PYTHONS:
        known = ", ".join(f"{major}.{minor}" for major, minor in _PYTHONS)
        return f"its Python backend is for {known}, this is {_python()}; run headrace with one of those"
    if _libpython() is None:
        return (
            f"its Python backend needs the shared library of Python {_python()}, which this Python was built without; "
            f"install libpython{_python()} or a Python built with --enable-shared"
        )
    return None


def _lay_out(folder: Path) -> None:
    """Copies, not links: Triton refuses a library that lies outside of the backend's folder."""
    server = _packages(folder) / "pytriton" / "tritonserver"
    with tempfile.TemporaryDirectory(dir=folder) as name:
        aside = Path(name) / "backends"
        shutil.copytree(server / "backends" / "python", aside / "python", ignore=shutil.ignore_patterns("__pycache__"))
        shutil.copy(server / "python_backend_stubs" / _python() / _STUB, aside / "python" / _STUB)
        (aside / "python" / _STUB).chmod(0o755)
        (aside / "onnxruntime").mkdir()
        shutil.copy(_shim(), aside / "onnxruntime" / "model.py")
        shutil.rmtree(folder / "backends", ignore_errors=True)
        aside.rename(folder / "backends")


def _stamp() -> dict[str, object]:
    return {
        "wheel": _WHEEL,
        "packages": list(_PACKAGES),
        "python": _python(),
        "onnxruntime_backend": _shim().read_text("utf-8"),
    }


def _shim() -> Path:
    return Path(__file__).with_name("onnxruntime_backend.py")


def _packages(folder: Path) -> Path:
    return folder / "env" / "lib" / f"python{_python()}" / "site-packages"


def _python() -> str:
    return f"{sys.version_info.major}.{sys.version_info.minor}"


def _libpython() -> Path | None:
    """The folder of this Python's shared library."""
    name = f"libpython{_python()}.so.1.0"
    folders = [sysconfig.get_config_var("LIBDIR"), Path(sys.base_prefix) / "lib"]
    for folder in filter(None, folders):
        if (Path(folder) / name).is_file():
            return Path(folder)
    found = ctypes.util.find_library(f"python{_python()}")  # the system's own, wherever that keeps it
    if found is None:
        return None
    multiarch = sysconfig.get_config_var("MULTIARCH") or ""
    return next(
        (path for path in (Path("/usr/lib") / multiarch, Path("/usr/lib64"), Path("/usr/lib")) if (path / name).exists()), None
    )


def _version_of(python: Path) -> str:
    command = [str(python), "-c", "import sys; print('%d.%d' % sys.version_info[:2])"]
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()


def _run(command: list[str], what: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        output = (done.stderr.strip() or done.stdout.strip() or "it printed nothing").splitlines()
        errors = [line for line in output if line.startswith("ERROR")] or output[-3:]
        raise TritonError(f"cannot {what}; run this again once it can go on from here:\n  " + "\n  ".join(errors))
