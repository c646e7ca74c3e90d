"""Libraries that decode many JPEGs at once on a GPU, into tensors that stay there: nvImageCodec, else torchvision.

Both use NVIDIA's nvJPEG. Which of them works is found out by a trial when it is opened, not by the first request.
"""

from __future__ import annotations

import functools
import io
import threading
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from PIL import Image

from ...errors import BackendError
from ..backends import first_line, no_torch_target
from ..base.session import Target

# Mean difference to Pillow's levels in a smooth trial image, above which channels or rows are mixed up. Chroma that is not
# interpolated, as torchvision's on GPUs is not, makes a few levels.
_FAR = 8.0


class JpegDecoder(ABC):
    """Baseline JPEGs in YCbCr to RGB pixels on `device`. Any thread may call it; calls take turns.

    What it begins on a GPU joins the current CUDA stream, where its tensors may be used and freed.
    """

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self._turn = threading.Lock()  # nvImageCodec's decoder is for one thread at a time

    def __call__(self, images: Sequence[bytes]) -> list[torch.Tensor | None]:
        """For each file its pixels, uint8 [height, width, 3] with any strides, or None where it cannot be read."""
        with self._turn:
            return self._one_by_one(images) if (found := self._tried(images)) is None else found

    def _one_by_one(self, images: Sequence[bytes]) -> list[torch.Tensor | None]:
        """Libraries fail as a whole, and do not say because of which image."""
        return [None if (found := self._tried([image])) is None else found[0] for image in images]

    def _tried(self, images: Sequence[bytes]) -> list[torch.Tensor | None] | None:
        try:
            found = self.decode(images)
        except (RuntimeError, ValueError):
            return None
        # Early versions of nvImageCodec leave out what they cannot read, and whose the others are would be a guess.
        return found if len(found) == len(images) else None

    @abstractmethod
    def decode(self, images: Sequence[bytes]) -> list[torch.Tensor | None]:
        """The library's own answer; raises what the library raises."""


class NvImageCodec(JpegDecoder):
    """NVIDIA's nvImageCodec: by the GPU's JPEG engines where it has some, else by its kernels; libjpeg-turbo on the CPU."""

    def __init__(self, device: torch.device) -> None:
        from nvidia import nvimgcodec

        super().__init__(device)
        kinds = nvimgcodec.BackendKind
        self._on_gpu = device.type == "cuda"
        # Without a list it may take the decoder that does half of the work on the CPU.
        wanted = [kinds.HW_GPU_ONLY, kinds.GPU_ONLY, kinds.HYBRID_CPU_GPU] if self._on_gpu else [kinds.CPU_ONLY]
        self._params = nvimgcodec.DecodeParams(apply_exif_orientation=False)
        self._decoder = nvimgcodec.Decoder(
            device_id=device.index if self._on_gpu else nvimgcodec.NVIMGCODEC_DEVICE_CPU_ONLY,
            max_num_cpu_threads=1,  # with more, the hybrid decoder of 0.9 was reported to hang on single images
            backends=[nvimgcodec.Backend(kind) for kind in wanted],
            options=":fancy_upsampling=1",  # chroma interpolated, as libjpeg does
        )

    def decode(self, images: Sequence[bytes]) -> list[torch.Tensor | None]:
        stream = torch.cuda.current_stream(self.device).cuda_stream if self._on_gpu else 0
        found: list[Any] = self._decoder.decode(list(images), params=self._params, cuda_stream=stream)
        if self._on_gpu:
            return [None if image is None else torch.from_dlpack(image) for image in found]
        return [None if image is None else torch.from_numpy(np.array(image)) for image in found]


class Torchvision(JpegDecoder):
    """torchvision.io.decode_jpeg: nvJPEG on a GPU, libjpeg-turbo on the CPU. On a GPU it does not interpolate chroma."""

    def __init__(self, device: torch.device) -> None:
        from torchvision.io import ImageReadMode, decode_jpeg

        super().__init__(device)
        self._decode = functools.partial(decode_jpeg, mode=ImageReadMode.RGB, device=device)

    def decode(self, images: Sequence[bytes]) -> list[torch.Tensor | None]:
        encoded = [torch.frombuffer(bytearray(image), dtype=torch.uint8) for image in images]  # it wants writable memory
        return [image.permute(1, 2, 0) for image in self._decode(encoded)]


LIBRARIES: dict[str, type[JpegDecoder]] = {"nvImageCodec": NvImageCodec, "torchvision": Torchvision}


@functools.cache
def open_decoder(device: str = "cuda", ordinal: int | None = None) -> JpegDecoder:
    """The first library that decodes a trial image as Pillow does; one decoder for each device and process.

    `ordinal` counts the visible GPUs; None is torch's current one. Raises BackendError, with the line that helps, where there
    is no GPU or no library.
    """
    if why := no_torch_target(Target(device=device)):
        raise BackendError(f"JPEGs cannot be decoded on a GPU here: {why}. --decoding fast decodes on the CPU")
    rejections = []
    for name in LIBRARIES:
        try:
            return open_library(name, device, ordinal)
        except BackendError as error:
            rejections.append(str(error))
    cuda = (torch.version.cuda or "13").partition(".")[0]
    raise BackendError(
        f"no library here decodes JPEGs on {device} ({'; '.join(rejections)}): "
        f"pip install 'nvidia-nvimgcodec-cu{cuda}[nvjpeg]', "
        "or the torchvision of this torch. --decoding fast decodes on the CPU"
    )


def open_library(name: str, device: str = "cuda", ordinal: int | None = None) -> JpegDecoder:
    """One of `LIBRARIES`, tried out. Raises BackendError saying what is wrong with it."""
    if device == "cuda":
        device = f"cuda:{torch.cuda.current_device() if ordinal is None else ordinal}"
    data, wanted = trial()
    try:
        decoder = LIBRARIES[name](torch.device(device))
        found = [image.cpu().numpy() for image in decoder.decode([data, data]) if image is not None]
    except Exception as error:  # a library that does not fit this torch or driver fails in any way
        raise BackendError(f"{name}: {first_line(error)}") from error
    if [image.shape for image in found] != [wanted.shape] * 2:
        raise BackendError(f"{name} does not decode a trial image")
    off = max(float(np.abs(image.astype(np.int16) - wanted).mean()) for image in found)
    if off > _FAR:
        raise BackendError(f"{name} decodes a trial image to other pixels than Pillow, {off:.0f} of 255 off on average")
    return decoder


@functools.cache
def trial() -> tuple[bytes, np.ndarray]:
    """A JPEG of three slopes, and its pixels by Pillow, int16 [height, width, 3]."""
    down, right = np.mgrid[0:48, 0:64]
    encoded = io.BytesIO()
    Image.fromarray(np.stack([4 * right, 5 * down, 2 * (down + right)], 2).astype(np.uint8)).save(encoded, "JPEG", quality=95)
    with Image.open(encoded) as image:
        return encoded.getvalue(), np.asarray(image).astype(np.int16)
