"""Write scikit-learn's handwritten digits as PNG folders: data/{train,val,test}/{0..9}/xxxx.png.

Nothing is downloaded. An existing data folder is left alone, and a half-written one never appears under its final name.
"""

import argparse
import os
import tempfile

import numpy as np
from PIL import Image
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

HERE = os.path.dirname(os.path.abspath(__file__))


def split_indices(labels):
    rest, test = train_test_split(np.arange(len(labels)), test_size=360, random_state=0, stratify=labels)
    train, val = train_test_split(rest, test_size=180, random_state=0, stratify=labels[rest])
    return {"train": train, "val": val, "test": test}


def write_pngs(folder):
    digits = load_digits()
    images = np.round(digits.images * (255 / 16)).astype(np.uint8)
    for split, indices in split_indices(digits.target).items():
        for label in range(10):
            os.makedirs(os.path.join(folder, split, str(label)))
        for index in sorted(indices):
            Image.fromarray(images[index]).save(os.path.join(folder, split, str(digits.target[index]), f"{index:04d}.png"))
        print(f"{split}: {len(indices)} images")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", default=os.path.join(HERE, "data"))
    args = parser.parse_args()
    out = os.path.abspath(args.out)

    if os.path.isdir(out):
        print(f"{out} is already there")
        return
    os.makedirs(os.path.dirname(out), exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="data.partial-", dir=os.path.dirname(out)) as tmp:
        folder = os.path.join(tmp, "data")
        write_pngs(folder)
        os.rename(folder, out)
    print(f"wrote {out}")


if __name__ == "__main__":
    main()
