"""Which images a benchmark sends: the user's, the baseline repository's, the model's sample, or synthetic photos."""

from __future__ import annotations

import io
import os
import random
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from PIL import Image, ImageFilter

from ...errors import BenchError

SUFFIXES = frozenset({".jpg", ".jpeg", ".png", ".bmp", ".webp"})
HELD_OUT = frozenset(
    {"test", "testing", "tests", "val", "valid", "validation", "eval", "evaluation", "heldout", "held-out", "held_out"}
)
# Folders whose pictures are not data.
NOT_DATA = frozenset(
    {"doc", "docs", "asset", "assets", "figure", "figures", "fig", "figs", "imgs", "node_modules", "site-packages"}
)
MANY = 16  # fewer pictures than this in a repository are illustrations
MAX_SCANNED = 200_000  # files looked at in a folder
SYNTHETIC_SIZE = (500, 375)  # width, height of the photos of ImageNet and the like
SYNTHETIC_COUNT = 32


@dataclass(frozen=True, kw_only=True)
class ImageSet:
    """The files to send, with the class folder of each where folders name classes, and where they come from in words."""

    files: tuple[Path, ...]
    classes: tuple[str | None, ...]
    source: str
    synthetic: bool = False

    def truth(self, labels: Sequence[str] | None, outputs: int | None) -> tuple[int, ...] | None:
        """The right label index of each image, or None where the folders do not say.

        Folders that are named like labels count as those; without labels, as many folders as the model has outputs
        count in sorted order, the way ImageFolder numbers them.
        """
        if any(name is None for name in self.classes):
            return None
        names = sorted({name for name in self.classes if name is not None})
        if labels is not None and set(names) <= set(labels):
            order = list(labels)
        elif labels is None and len(names) == outputs:
            order = names
        else:
            return None
        return tuple(order.index(name) for name in self.classes if name is not None)


def choose_images(
    images: Sequence[Path], *, repository: Path | None, model: Path, synthetic_into: Path, limit: int
) -> ImageSet:
    """The images of a benchmark, at most `limit`, spread evenly over what was found.

    In this order: `images` (files and folders); a data folder of `repository`, held-out splits first; `sample*` files in
    the `model` folder; synthetic photos, written into `synthetic_into`. Raises BenchError when `images` holds none.
    """
    if images:
        named = [path for given in images for path in _images_at(given)]
        if not named:
            raise BenchError(
                f"no images in {', '.join(map(str, images))}; give files or folders with {', '.join(sorted(SUFFIXES))} files"
            )
        return _image_set(named, f"{len(named)} images given", limit)
    if repository is not None:
        folder, found = data_folder(repository)
        if folder is not None:
            return _image_set(
                found, f"{len(found)} images in {folder.relative_to(repository.resolve())} of the repository", limit
            )
    samples = sorted(path for path in model.rglob("sample*") if path.suffix.lower() in SUFFIXES and path.is_file())
    if samples:
        return _image_set(samples, "the sample stored with the model", limit)
    files = tuple(write_synthetic_photos(synthetic_into, min(limit, SYNTHETIC_COUNT)))
    width, height = SYNTHETIC_SIZE
    return ImageSet(
        files=files, classes=(None,) * len(files), source=f"{len(files)} synthetic {width}x{height} JPEG photos", synthetic=True
    )


def data_folder(repository: Path) -> tuple[Path | None, list[Path]]:
    """The folder of a repository with the most images, held-out splits before all others; (None, []) when there is none."""
    root = repository.resolve()
    held_out: defaultdict[Path, list[Path]] = defaultdict(list)
    others: defaultdict[Path, list[Path]] = defaultdict(list)
    for path in _walk(root, skip=NOT_DATA):
        parts = path.relative_to(root).parts[:-1]
        split = next((depth for depth, part in enumerate(parts) if part.lower() in HELD_OUT), None)
        if split is not None:
            held_out[root.joinpath(*parts[: split + 1])].append(path)
        elif parts:
            # An ImageFolder is two levels above its images; a flat folder, one.
            others[path.parents[1] if len(parts) > 1 else path.parent].append(path)
    for groups in (held_out, others):
        folders = sorted(
            (folder for folder, files in groups.items() if len(files) >= MANY),
            key=lambda folder: (-len(groups[folder]), folder),
        )
        if folders:
            return folders[0], groups[folders[0]]
    return None, []


def write_synthetic_photos(folder: Path, count: int) -> list[Path]:
    """JPEG photos of quality 90 with edges, gradients and grain, so that they decode about as slowly as real ones."""
    folder.mkdir(parents=True, exist_ok=True)
    width, height = SYNTHETIC_SIZE
    paths = []
    for number in range(count):
        source = random.Random(number)  # noqa: S311 - pictures, not secrets
        blocks = Image.frombytes("RGB", (25, 19), source.randbytes(25 * 19 * 3))
        smooth = blocks.resize((width, height), Image.Resampling.BICUBIC)
        grain = Image.frombytes("L", (width, height), source.randbytes(width * height)).filter(ImageFilter.GaussianBlur(1))
        photo = Image.blend(smooth, Image.merge("RGB", (grain, grain, grain)), 0.35)
        photo.paste(
            blocks.resize((width // 3, height // 3), Image.Resampling.NEAREST), (source.randrange(width // 2), height // 3)
        )
        data = io.BytesIO()
        photo.save(data, "JPEG", quality=90)
        path = folder / f"synthetic-{number:03d}.jpg"
        path.write_bytes(data.getvalue())
        paths.append(path)
    return paths


def _images_at(given: Path) -> list[Path]:
    if given.is_dir():
        return _walk(given)
    if given.is_file():
        return [given]
    raise BenchError(f"{given} is neither an image nor a folder of images")


def _walk(root: Path, *, skip: frozenset[str] = frozenset()) -> list[Path]:
    """Image files under a folder in sorted order; links and hidden folders are not followed."""
    found: list[Path] = []
    scanned = 0
    for folder, folders, files in os.walk(root):
        folders[:] = sorted(
            name
            for name in folders
            if not name.startswith(".") and name.lower() not in skip and not Path(folder, name, "pyvenv.cfg").exists()
        )
        scanned += len(files)
        if scanned > MAX_SCANNED:
            break
        found += [
            Path(folder, name) for name in sorted(files) if Path(name).suffix.lower() in SUFFIXES and not name.startswith(".")
        ]
    return [path for path in found if path.is_file() and not path.is_symlink() and path.stat().st_size > 0]


def _image_set(files: Sequence[Path], source: str, limit: int) -> ImageSet:
    chosen = list(files)
    if len(chosen) > limit:
        chosen = [chosen[number * len(chosen) // limit] for number in range(limit)]
        source = f"{limit} of {source}"
    parents = {path.parent for path in files}
    # Folders name classes when there are several of them side by side and every image lies in one.
    named = len(parents) > 1 and len({parent.parent for parent in parents}) == 1
    return ImageSet(
        files=tuple(path.resolve() for path in chosen),
        classes=tuple(path.parent.name if named else None for path in chosen),
        source=source,
    )
