"""Decoded images of varying size to one batch of a model's input: resize, crop, normalize and cast, in one launch.

`headrace::preprocess(pixels, offsets, heights, widths, resize, crop, interpolation, rounded, mean, std, dtype)` gives
[images, 3, *crop] of `dtype` in channels last. `pixels` is uint8 [bytes]: image i is heights[i] x widths[i] x 3 bytes, row by
row, from offsets[i]; these three are int64 [images]. `resize` is [] for none, [side] for the short side (the long one follows,
rounded down) or [height, width]; `crop` [height, width] is cut from the center as torchvision's CenterCrop does, with zeros
where the image is smaller. `interpolation` is "bilinear" or "bicubic" (a = -0.5), both antialiased: the filter grows with the
scale, as in Pillow and `torch.nn.functional.interpolate(antialias=True)`. The sums are float32; with `rounded` they become
whole levels from 0 to 255, half upwards, as those of a resized uint8 image are. Then (level / 255 - mean) / std, per channel.
An image without pixels, or not all inside the buffer, is NaN. Raises KernelError on arguments of another kind.

Roofline: 3 * height * width bytes of each image and the result, each once. The program takes a tile of one image's result and
gathers every pixel under its filters, so a pixel is read about (2 * radius)^2 times, but from memory only once.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ._kernel import Kernel, Operator
from ._launch import check, jit, launch, operator, size_of, tl

_TALL, _ACROSS = 8, 32
_RADIUS = {"bilinear": 1.0, "bicubic": 2.0}


def preprocess_reference(
    pixels: Tensor, offsets: Tensor, heights: Tensor, widths: Tensor, resize: list[int], crop: list[int], interpolation: str,
    rounded: bool, mean: list[float], std: list[float], dtype: torch.dtype,
) -> Tensor:  # fmt: skip
    """The same in plain torch, image by image, in float32, or float64 for float64."""
    exact = torch.float64 if dtype == torch.float64 else torch.float32
    out = torch.full((len(offsets), 3, *crop), float("nan"), dtype=exact, device=pixels.device)
    shift, deviation = (torch.tensor(value, dtype=exact, device=pixels.device).reshape(3, 1, 1) for value in (mean, std))
    for index, (offset, height, width) in enumerate(zip(offsets.tolist(), heights.tolist(), widths.tolist(), strict=True)):
        end = offset + 3 * height * width
        if min(offset, height - 1, width - 1) < 0 or end > len(pixels):
            continue
        image = pixels[offset:end].reshape(1, height, width, 3).permute(0, 3, 1, 2).to(exact)
        if resize:
            short = min(height, width)
            size = resize if len(resize) == 2 else [resize[0] * height // short, resize[0] * width // short]
            image = torch.nn.functional.interpolate(image, size, mode=interpolation, antialias=True)
        if rounded:
            image = torch.floor(image + 0.5).clamp(0, 255)
        top, left = (_corner(side - wanted) for side, wanted in zip(image.shape[2:], crop, strict=True))
        # Negative paddings cut.
        bottom, right = crop[0] - image.shape[2] + top, crop[1] - image.shape[3] + left
        levels = torch.nn.functional.pad(image, (-left, right, -top, bottom))[0]
        out[index] = (levels / 255 - shift) / deviation
    return out.to(dtype).contiguous(memory_format=torch.channels_last)


def _corner(excess: int) -> int:
    return round(excess / 2) if excess >= 0 else -(-excess // 2)


@jit
def _weight(distance: tl.tensor, cubic: tl.constexpr) -> tl.tensor:
    distance = tl.abs(distance)
    if cubic:
        # R. Keys, "Cubic Convolution Interpolation for Digital Image Processing" (1981), with a = -1/2.
        near = (1.5 * distance - 2.5) * distance * distance + 1.0
        far = ((-0.5 * distance + 2.5) * distance - 4.0) * distance + 2.0
        return tl.where(distance < 1.0, near, tl.where(distance < 2.0, far, 0.0))
    else:  # noqa: RET505 - a branch of constants, of which Triton compiles one
        return tl.where(distance < 1.0, 1.0 - distance, 0.0)


@jit
def _start_of_crop(excess: tl.tensor) -> tl.tensor:
    half = excess >> 1
    # Half to even where it cuts, as Python rounds.
    return tl.where(excess >= 0, half + (excess & half & 1), -((-excess) >> 1))


@jit
def _tile(
    pixels: tl.tensor, offsets: tl.tensor, heights: tl.tensor, widths: tl.tensor, out: tl.tensor, size: tl.tensor,
    resize_height: tl.tensor, resize_width: tl.tensor, crop_height: tl.tensor, crop_width: tl.tensor, red_shift: tl.tensor,
    green_shift: tl.tensor, blue_shift: tl.tensor, red_gain: tl.tensor, green_gain: tl.tensor, blue_gain: tl.tensor,
    sides: tl.constexpr, radius: tl.constexpr, rounded: tl.constexpr, tall: tl.constexpr, across: tl.constexpr,
) -> None:  # fmt: skip
    tiles_across = tl.cdiv(crop_width, across)
    tiles = tiles_across * tl.cdiv(crop_height, tall)
    image = tl.program_id(0) // tiles
    tile = tl.program_id(0) % tiles
    rows = (tile // tiles_across) * tall + tl.arange(0, tall)
    columns = (tile % tiles_across) * across + tl.arange(0, across)

    offset = tl.load(offsets + image)
    far_height = tl.load(heights + image)
    far_width = tl.load(widths + image)
    valid = (offset >= 0) & (far_height > 0) & (far_height <= size) & (far_width > 0)
    # Divided, since the product of sizes that nobody checked can be any number.
    valid = valid & (far_width <= (size - offset) // (3 * tl.maximum(tl.minimum(far_height, size), 1)))
    height = tl.where(valid, far_height, 1).to(tl.int32)
    width = tl.where(valid, far_width, 1).to(tl.int32)
    new_height = height
    new_width = width
    if sides == 1:
        short = tl.minimum(height, width).to(tl.int64)
        new_height = tl.maximum((height.to(tl.int64) * resize_height // short).to(tl.int32), 1)
        new_width = tl.maximum((width.to(tl.int64) * resize_height // short).to(tl.int32), 1)
    if sides == 2:
        new_height = height * 0 + resize_height  # a size of 1 is a constant to Triton, and the sum is none
        new_width = width * 0 + resize_width

    y = rows + _start_of_crop(new_height - crop_height)
    x = columns + _start_of_crop(new_width - crop_width)
    inside_y = (rows < crop_height) & (y >= 0) & (y < new_height) & valid
    inside_x = (columns < crop_width) & (x >= 0) & (x < new_width)
    scale_y = tl.div_rn(height.to(tl.float32), new_height.to(tl.float32))
    scale_x = tl.div_rn(width.to(tl.float32), new_width.to(tl.float32))
    filter_y = tl.maximum(scale_y, 1.0)
    filter_x = tl.maximum(scale_x, 1.0)
    center_y = scale_y * (y.to(tl.float32) + 0.5)
    center_x = scale_x * (x.to(tl.float32) + 0.5)
    first_y = tl.maximum((center_y - radius * filter_y + 0.5).to(tl.int32), 0)
    first_x = tl.maximum((center_x - radius * filter_x + 0.5).to(tl.int32), 0)
    last_y = tl.minimum((center_y + radius * filter_y + 0.5).to(tl.int32), height)
    last_x = tl.minimum((center_x + radius * filter_x + 0.5).to(tl.int32), width)
    taps_y = (2.0 * radius * filter_y).to(tl.int32) + 1
    taps_x = (2.0 * radius * filter_x).to(tl.int32) + 1

    total_y = tl.zeros([tall], tl.float32)
    total_x = tl.zeros([across], tl.float32)
    red = tl.zeros([tall, across], tl.float32)
    green = tl.zeros([tall, across], tl.float32)
    blue = tl.zeros([tall, across], tl.float32)
    down = 0
    while down < taps_y:
        source_y = first_y + down
        weight_y = tl.where(source_y < last_y, _weight((source_y - center_y + 0.5) / filter_y, radius == 2.0), 0.0)
        total_y += weight_y
        total_x = tl.zeros([across], tl.float32)
        right = 0
        while right < taps_x:
            source_x = first_x + right
            weight_x = tl.where(source_x < last_x, _weight((source_x - center_x + 0.5) / filter_x, radius == 2.0), 0.0)
            total_x += weight_x
            mask = (inside_y & (source_y < last_y))[:, None] & (inside_x & (source_x < last_x))[None, :]
            place = pixels + offset + (source_y.to(tl.int64)[:, None] * width + source_x[None, :]) * 3
            weight = weight_y[:, None] * weight_x[None, :]
            red += weight * tl.load(place, mask=mask, other=0).to(tl.float32)
            green += weight * tl.load(place + 1, mask=mask, other=0).to(tl.float32)
            blue += weight * tl.load(place + 2, mask=mask, other=0).to(tl.float32)
            right += 1
        down += 1

    inside = inside_y[:, None] & inside_x[None, :]
    total = tl.where(inside, total_y[:, None] * total_x[None, :], 1.0)
    place = out + ((image.to(tl.int64) * crop_height + rows[:, None]) * crop_width + columns[None, :]) * 3
    mask = (rows < crop_height)[:, None] & (columns < crop_width)[None, :]
    red = _level(red / total, valid, rounded)
    green = _level(green / total, valid, rounded)
    blue = _level(blue / total, valid, rounded)
    tl.store(place, ((red - red_shift) * red_gain).to(out.dtype.element_ty), mask=mask)
    tl.store(place + 1, ((green - green_shift) * green_gain).to(out.dtype.element_ty), mask=mask)
    tl.store(place + 2, ((blue - blue_shift) * blue_gain).to(out.dtype.element_ty), mask=mask)


@jit
def _level(value: tl.tensor, valid: tl.tensor, rounded: tl.constexpr) -> tl.tensor:
    if rounded:
        value = tl.minimum(tl.maximum(tl.floor(value + 0.5), 0.0), 255.0)
    return tl.where(valid, value, float("nan"))


def _empty(pixels: Tensor, offsets: Tensor, heights: Tensor, widths: Tensor, *numbers: Any) -> Tensor:
    resize, crop, interpolation, _, mean, std, dtype = numbers
    check(pixels.dtype == torch.uint8 and pixels.dim() == 1, "preprocess takes pixels as uint8 [bytes], all images in one")
    for name, item in (("offsets", offsets), ("heights", heights), ("widths", widths)):
        check(item.dtype == torch.int64 and item.dim() == 1, f"preprocess takes {name} as int64 [images]")
        check(item.shape == offsets.shape, f"preprocess: there are {item.shape[0]} {name} and {offsets.shape[0]} offsets")
    whole = len(resize) <= 2 and all(side > 0 for side in resize)
    check(whole, f"a resize is [], [short side] or [height, width], not {resize}")
    check(len(crop) == 2 and all(side > 0 for side in crop), f"a crop is [height, width], not {crop}")
    check(interpolation in _RADIUS, f"preprocess resizes by {' or '.join(_RADIUS)}, not {interpolation!r}")
    check(len(mean) == 3 and len(std) == 3 and all(std), "mean and std are three numbers each, and no std is zero")
    check(dtype.is_floating_point, f"preprocess gives floats, not {dtype}")
    shape = (offsets.shape[0], 3, *crop)
    return torch.empty(shape, dtype=dtype, device=pixels.device, memory_format=torch.channels_last)


def _start(out: Tensor, pixels: Tensor, offsets: Tensor, heights: Tensor, widths: Tensor, *numbers: Any) -> None:
    resize, crop, interpolation, rounded, mean, std, _ = numbers
    tiles = -(-crop[0] // _TALL) * -(-crop[1] // _ACROSS)
    # (v / 255 - mean) / std as one subtraction from small whole numbers, where nothing is lost, and one product.
    factors = [value * 255 for value in mean] + [1 / (255 * value) for value in std]
    tensors = [item.contiguous() for item in (pixels, offsets, heights, widths)]
    sizes = (pixels.numel(), resize[0] if resize else 0, resize[-1] if resize else 0, *crop)
    given = {"sides": len(resize), "rounded": rounded, "tall": _TALL, "across": _ACROSS}
    arguments = (*tensors, out, *sizes, *factors)
    launch(_tile, offsets.shape[0] * tiles, out.device, *arguments, radius=_RADIUS[interpolation], **given)


preprocess = operator("preprocess", preprocess_reference, _empty, _start)


def _example(device: str) -> tuple[Any, ...]:
    sizes = torch.tensor([[9, 7], [5, 12], [8, 8]])
    lengths = 3 * sizes.prod(1)
    pixels = torch.randint(0, 256, (int(lengths.sum()),), generator=torch.Generator().manual_seed(0), dtype=torch.uint8)
    tensors = (pixels, lengths.cumsum(0) - lengths, sizes[:, 0], sizes[:, 1])
    numbers = ([0.485, 0.456, 0.406], [0.229, 0.224, 0.225])
    return *(item.to(device) for item in tensors), [6], [5, 4], "bilinear", False, *numbers, torch.float32


KERNEL = Kernel(
    name="preprocess",
    operators={
        "preprocess": Operator(
            run=preprocess,
            reference=preprocess_reference,
            example=_example,
            bytes_moved=lambda pixels, offsets, heights, widths, resize, crop, *rest: (
                size_of(pixels, offsets, heights, widths) + 3 * offsets.shape[0] * crop[0] * crop[1] * rest[-1].itemsize
            ),
        )
    },
)
