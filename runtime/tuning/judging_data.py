"""The real images that lossy precisions are judged by, and those that set the ranges of int8."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from ...errors import InputError
from ...specs import Preprocessing, Signature, TensorSpec
from ..artifact.agreement import Array
from ..base.calibration import Calibration
from ..base.config import GraphConfig

_LEAST_CALIBRATION, _MOST_CALIBRATION, _LEAST_JUDGED = 16, 128, 64  # images


@dataclass(frozen=True, eq=False)
class JudgingData:
    """`images` (one array [n, ...] per input) with `labels` [n] judge, `calibration` gives int8 its ranges. All may be none.

    `scores` are the reference's outputs for the images, where they are known: those that the task has judged, each [n, ...].
    `whole` has all of the images judge, however long that takes: a budget is shown by as many as there are.
    """

    images: tuple[Array, ...] = ()
    labels: Array | None = None
    calibration: tuple[Array, ...] = ()
    scores: tuple[Array, ...] | None = None
    whole: bool = False

    @classmethod
    def of(cls, images: Any, labels: Any, calibration: Any, preprocessing: Preprocessing | None = None) -> JudgingData:
        """Tensors or arrays as they come from a user. Calibration may also be a folder of images, where the preprocessing is
        part of the graph, or an iterable of batches, of which the first 128 rows are taken.

        Raises InputError when images and labels differ in number, or there is nothing to calibrate with.
        """
        calibration = _calibration(calibration, preprocessing)
        if images is None and labels is not None:
            raise InputError("labels were given without images")
        arrays, ranges = (() if given is None else _arrays(_listed(given)) for given in (images, calibration))
        if labels is None:
            return cls(arrays, None, ranges)
        (classes,) = _arrays([labels])
        if classes.shape[:1] != arrays[0].shape[:1]:
            raise InputError(
                f"labels have shape {classes.shape} for {len(arrays[0])} images; give one class number per image, or a row of "
                "zeros and ones per image where several labels may hold"
            )
        return cls(arrays, classes, ranges)

    def for_graph(self, signature: Signature) -> JudgingData:
        """Those images, and those for calibration, that are inputs of that graph; none where they have another row shape.

        Raises InputError when they have the row shape and are wrong otherwise.
        """
        calibration = _fitting(self.calibration, signature, "calibration")
        if not _fitting(self.images, signature, "images"):
            return JudgingData(calibration=calibration)
        return self if calibration is self.calibration else replace(self, calibration=calibration)

    def split(self, config: GraphConfig) -> tuple[Calibration | str, JudgingData, JudgingData]:
        """What int8 takes its ranges from, or why it cannot; the images that it took for that; what is left to judge by.

        An image that has set the ranges must not judge what they did to it.
        """
        if self.calibration:
            return Calibration(list(self.calibration)), JudgingData(), self
        count = len(self.images[0]) if self.images else 0
        taken = min(_MOST_CALIBRATION, count // 4, count - _LEAST_JUDGED)
        if config.precision != "auto" and "int8" not in config.precisions:
            return "int8 was not asked for", JudgingData(), self
        if taken < _LEAST_CALIBRATION:
            least = _LEAST_JUDGED + _LEAST_CALIBRATION
            why = f"int8 takes its ranges from real images: give calibration images, or at least {least} images (got {count})"
            return why, JudgingData(), self
        order = np.random.default_rng(1).permutation(count)
        judging, taking = np.sort(order[taken:]), order[:taken]
        calibrating = self.rows(taking)
        return Calibration(list(calibrating.images)), calibrating, self.rows(judging)

    def batches(self, rows: int) -> Iterator[list[Array]]:
        """All images, so many at a time."""
        for at in range(0, len(self.images[0]), rows):
            yield [value[at : at + rows] for value in self.images]

    def rows(self, chosen: Array | slice) -> JudgingData:
        """Those of the images, with their labels and scores."""
        labels = None if self.labels is None else self.labels[chosen]
        scores = None if self.scores is None else tuple(value[chosen] for value in self.scores)
        return replace(self, images=tuple(value[chosen] for value in self.images), labels=labels, scores=scores)


NO_IMAGES = JudgingData()


def _fitting(given: tuple[Array, ...], signature: Signature, what: str) -> tuple[Array, ...]:
    if not given or tuple(given[0].shape[1:]) != signature.inputs[0].row_shape:
        return ()
    if len(given) != len(signature.inputs):
        raise InputError(f"{what}: expected {len(signature.inputs)} tensors, one per input; got {len(given)}")
    for spec, array in zip(signature.inputs, given, strict=True):
        check_input(spec, tuple(array.shape), array.dtype.name, what)
    if len({len(array) for array in given}) > 1:
        raise InputError(f"{what}: inputs must have equally many rows, got {[len(array) for array in given]}")
    return given


def check_input(spec: TensorSpec, shape: tuple[int, ...], dtype: str, what: str) -> None:
    """Raise InputError unless shape and dtype are what the graph takes, with at least one row."""
    if len(shape) != len(spec.shape) or shape[1:] != spec.row_shape:
        raise InputError(f"{what}: {spec.name} must have shape {spec.shape}, got {shape}")
    if shape[0] < 1:
        raise InputError(f"{what}: {spec.name} has no rows; give at least one")
    if dtype != spec.dtype:
        raise InputError(f"{what}: {spec.name} must be {spec.dtype}, got {dtype}")


def first_rows(images: Any) -> tuple[torch.Tensor, ...]:
    """Two rows of each image input, as example inputs; none where there are no images."""
    return () if images is None else tuple(torch.as_tensor(value)[:2] for value in _listed(images))


def _calibration(given: Any, preprocessing: Preprocessing | None) -> Any:
    if isinstance(given, str | Path):
        if preprocessing is None:
            raise InputError(
                f"calibration: how an image of {given} becomes an input is not known; give preprocessing=, or an iterable of "
                "batches such as a DataLoader"
            )
        from ..images.image_folder import read_images  # Pillow, which a machine that only compiles need not have

        return read_images(Path(given), preprocessing, None, pixels=True, most=_MOST_CALIBRATION)[0]
    if given is None or isinstance(given, torch.Tensor | np.ndarray | tuple | list):
        return given
    if not isinstance(given, Iterable):
        raise InputError(f"calibration: give arrays, a folder or an iterable of batches, got a {type(given).__name__}")
    parts: list[Array] = []
    for batch in given:  # a data set's batches come with labels behind
        parts += _arrays([batch[0] if isinstance(batch, tuple | list) else batch])
        if sum(map(len, parts)) >= _MOST_CALIBRATION:
            break
    if not parts:
        raise InputError("calibration: the iterable gave no batch")
    return np.concatenate(parts)[:_MOST_CALIBRATION]


def _arrays(values: Any) -> tuple[Array, ...]:
    return tuple(value.numpy(force=True) if isinstance(value, torch.Tensor) else np.asarray(value) for value in values)


def _listed(images: Any) -> Any:
    return images if isinstance(images, tuple | list) else (images,)
