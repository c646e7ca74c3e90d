"""`--decoding gpu`: usual JPEGs are gathered from all requests of the process, decoded and resized on a GPU together.

Pillow still reads every header, so limits and errors are those of the exact path, and whatever is unusual goes the way of
`--decoding fast`: other formats, progressive, gray and CMYK files, those that lie on their side, rare subsamplings, files that
do not end as a JPEG does, and what the GPU's decoder cannot read.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from PIL import JpegImagePlugin

from ...runtime.images.preprocessing import MAX_PIXELS, ImageError, Preprocessor
from .fast_preprocessing import make_preprocessor
from .gather import Gatherer

if TYPE_CHECKING:
    from ...runtime.images.gpu_images import GpuImages

log = logging.getLogger("headrace.serving")

GPU_BATCH = 64
"""Images that are decoded together at most."""

# Of a batch, decoded: three bytes each, twice for a moment, once by the decoder and once behind one another.
_MOST_PIXELS = 100_000_000

_SUBSAMPLINGS = ((1, 1), (2, 1), (2, 2))  # of luma, by pixels of chroma: 4:4:4, 4:2:2, 4:2:0
_END = b"\xff\xd9"


def make_gpu_preprocessor(
    steps: Sequence[Mapping[str, Any]], *, ordinal: int | None = None, max_pixels: int = MAX_PIXELS, pixels: bool = False
) -> Preprocessor:
    """What executes the steps with a GPU's help, on the visible GPU of that number; None is torch's current one.

    For steps that the GPU's resize does not have it is what `--decoding fast` has. Raises BackendError where there is no GPU
    or no library that decodes on it.
    """
    from ...runtime.images.gpu_images import GpuImages

    try:
        images = GpuImages(steps, ordinal=ordinal, pixels=pixels)
    except ValueError as error:
        log.warning("images are decoded on the CPU: the GPU does not resize as this model wants it (%s)", error)
        return make_preprocessor(steps, max_pixels=max_pixels, pixels=pixels)
    images.warm_up()
    log.info("JPEGs are decoded on %s by %s", images.decoder.device, type(images.decoder).__name__)
    return GpuPreprocessor(steps, images, max_pixels=max_pixels, pixels=pixels)


def check_gpu_decoding(ordinal: int | None = None) -> None:
    """Raises BackendError, with the line that helps, where JPEGs cannot be decoded on a GPU."""
    from ...runtime.images.jpeg_decoders import open_decoder

    open_decoder("cuda", ordinal)


class GpuPreprocessor(Preprocessor):
    """Called with an image it does what `--decoding fast` does; `together` is the GPU's part, for what the GPU can do. `images`
    has the same steps, and gives pixels where this does."""

    def __init__(
        self,
        steps: Sequence[Mapping[str, Any]],
        images: GpuImages,
        *,
        max_pixels: int = MAX_PIXELS,
        pixels: bool = False,
    ) -> None:
        super().__init__(steps, max_pixels=max_pixels, pixels=pixels)
        self._images = images
        self._other = make_preprocessor(steps, max_pixels=max_pixels, pixels=pixels)
        self._gatherer: Gatherer[tuple[bytes, int], np.ndarray | None] = Gatherer(self._decoded, GPU_BATCH)

    def decode(self, data: bytes) -> np.ndarray:
        """As `Preprocessor.decode`, on the CPU. Raises ImageError."""
        return self._other.decode(data)

    def together(self, images: Sequence[bytes]) -> list[np.ndarray | None]:
        """The rows of those that the GPU decoded, with images of other threads; None for those to call this with."""
        sizes = [self._pixels_of(data) for data in images]
        usual = [number for number, size in enumerate(sizes) if size]
        found: list[np.ndarray | None] = [None] * len(images)
        for number, row in zip(usual, self._gatherer([(images[n], sizes[n]) for n in usual]), strict=True):
            found[number] = row
        return found

    def _pixels_of(self, data: bytes) -> int:
        """How many pixels an image has that the GPU may decode; 0 for any other."""
        # Pillow rejects what was cut off; nvJPEG fills it up with gray.
        if not data.endswith(_END):
            return 0
        try:
            image = self.open(data)
            if not isinstance(image, JpegImagePlugin.JpegImageFile) or image.format != "JPEG":  # but one of several pictures
                return 0
            if image.mode != "RGB" or "progressive" in image.info or self.orientation(image) != 1:
                return 0
        except ImageError:  # whoever decodes it says what is wrong
            return 0
        parts = [part[0] for part in image.layer]
        luma, *chroma = [part[1:3] for part in image.layer]
        # Three components are YCbCr unless the file says or hints otherwise, as libjpeg reads it (jdapimin.c).
        is_ycc = image.info.get("adobe_transform", 1) == 1 and (parts == [1, 2, 3] or "jfif" in image.info)
        usual = is_ycc and luma in _SUBSAMPLINGS and all(part == (1, 1) for part in chroma)
        return image.width * image.height if usual else 0

    def _decoded(self, items: list[tuple[bytes, int]]) -> list[np.ndarray | None]:
        """A batch, in parts that fit into the GPU's memory. Where the GPU fails, the CPU takes over."""
        rows: list[np.ndarray | None] = []
        for part in _parts(items):
            try:
                rows += self._images.rows(part)
            except Exception as error:  # a GPU that is lost or full is no reason to reject an image
                log.error("%d images could not be decoded on the GPU, the CPU decodes them", len(part), exc_info=error)
                rows += [None] * len(part)
        return rows


def _parts(items: Sequence[tuple[bytes, int]]) -> Iterator[list[bytes]]:
    """The images in order, so many at a time that their pixels are few enough; a larger image is alone."""
    part: list[bytes] = []
    total = 0
    for data, size in items:
        if part and total + size > _MOST_PIXELS:
            yield part
            part, total = [], 0
        part.append(data)
        total += size
    if part:
        yield part
