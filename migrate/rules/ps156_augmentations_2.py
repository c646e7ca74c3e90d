"""PS156: transforms that albumentations 2 has no more, or that take their arguments otherwise."""

import ast
from collections.abc import Iterator

from ..reading.edits import Edit
from ..rewriting.call_edits import calls_of, is_spread, source_of, with_argument, without
from ..rewriting.rule import Context, Fix, Repair, diff

_LAST = ("always_apply", "p")
_TAKES = {
    "RandomResizedCrop": ("height", "width", "scale", "ratio", "interpolation", *_LAST),
    "RandomSizedCrop": ("min_max_height", "height", "width", "w2h_ratio", "interpolation", *_LAST),
    "Cutout": ("num_holes", "max_h_size", "max_w_size", "fill_value", *_LAST),
    "CoarseDropout": (
        "max_holes", "max_height", "max_width", "min_holes", "min_height", "min_width", "fill_value", "mask_fill_value", *_LAST,
    ),
    "JpegCompression": ("quality_lower", "quality_upper", *_LAST),
    "ImageCompression": ("quality_lower", "quality_upper", "compression_type", *_LAST),
    "RandomBrightness": ("limit", *_LAST),
    "RandomContrast": ("limit", *_LAST),
    "PadIfNeeded": (
        "min_height", "min_width", "pad_height_divisor", "pad_width_divisor", "position", "border_mode",
        "value", "mask_value", *_LAST,
    ),
    "Rotate": ("limit", "interpolation", "border_mode", "value", "mask_value", "rotate_method", "crop_border", *_LAST),
    "GaussNoise": ("var_limit", "mean", "per_channel", *_LAST),
    "Flip": _LAST,
    "IAAFliplr": _LAST,
    "IAAFlipud": _LAST,
    "IAASharpen": ("alpha", "lightness", *_LAST),
    "IAAEmboss": ("alpha", "strength", *_LAST),
    "IAASuperpixels": ("p_replace", "n_segments", *_LAST),
    "IAAPerspective": ("scale", "keep_size", *_LAST),
    "IAAPiecewiseAffine": ("scale", "nb_rows", "nb_cols", "order", "cval", "mode", *_LAST),
    "IAAAdditiveGaussianNoise": ("loc", "scale", "per_channel", *_LAST),
}  # fmt: skip
"""What each took by place before."""
_NEW_NAMES = {
    "Cutout": "CoarseDropout", "JpegCompression": "ImageCompression",
    "RandomBrightness": "RandomBrightnessContrast", "RandomContrast": "RandomBrightnessContrast",
    "Flip": "OneOf", "IAAFliplr": "HorizontalFlip", "IAAFlipud": "VerticalFlip", "IAASharpen": "Sharpen", "IAAEmboss": "Emboss",
    "IAASuperpixels": "Superpixels", "IAAPerspective": "Perspective", "IAAPiecewiseAffine": "PiecewiseAffine",
    "IAAAdditiveGaussianNoise": "GaussNoise",
}  # fmt: skip
_HOLES = (
    ("num_holes_range", "min_holes", "max_holes", "num_holes"),
    ("hole_height_range", "min_height", "max_height", "max_h_size"),
    ("hole_width_range", "min_width", "max_width", "max_w_size"),
)
"""A range of today's, what it begins with, and what it ends with."""
_FILLS = {"value": "fill", "mask_value": "fill_mask", "fill_value": "fill", "mask_fill_value": "fill_mask"}

_LEVELS = 255

_EXAMPLE_1 = diff("""\
import albumentations as A
import torch

x = A.Compose([
-    A.RandomResizedCrop(224, 224, scale=(0.5, 1.0)),
-    A.RandomResizedCrop(height=size, width=size),
-    A.Cutout(num_holes=8, max_h_size=16, max_w_size=16, p=0.5),  # holes
-    A.CoarseDropout(max_holes=8, max_height=8, max_width=8, min_holes=2, fill_value=0),
-    A.JpegCompression(quality_lower=50, p=0.2),
-    A.RandomBrightness(limit=0.2),
+    A.RandomResizedCrop(size=(224, 224), scale=(0.5, 1.0)),
+    A.RandomResizedCrop(size=(size, size)),
+    A.CoarseDropout(num_holes_range=(8, 8), hole_height_range=(16, 16), hole_width_range=(16, 16), p=0.5),  # holes
+    A.CoarseDropout(num_holes_range=(2, 8), hole_height_range=(8, 8), hole_width_range=(8, 8), fill=0),
+    A.ImageCompression(quality_range=(50, 100), p=0.2),
+    A.RandomBrightnessContrast(brightness_limit=0.2, contrast_limit=0),
])
""")
_EXAMPLE_2 = diff("""\
import albumentations
import cv2
import torch

-x = albumentations.PadIfNeeded(512, 512, border_mode=cv2.BORDER_CONSTANT, value=(255, 255, 255))
+x = albumentations.PadIfNeeded(512, 512, border_mode=cv2.BORDER_CONSTANT, fill=(255, 255, 255))
-y = albumentations.RandomSizedCrop((100, 200), 224, 224, 1.0)
+y = albumentations.RandomSizedCrop((100, 200), size=(224, 224), w2h_ratio=1.0)
""")
_EXAMPLE_3 = diff("""\
import albumentations as A
import torch

y = [
-    A.GaussNoise(var_limit=(10.0, 50.0), mean=0, p=0.2),
-    A.OneOf([A.IAAAdditiveGaussianNoise(), A.IAASharpen(alpha=0.3)]),
-    A.IAAAdditiveGaussianNoise(scale=(0.02 * 255, 0.1 * 255)),
-    A.IAAPiecewiseAffine(p=0.3),
+    A.GaussNoise(std_range=(0.0124, 0.0277), p=0.2),
+    A.OneOf([A.GaussNoise(std_range=(0.01, 0.05), per_channel=False), A.Sharpen(alpha=(0, 0.3))]),
+    A.GaussNoise(std_range=(0.02 * 255 / 255, 0.1 * 255 / 255), per_channel=False),
+    A.PiecewiseAffine(p=0.3),
]
""")
_VALID = """\
import albumentations as A
import torch

x = [A.RandomResizedCrop((224, 224)), A.RandomResizedCrop(size, (0.5, 1.0)), A.RandomResizedCrop(size=(9, 9), scale=s)]
z = [A.GaussNoise(), A.GaussNoise(var_limit=limits), A.GaussNoise(std_range=(0.1, 0.2)), A.HorizontalFlip(p=0.5)]
y = [A.PadIfNeeded(512, 512), A.CoarseDropout(num_holes_range=(1, 2)), A.Rotate(30), A.RandomResizedCrop(**how)]
"""


class Augmentations2(Repair):
    """What it does: writes albumentations' transforms as its second version takes them: one `size` for two sides,
    `CoarseDropout` for `Cutout`, ranges for pairs of limits, `fill` for `value`, others for `Flip` and for imgaug's transforms.

    Why: `RandomResizedCrop(224, 224)` raises, `Cutout`, `Flip` and all whose names begin with IAA are gone, and what
    `CoarseDropout`, `PadIfNeeded` or `GaussNoise` are told by the old names is passed over with a warning, so that images are
    padded with zeros whatever was asked for, and noise is ten times as strong.

    Example: `A.RandomResizedCrop(224, 224)` becomes `A.RandomResizedCrop(size=(224, 224))`.

    Fix safety: safe; the arguments say the same. `Cutout` cut its holes off at the border, where those of `CoarseDropout` lie
    within the image, and imgaug's transforms drew other random numbers. A variance below one is that of images from 0 to 1. A
    name that is imported by itself (`from albumentations import Cutout`) is only remarked.
    """

    safety = "safe"
    VALID = (_VALID,)
    INVALID = (
        _EXAMPLE_1,
        _EXAMPLE_2,
        _EXAMPLE_3,
        ("from albumentations import Cutout\nimport torch\n\nx = Cutout(p=1)\n", None),
    )

    def check(self, context: Context) -> Iterator[Fix]:
        for name, takes in _TAKES.items():
            for call in calls_of(context, f"albumentations.{name}"):
                given = _given(call, takes)
                if given is None:
                    continue
                texts = {item: source_of(context, node) for item, node in given.items()}
                changed, added = _changes(name, texts, given)
                if name == "Flip" and isinstance(call.func, ast.Attribute):
                    added.append(_flips(source_of(context, call.func.value)))
                if not changed and name not in _NEW_NAMES:
                    continue
                edits = list(_edits(context, call, takes, changed, added))
                message = f"albumentations 2 takes other arguments for {name}"
                if name in _NEW_NAMES:
                    message = f"albumentations 2 has no {name}; {_NEW_NAMES[name]} stands for it"
                    end = context.positions.span(call.func)[1]
                    edits.append(Edit(end - len(name), end, _NEW_NAMES[name]))
                imported = isinstance(call.func, ast.Name) and name in _NEW_NAMES
                yield self.fix(context, call, message, [] if imported else edits)


def _given(call: ast.Call, takes: tuple[str, ...]) -> dict[str, ast.expr] | None:
    """What a call is given, by the names of before; None where not all of that can be seen."""
    if is_spread(call) or len(call.args) > len(takes):
        return None
    return dict(zip(takes, call.args, strict=False)) | {item.arg: item.value for item in call.keywords if item.arg is not None}


def _changes(name: str, texts: dict[str, str], given: dict[str, ast.expr]) -> tuple[dict[str, str | None], list[str]]:
    """What is written in place of arguments, None where nothing is, and what is added to them."""
    changed: dict[str, str | None] = {}
    added: list[str] = []
    if name in ("RandomResizedCrop", "RandomSizedCrop") and {"height", "width"} <= texts.keys():
        sides = not any(isinstance(given[side], ast.Tuple | ast.List) for side in ("height", "width"))  # else it is as today
        changed |= {"height": f"size=({texts['height']}, {texts['width']})", "width": None} if sides else {}
    if name in ("Cutout", "CoarseDropout"):
        for new, least, *most in _HOLES:
            told = next((item for item in most if item in texts), None)
            low = texts.get(least)
            if told is not None:
                changed |= {told: f"{new}=({low or texts[told]}, {texts[told]})"} | ({least: None} if low else {})
            elif name == "Cutout":
                added.append(f"{new}=(8, 8)")
    if name in ("JpegCompression", "ImageCompression"):
        limits: list[str] = [item for item in ("quality_lower", "quality_upper") if item in texts]
        quality = f"quality_range=({texts.get('quality_lower', '99')}, {texts.get('quality_upper', '100')})"
        changed |= dict.fromkeys(limits) | dict.fromkeys(limits[:1], quality)
    if name in ("RandomBrightness", "RandomContrast"):
        kind, others = ("brightness", "contrast") if name == "RandomBrightness" else ("contrast", "brightness")
        changed |= {"limit": f"{kind}_limit={texts['limit']}"} if "limit" in texts else {}
        added.append(f"{others}_limit=0")
    if name == "GaussNoise" and (limits_of_std := _deviations(given.get("var_limit"))) is not None:
        changed |= {"var_limit": f"std_range={limits_of_std}"} | _mean_range("mean", texts)
    if name == "IAAAdditiveGaussianNoise":
        ends = _ends(given.get("scale"), texts.get("scale", ""))
        if "scale" in texts:
            changed |= {"scale": f"std_range=({', '.join(f'{end} / {_LEVELS}' if end != '0' else end for end in ends)})"}
        else:
            added.append("std_range=(0.01, 0.05)")
        changed |= _mean_range("loc", texts)
        added += ["per_channel=False"] if "per_channel" not in texts else []
    elif name.startswith("IAA"):
        scalars = [item for item in ("alpha", "lightness", "strength") if isinstance(given.get(item), ast.Constant)]
        changed |= {item: f"{item}=(0, {texts[item]})" for item in scalars}
        changed |= {item: None for item in ("order", "mode") if item in texts}
        changed |= {"cval": f"fill={texts['cval']}"} if "cval" in texts else {}
    return changed | {old: f"{new}={texts[old]}" for old, new in _FILLS.items() if old in texts}, added


def _flips(library: str) -> str:
    """What `Flip` drew from: along one axis, along the other, or along both."""
    one, other = f"{library}.HorizontalFlip(p=1)", f"{library}.VerticalFlip(p=1)"
    return f"transforms=[{one}, {other}, {library}.Sequential([{one}, {other}], p=1)]"


def _deviations(limit: ast.expr | None) -> tuple[float, float] | None:
    """A range of variances as one of standard deviations of images from 0 to 1; None where it is not written in numbers."""
    try:
        told = ast.literal_eval(limit) if limit is not None else None
        low, high = map(float, told if isinstance(told, tuple | list) else (0, told))  # type: ignore[arg-type]
    except (TypeError, ValueError):
        return None
    full = _LEVELS if high >= 1 else 1
    return (round(low**0.5 / full, 4), round(high**0.5 / full, 4)) if 0 <= low <= high else None


def _ends(node: ast.expr | None, text: str) -> list[str]:
    """Both ends of a range; it begins at 0 where there is one number."""
    if isinstance(node, ast.Tuple | ast.List) and len(node.elts) == 2:
        return [ast.unparse(item) for item in node.elts]
    return ["0", text]


def _mean_range(name: str, texts: dict[str, str]) -> dict[str, str | None]:
    if name not in texts or texts[name] in ("0", "0.0"):
        return {name: None} if name in texts else {}
    return {name: f"mean_range=({texts[name]} / {_LEVELS}, {texts[name]} / {_LEVELS})"}


def _edits(
    context: Context, call: ast.Call, takes: tuple[str, ...], changed: dict[str, str | None], added: list[str]
) -> Iterator[Edit]:
    """The arguments as they are written now; those by place have their names behind one that has."""
    named, gone = False, list[ast.expr | ast.keyword]()
    every: list[tuple[str | None, ast.expr | ast.keyword]] = list(zip(takes, call.args, strict=False))
    every += [(item.arg, item) for item in call.keywords]
    for name, node in every:
        start, end = context.positions.span(node)
        if name in changed and (text := changed[name]) is not None:
            named = True
            yield Edit(start, end, text)
        elif name in changed:
            gone.append(node)
        elif named and not isinstance(node, ast.keyword):
            yield Edit(start, start, f"{name}=")
    yield from without(context, call, gone) if gone else ()
    if added:
        yield with_argument(context, call, ", ".join(added))
