"""What a kernel's file declares, for whoever tests, measures or substitutes it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, kw_only=True)
class Operator:
    """One operator of a kernel.

    `run` is what callers call, `reference` computes the same from the same arguments in plain torch, exactly where its tensors
    are float64. `example` makes small arguments of an odd shape on a device, and `bytes_moved` says how many bytes these or
    other arguments must go through memory: inputs read once and outputs written once, what a roofline counts.
    """

    run: Any
    reference: Callable[..., Any]
    example: Callable[[str], tuple[Any, ...]]
    bytes_moved: Callable[..., int]


@dataclass(frozen=True, kw_only=True)
class Kernel:
    """The operators of one file by name, without the "headrace::" of their registration."""

    name: str
    operators: Mapping[str, Operator]
