"""PS134: assertions that pin a library to a version of years ago."""

import ast
from collections.abc import Iterator

from ..reading.edits import Edit
from ..reading.scopes import dotted
from ..rewriting.rule import Context, Fix, Repair

_TODAY = {"timm": "1.0", "torch": "2.11", "torchvision": "0.26", "numpy": "2.0", "pytorch_lightning": "2.0"}
"""No library here is older than this beside a torch that is supported."""


class VersionAssertion(Repair):
    """What it does: lets an assertion of a library's exact version hold for later versions too.

    Why: the version that it asks for has not the names that the repaired file uses, and does not run beside today's torch.

    Example: `assert timm.__version__ == "0.3.2"` becomes `assert timm.__version__ >= "0.3.2"`.

    Fix safety: safe where the texts compare as the versions do; whether the model computes the same is what the parity
    check tells. Otherwise it is a remark.
    """

    safety = "safe"
    VALID = ('import timm\nimport torch\n\nassert timm.__version__ >= "0.3.2"\nassert torch.__version__ == "2.99.0"\n',)
    INVALID = (
        (
            'import timm\nimport torch\n\nassert timm.__version__ == "0.3.2" # version check\n',
            'import timm\nimport torch\n\nassert timm.__version__ >= "0.3.2" # version check\n',
        ),
        (
            "import torch\n\nassert torch.__version__ == '1.7.1', torch.__version__\n",
            "import torch\n\nassert torch.__version__ >= '1.7.1', torch.__version__\n",
        ),
    )

    def check(self, context: Context) -> Iterator[Fix]:
        module, positions = context.module, context.positions
        for node in module.of_kind(ast.Assert):
            test = node.test
            if not isinstance(test, ast.Compare) or len(test.ops) != 1 or not isinstance(test.ops[0], ast.Eq):
                continue
            library, _, attribute = (dotted(test.left) or "").rpartition(".")
            library, wanted = module.imports.get(library, ""), test.comparators[0]
            if attribute != "__version__" or library not in _TODAY or not isinstance(wanted, ast.Constant):
                continue
            if not isinstance(wanted.value, str) or _numbers(wanted.value) >= _numbers(_TODAY[library]):
                continue
            start, end = positions.span(test.left)[1], positions.span(wanted)[0]
            at = positions.text[start:end].find("==")
            compares = wanted.value < _TODAY[library] and at >= 0
            message = (
                f"{library} {wanted.value} does not run with today's torch, and the assertion rejects later versions; write >="
            )
            edit = Edit(start + at, start + at + 2, ">=")
            yield self.fix(context, node, message, [edit] if compares else [])


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.partition("+")[0].split(".") if part.isdigit())
