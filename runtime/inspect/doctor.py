"""What this machine and installation can do, as data; the command line renders it."""

from __future__ import annotations

import importlib.metadata
import platform
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..._version import __version__
from ...errors import ArtifactError
from ...specs import BF16, FP8, FP16, FP32
from .. import backends
from ..base.fingerprint import fingerprint, versions
from ..base.session import Target, default_threads

_DEVICES = ("cpu", "cuda")
_PRECISIONS = (FP32, BF16, FP16, FP8)
_TOOLS = {
    "fastapi": "pip install 'headrace[serve]'",
    "uvicorn": "pip install 'headrace[serve]'",
    "onnxscript": "pip install 'headrace[migrate]'",
    "matplotlib": "pip install 'headrace[bench]'",
}

# Flags of /proc/cpuinfo that make a number format fast, in words.
_FAST = {
    "AVX2": {"avx2"},
    "AVX-512": {"avx512f"},
    "int8 dot products": {"avx512_vnni", "avx_vnni", "asimddp", "i8mm"},
    "bf16": {"avx512_bf16", "amx_bf16", "bf16"},
    "AMX": {"amx_tile"},
    "SVE": {"sve"},
}


@dataclass(frozen=True, kw_only=True)
class Row:
    """One thing looked for. `remark` says what it can do where it is present, else why not, with the line that brings it."""

    present: bool
    name: str
    version: str = ""
    remark: str = ""


@dataclass(frozen=True, kw_only=True)
class Section:
    """Rows of one kind under a title."""

    title: str
    rows: tuple[Row, ...]


def examine(models: Path | None = None) -> tuple[Section, ...]:
    """Look at the machine, and at the plans of a model repository, if one is named.

    Imports backends' libraries where asking them is the only way to know, so it takes seconds.
    """
    plans = [] if models is None else _plans(models)
    return (
        Section(title="This machine", rows=_machine()),
        Section(title="Backends", rows=tuple(_backend(backend) for backend in backends.discover().values())),
        Section(title="Tools", rows=tuple(_tool(name, remedy) for name, remedy in _TOOLS.items())),
        *([] if models is None else [Section(title=f"Plans of {models}", rows=tuple(plans))]),
    )


def _plans(models: Path) -> list[Row]:
    """Which plans of a repository's models can be used here, and what mends those that cannot."""
    from ..artifact.artifact import load_artifact, model_names  # which need numpy, as looking at the machine does not

    rows = []
    names = model_names(models)
    if not names:
        raise ArtifactError(f"no model in {models}; name a models folder, as headrace migrate and compile write it")
    for name in names:
        try:
            artifact = load_artifact(models / name)
        except ArtifactError as error:
            rows.append(Row(present=False, name=name, remark=str(error)))
            continue
        if not artifact.plans:
            rows.append(Row(present=False, name=name, remark=artifact.unmeasured))
        for plan in artifact.plans:
            why, choices = artifact.why_not(plan), ", ".join(dict.fromkeys(map(str, plan.choices.values())))
            rows.append(Row(present=why is None, name=name, version=plan.device, remark=choices if why is None else why))
    return rows


def _machine() -> tuple[Row, ...]:
    here = fingerprint()
    return (
        Row(present=True, name="headrace", version=__version__),
        Row(present=True, name="python", version=platform.python_version(), remark=f"{platform.system()} {platform.machine()}"),
        _cpu(here),
        *_gpus(here["gpus"]),
        *_toolkit(),
    )


def _cpu(here: Mapping[str, Any]) -> Row:
    import psutil

    memory = psutil.virtual_memory().total / 2**30
    fast = [name for name, flags in _FAST.items() if flags & set(here["flags"])]
    parts = [f"{here['cores']} logical processors, {default_threads()} threads per session, {memory:.0f} GiB"]
    return Row(present=True, name=here["cpu"], remark="; ".join([*parts, *([", ".join(fast)] if fast else [])]))


def _gpus(names: Sequence[str]) -> list[Row]:
    """The GPUs that torch can use, else those that the driver knows, with the reason why torch cannot use them."""
    try:
        import torch
    except ImportError:
        return [Row(present=False, name=name, remark="torch is not installed: pip install torch") for name in names]
    if torch.cuda.is_available():
        found = [torch.cuda.get_device_properties(index) for index in range(torch.cuda.device_count())]
        cuda = f"CUDA {torch.version.cuda}"
        return [Row(present=True, name=gpu.name, remark=f"{gpu.total_memory / 2**30:.0f} GiB, {cuda}") for gpu in found]
    if not names:
        return [Row(present=False, name="GPU", remark="no NVIDIA driver is loaded; models run on the CPU")]
    build = f"a build for CUDA {torch.version.cuda}" if torch.version.cuda else "a build for CPUs"
    remark = f"torch {torch.__version__} is {build} and cannot use it: pip install 'headrace[cuda]' and a CUDA build of torch"
    return [Row(present=False, name=name, remark=remark) for name in names]


def _toolkit() -> list[Row]:
    """Whether programs for the GPUs that torch can use compile and link here, as inductor's do, by compiling one."""
    try:
        import torch
    except ImportError:
        return []
    if not torch.cuda.is_available() or torch.version.cuda is None:
        return []
    from ..backends.inductor import compiler
    from ..backends.shared.cuda_toolkit import toolkit, why_not_linked

    found = compiler()  # without one, inductor's own row says so
    why = None if found is None else why_not_linked(found)
    return [] if found is None else [Row(present=why is None, name="CUDA toolkit", remark=why or f"in {toolkit()}")]


def _backend(backend: backends.Backend) -> Row:
    version = versions()[backend.libraries[0]] or ""
    if missing := backend.missing():
        return Row(present=False, name=backend.name, version=version, remark=missing)
    usable, rejections = [], []
    for device in _DEVICES:
        if device not in backend.devices:
            continue
        answers = {item.name: backend.supports(Target(device=device, precision=item)) for item in _PRECISIONS}
        precisions = [name for name, rejection in answers.items() if rejection is None]
        if precisions:
            usable.append(f"{device}: {', '.join(precisions)}")
        else:
            rejections.append(f"{device}: {answers['fp32']}")
    return Row(present=bool(usable), name=backend.name, version=version, remark="; ".join(usable + rejections))


def _tool(name: str, remedy: str) -> Row:
    try:
        return Row(present=True, name=name, version=importlib.metadata.version(name))
    except importlib.metadata.PackageNotFoundError:
        return Row(present=False, name=name, remark=f"not installed: {remedy}")
