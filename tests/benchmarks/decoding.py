"""`make bench-decoding`: what the ways to decode cost and change, on photos of examples/photos and its ResNet-50.

Every way turns the same JPEG files into the model's input. Beside images per second of one core, in interleaved rounds, it
says how far pixels lie from the exact way's (mean, greatest, share that differs), and how often the model's first class is
the same, and how much the probability of that class changes. --no-speed leaves out the timing, which a busy machine spoils.
"""

from __future__ import annotations

import argparse
import io
import json
import platform
import statistics
import sys
import time
from importlib.metadata import version
from pathlib import Path

import numpy as np
import torch

from headrace.serving.images.fast_preprocessing import DECODINGS, FastPreprocessor, make_preprocessor
from headrace.specs import CenterCrop, Preprocessing, Resize

ROOT = Path(__file__).resolve().parents[2]
# (width, height) of the photos, and how many of each class: nothing, a half and a quarter may be decoded of them.
SIZES = (((500, 375), 8), ((2000, 1500), 4), ((3000, 2250), 4))
PREPROCESSING = Preprocessing(
    geometry=(Resize(size=256), CenterCrop(size=(224, 224))), mean=(0.485, 0.456, 0.406), std=(0.229, 0.224, 0.225)
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--photos", type=Path, default=ROOT / "examples/photos", help="where prepare.py has run")
    parser.add_argument("--seconds", type=float, default=2.0, help="of each way in each round")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--no-speed", action="store_true")
    parser.add_argument("--out", type=Path, help="where the figures go as JSON")
    arguments = parser.parse_args()
    sys.path.insert(0, str(arguments.photos))
    steps = PREPROCESSING.to_json()["steps"]
    ways = {decoding: make_preprocessor(steps, decoding=decoding) for decoding in DECODINGS}
    if not isinstance(ways["fast"], FastPreprocessor):
        sys.exit("simplejpeg and cykooz-resizer are not installed, or do not agree with Pillow; there is one way only")
    model = trained(arguments.photos)
    found = []
    for size, per_class in SIZES:
        files = photos(size, per_class)
        row = {"size": "x".join(map(str, size)), "files": len(files), "kB": round(statistics.mean(map(len, files)) / 1000)}
        row |= {"ways": compared(files, ways, model)}
        if not arguments.no_speed:
            for name, speed in timed(files, ways, arguments.rounds, arguments.seconds).items():
                row["ways"][name]["images_per_second_of_a_core"] = speed
        found.append(row)
        print(json.dumps(row, indent=1), flush=True)
    if arguments.out is not None:
        packages = {name: version(name) for name in ("pillow", "simplejpeg", "cykooz-resizer", "numpy", "torch")}
        result = {"command": "make bench-decoding", "machine": platform.processor() or platform.machine(), "packages": packages}
        arguments.out.write_text(json.dumps({**result, "photos": found}, indent=1) + "\n")


def trained(folder: Path) -> torch.nn.Module:
    """The example's ResNet-50, as its evaluate.py loads it."""
    import resnet
    from dataset import CLASSES

    weights = folder / "weights/resnet50.pth"
    if not weights.exists():
        sys.exit(f"{weights} is missing; python examples/photos/prepare.py makes it")
    model = resnet.resnet50(num_classes=len(CLASSES))
    model.load_state_dict(torch.load(weights, map_location="cpu")["state_dict"])
    return model.eval()


def photos(size: tuple[int, int], per_class: int) -> list[bytes]:
    """JPEG files as prepare.py makes them, of another seed and size: regions of two photos, each pixel with its grain."""
    from PIL import Image
    from sklearn.datasets import load_sample_images

    import prepare
    from dataset import CLASSES

    samples = load_sample_images()
    sources = {Path(path).name: Image.fromarray(array) for path, array in zip(samples.filenames, samples.images, strict=True)}
    prepare.SIZE = size
    files = []
    for label, name in enumerate(CLASSES):
        for index in range(per_class):
            data = io.BytesIO()
            prepare.make_photo(sources, name, np.random.default_rng([7, label, index])).save(data, "JPEG", quality=90)
            files.append(data.getvalue())
    return files


@torch.inference_mode()
def compared(files: list[bytes], ways: dict[str, object], model: torch.nn.Module) -> dict[str, dict[str, float]]:
    """Pixels and predictions of each way against those of the exact one."""
    pixels = {name: np.stack([way.decode(data) for data in files]).astype(np.int16) for name, way in ways.items()}
    scores = {}
    for name, way in ways.items():
        parts = [torch.from_numpy(np.stack([way(data) for data in files[at : at + 16]])) for at in range(0, len(files), 16)]
        scores[name] = torch.cat([model(part) for part in parts]).softmax(1)
    first = scores["exact"].argmax(1)
    rows = torch.arange(len(files))
    found = {}
    for name in ways:
        off = np.abs(pixels[name] - pixels["exact"])
        change = (scores[name][rows, first] - scores["exact"][rows, first]).abs()
        found[name] = {
            "pixel_mean": round(float(off.mean()), 4),
            "pixel_max": int(off.max()),
            "pixels_differing": round(float(np.count_nonzero(off) / off.size), 4),
            "same_first_class": round(float((scores[name].argmax(1) == first).float().mean()), 4),
            "probability_change_mean": round(float(change.mean()), 5),
            "probability_change_max": round(float(change.max()), 5),
        }
    return found


def timed(files: list[bytes], ways: dict[str, object], rounds: int, seconds: float) -> dict[str, dict[str, float]]:
    """Median, least and most of the rounds, per second of processor time of this one thread; ways take turns."""
    rates: dict[str, list[float]] = {name: [] for name in ways}
    for number in range(rounds):
        for name in ways if number % 2 == 0 else reversed(ways):
            begin, until, done = time.thread_time(), time.monotonic() + seconds, 0
            while time.monotonic() < until:
                ways[name](files[done % len(files)])
                done += 1
            rates[name].append(done / (time.thread_time() - begin))
    return {
        name: {"median": round(statistics.median(found), 1), "least": round(min(found), 1), "most": round(max(found), 1)}
        for name, found in rates.items()
    }


if __name__ == "__main__":
    main()
