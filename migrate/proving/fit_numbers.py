"""Fit scale, mean, std and channel order to the pixels that went in and the floats that came out: exactly, or rejected."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np

SCALES = (1 / 255, 1.0, 1 / 256, 1 / 127.5, 1 / 128)


class Rejected(Exception):  # noqa: N818 - an answer, not an error
    """The transform does something that the served preprocessing cannot state. The message is the reason."""


def tolerance(output: np.ndarray) -> float:
    """Largest difference that float32 rounding explains: 1e-5, and in proportion where values are as large as pixels."""
    return max(1e-5, 4e-7 * float(np.abs(output).max(initial=0.0)))


def fit_numbers(
    pixels: Sequence[np.ndarray], outputs: Sequence[np.ndarray]
) -> tuple[Literal["RGB", "BGR", "L"], np.ndarray, np.ndarray]:
    """Per output channel gain and offset, float64 [C], with output = pixel * gain + offset on every observation."""
    planes = 1 if pixels[0].ndim == 2 else pixels[0].shape[2]
    count = outputs[0].shape[0]
    if planes != count:
        what = "repeats one gray channel" if planes == 1 else f"makes {count} channel(s) out of {planes}"
        raise Rejected(f"it {what} after the image left Pillow, which the served preprocessing has no step for")
    x = np.concatenate([image.reshape(-1, planes) for image in pixels]).astype(np.float64)
    y = np.concatenate([output.reshape(count, -1).T for output in outputs]).astype(np.float64)
    orders: list[tuple[Literal["RGB", "BGR", "L"], np.ndarray]] = (
        [("RGB", x), ("BGR", x[:, ::-1])] if planes == 3 else [("L", x)]
    )
    for name, ordered in orders:
        center = ordered.mean(axis=0)
        spread = ordered - center
        gain = (spread * y).sum(axis=0) / (spread**2).sum(axis=0)
        offset = y.mean(axis=0) - gain * center
        if np.abs(ordered * gain + offset - y).max() <= tolerance(y):
            if not gain.all():
                raise Rejected("its output does not depend on the image")
            return name, gain, offset
    raise Rejected("its values are not one fixed scale and shift of the pixels per channel")


def snap(
    gain: np.ndarray, offset: np.ndarray, pixels: Sequence[np.ndarray], outputs: Sequence[np.ndarray], channels: str
) -> tuple[float, tuple[float, ...], tuple[float, ...]]:
    """Scale, mean and std in few digits that reproduce the outputs within 1e-6 (of float32); as measured where none do.

    Many triples mean the same; the usual scale of 1/255 comes first unless another needs far fewer digits.
    """
    smallest = int(np.argmin([image.size for image in pixels]))
    image: np.ndarray = pixels[smallest].reshape(*pixels[smallest].shape[:2], -1).astype(np.float64)
    image = image[:, :, ::-1] if channels == "BGR" else image
    output: np.ndarray = outputs[smallest].transpose(1, 2, 0).astype(np.float64)
    bound = max(1e-6, 2e-7 * float(np.abs(output).max()))
    found: list[tuple[bool, int, int, float, tuple[float, ...], tuple[float, ...]]] = []
    for preference, scale in enumerate(SCALES):
        std = scale / gain
        mean = -offset * std
        for digits in range(9):
            short_mean, short_std = np.round(mean, digits) + 0.0, np.round(std, digits)  # and no -0.0
            if not short_std.all():
                continue
            if np.abs((image * scale - short_mean) / short_std - output).max() <= bound:
                found.append((digits > 4, preference, digits, scale, tuple(short_mean.tolist()), tuple(short_std.tolist())))
                break
    if found:
        _, _, _, scale, mean_, std_ = min(found)
        return scale, mean_, std_
    scale = SCALES[0] if float(np.abs(gain).max()) < 0.1 else 1.0
    return scale, tuple((-offset * scale / gain).tolist()), tuple((scale / gain).tolist())
