"""Where CUDA's headers and the driver's library are, for who compiles and links against them: inductor, ahead of time.

torch looks for `libcuda.so` beside the toolkit only where `CUDA_HOME` names it, and takes the folder above an `nvcc` on PATH,
which may be a script elsewhere, for the toolkit. Many machines have the driver's library as `libcuda.so.1` alone, which
programs load and no linker finds.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import site
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

_PLACES = (Path("/usr/local"), Path("/opt/cuda"))
_STUBS = ("lib64/stubs", "lib/stubs", "targets/x86_64-linux/lib/stubs", "targets/sbsa-linux/lib/stubs")
_PROGRAM = "#include <cuda.h>\n#include <cuda_runtime_api.h>\nint count() { int n = 0; cuDeviceGetCount(&n); return n; }\n"
_REMEDY = "install CUDA's toolkit, and name it in CUDA_HOME where it is not under /usr/local/cuda"


def toolkit() -> Path | None:
    """The folder with CUDA's headers: what CUDA_HOME or CUDA_PATH name, else the first found near nvcc, in the usual places, or
    among Python's packages."""
    if named := os.environ.get("CUDA_HOME") or os.environ.get("CUDA_PATH"):
        return Path(named)
    return next((folder for folder in _candidates() if (folder / "include/cuda.h").is_file()), None)


def _candidates() -> Iterator[Path]:
    nvcc = shutil.which("nvcc")
    if nvcc is not None:
        yield from dict.fromkeys(path.parent.parent for path in (Path(nvcc), Path(nvcc).resolve()))
    for place in _PLACES:
        yield from (place, place / "cuda", *sorted(place.glob("cuda-*"), reverse=True))
    for packages in dict.fromkeys([*sys.path, *site.getsitepackages()]):
        yield from (Path(packages, "nvidia", name) for name in ("cu13", "cuda_runtime"))


@contextlib.contextmanager
def toolkit_found() -> Iterator[None]:
    """Compilers and linkers that start within the block find headers and `-lcuda`, if they are anywhere. What the environment
    names itself comes first."""
    home, driver = toolkit(), _driver()
    with tempfile.TemporaryDirectory(prefix="headrace-cuda-") as place:
        folders = [str(home / name) for name in _STUBS if home is not None and (home / name / "libcuda.so").exists()]
        if driver is not None:
            Path(place, "libcuda.so").symlink_to(driver)
            folders.append(place)
        changes = {"LIBRARY_PATH": os.pathsep.join(filter(None, [os.environ.get("LIBRARY_PATH", ""), *folders]))}
        if home is not None:
            changes["CUDA_HOME"] = str(home)
        with _environment(changes), _known_to_torch(home):
            yield


def why_not_linked(compiler: str) -> str | None:
    """Why a program that asks the driver does not compile here, and what helps; None when it does."""
    with toolkit_found(), tempfile.TemporaryDirectory(prefix="headrace-cuda-") as place:
        home = toolkit()
        if home is None:
            return f"CUDA's headers are nowhere to be found, so inductor cannot compile for GPUs: {_REMEDY}"
        source = Path(place, "probe.cpp")
        source.write_text(_PROGRAM)
        command = [compiler, "-shared", "-fPIC", "-I", str(home / "include"), str(source), "-lcuda", "-o", f"{place}/probe.so"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode == 0:
        return None
    lines = [line for line in done.stderr.splitlines() if "error" in line or "cannot find" in line]
    said = lines[0].replace(f"{place}/", "") if lines else f"the compiler ends with status {done.returncode}"
    return (
        f"a program for CUDA does not link with the toolkit in {home} ({said}), so inductor cannot compile for GPUs: {_REMEDY}"
    )


def _driver() -> Path | None:
    """The driver's library as programs load it: what this process has loaded, else what the loader knows."""
    maps = Path("/proc/self/maps")
    loaded = re.search(r"\S*/libcuda\.so\S*", maps.read_text(errors="replace")) if maps.exists() else None
    if loaded is not None:
        return Path(loaded[0])
    ldconfig = shutil.which("ldconfig", path=f"{os.environ.get('PATH', '')}:/sbin:/usr/sbin")
    if ldconfig is None:
        return None
    known = subprocess.run([ldconfig, "-p"], capture_output=True, text=True, check=False).stdout
    found = re.search(r"libcuda\.so\.1 \([^)]*64[^)]*\) => (\S+)", known)
    return None if found is None else Path(found[1])


@contextlib.contextmanager
def _environment(changes: dict[str, str]) -> Iterator[None]:
    before = {name: os.environ.get(name) for name in changes}
    os.environ.update(changes)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


@contextlib.contextmanager
def _known_to_torch(home: Path | None) -> Iterator[None]:
    """torch looked for the toolkit once, when it imported the module that builds extensions."""
    extension: Any = sys.modules.get("torch.utils.cpp_extension")
    if extension is None or home is None:
        yield
        return
    before = extension.CUDA_HOME
    extension.CUDA_HOME = str(home)
    try:
        yield
    finally:
        extension.CUDA_HOME = before
