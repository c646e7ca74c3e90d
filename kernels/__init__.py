"""Triton-language kernels, each beside its plain-torch reference: one kernel, one file, found by its file name.

Each module here that has no leading underscore has one module-level `KERNEL`, and registers its operators as `headrace::...`
with `torch.library`, each with a fake kernel, so that torch.export captures them. An operator runs its Triton program on an
NVIDIA GPU, or in Triton's interpreter where TRITON_INTERPRET=1 stands in the environment, and its reference everywhere else:
nothing here needs Triton to be installed. `python -m tests.benchmarks.compile_kernels` compiles every
program without a GPU.
"""

from __future__ import annotations

import functools
import importlib
import pkgutil
from typing import TYPE_CHECKING

from ..errors import KernelError

if TYPE_CHECKING:
    from ._kernel import Kernel

__all__ = ["discover"]


@functools.cache
def discover() -> dict[str, Kernel]:
    """Every kernel in this folder by name, its operators registered. Imports torch. Raises KernelError on two of a name."""
    names = sorted(item.name for item in pkgutil.iter_modules(__path__) if not item.name.startswith("_"))
    found: dict[str, Kernel] = {}
    for name in names:
        kernel: Kernel | None = getattr(importlib.import_module(f".{name}", __name__), "KERNEL", None)
        if kernel is None:
            raise KernelError(f"kernels/{name}.py has no KERNEL; define one, or begin its name with an underscore")
        if kernel.name in found:
            raise KernelError(f"kernels/{name}.py calls itself {kernel.name!r} as another does; rename one")
        found[kernel.name] = kernel
    return found
