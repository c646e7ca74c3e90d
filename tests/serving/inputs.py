"""What the small models of these tests are asked with."""

import numpy as np


def noise(rows: int, seed: int = 0) -> np.ndarray:
    """Images [rows, 3, 16, 16], float32."""
    return np.random.default_rng(seed).normal(size=(rows, 3, 16, 16)).astype(np.float32)


def input_of(module, images: np.ndarray):
    """These as the input "images" of a client that the module has."""
    made = module.InferInput("images", list(images.shape), "FP32")
    made.set_data_from_numpy(images)
    return made
