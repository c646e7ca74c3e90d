"""PS149: matplotlib's styles that were called after seaborn."""

import ast
import re
from collections.abc import Iterator

from ..reading.edits import Edit
from ..rewriting.call_edits import calls_of, source_of
from ..rewriting.rule import Context, Fix, Repair, diff

_CALLS = [f"matplotlib.{module}style.{name}" for module in ("", "pyplot.") for name in ("use", "context")]
_RENAMED = re.compile(
    r"seaborn(-(bright|colorblind|dark(-palette|grid)?|deep|muted|notebook|paper|pastel|poster|talk|ticks|white(grid)?))?"
)
_EXAMPLE_1 = diff("""\
import matplotlib.pyplot as plt
import torch

-plt.style.use("seaborn")
-with plt.style.context(["ggplot", 'seaborn-whitegrid']):
+plt.style.use("seaborn-v0_8")
+with plt.style.context(["ggplot", 'seaborn-v0_8-whitegrid']):
    plt.plot([1, 2])
""")


class PlotStyles(Repair):
    """What it does: names matplotlib's own copies of seaborn's styles as they have been called since 3.6.

    Why: matplotlib 3.8 has no style of the old names, and raises OSError.

    Example: `plt.style.use("seaborn-whitegrid")` becomes `plt.style.use("seaborn-v0_8-whitegrid")`.

    Fix safety: safe; they are the same styles.
    """

    safety = "safe"
    VALID = (
        "import torch\nfrom matplotlib.pyplot import style\n\nstyle.use(chosen)\nstyle.use(['seaborn-v0_8', 'seaborn-own'])\n",
    )
    INVALID = (
        _EXAMPLE_1,
        (
            "import torch\nfrom matplotlib import style\n\nstyle.use('seaborn-dark-palette')\n",
            "import torch\nfrom matplotlib import style\n\nstyle.use('seaborn-v0_8-dark-palette')\n",
        ),
    )

    def check(self, context: Context) -> Iterator[Fix]:
        for call in (call for name in _CALLS for call in calls_of(context, name)):
            for node in (item for given in call.args[:1] for item in ast.walk(given)):
                if isinstance(node, ast.Constant) and isinstance(node.value, str) and _RENAMED.fullmatch(node.value):
                    text = source_of(context, node).replace("seaborn", "seaborn-v0_8")
                    message = f"matplotlib has no style {node.value} since 3.8; write {text}"
                    yield self.fix(context, node, message, [Edit(*context.positions.span(node), text)], severity="error")
