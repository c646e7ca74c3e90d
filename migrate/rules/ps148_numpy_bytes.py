"""PS148: bytes that numpy reads as numbers with `fromstring`."""

import ast
from collections.abc import Iterator

from ..reading.edits import Edit
from ..reading.nodes import keyword_of
from ..reading.scopes import last_name
from ..rewriting.call_edits import calls_of, is_spread
from ..rewriting.rule import Context, Fix, Repair, diff

_SEPARATOR = 3  # the position of `sep`, with which text is read
_EXAMPLE_1 = diff("""\
import cv2
import numpy as np
import torch

-image = cv2.imdecode(np.fromstring(file.read(), np.uint8), cv2.IMREAD_COLOR)
-pixels = np.fromstring(record, dtype=np.uint8)
+image = cv2.imdecode(np.frombuffer(file.read(), np.uint8), cv2.IMREAD_COLOR)
+pixels = np.frombuffer(record, dtype=np.uint8).copy()
""")


class NumpyBytes(Repair):
    """What it does: reads bytes with `numpy.frombuffer` where a script reads them with `numpy.fromstring`.

    Why: numpy 2.3 reads only text with `fromstring`, and raises ValueError for bytes.

    Example: `np.fromstring(data, np.uint8)` becomes `np.frombuffer(data, np.uint8).copy()`.

    Fix safety: safe; the copy can be written to as before, and is left out where OpenCV decodes what it is given.
    """

    safety = "safe"
    VALID = (
        "import numpy as np\nimport torch\n\nx = np.fromstring('1 2', sep=' '), np.fromstring('1,2', float, -1, ',')\n",
        "import lxml.etree as np\nimport torch\n\nx = np.fromstring(data)\n",
    )
    INVALID = (
        _EXAMPLE_1,
        ("import torch\nfrom numpy import fromstring\n\nx = fromstring(data, 'uint8')\n", None),
        ("import torch\nimport numpy\n\nx = numpy.fromstring(string=data, dtype='uint8')\n", None),
    )

    def check(self, context: Context) -> Iterator[Fix]:
        for call in calls_of(context, "numpy.fromstring"):
            if len(call.args) > _SEPARATOR or keyword_of(call, "sep") is not None or is_spread(call):
                continue
            edits, node = [], call.func
            if isinstance(node, ast.Attribute) and call.args:
                end, parent = context.positions.span(node)[1], context.module.parents.get(call)
                edits = [Edit(end - len(node.attr), end, "frombuffer")]
                if not (isinstance(parent, ast.Call) and call in parent.args and last_name(parent.func) == "imdecode"):
                    behind = context.positions.span(call)[1]
                    edits.append(Edit(behind, behind, ".copy()"))
            message = "numpy.fromstring reads no bytes since numpy 2.3; write frombuffer(data, dtype).copy()"
            yield self.fix(context, call, message, edits, severity="error")
