"""PS117: images read and written with `scipy.misc`."""

from collections.abc import Iterator

from ..reading.edits import Edit
from ..reading.names import import_line
from ..rewriting.call_edits import calls_of, source_of
from ..rewriting.rule import Context, Fix, Repair, diff

_INSTEAD = {
    "imread": "read with Pillow: numpy.array(PIL.Image.open(path))",
    "imsave": "write with Pillow: PIL.Image.fromarray(array).save(path)",
    "imresize": "resize with Pillow: numpy.array(PIL.Image.fromarray(array).resize((width, height)))",
    "imrotate": "rotate with Pillow: PIL.Image.fromarray(array).rotate(angle)",
    "toimage": "make it with Pillow: PIL.Image.fromarray(array)",
}

_EXAMPLE_1 = diff("""\
+import numpy
+import PIL.Image
import torch
from scipy.misc import imread, imresize

-x = imresize(imread('a.png'), (2, 2))
+x = imresize(numpy.array(PIL.Image.open('a.png')), (2, 2))
""")


class ScipyMisc(Repair):
    """What it does: says where a script uses the image functions that SciPy removed, and reads with Pillow where that is the
    same.

    Why: SciPy 1.2 removed `imread`, `imsave`, `imresize` and others.

    Example: `scipy.misc.imread(path)` becomes `numpy.array(PIL.Image.open(path))`.

    Fix safety: unsafe: SciPy turned palettes into colors; `imresize` rescaled values and is left to you:
    `PIL.Image.resize` of the uint8 image.
    """

    safety = "unsafe"
    VALID = ("import torch\nimport imageio\n\nx = imageio.imread('a.png')  # scipy.misc.imread\n",)
    INVALID = (_EXAMPLE_1, ("import torch\nimport scipy.misc\n\nx = scipy.misc.imread('a.png', mode='RGB')\n", None))

    def check(self, context: Context) -> Iterator[Fix]:
        module = context.module
        for name, advice in _INSTEAD.items():
            for call in calls_of(context, f"scipy.misc.{name}"):
                edits = []
                if name == "imread" and len(call.args) == 1 and not call.keywords:
                    text = f"numpy.array(PIL.Image.open({source_of(context, call.args[0])}))"
                    added = [import_line(module, context.positions, line) for line in ("import numpy", "import PIL.Image")]
                    edits = [Edit(*context.positions.span(call), text), *(edit for edit in added if edit is not None)]
                yield self.fix(context, call, f"SciPy has no {name} since 1.2; {advice}", edits, severity="error")
