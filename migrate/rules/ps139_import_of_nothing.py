"""PS139: imports of names that the repository's own module does not have."""

import ast
import posixpath
import re
from collections.abc import Iterator

from ..reading.bindings import bound_names
from ..reading.edits import Edit
from ..reading.names import has_fallback, is_installed, remove_import
from ..reading.scopes import Function, Module, Repository, import_module
from ..rewriting.rule import Context, Fix, Repair, diff

_MAKES_NAMES = re.compile(r"\b(globals|locals|vars|exec|setattr|sys\.modules|__getattr__|__dict__)\b")
"""What a module may bind names with that nobody can read."""
_EXAMPLE = diff("""\
# main.py:
import torch
-from nets import small, huge
-from nets import gone
+from nets import small

def build(name):
    if name == "huge":
        return huge()
    return gone() if name == "gone" else small()
# nets.py:
import torch

def small():
    return torch.nn.Linear(2, 2)
""")
_VALID = """\
# main.py:
import torch
from nets import small, wide, more, parts
from nets import tall
from dynamic import anything
try:
    from nets import gone
except ImportError:
    gone = None

def build():
    return [small(), wide(), more(), parts, anything, gone]

class Net(tall):
    pass

def train(rows):
    from nets import huge
    for row in rows:
        huge(row)
# nets/__init__.py:
import torch
from .rest import *
if torch:
    small = wide = None
# nets/rest.py:
def more():
    global parts
# nets/parts.py:
# dynamic.py:
import torch
globals()["anything"] = 1
"""


class ImportOfNothing(Repair):
    """What it does: leaves names out of an import that the imported module of the repository does not have.

    Why: the import ends the script, also where nothing that it runs uses the name: "cannot import name ... from ...".

    Example: `from nets import small, huge` becomes `from nets import small`, where nets.py defines no `huge`.

    Fix safety: safe; the file cannot be imported as it stands, and code that does use the name still ends there, with a
    NameError. Names that the file needs as it is imported stay, those that a function imports for what it does next, and those
    of modules that make names as they run.
    """

    safety = "safe"
    VALID = (_VALID,)
    INVALID = (_EXAMPLE,)

    def check(self, context: Context) -> Iterator[Fix]:
        module = context.module
        for node in module.of_kind(ast.ImportFrom):
            if node.names[0].name == "*" or has_fallback(module, node) or _leads_elsewhere(context, node):
                continue
            sources = _sources(module, node)
            known = [_names_of(source, set()) for source in sources]
            if not sources or None in known:
                continue
            names = set[str]().union(*(each for each in known if each is not None))
            source = sources[0]
            here = [alias for alias in node.names if alias.name in names or any(_is_part(one, alias.name) for one in sources)]
            gone = [alias for alias in node.names if alias not in here and _can_wait(module, node, alias.asname or alias.name)]
            if not gone:
                continue
            if len(node.names) == 1:
                edits = [remove_import(module, context.positions, node, gone[0])]
            elif len(gone) == len(node.names):
                edits = [Edit(*context.positions.span(node), "pass")]
            else:
                edits = context.positions.leave_out(node.names, gone)
            message = f"{source.path} has no {', '.join(alias.name for alias in gone)}, so this import fails; it is left out"
            message += "".join(f" ({path} has a {name}: import it from there)" for name, path in _beside(source, gone))
            yield self.fix(context, node, message, edits)


def _sources(module: Module, node: ast.ImportFrom) -> list[Module]:
    """The files from which an import takes names. A relative one leads to one place alone: `from . import tests` in a folder
    without an __init__.py to no file, and not to the file that is called as the folder is."""
    name = import_module(node, module.path)
    if not node.level:
        return list(module.repository.meant(name, module.path))
    base = name.replace(".", "/")
    files = (f"{base}.py", f"{base}/__init__.py") if node.module else (f"{base}/__init__.py".lstrip("/"),)
    return [found for file in files if (found := module.repository.modules.get(file)) is not None]


def _beside(source: Module, gone: list[ast.alias]) -> Iterator[tuple[str, str]]:
    """The names that one file beside the imported one defines, and that file."""
    folder = posixpath.dirname(source.path)
    near = [module for path, module in source.repository.modules.items() if posixpath.dirname(path) == folder]
    for alias in gone:
        having = [module.path for module in near if alias.name in module.definitions]
        if len(having) == 1:
            yield alias.name, having[0]


def _leads_elsewhere(context: Context, node: ast.ImportFrom) -> bool:
    return not node.level and is_installed((node.module or "").partition(".")[0], context.survey.root)


def _names_of(module: Module, seen: set[str]) -> set[str] | None:
    """What a module binds, with the stars of the repository's own modules; None where that cannot be read."""
    if module.path in seen:
        return set()
    seen.add(module.path)
    if _MAKES_NAMES.search(module.file.text or "") or module.file.notebook is not None:
        return None
    names = bound_names(module.tree) | {name for node in module.of_kind(ast.Global) for name in node.names}
    for star in module.star_imports:
        source = module.repository.module(star, module.path)
        inner = _names_of(source, seen) if source is not None else None
        if inner is None:
            return None
        names |= inner
    return names | {"__all__", "__doc__", "__file__", "__name__", "__path__", "__version__"}


def _is_part(module: Module, name: str) -> bool:
    """Whether a package has a module or a folder of this name."""
    folder = module.path.removesuffix("__init__.py")
    repository: Repository = module.repository
    return folder != module.path and repository.lies_in(name, folder.rstrip("/"))


def _can_wait(module: Module, statement: ast.ImportFrom, name: str) -> bool:
    """Whether what holds an import goes on without a name: it stands in other functions, and in branches, alone."""
    home = next((item for item in module.ancestors(statement) if isinstance(item, Function)), module.tree)
    uses = [node for node in module.of_kind(ast.Name) if node.id == name]
    inside = (module.ancestors(node, within=home) for node in uses)
    return all(any(isinstance(item, Function | ast.If | ast.IfExp) for item in around) for around in inside)
