"""Digits as PNG files: data/{train,val,test}/{0..9}/xxxx.png (see prepare.py)."""

import os

from PIL import Image
from torch.utils.data import Dataset

import transforms as T

CLASSES = [str(digit) for digit in range(10)]

MEAN, STD = (0.305,), (0.376,)

train_transform = T.Compose([T.Resize((32, 32)), T.RandomAffine(), T.ToTensor(), T.Normalize(MEAN, STD)])
eval_transform = T.Compose([T.Resize((32, 32)), T.ToTensor(), T.Normalize(MEAN, STD)])


class DigitsDataset(Dataset):
    def __init__(self, root, split, transform=None):
        self.transform = transform
        self.samples = []
        folder = os.path.join(root, split)
        if not os.path.isdir(folder):
            raise FileNotFoundError(f"{folder} not found, run prepare.py first")
        for label, name in enumerate(CLASSES):
            for filename in sorted(os.listdir(os.path.join(folder, name))):
                if filename.endswith(".png"):
                    self.samples.append((os.path.join(folder, name, filename), label))

    def __len__(self):
        return len(self.samples)

    def __getitem__(self, index):
        path, label = self.samples[index]
        with Image.open(path) as f:
            img = f.convert("L")
        if self.transform is not None:
            img = self.transform(img)
        return img, label
