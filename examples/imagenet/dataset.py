import os

from PIL import Image
from torch.utils.data import Dataset

from preprocess import preprocess

with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "labels.txt")) as f:
    LABELS = f.read().splitlines()


class ImageDataset(Dataset):
    """Images in root/LABEL/*.jpg, see prepare.py."""

    def __init__(self, root):
        if not os.path.isdir(root):
            raise FileNotFoundError(f"{root} not found, run prepare.py first")
        self.samples = []
        for name in sorted(os.listdir(root)):
            for filename in sorted(os.listdir(os.path.join(root, name))):
                self.samples.append((os.path.join(root, name, filename), LABELS.index(name)))

    def __len__(self):
        return len(self.samples)

    def __getitem__(self, index):
        path, label = self.samples[index]
        with Image.open(path) as img:
            return preprocess(img), label
