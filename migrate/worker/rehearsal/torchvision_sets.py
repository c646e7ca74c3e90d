"""torchvision's data sets without their files: made on disk in the set's own format where that is simple, else item by item."""

from __future__ import annotations

import contextlib
import inspect
import os
from functools import partial
from pathlib import Path
from typing import Any

from .forms import known_sets
from .making import PER_CLASS, Maker, invented, photo
from .places import frames
from .stage import Stage

# How many classes the sets have that are made item by item; the documentation of torchvision says so of each.
CLASSES = {
    "Caltech101": 101, "Caltech256": 257, "Country211": 211, "DTD": 47, "EuroSAT": 10, "FGVCAircraft": 100, "Flowers102": 102,
    "Food101": 101, "GTSRB": 43, "INaturalist": 10_000, "Imagenette": 10, "ImageNet": 1000, "LFWPeople": 5749, "Omniglot": 964,
    "OxfordIIITPet": 37, "PCAM": 2, "Places365": 365, "QMNIST": 10, "RenderedSST2": 2, "SEMEION": 10, "SUN397": 397, "SVHN": 10,
    "STL10": 10, "StanfordCars": 196, "USPS": 10, "CelebA": 40, "FER2013": 7,
}  # fmt: skip
_LETTERS = {"byclass": 62, "bymerge": 47, "balanced": 47, "letters": 37, "digits": 10, "mnist": 10}
# The classes of the sets that keep their names in a file, in the file's order.
NAMES = {
    "CIFAR10": known_sets.CIFAR10,
    "CIFAR100": known_sets.CIFAR100,
    "STL10": ["airplane", "bird", "car", "cat", "deer", "dog", "horse", "monkey", "ship", "truck"],
    "SVHN": [str(digit) for digit in range(10)],
}
_GRAY = ("QMNIST", "SEMEION", "USPS", "FER2013", "Omniglot")
_SIZES = {"SVHN": 32, "STL10": 96, "EuroSAT": 64, "PCAM": 96, "QMNIST": 28, "USPS": 16, "SEMEION": 16, "FER2013": 48}
ROWS = 64
_FEWEST_ITEMS, _MOST_ITEMS = 5_000, 20_000
"""Of a whole set: as many as the smallest of these sets have, so that no batch is larger, at least."""
_CREATED = ("FakeData", "DatasetFolder", "ImageFolder", "VisionDataset")


def install(stage: Stage, maker: Maker, datasets: Any) -> None:
    """Let every data set of `torchvision.datasets` that is for classification be made without its files."""
    cifar = __import__("importlib").import_module("torchvision.datasets.cifar")
    stage.patch(cifar, "check_integrity", lambda path, md5=None: os.path.isfile(path))
    # torchvision's own modules have it by now: this is for who reads the same files by hand.
    stage.wrap(
        __import__("importlib").import_module("torchvision.datasets.utils"), "check_integrity", partial(_is_whole, stage)
    )
    active: list[Any] = []
    for name, kind in list(vars(datasets).items()):
        known = isinstance(kind, type) and issubclass(kind, datasets.VisionDataset) and name not in _CREATED
        if known and "__init__" in vars(kind):
            stage.wrap(kind, "__init__", _starter(stage, maker, active, datasets))


def _is_whole(stage: Stage, original: Any, path: Any, md5: str | None = None) -> bool:
    """Whether a file is as it should be: one of a known set is, which is made when it is opened, and one of a copy of such."""
    if original(path, md5):
        return True
    if not known_sets.is_file(os.fspath(path)):
        return any(_made_for(stage, os.fspath(path), frame.f_locals.get("self")) for frame in frames())
    with contextlib.suppress(OSError), open(path, "rb"):
        return True
    return False


def _made_for(stage: Stage, path: str, owner: Any) -> bool:
    """Make a file of the user's own copy of torchvision's CIFAR, which says in lists how its files are called."""
    name = os.path.basename(path)
    for attribute, rows in (("train_list", 50_000), ("test_list", 10_000)):
        listed = inspect.getattr_static(owner, attribute, None)
        if isinstance(listed, list) and name in [item[0] for item in listed if isinstance(item, list | tuple) and item]:
            fine = "100" in type(owner).__name__
            with contextlib.suppress(OSError):
                os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
                Path(path).write_bytes(known_sets.cifar_batch(name, rows // len(listed), fine=fine))
                stage.keep(os.path.abspath(path))
                stage.note("data", name)
                return True
    return False


def _starter(stage: Stage, maker: Maker, active: list[Any], datasets: Any) -> Any:
    def start(original: Any, self: Any, *args: Any, **named: Any) -> None:
        if any(self is other for other in active):  # the base class of one that is being made
            original(self, *args, **named)
            return
        active.append(self)
        try:
            made(original, self, args, {name: value for name, value in named.items() if name != "download"})
        finally:
            active.pop()

    def made(original: Any, self: Any, args: tuple[Any, ...], named: dict[str, Any]) -> None:
        try:
            original(self, *args, **named)
        except (OSError, RuntimeError, ModuleNotFoundError):
            kind = next(base for base in type(self).__mro__ if vars(datasets).get(base.__name__) is base)
            stage.note("data", f"torchvision's {kind.__name__}")
            make = _MAKERS.get(kind.__name__)
            if make is None:
                _item_by_item(maker, self, kind.__name__, args, named, full=bool(stage.learned.get("full")))
                return
            root = maker.home(os.path.expanduser(str(args[0] if args else named.pop("root", "data"))))
            # a user's subclass of MNIST has a folder of its own
            folder = Path(root, kind.base_folder if make is _cifar else f"{type(self).__name__}/raw")
            missing = [above for above in (folder, *folder.parents) if not above.exists()]
            folder.mkdir(parents=True, exist_ok=True)
            for above in missing:
                stage.keep(str(above))
            make(folder, kind, bool(stage.learned.get("full")))
            stage.size_of_set = (32, 32) if make is _cifar else stage.size_of_set
            original(self, root, *args[1:], **named)

    return start


def _mnist(folder: Path, kind: Any, full: bool) -> None:
    splits = [("", 10)] if kind.__name__ != "EMNIST" else [(f"emnist-{name}-", count) for name, count in _LETTERS.items()]
    for prefix, classes in splits:
        for part, rows in (("train", 60_000 if full else ROWS), ("test" if prefix else "t10k", 10_000 if full else ROWS)):
            images = known_sets.idx_images(f"{kind.__name__}{part}", rows)
            (folder / f"{prefix}{part}-images-idx3-ubyte").write_bytes(images)
            (folder / f"{prefix}{part}-labels-idx1-ubyte").write_bytes(known_sets.idx_labels(part, rows, classes))


def _cifar(folder: Path, kind: Any, full: bool) -> None:
    fine = "100" in kind.__name__
    for part, files in (("train", kind.train_list), ("test", kind.test_list)):
        rows = (50_000 if part == "train" else 10_000) // len(files) if full else ROWS
        for name, _ in files:
            (folder / name).write_bytes(known_sets.cifar_batch(name, rows, fine=fine))
    (folder / kind.meta["filename"]).write_bytes(known_sets.cifar_names(fine=fine))


def _item_by_item(
    maker: Maker, self: Any, name: str, args: tuple[Any, ...], named: dict[str, Any], *, full: bool = False
) -> None:
    """A set of the same class, whose items are drawn when they are asked for."""
    count = CLASSES.get(name, maker.classes)
    rows = min(max(PER_CLASS * count, _FEWEST_ITEMS), _MOST_ITEMS) if full else ROWS
    side = _SIZES.get(name)
    size = (side, side) if side else maker.size
    labels = [row * max(1, count // rows) % count for row in range(rows)]
    names = NAMES.get(name) or invented(count)
    self.root, self.split, self.train = str(named.get("root", args[0] if args else "")), named.get("split"), named.get("train")
    self.transform, self.target_transform = named.get("transform"), named.get("target_transform")
    self.transforms = None
    self.classes, self.class_to_idx = names, {name: i for i, name in enumerate(names)}
    self.targets = self.labels = self._labels = labels
    self.samples = self.imgs = [(f"{row:04d}.jpg", label) for row, label in enumerate(labels)]
    mode = "L" if name in _GRAY else "RGB"

    def item(own: Any, index: int) -> tuple[Any, Any]:
        if not -rows <= index < rows:
            raise IndexError(index)
        image, label = photo(f"{name}{index % rows}", size, mode), labels[index]
        image = own.transform(image) if own.transform is not None else image
        return image, own.target_transform(label) if own.target_transform is not None else label

    own = type(self)
    made = type(own.__name__, (own,), {"__getitem__": item, "__len__": lambda _: rows, "__module__": own.__module__})
    self.__class__ = made


_MAKERS = {"MNIST": _mnist, "FashionMNIST": _mnist, "KMNIST": _mnist, "EMNIST": _mnist, "CIFAR10": _cifar, "CIFAR100": _cifar}
