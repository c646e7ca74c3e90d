"""PS154: images and labels of torchvision's data sets by the names that they had before torchvision 0.3."""

import ast
from collections.abc import Iterable, Iterator

from ..reading.bindings import COMPREHENSIONS, FUNCTIONS
from ..reading.edits import Edit
from ..reading.names import has_fallback, meaning
from ..reading.nodes import inside, keyword_of, text_of
from ..reading.scopes import Function, Module, dotted, last_name, parameters
from ..reading.statements import blocks
from ..rewriting.rule import Context, Fix, Repair, diff

_NEW = {"train_data": "data", "train_labels": "targets", "test_data": "data", "test_labels": "targets"}
_GONE = frozenset(["CIFAR10", "CIFAR100"])
_WARN = frozenset(["EMNIST", "FashionMNIST", "KMNIST", "MNIST", "QMNIST"])
"""Data sets that still answer to the old names, with a warning."""
_WRAPPERS = frozenset(["DataLoader", "Subset", "random_split"])
"""What of torch.utils.data has the data set that it was given as its `dataset`."""
_DEEPEST = 12
"""Steps by which an expression is followed."""
_CAUGHT = frozenset(["AttributeError", "Exception", "BaseException"])

_SETS = diff("""\
import torch
import torchvision.datasets as dset
from torch.utils.data import DataLoader
from torchvision.datasets import CIFAR10 as C

trainset = dset.CIFAR100("data", train=True) if hundred else C("data", train=True)
-mean = trainset.train_data.mean(axis=(0, 1, 2))
-trainset.train_labels = trainset.train_labels[:100]
+mean = trainset.data.mean(axis=(0, 1, 2))
+trainset.targets = trainset.targets[:100]
loader = DataLoader(C("data", train=False), batch_size=64)
-print(len(loader.dataset.test_data))
+print(len(loader.dataset.data))
""")
_SUBCLASS = diff("""\
import numpy as np
import torch
import torchvision


class Noisy(torchvision.datasets.CIFAR10):
    def __init__(self, root, train):
        super().__init__(root, train)
        if train:
-            labels = np.array(self.train_labels)
+            labels = np.array(self.targets)
            labels[:10] = 0
-            self.train_labels = labels
+            self.targets = labels

    def __getitem__(self, index):
        if self.train:
-            return self.train_data[index], self.train_labels[index]
-        return self.test_data[index], self.test_labels[index]
+            return self.data[index], self.targets[index]
+        return self.data[index], self.targets[index]
""")
_VALID = """\
import torch
import torch.utils.data as data
from torchvision import datasets


class CIFAR10(data.Dataset):
    def __init__(self, root):
        self.train_data = []
        self.train_labels = []


class Shuffled(datasets.CIFAR10):
    def __init__(self, root):
        super().__init__(root)
        self.train_data = shuffled(root)

    def __getitem__(self, index):
        return self.train_data[index]


class Trainer:
    def fit(self, trainset):
        return self.train_data, trainset.train_data


mine = CIFAR10("data")
print(mine.train_data, Shuffled("data").train_data)
trainset = datasets.CIFAR10("data")
labels = trainset.targets
"""


class DatasetAttributes(Repair):
    """What it does: reads the images and the labels of torchvision's CIFAR and MNIST sets as `data` and `targets`.

    Why: since torchvision 0.3 `train_data` and `test_data` are `data`, `train_labels` and `test_labels` are `targets`. The sets
    of CIFAR have no attributes of the old names any more, and those of MNIST warn about them.

    Example: `trainset.train_labels` becomes `trainset.targets`.

    Fix safety: safe; what they hold is the same. Only what is made of torchvision's classes in the same file is taken for such
    a set, and what a class has that is derived from one of them and does not set these attributes before it reads them.
    """

    safety = "safe"
    VALID = (_VALID,)
    INVALID = (_SETS, _SUBCLASS)

    def check(self, context: Context) -> Iterator[Fix]:
        module = context.module
        found = [(node, kinds) for node in _mentions(module) if (kinds := _kinds_at(module, node))]
        if not found:
            return
        others = [other for other in context.index.repository.modules.values() if other.path != module.path]
        unsure, split = _elsewhere([module, *others])
        for node, kinds in found:
            old, new = node.attr, _NEW[node.attr]
            if old in unsure or _is_rescued(module, node) or _is_written(module, new):
                continue
            end = context.positions.span(node)[1]
            edits = [] if old in split else [Edit(end - len(old), end, new)]
            if gone := kinds & _GONE:
                message = f"{min(gone)} has no {old} since torchvision 0.3; write {new}"
                yield self.fix(context, node, message, edits, severity="error")
            else:
                message = f"{min(kinds)} warns of {old} since torchvision 0.3; write {new}"
                yield self.fix(context, node, message, edits)


def _mentions(module: Module) -> list[ast.Attribute]:
    """Where a file has one of the old names as an attribute."""
    return [node for node in module.of_kind(ast.Attribute) if node.attr in _NEW]


def _elsewhere(modules: list[Module]) -> tuple[set[str], set[str]]:
    """The old names that these files may give to a set unseen, or ask for; and those that they give to a set and read where
    nobody knows of what, of which either all or none can change."""
    unsure, stored, read = set[str](), set[str](), set[str]()
    for module in modules:
        if not any(name in (module.file.text or "") for name in _NEW):
            continue
        asked = (call.args[1] for call in module.calls if last_name(call.func).endswith("attr") and len(call.args) > 1)
        unsure |= {text for node in asked if (text := text_of(node)) in _NEW}
        seen = set(_mentions(module))
        for node in module.nodes:
            if not isinstance(node, ast.Attribute) or node.attr not in _NEW:
                continue
            kinds, loads = _kinds_at(module, node), isinstance(node.ctx, ast.Load)
            if kinds and not loads:
                stored.add(node.attr)
            elif (kinds and node not in seen) or (kinds is None and loads and _class_at(module, node.value) is None):
                read.add(node.attr)  # in an f-string, or of who knows what
            elif kinds is None and _class_at(module, node.value) is None:
                unsure.add(node.attr)
    return unsure, stored & read


def _is_rescued(module: Module, node: ast.AST) -> bool:
    """Whether a file deals itself with the absence of an attribute."""
    for parent in module.ancestors(node):
        if isinstance(parent, ast.Try):
            caught = (handler.type for handler in parent.handlers)
            if any(kind is None or {*map(last_name, inside(kind, ast.expr))} & _CAUGHT for kind in caught):
                return True
    return has_fallback(module, node)


def _is_written(module: Module, new: str) -> bool:
    """Whether a file gives a set something of its own by a name of today."""
    stores = (node for node in module.of_kind(ast.Attribute) if node.attr == new and not isinstance(node.ctx, ast.Load))
    return any(_class_at(module, node.value) is None and _kinds_of(module, node.value, new) for node in stores)


def _kinds_at(module: Module, node: ast.Attribute) -> set[str] | None:
    """Which of torchvision's sets has the attribute that stands somewhere, by name: each that may; None where nobody knows."""
    own = _class_at(module, node.value)
    return _kinds_of_class(module, own, node.attr) if own is not None else _kinds_of(module, node.value, node.attr)


def _class_at(module: Module, node: ast.expr) -> ast.ClassDef | None:
    """The class of which an expression is an object: that of the method whose `self` it is."""
    if not isinstance(node, ast.Name):
        return None
    scope = _owner(module, node)
    if not isinstance(scope, Function) or [item.arg for item in parameters(scope)][:1] != [node.id]:
        return None
    marks = set(map(last_name, scope.decorator_list))
    return None if marks & {"staticmethod", "classmethod"} else module.class_of(scope)


def _kinds_of(module: Module, node: ast.expr, attribute: str) -> set[str] | None:
    values = _values(module, node) or ()
    return _joined(_kinds_made(module, value, attribute) if isinstance(value, ast.Call) else None for value in values)


def _kinds_made(module: Module, call: ast.Call, attribute: str) -> set[str] | None:
    """The kinds of set that a call may make; none of another kind of torchvision's."""
    return _joined(_kinds_named(module, value, attribute) for value in _values(module, call.func) or ())


def _joined(kinds: Iterable[set[str] | None]) -> set[str] | None:
    """All of these, or None where one is unknown, or there is nothing."""
    found = list(kinds)
    known = [item for item in found if item is not None]
    return set().union(*known) if found and len(known) == len(found) else None


def _kinds_named(module: Module, node: ast.expr, attribute: str, heirs: tuple[ast.ClassDef, ...] = ()) -> set[str] | None:
    """What the name of a class says of the kind of set that it is."""
    full = meaning(module, node) or ""
    if full.startswith("torchvision.datasets.") and not module.repository.has_package("torchvision", module.path):
        kind = full.rpartition(".")[2]
        return {kind} & (_GONE | _WARN) if kind[:1].isupper() else None
    found = module.find_callee(node)
    if found is None or not isinstance(found[1], ast.ClassDef):
        return set() if dotted(node) == "object" else None
    return _kinds_of_class(found[0], found[1], attribute, heirs)


def _kinds_of_class(module: Module, own: ast.ClassDef, attribute: str, heirs: tuple[ast.ClassDef, ...] = ()) -> set[str] | None:
    """The kinds of set from which a class of the repository has an attribute; None where it may have its own."""
    if own in heirs or _has_own(module, own, attribute):
        return None
    kinds = _joined([set(), *(_kinds_named(module, base, attribute, (*heirs, own)) for base in own.bases)])
    if not kinds:
        return None if _stores(own, attribute) else kinds
    for other in module.repository.modules.values():
        for heir in other.of_kind(ast.ClassDef):
            ours = any(last_name(base) == own.name and not _is_torchvision(other, base) for base in heir.bases)
            if ours and _has_own(other, heir, attribute):
                return None
    return kinds


def _is_torchvision(module: Module, node: ast.expr) -> bool:
    return (meaning(module, node) or "").startswith("torchvision.")


def _has_own(module: Module, own: ast.ClassDef, attribute: str) -> bool:
    """Whether a class has an attribute of its own, or one of the new name: it stands there, or is set without being read."""
    new = _NEW.get(attribute, attribute)
    if {attribute, new, "__getattr__", "__getattribute__"} & module.names_of(own):
        return True
    if new != attribute and _stores(own, new):
        return True
    return not all(_is_read_before(module, node) for node in _stores(own, attribute))


def _stores(own: ast.ClassDef, attribute: str) -> list[ast.Attribute]:
    return [node for node in inside(own, ast.Attribute) if node.attr == attribute and not isinstance(node.ctx, ast.Load)]


def _is_read_before(module: Module, store: ast.Attribute) -> bool:
    """Whether what gives an attribute a value comes by each time after something that reads it."""
    current: ast.AST = module.statement_of(store)
    if isinstance(current, ast.AugAssign) and current.target is store:
        return True
    if isinstance(current, ast.Assign) and _reads(current.value, store.attr):
        return True
    while not isinstance(current, Function | ast.ClassDef | ast.Module):
        parent = module.parents[current]
        block = next((block for block in blocks(parent) if current in block), [])
        earlier = block[: block.index(current)] if current in block else []
        if any(isinstance(item, ast.Assign | ast.Expr) and _reads(item.value, store.attr) for item in earlier):
            return True
        current = parent
    return False


def _reads(node: ast.expr, attribute: str) -> bool:
    return any(item.attr == attribute and isinstance(item.ctx, ast.Load) for item in inside(node, ast.Attribute))


def _values(module: Module, node: ast.expr, seen: frozenset[ast.expr] = frozenset()) -> list[ast.expr] | None:
    """The expressions of which an expression stands for one; None where nobody knows."""
    if node in seen or len(seen) > _DEEPEST:
        return None
    seen |= {node}
    if isinstance(node, ast.IfExp):
        return _all_values(module, [node.body, node.orelse], seen)
    if isinstance(node, ast.Subscript):
        return _items(module, node, seen)
    if isinstance(node, ast.Attribute) and node.attr == "dataset" and (held := _values(module, node.value, seen)):
        return _all_values(module, [_wrapped(module, value) for value in held], seen)
    if not isinstance(node, ast.Name | ast.Attribute) or meaning(module, node) is not None:
        return [node]
    if isinstance(node, ast.Name) and node.id in module.definitions and _owner(module, node) is module.tree:
        return [node]
    return _all_values(module, _given(module, node), seen)


def _all_values(module: Module, nodes: Iterable[ast.expr | None], seen: frozenset[ast.expr]) -> list[ast.expr] | None:
    found: list[ast.expr] = []
    for node in nodes:
        values = _values(module, node, seen) if node is not None else None
        if not values:
            return None
        found += values
    return found or None


def _items(module: Module, node: ast.Subscript, seen: frozenset[ast.expr]) -> list[ast.expr] | None:
    """What any key gets out of a dictionary that is written out, and to which nothing is added."""
    name = dotted(node.value)
    written = [item for item in module.of_kind(ast.Subscript) if not isinstance(item.ctx, ast.Load)]
    called = [call.func.value for call in module.calls if isinstance(call.func, ast.Attribute) and call.func.attr != "items"]
    if name is None or name in map(dotted, [*(item.value for item in written), *called]):
        return None
    found: list[ast.expr | None] = []
    for held in _values(module, node.value, seen) or ():
        if isinstance(held, ast.DictComp):
            found.append(held.value)
        else:
            found += held.values if isinstance(held, ast.Dict) else [None]
    return _all_values(module, found, seen)


def _wrapped(module: Module, node: ast.expr) -> ast.expr | None:
    """The data set that a loader or a part of a set was made with."""
    if not isinstance(node, ast.Call) or not _is_wrapper(module, node.func):
        return None
    given = keyword_of(node, "dataset")
    return given.value if given is not None else next(iter(node.args), None)


def _is_wrapper(module: Module, node: ast.expr) -> bool:
    package, _, name = (meaning(module, node) or "").rpartition(".")
    return package.startswith("torch.utils.data") and name in _WRAPPERS


def _given(module: Module, node: ast.Name | ast.Attribute) -> list[ast.expr | None]:
    """All that is given to a name in its scope, or to an attribute of a class's objects; None for what nobody knows."""
    if isinstance(node, ast.Attribute):
        own = _class_at(module, node.value)
        alike = (item for item in module.of_kind(ast.Attribute) if item.attr == node.attr)
        stores = [item for item in alike if not isinstance(item.ctx, ast.Load)]
        return [_stored(module, item) for item in stores] if own is not None else []
    scope = _owner(module, node)
    taken = {item.arg for item in parameters(scope)} if isinstance(scope, Function) else set()
    if not isinstance(scope, ast.Module | Function) or node.id in taken:
        return []
    names = [item for item in inside(scope, ast.Name) if item.id == node.id and not isinstance(item.ctx, ast.Load)]
    return [_stored(module, item) for item in names if _owner(module, item) is scope]


def _owner(module: Module, node: ast.Name) -> ast.AST:
    """The scope that binds a name where it stands."""
    within = False
    for scope in module.ancestors(node):
        if isinstance(scope, (*FUNCTIONS, *COMPREHENSIONS)) or (isinstance(scope, ast.ClassDef) and not within):
            if node.id in module.names_of(scope):
                return scope
            within = True
    return module.tree


def _stored(module: Module, target: ast.expr) -> ast.expr | None:
    """The value that a target is given; of several targets at once its own, and of `random_split` the call."""
    parent = module.parents[target]
    if isinstance(parent, ast.Assign) and target in parent.targets:
        return parent.value
    if isinstance(parent, ast.AnnAssign) and target is parent.target:
        return parent.value
    outer = module.parents.get(parent)
    if not isinstance(parent, ast.Tuple) or not isinstance(outer, ast.Assign):
        return None
    if isinstance(outer.value, ast.Tuple):
        starred = any(isinstance(item, ast.Starred) for item in (*parent.elts, *outer.value.elts))
        return None if starred else dict(zip(parent.elts, outer.value.elts, strict=False)).get(target)
    return outer.value if isinstance(outer.value, ast.Call) and _is_wrapper(module, outer.value.func) else None
