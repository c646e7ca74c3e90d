"""The real images that a user gives to judge and to calibrate lossy precisions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from ...errors import InputError
from ...specs import Signature
from ..artifact.parity import Array
from ..tuning.reference import checked_inputs


@dataclass(frozen=True, eq=False)
class JudgingData:
    """`images` (one array [n, ...] per input) with `labels` [n] judge, `calibration` gives int8 its ranges. All may be none."""

    images: tuple[Array, ...] = ()
    labels: Array | None = None
    calibration: tuple[Array, ...] = ()

    @classmethod
    def of(cls, images: Any, labels: Any, calibration: Any) -> JudgingData:
        """Tensors or arrays as they come from a user. Raises InputError when images and labels differ in number."""
        ranges = () if calibration is None else _arrays(calibration)
        if images is None:
            if labels is not None:
                raise InputError("labels were given without images")
            return cls(calibration=ranges)
        arrays = _arrays(images)
        if labels is None:
            return cls(arrays, None, ranges)
        classes = labels.numpy(force=True) if isinstance(labels, torch.Tensor) else np.asarray(labels)
        if classes.shape != arrays[0].shape[:1]:
            raise InputError(f"labels have shape {classes.shape} for {len(arrays[0])} images; give one class number per image")
        return cls(arrays, classes, ranges)

    def for_graph(self, signature: Signature) -> JudgingData:
        """Themselves where they are inputs of that graph, none where they have another row shape.

        Raises InputError when they have the row shape and are wrong otherwise.
        """
        if not self.images or tuple(self.images[0].shape[1:]) != signature.inputs[0].row_shape:
            return JudgingData()
        checked_inputs(signature, self.images, "images")
        return self


def first_rows(images: Any) -> tuple[torch.Tensor, ...]:
    """Two rows of each image input, as example inputs; none where there are no images."""
    return () if images is None else tuple(torch.as_tensor(value)[:2] for value in _listed(images))


def _arrays(images: Any) -> tuple[Array, ...]:
    return tuple(value.numpy(force=True) if isinstance(value, torch.Tensor) else np.asarray(value) for value in _listed(images))


def _listed(images: Any) -> Any:
    return images if isinstance(images, tuple | list) else (images,)
