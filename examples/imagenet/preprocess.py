import numpy as np
import torch
from PIL import Image

# What the TensorFlow model was trained with: (pixel - 127) / 128.
MEAN, SCALE = 127.0, 128.0


def preprocess(img, resize=256, crop=224):
    """PIL image -> normalized float tensor of shape (3, crop, crop)."""
    img = img.convert("RGB")

    # short side to `resize`, keeping the aspect ratio
    w, h = img.size
    if w < h:
        w, h = resize, int(resize * h / w)
    else:
        w, h = int(resize * w / h), resize
    img = img.resize((w, h), Image.BICUBIC)

    left = (w - crop) // 2
    top = (h - crop) // 2
    img = img.crop((left, top, left + crop, top + crop))

    x = (np.asarray(img, dtype=np.float32) - MEAN) / SCALE
    return torch.from_numpy(np.ascontiguousarray(x.transpose(2, 0, 1)))
