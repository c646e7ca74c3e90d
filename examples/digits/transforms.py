"""The few image transforms we need, on PIL images and numpy arrays."""

import random

import numpy as np
import torch
from PIL import Image


class Compose:
    def __init__(self, transforms):
        self.transforms = transforms

    def __call__(self, img):
        for t in self.transforms:
            img = t(img)
        return img


class Resize:
    """Resize to (height, width)."""

    def __init__(self, size, interpolation=Image.BILINEAR):
        self.size = size
        self.interpolation = interpolation

    def __call__(self, img):
        return img.resize(self.size[::-1], self.interpolation)


class RandomAffine:
    """Rotate by up to `degrees`, scale within `scale`, and shift by up to the fraction `translate` of the image."""

    def __init__(self, degrees=10, translate=0.08, scale=(0.9, 1.1)):
        self.degrees = degrees
        self.translate = translate
        self.scale = scale

    def __call__(self, img):
        angle = np.deg2rad(random.uniform(-self.degrees, self.degrees))
        scale = random.uniform(*self.scale)
        dx = random.uniform(-self.translate, self.translate) * img.width
        dy = random.uniform(-self.translate, self.translate) * img.height
        cx, cy = img.width / 2, img.height / 2
        # PIL wants the inverse map: from output coordinates to input coordinates
        a, b = np.cos(angle) / scale, np.sin(angle) / scale
        matrix = (a, b, cx - a * (cx + dx) - b * (cy + dy), -b, a, cy + b * (cx + dx) - a * (cy + dy))
        return img.transform(img.size, Image.AFFINE, matrix, resample=Image.BILINEAR)


class ToTensor:
    """PIL image -> float tensor of shape (C, H, W) in [0, 1]."""

    def __call__(self, img):
        arr = np.array(img, dtype=np.float32) / 255.0
        if arr.ndim == 2:
            arr = arr[:, :, None]
        return torch.from_numpy(np.ascontiguousarray(arr.transpose(2, 0, 1)))


class Normalize:
    def __init__(self, mean, std):
        self.mean = torch.tensor(mean).view(-1, 1, 1)
        self.std = torch.tensor(std).view(-1, 1, 1)

    def __call__(self, tensor):
        return (tensor - self.mean) / self.std
