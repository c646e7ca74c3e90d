"""TorchScript that a user's script loads, as a module that can be captured: torch.export takes no program of that kind."""

from __future__ import annotations

import warnings

import torch
from torch import nn

from ....errors import CaptureError

_BATCHES = (1, 2, 3)


def name_of(module: nn.Module) -> str:
    """The class of a module; of a loaded program the one that it was made of."""
    if isinstance(module, torch.jit.ScriptModule):
        return str(getattr(module, "original_name", type(module).__name__))
    return type(module).__name__


def unscripted(program: torch.jit.ScriptModule, images: torch.Tensor) -> nn.Module:
    """A module with the program's operations and weights. `images` are such as it is called with, [n, channels, height, width].

    Raises CaptureError where the program cannot be converted, or the module computes something else for other batches.
    """
    from torch._export.converter import TS2EPConverter

    row = images.detach().cpu().float()[:1]
    torch_state = torch.random.get_rng_state()
    try:
        with warnings.catch_warnings(), torch.no_grad():
            warnings.simplefilter("ignore")
            made = TS2EPConverter(program, (torch.cat([row, row]),)).convert().module(check_guards=False)
    except Exception as error:
        raise CaptureError(
            f"the TorchScript model {name_of(program)} cannot be converted to a graph: {type(error).__name__}: {error}; "
            "give the model's Python class beside the weights (torch-model-archiver's --model-file)"
        ) from error
    finally:
        torch.random.set_rng_state(torch_state)
    generator = torch.Generator().manual_seed(0)
    for rows in _BATCHES:
        batch = torch.cat([row, torch.randn((rows, *row.shape[1:]), generator=generator)])[:rows]
        try:
            with torch.no_grad():
                was, now = program(batch), made(batch)
        except (RuntimeError, AssertionError) as error:
            raise CaptureError(
                f"the TorchScript model {name_of(program)} becomes a graph that does not run with {rows} images: {error}"
            ) from error
        if not isinstance(was, torch.Tensor) or not torch.allclose(was, now, rtol=1e-4, atol=1e-5, equal_nan=True):
            raise CaptureError(
                f"the TorchScript model {name_of(program)} becomes a graph that computes something else for {rows} images"
            )
    return _Converted(made)


class _Converted(nn.Module):  # type: ignore[misc]
    """A converted program, which is for evaluation alone and knows no modes."""

    def __init__(self, graph: nn.Module) -> None:
        super().__init__()
        self.program = graph  # no name of a GraphModule's own

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        made: torch.Tensor = self.program(images)
        return made

    def train(self, mode: bool = True) -> _Converted:
        self.training = mode
        return self
