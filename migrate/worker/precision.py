"""Models that compute in another precision than float32, which is what packages take and give."""

from typing import Any

import torch
from torch.utils._pytree import tree_any, tree_map

_LOWER = (torch.bfloat16, torch.float16)


def in_float32(model: torch.nn.Module, example: torch.Tensor) -> str | None:
    """Have a module that takes no float32 images [n, ...], since its parameters are all of another precision, compute in
    float32; that precision ("float64"), None where nothing was changed.

    A lower one widens without loss, and float64 tells answers apart that no image does; plans are held to float32 and choose
    lower precisions themselves. What a module gives in a lower precision, by an autocast of its own, it gives in float32 then.
    """
    kinds = {value.dtype for value in model.parameters() if value.is_floating_point()}
    try:
        with torch.no_grad():
            given = model(example.clone())
    except (Exception, SystemExit):  # noqa: BLE001 - the user's code may raise anything, of which the capture tells
        if len(kinds) != 1 or torch.float32 in kinds:
            return None
        torch.set_default_dtype(torch.float32)  # in which its forward makes what it makes
        model.float()
        return str(kinds.pop()).removeprefix("torch.")
    if tree_any(_is_lower, given):
        model.register_forward_hook(lambda module, inputs, outputs: tree_map(_widened, outputs))
    return None


def _is_lower(value: Any) -> bool:
    return torch.is_tensor(value) and value.dtype in _LOWER


def _widened(value: Any) -> Any:
    return value.float() if _is_lower(value) else value
