"""Models whose weights are of another precision than float32, which is what packages take."""

import torch


def in_float32(model: torch.nn.Module, example: torch.Tensor) -> str | None:
    """Have a module that takes no float32 images [n, ...], since its parameters are all of another precision, compute in
    float32; that precision ("float64"), None where nothing was changed.

    A lower one widens without loss, and float64 tells answers apart that no image does; plans are held to float32 and choose
    lower precisions themselves.
    """
    kinds = {value.dtype for value in model.parameters() if value.is_floating_point()}
    if len(kinds) != 1 or torch.float32 in kinds:
        return None
    try:
        with torch.no_grad():
            model(example.clone())
    except RuntimeError:
        torch.set_default_dtype(torch.float32)  # in which its forward makes what it makes
        model.float()
        return str(kinds.pop()).removeprefix("torch.")
    return None
