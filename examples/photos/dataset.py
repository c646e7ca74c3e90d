import os

from PIL import Image
from torch.utils.data import Dataset

from preprocess import preprocess

with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "classes.txt")) as f:
    CLASSES = f.read().split()


class PhotoDataset(Dataset):
    """Photos in root/split/class/*.jpg, see prepare.py."""

    def __init__(self, root, split):
        folder = os.path.join(root, split)
        if not os.path.isdir(folder):
            raise FileNotFoundError(f"{folder} not found, run prepare.py first")
        self.samples = []
        for label, name in enumerate(CLASSES):
            for filename in sorted(os.listdir(os.path.join(folder, name))):
                if filename.endswith(".jpg"):
                    self.samples.append((os.path.join(folder, name, filename), label))

    def __len__(self):
        return len(self.samples)

    def __getitem__(self, index):
        path, label = self.samples[index]
        with Image.open(path) as img:
            return preprocess(img), label
