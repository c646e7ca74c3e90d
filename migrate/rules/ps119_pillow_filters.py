"""PS119: resampling filters that Pillow removed."""

from ..rewriting.renames import Renames, table
from ..rewriting.rule import diff

_VALID_1 = """\
import torch
from PIL import Image

x = Image.LANCZOS if hasattr(Image, 'LANCZOS') else Image.ANTIALIAS
"""
_EXAMPLE_1 = diff("""\
import torch
from PIL import Image
import PIL.Image as I

-x = open_it().resize((2, 2), Image.ANTIALIAS)  # Image.ANTIALIAS
-y = I.CUBIC
+x = open_it().resize((2, 2), Image.LANCZOS)  # Image.ANTIALIAS
+y = I.BICUBIC
""")


class PillowFilters(Renames):
    """What it does: uses the names that Pillow has for its filters.

    Why: Pillow 10 removed `ANTIALIAS`, `LINEAR` and `CUBIC`.

    Example: `image.resize(size, Image.ANTIALIAS)` becomes `image.resize(size, Image.LANCZOS)`.

    Fix safety: safe; they were two names of one filter.
    """

    safety = "safe"
    reason = "was removed in Pillow 10"
    names = table("""
        PIL.Image.ANTIALIAS -> PIL.Image.LANCZOS
        PIL.Image.LINEAR -> PIL.Image.BILINEAR
        PIL.Image.CUBIC -> PIL.Image.BICUBIC
    """)
    VALID = (_VALID_1,)
    INVALID = (_EXAMPLE_1,)
