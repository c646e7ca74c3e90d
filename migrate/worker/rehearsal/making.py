"""Files that a script opens and that are not here, made in the form that their names say: the same path, the same bytes."""

from __future__ import annotations

import csv
import functools
import io
import os
import re
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from ...proving.rehearsal_protocol import GUESSED
from . import hints
from .forms import birds, imagenet_names, json_files, keyed_arrays, known_sets, nifti, parted_folders, splits, stored_layers
from .forms.examples import example_of
from .stage import Stage

IMAGES = (".jpg", ".jpeg", ".png", ".bmp", ".webp", ".ppm", ".pgm", ".tif", ".tiff", ".gif")
WEIGHTS = (".pth", ".pt", ".th", ".ckpt", ".pth.tar", ".bin", ".safetensors", ".t7", ".tar", ".model", ".weights")
ROWS = splits.ROWS
PER_CLASS = 10
"""Images in a folder of one class, and rows of a table; of many classes fewer. A tenth of them still holds every class."""
_LABEL = re.compile(r"label|class|target|categor|diagnos|level|grade|^y$|species|breed|emotion|^id_code$", re.I)
_CALLED = re.compile(r"(class|label|categor(y|ies))_?names?$", re.I)
"""Columns of the names of what images show, which may stand beside such of their numbers."""
_FILE = re.compile(r"file|path|image|img|photo|picture|name|(^|_)id$|uuid", re.I)
MADE_NAME = re.compile(r"image_\d{4}\.[a-z]{3,4}")
"""What a table of made rows says of its images."""
_STATISTICS = re.compile(r"(?:^|_)(mean_?(?:and)?_?std|mean|std|norm(?:ali[sz]ation)?|stat(?:istic)?s)(?:_|\.npy$)")
_NAMED = re.compile(r"image_\d{4}(?!\d)")
_Y = re.compile(r"y(?![a-z])|y(tr|te|val)", re.I)
"""Names of labels beside arrays `x`: `y_train.npy`, `ytest`."""
_OF_ONE_CLASS = re.compile(r"class_\d{3}\.")
_ID = re.compile(r"(^|_|image)ids?$|^id_code$|uu?id$|^stem$", re.I)
"""Columns that may name an image without the ending of its file."""
_FLAG = re.compile(r"^(is|has|was|use|keep)_|[a-z]{4}ed$|[a-z]{3}able$|^(valid|ok)$|_(valid|ok|flag)$", re.I)
"""Columns that say yes or no of a row."""
NAMES, STEMS = "names", "stems"
"""How tables and folders agree, where a script looks into both: files are named as in tables, which have endings or not."""
ENDINGS = "endings"
"""Learned: for which files the script looked in a folder that was made with others, and whether below it."""
NO_FOLDERS = "no_folders"
"""Learned: paths without an ending which the script took for those of files: of checkpoints, then."""
LINE_SIGN, LINE_NAMES = "line_sign", "line_names"
"""Learned: what stands between an image and its class in a line of a list, and that the class is named."""
CALLED, WAYS_TO_CALL = "called", 3
"""Learned: in which of the usual ways images are called that have numbers in their names: `cat.12.jpg` as in Kaggle's cats and
dogs, `3_0_2_0012.jpg` as in UTKFace."""
TOLD_APART = "told_apart"
"""Learned: the numbers of the classes in a table, where they do not count up from 0: -1 and 1."""
BELOW = "below"
"""Learned: a table names images with the folders of their classes."""
LISTS = (".txt", ".lst", ".names")
"""Endings of files of lines."""
_PIXELS = re.compile(
    r"^pixels?(_?(values|string|data))?$|^((image|img|pixel|flat(tened)?)s?)_?(vector|array|pixels|values|numbers)$", re.I
)
"""Columns that hold a whole image: its numbers with a sign between."""
_PIXELS_OF_A_FACE = 48 * 48
"""As many as such columns mostly have: those of FER2013."""
TABLES = (".csv", ".tsv", ".txt", ".data", ".lst", ".list")
"""Endings of what is a table where it is read as one."""
FRAMES = {".parquet": "to_parquet", ".pq": "to_parquet", ".feather": "to_feather", ".xlsx": "to_excel"}
"""Endings of tables that pandas writes, and by which of its functions."""
PLAIN = ("image", "label")
"""The columns of a table of which the sources name none."""
WIDTH = "width"
"""Learned: how many columns a table has whose rows the script takes apart by itself."""
MOST_COLUMNS = "most_columns"
"""Learned: how many columns a table has of whose rows the script takes as many apart: other scripts' tables may have more."""
SET_COLUMNS = "set_columns"
"""Learned: the names that a script gives a table's columns, whatever they were called."""
NUMBERS = "numbers"
"""Learned: columns of numbers that look like such of names."""
_COUNTED = re.compile(r"^(row|idx|index)(_?(no|num(ber)?))?$", re.I)
"""Columns that count the rows."""
_LEAST_PIXELS = 8 * 8
_CELLS = 200_000
"""Of a table with a column for each pixel: a script may take long for each row."""
_AS_TEXT = 64
"""So many numbers of one text take about as long as one column."""
_DRAWN = 16
"""So many images are drawn that each stand in several rows."""
_SIDE_OF_DIGITS = (28, 28)
_FLAT = re.compile(r"^(jpeg)?(images?|imgs?|photos?|pictures|pics|frames|samples)$", re.I)
_FORMATS = {".jpg": "JPEG", ".jpeg": "JPEG", ".tif": "TIFF", ".tiff": "TIFF", ".ppm": "PPM", ".pgm": "PPM"}

_WITH_ALPHA = (".png", ".webp", ".tif", ".tiff")


def _one_of_each_pixel(columns: list[str]) -> list[str]:
    """Those of a row of numbered columns, `pixel_1` to `pixel_784`, that is long enough to be an image."""
    numbered: dict[str, list[str]] = {}
    for name in columns:
        if (found := re.fullmatch(r"(.*?)\d+", name)) is not None:
            numbered.setdefault(found[1], []).append(name)
    longest = max(numbered.values(), key=len, default=[])
    return longest if len(longest) >= _LEAST_PIXELS else []


def names_files(column: str) -> bool:
    """Whether a column is one of names of images, with their endings or without."""
    return bool(_ID.search(column) or (_FILE.search(column) and not _LABEL.search(column)))


def generator(path: str) -> np.random.Generator:
    """Random numbers that depend on the name of a file alone."""
    return np.random.default_rng(zlib.crc32(os.path.basename(path).encode()))


def photo(path: str, size: tuple[int, int], mode: str = "RGB") -> Image.Image:
    """A small image with smooth regions and some texture, as photographs have; `size` is (height, width)."""
    draw = generator(path)
    coarse = draw.integers(0, 256, (8, 8, 3), dtype=np.uint8)
    image = Image.fromarray(coarse, "RGB").resize((size[1], size[0]), Image.Resampling.BICUBIC)
    noise = draw.integers(-12, 13, (*size, 1), dtype=np.int16)
    return Image.fromarray(np.clip(np.asarray(image, np.int16) + noise, 0, 255).astype(np.uint8), "RGB").convert(mode)


def handed(path: str, size: tuple[int, int], mode: str = "RGB") -> Image.Image:
    """A photo that a script is handed as an object of Pillow's, where another one opens a file."""
    return photo(path, size, mode)


@functools.lru_cache(maxsize=4 * _DRAWN)  # the folders of all classes hold the same few
def _picture(name: str, size: tuple[int, int], mode: str, suffix: str) -> bytes:
    file = io.BytesIO()
    if suffix == ".npy":
        np.save(file, np.asarray(photo(name, size, mode)))
    else:
        photo(name, size, mode).save(file, _FORMATS.get(suffix, suffix[1:].upper()))
    return file.getvalue()


def ending_of(pattern: str) -> str | None:
    """The ending of images that a pattern of file names asks for, as it is written: .JPEG of `*.JPEG`."""
    found = next((end for end in (*IMAGES, ".npy") if pattern.lower().endswith(end)), None)
    return pattern[-len(found) :] if found is not None else None


def invented(count: int) -> list[str]:
    """Names of classes that nothing states."""
    return [f"class_{number:03d}" for number in range(count)]


class Maker:
    """Makes what is missing, in the way the sources and earlier attempts say."""

    def __init__(self, stage: Stage) -> None:
        self.stage = stage
        request = stage.request
        names = stage.learned.get("names") or hints.class_names(stage.root, request.script)
        learned = stage.learned.get("classes")
        stated = len(names) if names else hints.configured_count(stage.root, request.argv)
        stated = stated or hints.class_count(stage.root, request.script) or stored_layers.stated_width(stage)
        self.classes: int = learned or stated or hints.CLASSES
        self.guessed = not (learned or stated)
        names = names if names and len(names) == self.classes else hints.mapped_names(stage.root, self.classes)
        if stage.learned.get("numbered"):
            names = tuple(map(str, range(self.classes)))
        self.names = list(names or invented(self.classes))
        self.may_be_imagenet = not names or self.classes == imagenet_names.COUNT
        size = stage.learned.get("image") or request.image or (256, 256)
        self.agreed: str | None = stage.learned.get("agreed")
        self.rows: int = stage.learned.get("rows") or max(ROWS, min(PER_CLASS * self.classes, 100))
        self.home: Callable[[str], str] = lambda path: path
        """Where a folder of data sets is to be made."""
        self.size: tuple[int, int] = (size[0], size[1])
        self.mode: str = stage.learned.get("mode", "RGB")
        self.ending: str = hints.image_ending(stage.root, request.script)
        self._unnamed = tuple(stage.learned.get(NO_FOLDERS, ()))
        self.texts: set[str] = set()
        """Names without an ending that the script reads as text."""

    def tell_guess(self) -> None:
        """Say that nothing states how many classes there are, where something was made that shows so many."""
        if self.guessed:
            self.stage.note("data", f"{self.classes} {GUESSED}")

    def can(self, path: str) -> bool:
        return self._kind(path) is not None

    def file(self, path: str, asked: str | None = None) -> bool:
        """Make the file at `path`, whose folder is made too, as the one that is `asked` for where that lies elsewhere; false
        where nothing says what it should hold."""
        make = self._kind(asked or path)
        if make is None:
            return False
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        data = make(path)
        Path(path).write_bytes(data)
        self.stage.keep(path)
        return True

    def folder(self, path: str, suffix: str | None = None, *, flat: bool | None = None) -> None:
        """Make a folder of images, or one with a folder of images for each class."""
        path = os.path.normpath(path)  # `data/train/` is `data/train`
        if parted_folders.is_parted(self.stage, path):
            self.stage.keep(path)
            for part in parted_folders.PARTS:
                self.folder(os.path.join(path, part), suffix, flat=False)
            return
        wanted, deep = self.stage.learned.get(ENDINGS, {}).get(os.path.abspath(path), (self.ending, None))
        suffix = suffix or wanted
        flat = not deep if flat is None and deep is not None else flat
        if flat is None:
            named = bool(_FLAT.match(os.path.basename(path)))
            flat = path in self.stage.learned.get("flat", ()) or (named and not self.stage.learned.get("deep"))
            if flat and named:
                self.stage.made_flat.setdefault(os.path.abspath(path), False)
        if not flat:
            self.stage.entered.setdefault(path, False)
        there = os.path.isdir(path) and bool(os.listdir(path))
        os.makedirs(path, exist_ok=True)
        self.stage.keep(path, filled=there)
        # Few pictures are drawn, and each is written many times: a thousand classes take a second.
        drawn = [self._image(f"{number}{suffix}") for number in range(_DRAWN)]
        each = (self._listed if self.agreed else ROWS) if flat else max(1, min(PER_CLASS, 400 // self.classes))
        if not flat:
            self.tell_guess()
        for order, name in enumerate(["."] if flat else self.names):
            folder = os.path.normpath(os.path.join(path, name))
            os.makedirs(folder, exist_ok=True)
            if there and not flat:
                self.stage.keep(folder)
            for number in range(each):
                # Where no folder says what an image shows, its name may.
                own = self._file_name(number) if flat else f"{number:04d}"
                file = Path(folder, own.replace(os.sep, "_") + suffix)
                file.write_bytes(drawn[(order * each + number) % len(drawn)])
                if there and flat:
                    self.stage.keep(str(file))

    def _file_name(self, number: int) -> str:
        """What an image of a folder is called that has no folders of classes: as in tables, else by its class."""
        label = number % self.classes
        by_name = f"{self.names[label]}_{number:04d}", f"{self.names[label]}.{number}"
        called = (*by_name, f"{label}_{number % 2}_{label % 4}_{number:04d}")
        return f"image_{number:04d}" if self.agreed else called[self.stage.learned.get(CALLED, 0)]

    def matching(self, folder: str, pattern: str) -> None:
        """Make what a pattern of file names below a missing folder asks for: `*/*.png`, `**/*.jpg`, `*`."""
        last = os.path.basename(pattern)
        suffix = ending_of(last)
        beside = re.fullmatch("labels?|annotations?|targets?", os.path.basename(os.path.normpath(folder)), re.I)
        if beside and suffix is None and last in ("*", "*.txt"):
            self._labels_beside(folder)
            return
        if suffix is None and "." in last and not last.endswith("*"):
            return
        deep = "/" in pattern or "**" in pattern
        self.folder(folder, suffix, flat=not deep if "." in last else None)  # no folder of a class has an ending

    def _labels_beside(self, path: str) -> None:
        """Make a folder of texts: each has the class of the image of its name in the folder beside, and a box around it."""
        os.makedirs(path, exist_ok=True)
        self.stage.keep(path)
        for number in range(ROWS):
            Path(path, f"{number:04d}.txt").write_text(f"{number % self.classes} 0.5 0.5 1.0 1.0\n", encoding="utf-8")

    def _kind(self, path: str) -> Callable[[str], bytes] | None:
        low = path.lower()
        if (example := example_of(path)) is not None:
            return lambda missing: self._as_in(example, missing)
        if known_sets.is_file(path):
            return known_sets.contents
        if birds.is_list(self.stage, path):
            return self._list_of_birds
        if self.stage.table is not None and low.endswith(TABLES):
            return self._table
        if (loaded := self.stage.loading == os.path.basename(path)) and low.endswith(
            (*keyed_arrays.PICKLES, *keyed_arrays.HDF5)
        ):
            return self._weights
        for suffixes, make in (
            (IMAGES, self._image),
            ((".csv", ".tsv"), self._table),
            (tuple(FRAMES), self._frame),
            ((".json",), self._json),
            (LISTS, self._lines),
            ((".npy",), self._array),
            ((".mat",), self._matlab),
            (nifti.ENDINGS, nifti.volume),
            (keyed_arrays.NPZ, lambda path: keyed_arrays.npz(self, path)),
            (keyed_arrays.HDF5, lambda path: keyed_arrays.hdf5(self, path)),
            (keyed_arrays.PICKLES, lambda path: keyed_arrays.pickled(self, path)),
            (keyed_arrays.PACKED, lambda path: keyed_arrays.packed(self, path)),
            ((".zip",), self._zip),
            ((".tar.gz", ".tgz", ".tar.bz2"), self._tar),
            (WEIGHTS, self._weights),
        ):
            if low.endswith(suffixes):
                return make
        if os.path.basename(path) in self.texts:
            return self._lines
        return self._weights if loaded or path.endswith(self._unnamed) else None

    def _as_in(self, example: str, path: str) -> bytes:
        self.stage.note("arguments", f"{os.path.basename(path)} is not here, and says what {os.path.basename(example)} says")
        return Path(example).read_bytes()

    def _image(self, path: str) -> bytes:
        suffix = os.path.splitext(path)[1].lower()
        mode = "RGB" if self.mode == "RGBA" and suffix not in (*_WITH_ALPHA, ".npy") else self.mode
        return _picture(os.path.basename(path), self.size, mode, suffix)

    @property
    def _listed(self) -> int:
        """How many images a table or a list names: they are made when they are opened."""
        return self.stage.learned.get("rows") or max(ROWS, min(PER_CLASS * self.classes, 2000))

    def _table(self, path: str) -> bytes:
        names, count = hints.columns(self.stage.root, self.stage.request.script)
        count = max(count, self.stage.learned.get(WIDTH, 0))
        extra = [name for name in self.stage.learned.get("columns", ()) if name not in names]
        pixels = hints.pixel_count(self.stage.root, self.stage.request.script)
        names = list(dict.fromkeys([*names, *extra])) or ([*PLAIN[1:]] if pixels else [*PLAIN])
        if (most := self.stage.learned.get(MOST_COLUMNS)) is not None:
            files, labels = [*filter(names_files, names)][:1], [*filter(_LABEL.search, names)][:1]
            names = sorted([*dict.fromkeys([*files, *labels, *names])][:most], key=names.index)
        names += [("label" if "label" not in names else f"column_{i}") for i in range(len(names), count)]
        told = hints.sign_between_cells(self.stage.root, self.stage.request.script)
        plain = told or ("\t" if path.lower().endswith(".tsv") else ","), (), False, False
        sign, given, indexed, bare = self.stage.table or plain
        names = list(
            given
            or self.stage.learned.get(SET_COLUMNS)
            or ([PLAIN[0]] * (indexed and not any(map(names_files, names))) + names)
        )
        texts = [name for name in names if _PIXELS.search(name)]
        if texts:
            pixels = hints.pixel_count(self.stage.root, self.stage.request.script, hints.LARGEST) or _PIXELS_OF_A_FACE
        each = _one_of_each_pixel(names)
        if pixels and not texts and not each and not any(_FILE.search(name) for name in names):
            each = [f"pixel{number}" for number in range(pixels)]  # an image is a row, as in Kaggle's MNIST
            names += each
        file = io.StringIO()
        writer = csv.writer(file, delimiter=sign)
        if not given and not bare:
            writer.writerow(names)
        writer.writerows(row.values() for row in self.records(names, pixels=pixels, each=each))
        return file.getvalue().encode()

    def records(
        self, names: list[str], *, text: bool = False, pixels: int | None = None, each: Sequence[str] = ()
    ) -> Iterator[dict[str, Any]]:
        """Rows of a table with such columns; what an image shows is a number, or a name where that was learned or is `text`."""
        text = text or "text" in self.stage.learned.get("labels", "")
        texts = [name for name in names if _PIXELS.search(name)]
        files = [name for name in names if _FILE.search(name)]

        def is_label(name: str) -> bool:
            if self.agreed and _ID.search(name):
                return False
            others = bool(self.stage.learned.get("other_columns")) and name not in (*files, *texts)
            return others or _LABEL.search(name) is not None

        shown = list(filter(is_label, names))
        if shown:
            self.tell_guess()
        filtered: dict[str, list[Any]] = self.stage.learned.get("values", {})
        called = self.stage.learned.get(TOLD_APART) or range(self.classes)
        numbers, parts = self.stage.learned.get(NUMBERS, ()), splits.stated(self.stage)
        self.stage.names_images |= bool(files) or any(map(_ID.search, names))
        held = len(each) or (pixels or 0) * bool(texts) // _AS_TEXT
        rows = max(ROWS, min(self._listed, max(2 * self.classes, _CELLS // held))) if held else self._listed
        sign = hints.sign_between_numbers(self.stage.root, self.stage.request.script) if texts else " "
        drawn_texts: list[str] = []
        for row in range(rows):
            label = row % self.classes
            file = f"{self.names[label]}/{row // self.classes:04d}" if self.stage.learned.get(BELOW) else f"image_{row:04d}"
            cells: dict[str, Any] = dict.fromkeys(names, f"{file}{self.ending}")
            numbered = called[label % len(called)]
            cells |= {name: self.names[label] if text or _CALLED.search(name) else numbered for name in shown}
            flag = int(row // self.classes % 4 != 3)  # most rows of each class stay where the others are left out
            cells |= {name: flag for name in names if _FLAG.search(name) and not is_label(name)}
            if pixels or each:
                if len(drawn_texts) < _DRAWN or not texts:
                    drawn = generator(f"{row}").integers(0, 256, len(each) or pixels or 0)
                    drawn_texts.append(sign.join(map(str, drawn.tolist())) if texts else "")
                cells |= dict.fromkeys(texts, drawn_texts[row % len(drawn_texts)])
                cells |= dict(zip(each, drawn, strict=False))
                cells |= {name: row for name in names if each and _ID.search(name) and not is_label(name)}  # it names no file
            cells |= {name: f"image_{row:04d}" for name in names if self.agreed == STEMS and _ID.search(name)}
            cells |= {name: row for name in names if name in numbers or (_COUNTED.match(name) and not is_label(name))}
            cells |= {name: parts[row // self.classes % len(parts)] for name in names if parts and splits.COLUMN.match(name)}
            cells |= {name: values[row // self.classes % len(values)] for name, values in filtered.items() if name in cells}
            yield cells

    def _frame(self, path: str) -> bytes:
        """The same table in a form of bytes."""
        import pandas

        ending = os.path.splitext(path)[1].lower()
        file = io.BytesIO()
        options = {} if ending == ".feather" else {"index": False}
        getattr(pandas.read_csv(io.BytesIO(self._table(path))), FRAMES[ending])(file, **options)
        return file.getvalue()

    def _json(self, path: str) -> bytes:
        return json_files.contents(self, path)

    def _lines(self, path: str) -> bytes:
        """Names of classes, or lines of an image and its class, by the name of the file; or a table of names as Python has."""
        if re.search(r"(idx|index|id)\w*to\w*(label|human|class|name)", os.path.basename(path), re.I):
            return repr(dict(enumerate(self.names))).encode()
        if self.may_be_imagenet and (known := imagenet_names.lines(path)) is not None:
            return known.encode()
        if re.search(r"class|label|name|synset|categor", os.path.basename(path), re.I):
            return "".join(f"{name}\n" for name in self.names).encode()
        self.stage.names_images = True
        ending = "" if self.agreed == STEMS else self.ending
        alone, sign = self.stage.learned.get("bare_lines"), self.stage.learned.get(LINE_SIGN, " ")
        labels = self.names if self.stage.learned.get(LINE_NAMES) else range(self.classes)
        lines = (
            f"image_{row:04d}{ending}" + ("" if alone else f"{sign}{labels[row % self.classes]}") for row in range(self._listed)
        )
        return "".join(f"{line}\n" for line in lines).encode()

    def _list_of_birds(self, path: str) -> bytes:
        return birds.contents(path, invented(birds.CLASSES) if self.guessed else self.names)

    def is_labels(self, path: str) -> bool:
        name = os.path.basename(path)
        return (_LABEL.search(name) or _Y.match(name)) is not None and not _OF_ONE_CLASS.match(name)

    def _array(self, path: str) -> bytes:
        """One image, where a table or a list names it so; else many, or their labels, or their channels' mean and deviation."""
        file = io.BytesIO()
        if (statistics := _STATISTICS.search(os.path.basename(path).lower())) is not None:
            channels = np.array([[0.5] * 3, [0.25] * 3], np.float32)
            np.save(file, {"mean": channels[0], "std": channels[1]}.get(statistics[1], channels))
            return file.getvalue()
        if _NAMED.match(os.path.basename(path)) and not self.is_labels(path):
            np.save(file, np.asarray(photo(path, self.size)))
            return file.getvalue()
        labels: np.ndarray = np.arange(self.rows) % self.classes
        known = self.stage.learned.get("image") or self.stage.request.image
        size = self.stage.size_of_set if self.stage.size_of_set is not None and not known else self.size
        np.save(file, labels if self.is_labels(path) else self.drawn(path, self.rows, *size, *self.channels))
        return file.getvalue()

    @property
    def channels(self) -> tuple[int, ...]:
        """The last axis of an array of images; gray ones have none."""
        return () if self.stage.learned.get("mode") == "L" else (3,)

    def drawn(self, path: str, *shape: int) -> np.ndarray:
        """Images of such a shape, of whole numbers unless floating-point ones were asked for: 0 to 255."""
        images = generator(path).integers(0, 256, shape, np.uint8)
        return images.astype(np.float32) if self.stage.learned.get("floats") else images

    def _matlab(self, path: str) -> bytes:
        from .forms.matlab import table

        images = self.drawn(path, self.rows, *self.size, 3)
        more = self.stage.learned.get("keys", ())
        self.stage.names_images = True
        return table(self.stage.root, self.stage.request.script, self.classes, images, list(more))

    def _zip(self, path: str) -> bytes:
        """Empty: what a script reads of its contents is made when it is read."""
        file = io.BytesIO()
        zipfile.ZipFile(file, "w").close()
        return file.getvalue()

    def _tar(self, path: str) -> bytes:
        file = io.BytesIO()
        tarfile.open(fileobj=file, mode="w:bz2" if path.endswith("bz2") else "w:gz").close()
        return file.getvalue()

    def arrays(self, path: str, count: int) -> list[np.ndarray]:
        """What a file of tensors holds that is a data set: images, gray as torchvision's MNIST had them, then labels; of one
        array what its name says; of none, the images as a network takes them, and their labels, of a set of such items."""
        labels: np.ndarray = np.arange(self.rows) % self.classes
        if not count:
            channels = 1 if self.stage.learned.get("mode") == "L" else 3
            return [generator(path).random((self.rows, channels, *self.size), np.float32), labels]
        known = self.stage.learned.get("image") or self.stage.request.image
        size = self.size if known else _SIDE_OF_DIGITS
        images = self.drawn(path, self.rows, *size)
        if self.stage.learned.get("mode") == "RGB":
            images = generator(path).random((self.rows, 3, *size), np.float32)
        if count == 1 and self.is_labels(path):
            return [labels]
        return [images, *[labels] * (count - 1)]

    def _weights(self, path: str) -> bytes:
        from .weights import UNPACKED, stand_in_file

        if self.stage.checkpoint is None and os.path.basename(path) not in self.stage.learned.get(UNPACKED, {}):
            self.stage.weights_stand_in(os.path.basename(path))
        return stand_in_file()
