"""JPEGs to rows of a model's input on a GPU: decoded together, resized, cropped and normalized in one launch, copied back once.

The resize is that of `kernels/preprocess.py`: Pillow's filters, rounded once where Pillow rounds after each of two passes.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch

from ...kernels.preprocess import preprocess
from ..backends.shared.cuda_staging import CudaLine, Line
from .jpeg_decoders import JpegDecoder, open_decoder, trial
from .preprocessing import Preprocessor

# Triton compiles a program anew where numbers and addresses are no multiples of 16 bytes, while a request waits.
_ALIGNED = 16


class GpuImages:
    """The steps of `Preprocessing.to_json()["steps"]` for many JPEGs at once; for one thread at a time.

    Rows are a `Preprocessor`'s: float32 [C, H, W], or with `pixels` uint8 [H, W, C]. `ordinal` counts the visible GPUs; None is
    torch's current one. Without a `decoder` it is the first library that works. Device "cpu" does the same without a GPU, for
    tests. Raises ValueError for steps that are not done here, and BackendError where nothing decodes.
    """

    def __init__(
        self,
        steps: Sequence[Mapping[str, Any]],
        *,
        device: str = "cuda",
        ordinal: int | None = None,
        pixels: bool = False,
        decoder: JpegDecoder | None = None,
        line: Line | None = None,
    ) -> None:
        self._resize, self._crop, self._interpolation = _geometry(Preprocessor(steps))
        scale, normalize, layout = steps[-3:]
        # The operator computes (level / 255 - mean) / std; whole levels come of a mean of 0 and a deviation of one level.
        unit = 255 * float(scale["factor"])
        self._mean = [0.0] * 3 if pixels else [value / unit for value in normalize["mean"]]
        self._std = [1 / 255] * 3 if pixels else [value / unit for value in normalize["std"]]
        self._reversed = layout["channels"] == "BGR" and not pixels
        self._pixels = pixels
        self.decoder = open_decoder(device, ordinal) if decoder is None else decoder
        if line is None:
            line = CudaLine(ordinal) if device == "cuda" else _Host()
        self._line = line

    def warm_up(self) -> None:
        """Compile what the first images would wait for. Raises RuntimeError when the device failed."""
        self.rows([trial()[0]])

    def rows(self, images: Sequence[bytes]) -> list[np.ndarray | None]:
        """For each baseline JPEG in YCbCr its row, or None where the decoder cannot read it.

        Raises RuntimeError when the device failed.
        """
        line = self._line
        with line.current():
            try:
                decoded = self.decoder(images)
                read = [number for number, image in enumerate(decoded) if image is not None]
                fetched = self._fetched(self._computed([image for image in decoded if image is not None]))
            finally:  # after an error, too: what is freed now may be another batch's at once
                line.finish()
        found: list[np.ndarray | None] = [None] * len(images)
        for number, row in zip(read, fetched.numpy(), strict=True):
            found[number] = row
        return found

    def _computed(self, images: Sequence[torch.Tensor]) -> torch.Tensor:
        """Rows on the device, in the memory's own order."""
        device = self._line.device
        sizes = torch.tensor([image.shape[:2] for image in images], dtype=torch.int64).reshape(-1, 2)
        lengths = 3 * sizes.prod(1)
        offsets = lengths.cumsum(0) - lengths
        size = -(-int(lengths.sum()) // _ALIGNED) * _ALIGNED
        pixels = torch.empty(size, dtype=torch.uint8, device=device)
        for image, offset, length in zip(images, offsets.tolist(), lengths.tolist(), strict=True):
            pixels[offset : offset + length].view(image.shape).copy_(image)
        count = len(images)
        places = torch.zeros(3, count + count % 2, dtype=torch.int64)  # an even number, so that every row is aligned
        places[:, :count] = torch.stack([offsets, *sizes.unbind(1)])
        where = places.to(device)[:, :count].unbind(0)
        numbers = (self._mean, self._std, torch.float32)
        rows = preprocess(pixels, *where, self._resize, self._crop, self._interpolation, True, *numbers)
        if self._pixels:
            return rows.permute(0, 2, 3, 1).round().to(torch.uint8).contiguous()
        return (rows.flip(1) if self._reversed else rows).contiguous()

    def _fetched(self, rows: torch.Tensor) -> torch.Tensor:
        """Memory of the host that holds the rows once the line has finished; new each time, as whoever asked keeps it."""
        memory = self._line.memory(rows.numel() * rows.element_size()).view(rows.dtype).view(rows.shape)
        self._line.copy(memory, rows)
        return memory


class _Host:
    """The CPU as a line, which has done at once what it is asked for."""

    device = torch.device("cpu")

    def memory(self, size: int) -> torch.Tensor:
        return torch.empty(size, dtype=torch.uint8)

    def current(self) -> contextlib.AbstractContextManager[None]:
        return contextlib.nullcontext()

    def copy(self, target: torch.Tensor, source: torch.Tensor) -> None:
        target.copy_(source)

    def follow(self) -> None:
        """See `Line.follow`."""

    def finish(self) -> None:
        """See `Line.finish`."""


def _geometry(steps: Preprocessor) -> tuple[list[int], list[int], str]:
    """The operator's resize, crop and interpolation. Raises ValueError naming the step that it does not have."""
    resize: list[int] = []
    crop: list[int] = []
    interpolation = "bilinear"
    if steps.mode != "RGB":
        raise ValueError("gray images")
    for number, step in enumerate(steps.geometry):
        if number == 0 and _resized_alike(step):
            resize = [step["size"]] if isinstance(step["size"], int) else list(step["size"])
            interpolation = step["interpolation"]
        elif step["op"] == "center_crop" and step.get("offset", "round") == "round" and not crop:
            crop = list(step["size"])
        else:
            raise ValueError(f"step {number + 1} of the geometry, {step['op']} {step.get('size', '')}".rstrip())
    if not crop and len(resize) != 2:
        raise ValueError("rows whose size follows from the image")
    return resize, crop or resize, interpolation


def _resized_alike(step: Mapping[str, Any]) -> bool:
    """Whether the operator resizes as this step does."""
    return (
        step["op"] == "resize"
        and step.get("library", "pillow") == "pillow"
        and step["interpolation"] in ("bilinear", "bicubic")
        and step.get("side", "short") == "short"
        and (not isinstance(step["size"], int) or step.get("long_side", "floor") == "floor")
    )
