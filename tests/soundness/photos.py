"""Crops of the two photos that scikit-learn has in its package."""

from __future__ import annotations

import numpy as np
from PIL import Image

_MEAN, _STD = (np.array(value, np.float32).reshape(3, 1, 1) for value in ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)))


def photo_crops(count: int, size: int, *, seed: int = 0) -> np.ndarray:
    """float32 [count, 3, size, size], as networks for ImageNet take them: parts of random size and place, some mirrored."""
    from sklearn.datasets import load_sample_images

    random, photos = np.random.default_rng(seed), load_sample_images().images
    rows = []
    for index in range(count):
        photo = photos[index % len(photos)]
        side = random.integers(64, min(photo.shape[:2]))
        top, left = (random.integers(0, length - side + 1) for length in photo.shape[:2])
        part = Image.fromarray(photo[top : top + side, left : left + side]).resize((size, size), Image.Resampling.BILINEAR)
        pixels = np.asarray(part, np.float32).transpose(2, 0, 1) / 255
        rows.append((pixels[:, :, ::-1] if random.random() < 0.5 else pixels) * 1.0)
    return ((np.stack(rows) - _MEAN) / _STD).astype(np.float32)
