"""PS119: resampling filters that Pillow removed."""

from __future__ import annotations

from ..rewriting.renames import Renames, table

_VALID_1 = """\
import torch
from PIL import Image

x = Image.LANCZOS if hasattr(Image, 'LANCZOS') else Image.ANTIALIAS
"""
_VALID_2 = """\
import torch
from PIL import Image

try:
    y = Image.LANCZOS
except AttributeError:
    y = Image.ANTIALIAS
"""
_BEFORE_1 = """\
import torch
from PIL import Image
import PIL.Image as I

x = open_it().resize((2, 2), Image.ANTIALIAS)  # Image.ANTIALIAS
y = I.CUBIC
"""
_AFTER_1 = _BEFORE_1.replace(
    "x = open_it().resize((2, 2), Image.ANTIALIAS)  # Image.ANTIALIAS",
    "x = open_it().resize((2, 2), Image.LANCZOS)  # Image.ANTIALIAS",
).replace("y = I.CUBIC", "y = I.BICUBIC")


class PillowFilters(Renames):
    """What it does: uses the names that Pillow has for its filters.

    Why: Pillow 10 removed `ANTIALIAS`, `LINEAR` and `CUBIC`.

    Example: `image.resize(size, Image.ANTIALIAS)` becomes `image.resize(size, Image.LANCZOS)`.

    Fix safety: safe; they were two names of one filter.
    """

    code = "PS119"
    name = "pillow-filters"
    safety = "safe"
    reason = "was removed in Pillow 10"
    names = table("""
        PIL.Image.ANTIALIAS -> PIL.Image.LANCZOS
        PIL.Image.LINEAR -> PIL.Image.BILINEAR
        PIL.Image.CUBIC -> PIL.Image.BICUBIC
    """)
    VALID = (_VALID_1, _VALID_2)
    INVALID = ((_BEFORE_1, _AFTER_1),)
