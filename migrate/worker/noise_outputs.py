"""What a model computes on seeded noise, with its weights: so that another build of it can be asked the same."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from ...errors import SandboxError
from ...runtime.tuning.randomize import device_of, noise, settled

BATCHES = (1, 2, 5)


def compute_outputs(model: nn.Module, row: Sequence[int], folder: Path, *, weights: str | None) -> None:
    """Run the model in evaluation mode on float32 noise [batch, *row] of 1, 2 and 5 rows; leave the outputs in `folder`.

    `outputs.npz` holds every tensor of the outputs, `weights.pt` the state dict they were computed with: that of the file
    `weights` where it is given, else the model's own with what is constant in them drawn anew, since zeros agree with anything.
    Raises SandboxError where the weights of another build do not fit.
    """
    device = device_of(model)
    if weights is not None:
        try:
            model.load_state_dict(torch.load(weights, map_location="cpu", weights_only=True))
        except RuntimeError as error:
            raise SandboxError(f"the two builds do not have the same weights: {error}") from error
    else:
        model = settled(model, [noise((2, *row)).to(device)])
    found: dict[str, np.ndarray] = {}
    with torch.no_grad():
        for batch in BATCHES:
            outputs = model(noise((batch, *row), seed=batch).to(device))
            for index, value in enumerate(_tensors(outputs)):
                found[f"{batch}.{index}"] = value.detach().cpu().to(torch.float64).numpy()
    torch.save(model.state_dict(), folder / "weights.pt")
    np.savez(folder / "outputs.npz", **found)  # type: ignore[arg-type]


def _tensors(value: Any) -> list[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        return [value]
    items = value.values() if isinstance(value, dict) else value if isinstance(value, list | tuple) else ()
    return [tensor for item in items for tensor in _tensors(item)]
