"""What happens to images within this process: methods of Pillow note what is called on which, and so do some of OpenCV's.

Hand-written functions, own classes and torchvision's look alike so: each image carries the operations that led to it, and the
last image whose pixels were read is a transform's result as Pillow left it. What becomes of pixels in between, as arrays, is
followed where it shows in them: channels turned around, a border of one color, each value looked up in one table. Knows only
Pillow and numpy.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from PIL import Image

# Methods that make a new image of other pixels, and methods that change pixels in place.
MAKING = (
    "convert", "resize", "crop", "transpose", "rotate", "transform", "filter", "reduce", "quantize", "point",
    "effect_spread", "remap_palette",
)  # fmt: skip
CHANGING = ("thumbnail", "draft", "paste", "alpha_composite", "putalpha", "putdata", "putpalette", "putpixel")


_VALUES = 16
"""So many values of one image tell that a table changes them."""
_LUMA = np.array((0.2989, 0.587, 0.114), np.float32)
"""Of torchvision's gray tensors (`_rgb_to_grayscale_image`)."""
_ROUNDING = 1e-3  # levels by which a pixel may be off for being a float between 0 and 1
OPENCV_CUBIC = 2  # cv2.INTER_CUBIC, which computes in floats
OPENCV_LINEAR = 1  # cv2.INTER_LINEAR, the default of cv2.resize
OPENCV_GRAY = {6: True, 7: False}  # cv2.COLOR_BGR2GRAY and COLOR_RGB2GRAY, and whether blue comes first


class History(NamedTuple):
    """The operations that led to an array, its mode, and its pixels in that mode's order; `turned` is against that order."""

    ops: list[Any]
    mode: str
    pixels: np.ndarray
    turned: bool


class Journal:
    """Notes what happens to images. `read` is the last image whose pixels left Pillow."""

    def __init__(self) -> None:
        self.depth = 0
        self.strict = False
        """Whether only images that have a history count as read."""
        self.read: tuple[list[Any] | None, str, np.ndarray] | None = None

    def install(self) -> None:
        for name in (*MAKING, *CHANGING):
            setattr(Image.Image, name, self._noting(name, getattr(Image.Image, name)))
        plain_new = Image.Image._new

        def _new(image: Image.Image, core: Any) -> Image.Image:
            made = plain_new(image, core)
            if "_ops" in image.__dict__:
                made.__dict__["_ops"] = list(image.__dict__["_ops"])
            return made

        Image.Image._new = _new  # type: ignore[method-assign,assignment]
        plain_open = Image.open

        @functools.wraps(plain_open)
        def opened(*args: Any, **kwargs: Any) -> Image.Image:
            image = plain_open(*args, **kwargs)
            image.__dict__["_ops"] = []
            return image

        Image.open = opened  # type: ignore[assignment]
        plain_paste = Image.Image.paste  # noting as well, where the canvas has a history of its own

        @functools.wraps(plain_paste)
        def paste(canvas: Image.Image, im: Any, box: Any = None, mask: Any = None) -> None:
            padded = None if self.depth or mask is not None else pasted(canvas, im, box)
            plain_paste(canvas, im, box, mask)
            if padded is not None:
                canvas.__dict__["_ops"] = padded
            elif mask is not None and (box is None or tuple(box[:2]) == (0, 0)):
                self._shows(canvas, im)

        Image.Image.paste = paste  # type: ignore[method-assign,assignment]
        plain_composite, plain_lay = Image.alpha_composite, Image.Image.alpha_composite

        @functools.wraps(plain_composite)
        def alpha_composite(im1: Image.Image, im2: Image.Image) -> Image.Image:
            made = plain_composite(im1, im2)
            self._shows(made, im2)
            return made

        @functools.wraps(plain_lay)
        def lay(canvas: Image.Image, im: Image.Image, *args: Any, **kwargs: Any) -> None:
            plain_lay(canvas, im, *args, **kwargs)
            self._shows(canvas, im)

        Image.alpha_composite = alpha_composite
        Image.Image.alpha_composite = lay  # type: ignore[method-assign,assignment]
        for name in ("fromarray", "frombuffer"):  # torchvision's ToPILImage makes images of buffers
            setattr(Image, name, self._following_pixels(getattr(Image, name)))
        interface = Image.Image.__array_interface__.fget  # type: ignore[attr-defined]
        Image.Image.__array_interface__ = property(lambda image: self._reading(image, interface))  # type: ignore[assignment]
        for name in ("tobytes", "getdata"):
            plain = getattr(Image.Image, name, None)
            if plain is not None:
                setattr(Image.Image, name, self._noting_read(plain))
        self._interface = interface

    def _shows(self, made: Image.Image, image: Any) -> None:
        """Give what an image was laid on that one's history where all of it is seen: it has no transparency."""
        if self.depth or "_ops" in made.__dict__ or "_ops" not in getattr(image, "__dict__", {}) or made.size != image.size:
            return
        self.depth += 1
        try:
            if made.convert("RGB").tobytes() == image.convert("RGB").tobytes():
                made.__dict__["_ops"] = list(image.__dict__["_ops"])
        finally:
            self.depth -= 1

    def _noting(self, name: str, plain: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(plain)
        def method(image: Image.Image, *args: Any, **kwargs: Any) -> Any:
            before = (image.height, image.width)
            self.depth += 1
            try:
                result = plain(image, *args, **kwargs)
            finally:
                self.depth -= 1
            changed = image if name in CHANGING else result
            if self.depth == 0 and isinstance(changed, Image.Image) and "_ops" in image.__dict__:
                given = describe(name, args, kwargs)
                if name == "point" and image.mode in ("RGB", "L") and result.mode == image.mode:
                    given["table"] = looked_up(image.mode, lambda ramp: plain(ramp, *args, **kwargs))
                ops = [
                    *image.__dict__["_ops"],
                    {"op": name, "before": before, "after": (changed.height, changed.width), **given},
                ]
                changed.__dict__["_ops"] = ops
            return result

        return method

    def _following_pixels(self, plain: Callable[..., Image.Image]) -> Callable[..., Image.Image]:
        @functools.wraps(plain)
        def made(*args: Any, **kwargs: Any) -> Image.Image:
            image = plain(*args, **kwargs)
            self.depth += 1
            try:
                known = self._history(np.array(image)) if image.mode in ("RGB", "L") else None
            finally:
                self.depth -= 1
            if known is not None and not known.turned and image.mode == known.mode:
                image.__dict__["_ops"] = known.ops
            return image

        return made

    def _noting_read(self, plain: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(plain)
        def method(image: Image.Image, *args: Any, **kwargs: Any) -> Any:
            self._note_read(image)
            return plain(image, *args, **kwargs)

        return method

    def _reading(self, image: Image.Image, interface: Callable[[Any], Any]) -> Any:
        self._note_read(image)
        return interface(image)

    def follow_opencv(self, cv2: Any) -> None:
        """Follow 8-bit images through OpenCV too: what it reads, and what it resizes of the pixels read last."""

        def reading(plain: Callable[..., Any]) -> Callable[..., Any]:
            @functools.wraps(plain)
            def read(*args: Any, **kwargs: Any) -> Any:
                found = plain(*args, **kwargs)
                if isinstance(found, np.ndarray) and found.dtype == np.uint8:
                    if found.ndim == 3 and found.shape[2] == 3:
                        self.read = ([], "RGB", found[:, :, ::-1].copy())
                    elif found.ndim == 2:
                        op = {"op": "decode", "library": "opencv", "before": found.shape, "after": found.shape}
                        self.read = ([op], "L", found.copy())
                return found

            return read

        plain_resize, plain_border, plain_color = cv2.resize, cv2.copyMakeBorder, cv2.cvtColor

        @functools.wraps(plain_resize)
        def resize(src: Any, *args: Any, **kwargs: Any) -> Any:
            made = plain_resize(src, *args, **kwargs)
            self._note_resize(
                src, made, {**dict(zip(("dsize", "dst", "fx", "fy", "interpolation"), args, strict=False)), **kwargs}
            )
            return made

        for name in ("imread", "imdecode"):
            setattr(cv2, name, reading(getattr(cv2, name)))
        cv2.resize = resize

        @functools.wraps(plain_border)
        def border(src: Any, *args: Any, **kwargs: Any) -> Any:
            made = plain_border(src, *args, **kwargs)
            if self._history(src) is not None and (known := self._history(made)) is not None:
                self.read = (known.ops, known.mode, known.pixels)
            return made

        @functools.wraps(plain_color)
        def color(src: Any, code: int, *args: Any, **kwargs: Any) -> Any:
            made = plain_color(src, code, *args, **kwargs)
            known = self._history(src) if code in OPENCV_GRAY else None
            if known is not None and known.mode == "RGB":
                order = "RGB" if known.turned == OPENCV_GRAY[code] else "BGR"  # blue weighed as red: a slip that many make
                sizes = {"before": src.shape[:2], "after": made.shape[:2]}
                op = {"op": "convert", "mode": "L", "library": "opencv", "order": order, **sizes}
                self.read = ([*known.ops, op], "L", made.copy())
            return made

        cv2.copyMakeBorder, cv2.cvtColor = border, color

    def follow_torch(self, torch: Any) -> Any:
        """A context in which images are followed through torch's resize of tensors, as torchvision's second transforms use."""

        note = self._note_tensor_resize

        class Following(torch.overrides.TorchFunctionMode):  # type: ignore[misc]
            def __torch_function__(
                self, function: Any, kinds: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
            ) -> Any:
                made = function(*args, **(kwargs or {}))
                if function is torch.nn.functional.interpolate:
                    names = ("input", "size", "scale_factor", "mode", "align_corners", "recompute_scale_factor", "antialias")
                    note({**dict(zip(names, args, strict=False)), **(kwargs or {})}, made)
                return made

        return Following()

    def _note_tensor_resize(self, given: dict[str, Any], made: Any) -> None:
        before, scale = levels(given["input"])
        after, _ = levels(made, scale)
        known = self._gray_history(before) or self._history(np.rint(before).astype(np.uint8)) if before is not None else None
        if before is None or after is None or known is None:
            return
        if known.pixels is not before and np.abs(before - np.rint(before)).max() > _ROUNDING:
            return
        op = {
            "op": "resize",
            "library": "torch",
            "resample": {"nearest": 0, "bilinear": 2, "bicubic": 3}.get(given.get("mode", "nearest")),
            "antialias": bool(given.get("antialias")),
            "floats": True,
            "before": before.shape[:2],
            "after": after.shape[:2],
        }
        self.read = ([*known.ops, op], known.mode, after[:, :, ::-1].copy() if known.turned else after)

    def _gray_history(self, image: np.ndarray) -> History | None:
        """What led to a tensor that is gray where what was read last is in color: torchvision's luma, in floats or cut off."""
        if self.read is None or self.read[0] is None or self.read[1] != "RGB" or image.shape != self.read[2].shape[:2]:
            return None
        if np.abs(self.read[2] @ _LUMA - image).max() > 1:
            return None
        op = {"op": "convert", "mode": "L", "library": "torch", "floats": True, "before": image.shape, "after": image.shape}
        return History([*self.read[0], op], "L", image, turned=False)

    def _history(self, array: Any) -> History | None:
        """What led to an array: it is what was read last, its channels perhaps turned around, or one channel three times, or
        holds it in a border of one color, or each of its values follows from that one's; else None."""
        if self.read is None or not isinstance(array, np.ndarray) or array.dtype != np.uint8:
            return None
        ops, mode, pixels = self.read
        if ops is None:
            return None
        if pixels.ndim == 2 and array.ndim == 3:
            if array.shape[2] not in (1, 3) or any(
                not np.array_equal(array[:, :, 0], plane) for plane in array.transpose(2, 0, 1)
            ):
                return None
            alone = self._history(np.ascontiguousarray(array[:, :, 0]))
            if alone is None or array.shape[2] == 1:
                return alone
            op = {"op": "convert", "mode": "RGB", "before": array.shape[:2], "after": array.shape[:2]}
            return History([*alone.ops, op], "RGB", array.copy(), turned=False)
        if array.ndim != pixels.ndim or array.shape[2:] != pixels.shape[2:]:
            return None
        for turned in (False, True) if array.ndim == 3 else (False,):
            straight = array[:, :, ::-1] if turned else array
            if straight.shape == pixels.shape:
                if np.array_equal(straight, pixels):
                    return History(ops, mode, straight.copy(), turned)
                if (table := value_by_value(pixels, straight)) is not None:
                    op = {"op": "point", "table": table, "before": pixels.shape[:2], "after": pixels.shape[:2]}
                    return History([*ops, op], mode, straight.copy(), turned)
            elif (place := embedded(pixels, straight)) is not None:
                return History([*ops, place], mode, straight.copy(), turned)
        return None

    def _note_resize(self, src: Any, made: Any, given: dict[str, Any]) -> None:
        if not isinstance(src, np.ndarray) or not isinstance(made, np.ndarray):
            return
        resample = given.get("interpolation")
        resample = OPENCV_LINEAR if resample is None else int(resample)
        op = {
            "op": "resize",
            "library": "opencv",
            "resample": resample,
            "floats": resample == OPENCV_CUBIC,
            "before": src.shape[:2],
            "after": made.shape[:2],
        }
        if made.dtype.kind == "f" and made.dtype == src.dtype:  # pixels, or shares of 255
            scale = 255.0 if src.max(initial=0.0) <= 1.0 else 1.0
            whole = np.rint(src * scale).clip(0, 255)
            if not np.abs(src * scale - whole).max(initial=0.0) <= _ROUNDING:  # nor where some are no numbers
                return
            src, made, op["floats"] = whole.astype(np.uint8), (made * scale).astype(np.float32), True
        known = self._history(src)
        if known is None:
            return
        self.read = ([*known.ops, op], known.mode, (made[:, :, ::-1] if known.turned else made).copy())

    def _note_read(self, image: Image.Image) -> None:
        if self.depth or image.mode not in ("RGB", "L") or (self.strict and "_ops" not in image.__dict__):
            return
        self.depth += 1
        try:
            holder = type("Pixels", (), {"__array_interface__": self._interface(image)})()
            self.read = (image.__dict__.get("_ops"), image.mode, np.array(holder))
        finally:
            self.depth -= 1


def levels(tensor: Any, scale: float | None = None) -> tuple[np.ndarray | None, float]:
    """A tensor [C, H, W] of pixels, or a batch of one, as float32 [H, W, C] or [H, W] of 0 to 255, and what one level was."""
    image = np.asarray(tensor.detach().cpu().numpy(), np.float32)
    while image.ndim > 3 and len(image) == 1:
        image = image[0]
    if image.ndim != 3 or image.shape[0] not in (1, 3):
        return None, 1.0
    if scale is None:
        scale = 255.0 if tensor.is_floating_point() and image.max(initial=0.0) <= 1.0 else 1.0
    image = np.ascontiguousarray(image.transpose(1, 2, 0)) * np.float32(scale)
    if scale == 1.0:
        image = np.rint(image).clip(0, 255)  # as torchvision does, and torch itself with integers
    return image[:, :, 0] if image.shape[2] == 1 else image, scale


def pasted(canvas: Image.Image, image: Any, box: Any) -> list[Any] | None:
    """The history of a canvas of one color after an image with a history was laid on it, whole; None for all else."""
    if "_ops" in canvas.__dict__ or canvas.mode not in ("RGB", "L"):
        return None
    if not isinstance(image, Image.Image) or "_ops" not in image.__dict__:
        return None
    left, top = (0, 0) if box is None else (int(box[0]), int(box[1]))
    inside = left >= 0 and top >= 0 and left + image.width <= canvas.width and top + image.height <= canvas.height
    colors = canvas.getcolors(1)
    if not inside or colors is None:
        return None
    fill = colors[0][1]
    return [*image.__dict__["_ops"], padding((image.height, image.width), (canvas.height, canvas.width), (top, left), fill)]


def padding(before: tuple[int, ...], after: tuple[int, ...], at: tuple[int, int], fill: Any) -> dict[str, Any]:
    values = [int(value) for value in np.atleast_1d(np.asarray(fill))]
    return {"op": "pad", "before": before[:2], "after": after[:2], "at": at, "fill": values}


def embedded(pixels: np.ndarray, canvas: np.ndarray) -> dict[str, Any] | None:
    """The padding that makes `canvas` of `pixels`: in the middle or at a corner, around it one color. None if none does."""
    rows, columns = (canvas.shape[axis] - pixels.shape[axis] for axis in (0, 1))
    if rows < 0 or columns < 0:
        return None
    for top in sorted({0, rows // 2, rows - rows // 2, rows}):
        for left in sorted({0, columns // 2, columns - columns // 2, columns}):
            inner = canvas[top : top + pixels.shape[0], left : left + pixels.shape[1]]
            if not np.array_equal(inner, pixels):
                continue
            around = np.ones(canvas.shape[:2], bool)
            around[top : top + pixels.shape[0], left : left + pixels.shape[1]] = False
            border = canvas[around]
            if (border == border[0]).all():
                return padding(pixels.shape, canvas.shape, (top, left), border[0])
    return None


def looked_up(mode: str, point: Callable[[Image.Image], Image.Image]) -> list[int]:
    """The table by which Pillow's `point` changes values: 256 for all channels, or one after another."""
    ramp: np.ndarray = np.arange(256, dtype=np.uint8)[np.newaxis]
    made = np.asarray(point(Image.fromarray(ramp if mode == "L" else np.stack([ramp] * 3, axis=-1))))
    tables = made.reshape(256, -1).T
    return [int(value) for value in (tables[:1] if (tables == tables[0]).all() else tables).ravel()]


def value_by_value(pixels: np.ndarray, after: np.ndarray) -> list[int] | None:
    """A `table_of` all channels; None also where there are so few values that one always would be."""
    table = table_of(pixels, after)
    return table.tolist() if table is not None and (table >= 0).sum() >= _VALUES else None


def table_of(pixels: np.ndarray, after: np.ndarray) -> np.ndarray | None:
    """The table of 256 by which each value follows from that of the same pixel, -1 for values that there are not; None where
    none does."""
    table = np.full(256, -1)
    table[pixels] = after
    return table if np.array_equal(table[pixels], after) else None


def follows(row: np.ndarray, pixels: np.ndarray) -> bool:
    """Whether a row is what an image's pixels became, each by itself, and not what code takes of one image for all others, as
    their mean is."""
    size = pixels.shape[:2]
    if row.ndim > 2 and row.shape[-2:] != size:
        row = np.moveaxis(row, -1, 0)
    if row.size % (size[0] * size[1]) or (row.ndim > 1 and row.shape[-2:] != size):
        return False
    if pixels.dtype != np.uint8:  # resized as a tensor: levels between the whole ones
        return True
    channels = np.atleast_3d(pixels).transpose(2, 0, 1)
    return all(any(_follows_one(plane, channel) for channel in channels) for plane in row.reshape(-1, *size))


def _follows_one(values: np.ndarray, pixels: np.ndarray) -> bool:
    table = np.zeros(256, values.dtype)
    table[pixels] = values
    return np.array_equal(table[pixels], values, equal_nan=True)


def describe(name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
    """The arguments that matter, by name and as JSON."""
    names = {"resize": ("size", "resample", "box", "reducing_gap"), "crop": ("box",), "convert": ("mode", "matrix")}.get(
        name, ()
    )
    given = {**dict(zip(names, args, strict=False)), **{key: value for key, value in kwargs.items() if key in names}}
    return {key: plain_value(value) for key, value in given.items()}


def plain_value(value: Any) -> Any:
    if value is None or isinstance(value, (str, bool)):
        return value
    if isinstance(value, (list, tuple)):
        return [plain_value(entry) for entry in value]
    return float(value) if float(value) != int(value) else int(value)


def note(read: tuple[list[Any] | None, str, np.ndarray] | None) -> tuple[dict[str, Any], np.ndarray | None]:
    """What is told of the image that was read last, and its pixels."""
    if read is None:
        return {"ok": True, "followed": False, "ops": [], "mode": None}, None
    ops, mode, pixels = read
    return {"ok": True, "followed": ops is not None, "ops": ops or [], "mode": mode}, pixels
