"""Make the photos (JPEG crops of scikit-learn's two sample images) and the weights. Nothing is downloaded.

A class is one region of one image, as it is ("day") or darkened and tinted ("dusk"); a photo is a jittered crop of it.
The backbone is random: batch-norm statistics are settled on the photos in data/fit, and a ridge head is fitted to its features.
What exists is left alone, and nothing half-written appears under its final name.
"""

import argparse
import os
import tempfile

import numpy as np
import torch
import torch.nn.functional as F
from PIL import Image
from torch.utils.data import DataLoader

import resnet
from dataset import CLASSES, PhotoDataset

HERE = os.path.dirname(os.path.abspath(__file__))

# class -> sample image, and the center x, y and height of the region in its pixels
REGIONS = {
    "dahlia": ("flower.jpg", 307, 222, 290),
    "gallery": ("china.jpg", 207, 215, 130),
    "heart": ("flower.jpg", 307, 220, 110),
    "lake": ("china.jpg", 440, 235, 120),
    "leaves": ("flower.jpg", 118, 140, 170),
    "petals": ("flower.jpg", 215, 220, 130),
    "roof": ("china.jpg", 207, 95, 150),
    "trees": ("china.jpg", 430, 355, 125),
}
TONES = {"day": (1.0, 1.0, 1.0), "dusk": (0.6, 0.5, 0.8)}
SIZE = (500, 375)


def make_photo(sources, name, rng):
    region, tone = name.split("_")
    source, x, y, height = REGIONS[region]
    img = sources[source]

    h = min(height * rng.uniform(0.88, 1.12), img.height)
    w = min(h * SIZE[0] / SIZE[1], img.width)
    left = np.clip(x - w / 2 + rng.uniform(-0.08, 0.08) * w, 0, img.width - w)
    top = np.clip(y - h / 2 + rng.uniform(-0.08, 0.08) * h, 0, img.height - h)
    img = img.resize(SIZE, Image.BICUBIC, box=(left, top, left + w, top + h))
    if rng.random() < 0.5:
        img = img.transpose(Image.FLIP_LEFT_RIGHT)

    pixels = np.asarray(img, dtype=np.float32)
    pixels = pixels * (np.array(TONES[tone], dtype=np.float32) * rng.uniform(0.88, 1.12))
    # grain, as from a sensor: without it an enlarged crop is too smooth for a camera's photo
    pixels += rng.standard_normal(pixels.shape, dtype=np.float32) * rng.uniform(7, 9)
    return Image.fromarray(pixels.clip(0, 255).astype(np.uint8))


def make_photos(folder, counts):
    from sklearn.datasets import load_sample_images

    samples = load_sample_images()
    sources = {
        os.path.basename(path): Image.fromarray(array) for path, array in zip(samples.filenames, samples.images, strict=True)
    }
    total, done = len(CLASSES) * sum(counts.values()), 0
    for seed, (split, count) in enumerate(counts.items()):
        for label, name in enumerate(CLASSES):
            os.makedirs(os.path.join(folder, split, name))
            for index in range(count):
                photo = make_photo(sources, name, np.random.default_rng([seed, label, index]))
                photo.save(os.path.join(folder, split, name, f"{index:03d}.jpg"), quality=90)
                done += 1
                if done % 64 == 0 or done == total:
                    print(f"photos: {done}/{total}", flush=True)


def calm_residuals(model, gamma=0.25):
    """Scale the residual branches down to what training makes of them.

    At 1 a random network this deep is chaotic: noise in a photo, or a rounding error, grows from block to block.
    """
    for m in model.modules():
        if isinstance(m, resnet.Bottleneck):
            torch.nn.init.constant_(m.bn3.weight, gamma)
        elif isinstance(m, resnet.BasicBlock):
            torch.nn.init.constant_(m.bn2.weight, gamma)


@torch.no_grad()
def settle_batch_norm(model, loader):
    """Set the batch-norm statistics to their average over the batches of `loader`."""
    for m in model.modules():
        if isinstance(m, torch.nn.BatchNorm2d):
            m.reset_running_stats()
            m.momentum = None  # a cumulative average
    model.train()
    for i, (images, _) in enumerate(loader):
        model.forward_features(images.contiguous(memory_format=torch.channels_last))
        print(f"batch norm: {i + 1}/{len(loader)} batches", flush=True)
    model.eval()


@torch.no_grad()
def extract_features(model, loader, what):
    features, labels = [], []
    for i, (images, target) in enumerate(loader):
        features.append(model.forward_features(images.contiguous(memory_format=torch.channels_last)))
        labels.append(target)
        print(f"{what} features: {i + 1}/{len(loader)} batches", flush=True)
    return torch.cat(features).double(), torch.cat(labels)


def fit_head(features, labels, penalty=1.0, typical=0.9):
    """Weight and bias of a ridge regression to the classes, scaled so that the median leave-one-out confidence is `typical`."""
    mean, std = features.mean(0), features.std(0) + 1e-6
    x = (features - mean) / std
    targets = F.one_hot(labels, len(CLASSES)).double()
    offset = targets.mean(0)

    n, d = x.shape
    inverse = torch.linalg.inv(x @ x.T / d + penalty * torch.eye(n, dtype=x.dtype))
    alpha = inverse @ (targets - offset)
    held_out = targets - alpha / inverse.diagonal()[:, None]

    low, high = 1.0, 1000.0
    for _ in range(50):
        scale = (low + high) / 2
        confident = (held_out * scale).softmax(1).max(1).values.median() > typical
        low, high = (low, scale) if confident else (scale, high)

    weight = scale * (alpha.T @ x / d) / std
    bias = scale * offset - weight @ mean
    return weight.float(), bias.float()


def make_weights(arch, data, path, batch_size):
    torch.manual_seed(0)
    model = resnet.__dict__[arch](num_classes=len(CLASSES)).to(memory_format=torch.channels_last)
    calm_residuals(model)
    fit_set = PhotoDataset(data, "fit")
    shuffled = torch.utils.data.Subset(fit_set, torch.randperm(len(fit_set))[:160].tolist())
    settle_batch_norm(model, DataLoader(shuffled, batch_size=batch_size, drop_last=len(shuffled) > batch_size))
    weight, bias = fit_head(*extract_features(model, DataLoader(fit_set, batch_size=batch_size), "fit"))
    model.fc.weight.data.copy_(weight)
    model.fc.bias.data.copy_(bias)

    state_dict = {k: v.contiguous() for k, v in model.state_dict().items()}
    os.makedirs(os.path.dirname(path), exist_ok=True)
    torch.save({"state_dict": state_dict, "arch": arch}, path + ".tmp")
    os.replace(path + ".tmp", path)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--arch", default="resnet50", choices=["resnet18", "resnet50", "resnet101"])
    parser.add_argument("--per-class", default=24, type=int, help="photos per class to fit the head")
    parser.add_argument("--test-per-class", default=12, type=int, help="photos per class to test it")
    parser.add_argument("--batch-size", default=16, type=int)
    parser.add_argument("--data", default=os.path.join(HERE, "data"))
    parser.add_argument("--weights", default="", help="default: weights/ARCH.pth beside this script")
    args = parser.parse_args()

    data = os.path.abspath(args.data)
    if os.path.isdir(data):
        print(f"{data} is already there")
    else:
        os.makedirs(os.path.dirname(data), exist_ok=True)
        with tempfile.TemporaryDirectory(prefix="data.partial-", dir=os.path.dirname(data)) as tmp:
            make_photos(os.path.join(tmp, "data"), {"fit": args.per_class, "test": args.test_per_class})
            os.rename(os.path.join(tmp, "data"), data)

    weights = os.path.abspath(args.weights or os.path.join(HERE, "weights", f"{args.arch}.pth"))
    if os.path.exists(weights):
        print(f"{weights} is already there")
    else:
        make_weights(args.arch, data, weights, args.batch_size)
        print(f"wrote {weights}")


if __name__ == "__main__":
    main()
