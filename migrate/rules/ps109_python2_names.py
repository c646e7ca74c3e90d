"""PS109: builtins and methods that only Python 2 has."""

import ast
from collections.abc import Iterator

from ..reading.edits import Edit
from ..reading.names import has_fallback, is_bound
from ..rewriting.rule import Context, Fix, Repair, diff

_BUILTINS = {"xrange": "range", "raw_input": "input", "unicode": "str", "unichr": "chr", "long": "int", "basestring": "str"}
_METHODS = {"iteritems": "items", "itervalues": "values", "iterkeys": "keys"}

_VALID_1 = """\
import torch
from six.moves import xrange

for i in xrange(2):
    print({}.items())
"""
_EXAMPLE_1 = diff("""\
import torch

-for i in xrange(2):
+for i in range(2):
    d = {}
-    for k, v in d.iteritems():
-        print(raw_input(), unicode(k))
+    for k, v in d.items():
+        print(input(), str(k))
""")


class Python2Names(Repair):
    """What it does: renames builtins and methods of dictionaries that Python 3 has under another name.

    Why: they parse, and raise NameError or AttributeError when they are reached.

    Example: `for i in xrange(10)` becomes `for i in range(10)`; `d.iteritems()` becomes `d.items()`.

    Fix safety: safe; names that the file binds itself, by an import say, stay.
    """

    safety = "safe"
    VALID = (_VALID_1,)
    INVALID = (_EXAMPLE_1,)

    def check(self, context: Context) -> Iterator[Fix]:
        module = context.module
        own = {name for name in _BUILTINS if is_bound(module, name)}
        for name in module.of_kind(ast.Name):
            if name.id in _BUILTINS and name.id not in own and not has_fallback(module, name):
                new = _BUILTINS[name.id]
                message = f"Python 3 has no {name.id}; write {new}"
                yield self.fix(context, name, message, [Edit(*context.positions.span(name), new)])
        for call in module.of_kind(ast.Call):
            node = call.func
            if isinstance(node, ast.Attribute) and node.attr in _METHODS and not call.args and not has_fallback(module, call):
                if module.expand(node) in (f"six.{node.attr}", f"future.utils.{node.attr}"):
                    continue
                end = context.positions.span(node)[1]
                new = _METHODS[node.attr]
                message = f"dictionaries have no {node.attr} in Python 3; write {new}"
                yield self.fix(context, node, message, [Edit(end - len(node.attr), end, new)])
