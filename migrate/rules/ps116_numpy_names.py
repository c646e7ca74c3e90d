"""PS116: names that numpy removed."""

from ..rewriting.renames import Renames, table
from ..rewriting.rule import diff

_VALID_1 = """\
import torch
import numpy as np

x = np.zeros(2, dtype=np.float32), np.int64(1)  # np.int
"""
_EXAMPLE_1 = diff("""\
import torch
import numpy as np

-x = np.zeros(2, dtype=np.float).astype(np.int)
-y = np.Inf  # np.Inf
+x = np.zeros(2, dtype=float).astype(int)
+y = np.inf  # np.Inf
""")


class NumpyNames(Renames):
    """What it does: replaces names of numpy that 1.24 or 2.0 removed.

    Why: reading one raises AttributeError.

    Example: `x.astype(np.float)` becomes `x.astype(float)`.

    Fix safety: safe; each was only another name for what replaces it.
    """

    safety = "safe"
    reason = "was removed from numpy"
    names = table("""
        numpy.int -> int
        numpy.float -> float
        numpy.bool -> bool
        numpy.object -> object
        numpy.str -> str
        numpy.complex -> complex
        numpy.long -> int
        numpy.unicode -> str
        numpy.float_ -> numpy.float64
        numpy.complex_ -> numpy.complex128
        numpy.string_ -> numpy.bytes_
        numpy.unicode_ -> numpy.str_
        numpy.Inf -> numpy.inf
        numpy.Infinity -> numpy.inf
        numpy.infty -> numpy.inf
        numpy.PINF -> numpy.inf
        numpy.NaN -> numpy.nan
        numpy.product -> numpy.prod
        numpy.cumproduct -> numpy.cumprod
        numpy.sometrue -> numpy.any
        numpy.alltrue -> numpy.all
        numpy.in1d -> numpy.isin
        numpy.trapz -> numpy.trapezoid
        numpy.row_stack -> numpy.vstack
    """)
    VALID = (_VALID_1,)
    INVALID = (
        _EXAMPLE_1,
        (
            "import torch\nimport numpy\n\nx = numpy.asarray([1], numpy.bool)\n",
            "import torch\nimport numpy\n\nx = numpy.asarray([1], bool)\n",
        ),
    )
