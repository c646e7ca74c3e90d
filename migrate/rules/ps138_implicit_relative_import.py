"""PS138: imports of a package's own modules as Python 2 found them, without a dot."""

import ast
import posixpath
from collections.abc import Iterator

from ..reading.edits import Edit
from ..reading.names import has_fallback, is_installed
from ..reading.scopes import Module, upward
from ..rewriting.rule import Context, Fix, Repair, diff
from ..survey.survey import does_something

_EXAMPLE = diff("""\
# nets/__init__.py:
import torch
import os

-from vgg import *
-import layers, os.path
+from .vgg import *
+from . import layers
+import os.path
# nets/vgg.py:
import torch
# nets/layers.py:
import torch
""")
_VALID = """\
# nets/__init__.py:
import torch

from .vgg import *
from layers import Block
try:
    from vgg import Net
except ImportError:
    from .vgg import Net
# nets/vgg.py:
import torch
# nets/layers.py:
import torch
# layers.py:
import torch
# tools/__init__.py:
import torch
from paths import here
# tools/paths.py:
import torch
# lib/__init__.py:
import torch
from checks import *
# lib/checks.py:
import torch
# scripts/train.py:
import init_paths
import torch
from checks import accuracy
# main.py:
import torch
import sys
sys.path.insert(0, "tools")
# server/app/main.py:
import torch
# server/app/auth/deps.py:
import torch
# server/app/settings.py:
import torch
# server/app/routes/__init__.py:
import torch
# server/app/routes/auth.py:
import torch
# server/app/routes/settings.py:
import torch
# server/app/routes/predict.py:
import torch
from auth.deps import user
from settings import limit
"""


class ImplicitRelativeImport(Repair):
    """What it does: writes the dot in a package's imports of its own modules.

    Why: Python 2 looked for `vgg` beside the importing file first; Python 3 does only where that file's folder is on the search
    path, so whoever imports the package ends with "No module named 'vgg'".

    Example: `from vgg import *` in `models/__init__.py` becomes `from .vgg import *`.

    Fix safety: safe; it is left out where the name leads anywhere else: to the standard library, to what is installed, to a
    folder above the package, from which its program may be started, or to one that a file adds to the search path; where the
    folder itself must be on that, since a file elsewhere imports from it without its name; where only the first part of a
    dotted name lies there; and in packages whose files are run as scripts, but for their `__init__.py`.
    """

    safety = "safe"
    VALID = (_VALID,)
    INVALID = (_EXAMPLE,)

    def check(self, context: Context) -> Iterator[Fix]:
        module, positions = context.module, context.positions
        folder = posixpath.dirname(module.path)
        if not _is_package(module, folder) or _is_on_path(module, folder):
            return
        if not module.path.endswith("/__init__.py") and not _is_only_imported(context, folder):
            return
        for node in module.of_kind(ast.ImportFrom):
            name = node.module or ""
            if not node.level and _lies_beside(context, folder, name) and not has_fallback(module, node):
                start = positions.span(node)[0]
                at = start + positions.text[start:].index(name, len("from"))
                message = f"Python 3 does not look for {name} beside this file; write .{name}"
                yield self.fix(context, node, message, [Edit(at, at, ".")])
        for plain in module.of_kind(ast.Import):
            own = [alias for alias in plain.names if _lies_beside(context, folder, alias.name) and "." not in alias.name]
            if own and not has_fallback(module, plain):
                indent = positions.newline(plain.lineno) + positions.indent(plain.lineno)
                lines = [f"from . import {', '.join(map(ast.unparse, own))}"]
                if others := [alias for alias in plain.names if alias not in own]:
                    lines.append(f"import {', '.join(map(ast.unparse, others))}")
                edits = [Edit(*positions.span(plain), indent.join(lines))] if positions.starts_line(plain) else []
                message = f"Python 3 does not look for {own[0].name} beside this file; write from . import {own[0].name}"
                yield self.fix(context, plain, message, edits)


def _is_package(module: Module, folder: str) -> bool:
    return bool(folder) and f"{folder}/__init__.py" in module.repository.modules


def _is_on_path(module: Module, folder: str) -> bool:
    """Whether a file elsewhere imports a module of the folder by its bare name, which leads nowhere else in the repository."""
    repository = module.repository
    for other in repository.modules.values():
        place = posixpath.dirname(other.path)
        if place == folder or place.startswith(f"{folder}/"):
            continue
        roots = {name.partition(".")[0] for name in _imported(other)}
        found = (root for root in roots if repository.lies_in(root, folder))
        if any(not any(repository.lies_in(root, above) for above in upward(place)) for root in found):
            return True
    return False


def _imported(module: Module) -> Iterator[str]:
    for node in module.of_kind(ast.ImportFrom):
        if not node.level and node.module:
            yield node.module
    for plain in module.of_kind(ast.Import):
        yield from (alias.name for alias in plain.names)


def _is_only_imported(context: Context, folder: str) -> bool:
    beside = (file for path, file in context.module.repository.modules.items() if posixpath.dirname(path) == folder)
    return not any(does_something(file) for file in beside)


def _lies_beside(context: Context, folder: str, name: str) -> bool:
    """Whether an absolute import can only mean what lies in the importing file's own folder."""
    root, module = name.partition(".")[0], context.module
    repository = module.repository
    parent, _, last = posixpath.join(folder, *name.split(".")).rpartition("/")
    if not root or not repository.lies_in(last, parent) or f"{folder}/{root}.py" == module.path:
        return False
    elsewhere = any(repository.lies_in(root, place) for place in (*upward(posixpath.dirname(folder)), *repository.added))
    return not elsewhere and not is_installed(root, context.survey.root)
