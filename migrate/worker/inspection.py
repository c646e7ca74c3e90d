"""What a built model takes and gives, found by running it on noise: input sizes that work, classes, kind of output."""

from __future__ import annotations

import contextlib
import inspect
import math
import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import nn

from ...errors import SandboxError
from ...runtime.tuning.randomize import device_of, noise, randomized
from ..proving.worker_protocol import Inspected, Row

# Sides in use for image classification, the commonest first.
_SIDES = (224, 32, 28, 64, 299, 384, 8, 96, 128, 256, 331, 48, 16, 160, 192, 240, 260, 300, 380, 456, 512, 528, 600)
_ATTRIBUTES = ("img_size", "image_size", "input_size", "input_resolution")
_HEADER = re.compile(r"[(:\[]")  # what ends "class Net"
_MAX_PROBED = 400  # larger sides are tried only when the model itself names them
_FAILURES = (
    RuntimeError,
    ValueError,
    TypeError,
    AssertionError,
    IndexError,
    ArithmeticError,
    AttributeError,
    NotImplementedError,
)


def inspect_model(model: nn.Module, root: Path, *, size: Row | None = None) -> Inspected:
    """What the model takes and gives. `size` is the (C, H, W) to use; None tries what is known and common.

    Raises SandboxError when none works.
    """
    tried = [size] if size is not None else _candidates(model)
    stated = size is not None or bool(_own_sizes(model))
    working: list[Row] = []
    maps: list[Row] = []
    failures: dict[Row, str] = {}
    for shape in tried:
        try:
            (working if _classes(model, shape) is not None else maps).append(shape)
        except _FAILURES as error:
            failures[shape] = f"{type(error).__name__}: {str(error).strip().splitlines()[0] if str(error).strip() else ''}"
        if stated and working:
            break
    working = working or maps  # at another size a network without a pool at its end gives a map, too
    if not working:
        shape, reason = next(iter(failures.items()))
        others = "" if size is not None else f", nor on {len(failures) - 1} other sizes"
        sized = not reason.startswith(("TypeError", "AttributeError", "NotImplementedError"))  # those fail at any size
        remedy = "; give the right one with --input-size C,H,W" if sized or size is None else ""
        raise SandboxError(f"the model does not run on an input of {list(shape)}{others}{remedy}: {reason}")
    chosen = working[0] if stated or len(working) == 1 else None
    probe = chosen or working[0]
    return Inspected(
        class_name=type(model).__name__,
        factory=defined_at(type(model), root),
        parameters=sum(parameter.numel() for parameter in model.parameters()),
        input=chosen,
        candidates=tuple(working),
        classes=_classes(model, probe),
        output="map" if maps is working else output_kind(randomized(model, [noise((2, *probe)).to(device_of(model))]), probe),
    )


def output_kind(model: nn.Module, shape: Sequence[int]) -> str:
    """ "probabilities", "log_probabilities" or "logits", by what rows sum to for noise of several scales.

    Only meaningful when the weights are not degenerate: a zero head gives equal outputs of any kind.
    """
    inputs = [scale * noise((2, *shape), seed=seed).to(device_of(model)) for seed, scale in enumerate((0.5, 1.0, 3.0))]
    with torch.no_grad():
        rows = torch.cat([scores(model(value)) for value in inputs])
    rows = rows.double().cpu()
    one = torch.ones(len(rows), dtype=torch.float64)
    if rows.shape[1] > 1 and torch.isfinite(rows).all() and (rows != rows[0]).any():
        if (rows >= 0).all() and torch.allclose(rows.sum(dim=1), one, atol=1e-4):
            return "probabilities"
        if (rows <= 1e-6).all() and torch.allclose(rows.exp().sum(dim=1), one, atol=1e-4):
            return "log_probabilities"
    return "logits"


def scores(output: Any) -> torch.Tensor:
    """The [rows, classes] tensor in what a model returned: itself, the first of a tuple, or `logits` of a mapping.

    Raises TypeError when there is none.
    """
    value = _first(output)
    if value is None:
        raise TypeError(f"the output is a {type(output).__name__}, not [rows, classes] of floats")
    if value.dim() < 2 or not value.is_floating_point() or value.numel() != value.shape[0] * value.shape[1]:
        raise TypeError(f"the output has shape {list(value.shape)} and dtype {value.dtype}, not [rows, classes] of floats")
    return value.flatten(1)  # [rows, classes, 1, 1] of a fully convolutional network


def _classes(model: nn.Module, shape: Sequence[int]) -> int | None:
    """How many scores it gives; None where it gives a map of floats for each image."""
    with torch.no_grad():
        output = model(noise((2, *shape)).to(device_of(model)))
    value = _first(output)
    if value is not None and value.dim() == 4 and value.is_floating_point() and value[0, 0].numel() > 1:
        if len(value) == 2:
            return None
        raise ValueError(f"two images give {len(value)} rows of output")
    found = scores(output)
    if found.shape[0] != 2:
        raise ValueError(f"two images give {found.shape[0]} rows of output")
    return found.shape[1]


def _first(output: Any) -> torch.Tensor | None:
    """The tensor of which `scores` would make something."""
    if isinstance(output, Mapping):
        return _first(output["logits"] if "logits" in output else next(iter(output.values()), None))
    if isinstance(output, Sequence) and output and not isinstance(output, str):
        return _first(output[0])
    return output if isinstance(output, torch.Tensor) else None


def _candidates(model: nn.Module) -> list[Row]:
    channels, flat = _first_layer(model)
    found: list[Row] = []
    for *first, height, width in _own_sizes(model):
        found += [(count, height, width) for count in first or channels]
    if flat is not None:  # the first layer is linear: its width is channels x height x width of a square image
        sides = ((count, math.isqrt(flat // count)) for count in (1, 3) if flat % count == 0)
        found += [(count, side, side) for count, side in sides if count * side * side == flat]
    found += [(count, side, side) for count in channels for side in _SIDES if side <= _MAX_PROBED]
    return list(dict.fromkeys(found))


def _first_layer(model: nn.Module) -> tuple[list[int], int | None]:
    """The channels that the first layer can take, and its width where it is linear."""
    for module in model.modules():
        if isinstance(module, nn.Conv2d):
            return [module.in_channels], None
        if isinstance(module, nn.Linear):
            return [3, 1], module.in_features
    return [3, 1], None


def _own_sizes(model: nn.Module) -> list[tuple[int, ...]]:
    """Sizes that the model or its outermost parts state: img_size and its kin, and timm's default_cfg."""
    sizes: list[tuple[int, ...]] = []
    for module in (model, *model.children()):
        config = getattr(module, "default_cfg", None) or getattr(module, "pretrained_cfg", None)
        stated = [getattr(module, name, None) for name in _ATTRIBUTES]
        stated.append(config.get("input_size") if isinstance(config, Mapping) else None)
        sizes += [size for value in stated if (size := _as_size(value)) is not None]
    return list(dict.fromkeys(sizes))


def _as_size(value: Any) -> tuple[int, ...] | None:
    if isinstance(value, bool) or value is None:
        return None
    if isinstance(value, int):
        return (value, value) if 4 <= value <= 4096 else None
    if isinstance(value, list | tuple | torch.Size) and len(value) in (2, 3):
        whole = all(isinstance(side, int) and not isinstance(side, bool) and 1 <= side <= 4096 for side in value)
        return tuple(value) if whole and min(value[-2:]) >= 4 else None
    return None


def defined_at(kind: type, root: Path) -> str | None:
    """ "file:line" of a class, relative to the repository; None when it is defined elsewhere.

    Its own functions tell the file: `inspect` takes that of the module of its name, which is another one where a script runs as
    `__main__` within this process, and since Python 3.13 any line of it.
    """
    own = [inspect.unwrap(item).__code__ for item in vars(kind).values() if inspect.isfunction(item)]
    known = [(code.co_filename, code.co_firstlineno) for code in own if not code.co_filename.startswith("<")]
    with contextlib.suppress(OSError, TypeError):  # of a script that ran as __main__
        known.append((inspect.getsourcefile(kind) or "", sys.maxsize))
    for name, line in known:
        path = Path(name).resolve()
        if not path.is_file() or not path.is_relative_to(root.resolve()) or "site-packages" in str(path):
            continue
        lines = path.read_text(encoding="utf-8", errors="replace").split("\n")[:line]
        headers = (_HEADER.split(text, 1)[0].split() for text in lines)
        found = [number for number, words in enumerate(headers, 1) if words == ["class", kind.__name__]]
        if found:
            return f"{path.relative_to(root.resolve()).as_posix()}:{found[-1]}"
    return None
