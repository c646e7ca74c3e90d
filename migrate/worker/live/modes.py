"""Which layers of a model compute something else in training mode, and whether some do while it is evaluated."""

from torch import nn

_DRAWING = nn.modules.dropout._DropoutNd


def told_apart(module: nn.Module) -> tuple[str, ...]:
    """The kinds of its layers that compute something else in training mode."""
    kinds = (nn.modules.batchnorm._BatchNorm, _DRAWING)
    found = (type(layer).__name__ for layer in module.modules() if isinstance(layer, kinds))
    return tuple(dict.fromkeys(found))


def draws(module: nn.Module) -> bool:
    """Whether it is in evaluation mode, but dropout in it is not."""
    return not module.training and any(isinstance(layer, _DRAWING) and layer.training for layer in module.modules())
