"""Find what builds a whole classifier: nn.Module classes and the functions that return them.

A class counts when it takes one image batch, ends in a layer of classes, and is not a part of another network. A function
counts when what it returns is such a class, directly or through other functions; then the class itself no longer counts.
Functions that only choose between factories by a name are not factories of their own.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from functools import cached_property

from ..reading.calls import bind
from ..reading.facts import Factory
from ..reading.nodes import arguments_of, defaults_of, inside, required_of, text_of
from ..reading.scopes import Definition, Function, Module, Repository, dotted, last_name, local_names, parameters, root_of
from .heads import (
    COUNTS_CLASSES,
    HEADS,
    PATCHING,
    answers_with_classes,
    counts_classes,
    ends_in_rows,
    is_count,
    is_head,
    is_single,
    is_written_out,
    is_zoo_constructor,
    makes_published,
    may_be_head,
    table_of,
)
from .model_class import ModelClass, makes_itself

_NOT_IMAGES = frozenset(
    ["ConvTranspose1d", "ConvTranspose2d", "ConvTranspose3d", "Conv3d", "Upsample", "PixelShuffle", "Embedding", "EmbeddingBag"]
)
_FLATTENING = PATCHING | frozenset(
    ["flatten", "Flatten", "view", "reshape", "mean", "adaptive_avg_pool2d", "AdaptiveAvgPool2d", "avg_pool2d"]
)
_OF_ONE_LABEL = frozenset(
    ["BCELoss", "BCEWithLogitsLoss", "binary_cross_entropy", "binary_cross_entropy_with_logits", "sigmoid_focal_loss"]
)
"""Losses of the score of a label."""
_MAKING_IMAGES = frozenset(["ConvTranspose2d", "Discriminator", "discriminator", "netD", "netG"])
_WHOLE_NETWORK = re.compile(r"(Net(V\d+)?|Transformer|VGG|Inception3|InceptionV\d|ConvNeXt|MaxVit|Mixer|Cait|Xcit|Beit|Eva)$")
"""Published classes that are whole classifiers, not parts of them; their head comes with them."""
_MODULE_ROOTS = (
    "torch.nn",
    "torch.quantization",
    "torchvision",
    "timm",
    "pytorch_lightning",
    "lightning",
    "efficientnet_pytorch",
)
_GIVEN_BODY = re.compile(r"^(backbone|encoder|base_?model|feature_?extractor|trunk|pretrained_model|cnn)$")
"""Parameters that bring a network for images."""
_SAME = frozenset(["to", "cuda", "eval", "train", "half", "float"])
"""Methods that give the model back."""
_NOT_PARTS = frozenset(["super", "isinstance", "issubclass", "summary", "partial"])
"""Callees that get a class without making it a part of another network."""
_LIGHTNING = re.compile(r"(^|\.)(LightningModule)$")


class ModelTable:
    """The module classes of a repository and the factories among classes and functions."""

    def __init__(self, repository: Repository, seen: frozenset[str] = frozenset()) -> None:
        """`seen` are the names of classes that a run has shown to answer images with classes, however they are written."""
        self.repository, self.seen = repository, seen
        self.classes: dict[ast.AST, ModelClass] = {}
        for module in repository.modules.values():
            for node in module.definitions.values():
                if isinstance(node, ast.ClassDef):
                    self._classify(module, node, set())
        for model in self.classes.values():
            model.parts = {
                self.classes[found] for found in self._mentions(model.module, model.node) if found in self.classes
            } - {model}
        self._shaped: dict[tuple[ast.AST, bool], bool] = {}
        self._built: dict[ast.AST, set[str]] = {}
        self.factories = tuple(sorted(self._factories(), key=lambda factory: (factory.path, factory.line)))

    def _classify(self, module: Module, node: ast.ClassDef, active: set[ast.AST]) -> ModelClass | None:
        if node in self.classes:
            return self.classes[node]
        if node in active:
            return None
        active.add(node)
        model = ModelClass(module, node)
        known = False
        for base in node.bases:
            expanded = module.expand(base) or ""
            found = module.find_callee(base)
            if found is not None and isinstance(found[1], ast.ClassDef):
                parent = self._classify(found[0], found[1], active)
                if parent is not None:
                    model.bases.append(parent)
                    model.lightning |= parent.lightning
                    known = True
            elif expanded.startswith(_MODULE_ROOTS) and not expanded.endswith("Loss") and "Dataset" not in expanded:
                known |= not expanded.startswith(("torchvision.datasets", "torchvision.transforms", "timm.data"))
                model.lightning |= bool(_LIGHTNING.search(expanded))
            elif expanded in ("Module", "LightningModule"):
                known = True
                model.lightning |= expanded == "LightningModule"
        if known:
            self.classes[node] = model
            return model
        return None

    def _mentions(self, module: Module, node: ast.AST) -> Iterator[Definition]:
        for inner in ast.walk(node):
            if isinstance(inner, ast.Name | ast.Attribute) and isinstance(inner.ctx, ast.Load):
                found = module.find_callee(inner)
                if found is not None:
                    yield found[1]

    def classifier_shaped(self, model: ModelClass, *, of_rows: bool = False) -> bool:
        """Takes one input, and holds a layer of classes; whether it is a part of something else is not asked here. With
        `of_rows` a network of vectors is one too, where it is known that it is given images as rows of their pixels."""
        if (model.node, of_rows) not in self._shaped:
            shaped = self._takes_images(model) and self._has_head(model, of_rows=of_rows)
            self._shaped[model.node, of_rows] = shaped or model.node.name in self.seen
        return self._shaped[model.node, of_rows]

    def may_classify(self, model: ModelClass) -> bool:
        """Whether what a network answers could be classes of images, whatever its counts are called: layers of convolutions
        end in rows of numbers. Whether they are is for what asks it to tell."""
        names = {last_name(call.func) for part in model.with_parts() for call in inside(part.node, ast.Call)}
        rows = "Linear" in names or ends_in_rows(model.methods("forward"))
        return self._takes_images(model) and "Conv2d" in names and rows and not names & _NOT_IMAGES

    def makes_model(self, owner: Module, definition: Definition, active: frozenset[ast.AST] = frozenset()) -> bool:
        """Whether calling a definition of the file `owner` gives a model: a class of that shape, or what returns one."""
        if isinstance(definition, ast.ClassDef):
            model = self.classes.get(definition)
            return model is not None and self.classifier_shaped(model)
        return bool(self.builders(owner, definition, active))

    def _takes_images(self, model: ModelClass) -> bool:
        forward = model.methods("forward")
        if forward is None:
            return bool(model.bases) or any(last_name(base) != "Module" for base in model.node.bases)
        arguments = forward.args
        names = [argument.arg for argument in (*arguments.posonlyargs, *arguments.args)]
        if not names[1:] and arguments.vararg is None:
            return False
        return sum(name not in names[:1] for name in required_of(forward)) <= 1

    def _has_head(self, model: ModelClass, *, of_rows: bool) -> bool:
        seen = model.with_parts()
        names = {last_name(call.func) for part in seen for call in inside(part.node, ast.Call)}
        if names & _NOT_IMAGES or self._answers_per_pixel(model):
            return False
        if any(self._is_published(part) for part in seen if part is model or part in model.bases):
            return True
        calls = [(part.module, call) for part in seen for call in inside(part.node, ast.Call)]
        published = [call for module, call in [*calls, *_tabled(seen)] if makes_published(module, call)]
        if published:
            return answers_with_classes(published, [call for _, call in calls if last_name(call.func) == "Linear"], names)
        given = model.methods("__init__")
        taken = given is not None and any(_GIVEN_BODY.match(argument.arg) for argument in parameters(given))
        taken = taken or of_rows or any(name.endswith("Conv2d") or "PatchEmbed" in name for name in names)
        if not taken and not names & _FLATTENING:
            return False  # a network of vectors: a policy, a regressor
        if model.methods("reparameterize") or model.methods("decode"):
            return False
        if of_rows and any(isinstance(node, ast.Attribute) and node.attr.startswith("decod") for node in model.own_nodes()):
            return False  # what it gives are rows of pixels again
        init = model.methods("__init__")
        named = init is not None and any(COUNTS_CLASSES.search(argument.arg) for argument in parameters(init))
        if named and names & HEADS:
            return True
        if any(may_be_head(node) for node in model.own_nodes() if isinstance(node, ast.Assign)):
            return True
        own = [call for call in model.own_nodes() if isinstance(call, ast.Call)]
        return any(is_head(call) or self._makes_head(model, call) for call in own) or self._says_yes_or_no(own)

    def _says_yes_or_no(self, calls: list[ast.Call]) -> bool:
        """Whether a network ends in the one score of a label, as classifiers of two classes do: one number is as well a
        regression, or what judges made images, so the repository must train such scores, and make no images."""
        return self._judges_scores and any(is_single(call) for call in calls)

    @cached_property
    def _judges_scores(self) -> bool:
        modules = self.repository.modules.values()
        words = {node.attr for module in modules for node in module.of_kind(ast.Attribute)}.union(
            *(item.words for item in modules)
        )
        return bool(words & _OF_ONE_LABEL) and not words & _MAKING_IMAGES

    def _makes_head(self, model: ModelClass, call: ast.Call) -> bool:
        """Whether a call makes a part that ends in a layer of as many outputs as the call says: `Head(512, n_classes)`."""
        found = model.module.find_callee(call.func)
        part = self.classes.get(found[1]) if found is not None else None
        init = part.methods("__init__") if part is not None and part in model.parts else None
        if part is None or init is None:
            return False
        outs = {last_name(item) for node in part.own_nodes() if isinstance(node, ast.Call) and last_name(node.func) == "Linear"
                for item in arguments_of(node)[1:2]}  # fmt: skip
        given = defaults_of(init) | bind(init, call, skip=1)
        called = re.search(r"head|classif|fc|logit", part.node.name, re.I) is not None
        return any(counts_classes(value) or (called and is_count(value)) for name, value in given.items() if name in outs)

    @staticmethod
    def _is_published(model: ModelClass) -> bool:
        """Whether a class derives from a library's whole classifier, such as `torchvision.models.ResNet`."""
        expanded = [model.module.expand(base) or "" for base in model.node.bases]
        return any(
            is_zoo_constructor(name)
            and bool(_WHOLE_NETWORK.search(name))
            and not re.search("detection|segmentation|video", name)
            for name in expanded
        )

    @staticmethod
    def _answers_per_pixel(model: ModelClass) -> bool:
        """Segmentation: `forward` enlarges what convolutions alone gave; a classifier that resizes its input ends in Linear."""
        forward = model.methods("forward")
        enlarging = any(
            last_name(call.func) in ("interpolate", "upsample", "upsample_bilinear") for call in inside(forward, ast.Call)
        )
        linear = any(isinstance(node, ast.Call) and last_name(node.func).endswith("Linear") for node in model.own_nodes())
        return enlarging and not linear

    def builders(self, module: Module, function: Function, active: frozenset[ast.AST] = frozenset()) -> set[str]:
        """What the values that a function returns are built by: "path:Class", "path:function", or a library's constructor."""
        if function in self._built:
            return self._built[function]
        if function in active or len(active) > 20:
            return set()
        active |= {function}
        values: list[ast.expr] = []
        bindings: dict[str, list[ast.expr]] = {}
        for node in _own_walk(function):
            if isinstance(node, ast.Return) and node.value is not None:
                values.append(node.value)
            elif isinstance(node, ast.Assign):
                for target in node.targets:
                    if isinstance(target, ast.Name):
                        bindings.setdefault(target.id, []).append(node.value)
        found: set[str] = set()
        local = local_names(function)
        seen: set[str] = set()
        while values:
            value = values.pop()
            if isinstance(value, ast.Name) and value.id in bindings and value.id not in seen:
                seen.add(value.id)
                values.extend(bindings[value.id])
            elif isinstance(value, ast.IfExp):
                values += [value.body, value.orelse]
            elif isinstance(value, ast.Call):
                if (built := self._callee(module, value, local, active)) is not None:
                    found.add(built)
                elif isinstance(value.func, ast.Attribute) and value.func.attr in _SAME:
                    values.append(value.func.value)
                elif last_name(value.func) in ("DataParallel", "DistributedDataParallel", "compile") and value.args:
                    values.append(value.args[0])
        if not found and function.returns is not None and _is_stub(function):  # declared here, and made by other means
            declared = module.find_callee(function.returns)
            model = self.classes.get(declared[1]) if declared is not None else None
            if model is not None and self.classifier_shaped(model):
                found.add(f"{model.module.path}:{model.node.name}")
        self._built[function] = found
        return found

    def _callee(self, module: Module, call: ast.Call, local: set[str], active: frozenset[ast.AST]) -> str | None:
        text = dotted(call.func)
        if text is None:
            # models[arch](...), models.__dict__[arch](...), getattr(models, arch)(...): a choice, which factories are not
            return "?" if isinstance(call.func, ast.Subscript | ast.Call) else None
        root = text.partition(".")[0]
        target = module.find_callee(call.func) if root not in local or root in module.imports else None
        if target is None and isinstance(call.func, ast.Attribute) and root not in local:
            owned = module.find_callee(call.func.value)
            if owned is not None and isinstance(owned[1], ast.ClassDef) and makes_itself(owned[1], call.func.attr):
                target = owned
        if target is None:
            expanded = module.expand(call.func)
            if expanded == "torch.nn.Sequential":
                return expanded if is_written_out(call) else None
            return expanded if is_zoo_constructor(expanded) else None
        owner, node = target
        return f"{owner.path}:{node.name}" if self.makes_model(owner, node, active) else None

    @staticmethod
    def choices(function: Function, names: set[str]) -> list[str]:
        """The texts with which a function compares what some of its parameters hold, in the order of the source."""
        found: list[str] = []
        for node in ast.walk(function):
            if isinstance(node, ast.Compare) and isinstance(node.ops[0], ast.Eq | ast.In) and root_of(node.left) in names:
                values = node.comparators[0]
                listed = values.elts if isinstance(values, ast.Tuple | ast.List | ast.Set) else [values]
                found += [text for item in listed if (text := text_of(item)) is not None]
            elif isinstance(node, ast.Match) and root_of(node.subject) in names:
                patterns = [inner.value for case in node.cases for inner in inside(case.pattern, ast.MatchValue)]
                found += [text for item in patterns if (text := text_of(item)) is not None]
        return list(dict.fromkeys(found))

    def dispatched(self) -> list[str]:
        """The names by which the repository's functions choose among models."""
        found: list[str] = []
        for module in self.repository.modules.values():
            for node in module.definitions.values():
                if isinstance(node, ast.FunctionDef) and not _is_test(module, node.name) and self.builders(module, node):
                    names = {argument.arg for argument in parameters(node)}
                    found += [name for name in self.choices(node, names) if len(name) > 0]
        return list(dict.fromkeys(found))

    def key_of(self, name: str) -> str:
        """The string under which a dict of the repository keeps the factory of that name, `{"small": make}`; else that."""
        keys: set[str] = set()
        for node in (node for module in self.repository.modules.values() for node in module.nodes):
            for key, value in zip(node.keys, node.values, strict=True) if isinstance(node, ast.Dict) else ():
                text = text_of(key)
                if text == name:
                    return name
                if text is not None and last_name(value) == name:
                    keys.add(text)
        return keys.pop() if len(keys) == 1 else name

    def _factories(self) -> Iterator[Factory]:
        functions: list[tuple[Module, Function, set[str]]] = []
        for module in self.repository.modules.values():
            for name, node in module.definitions.items():
                if isinstance(node, ast.FunctionDef) and not _is_test(module, name):
                    built = self.builders(module, node)
                    if built:
                        functions.append((module, node, built))
        made_by = {f"{module.path}:{node.name}": built for module, node, built in functions}
        called = set().union(*made_by.values()) if made_by else set()
        chosen: list[tuple[Module, Function, set[str]]] = []
        for module, node, built in functions:
            required = required_of(node)
            helper = node.name.startswith("_") or (required and f"{module.path}:{node.name}" in called)
            dispatcher = (
                len(self.choices(node, set(required))) > 1
                or "?" in built
                or len(built) > 1
                or (len(required) > 0 and built <= {key for key in built if not _is_class(key)})
            )
            if not helper and not dispatcher:
                chosen.append((module, node, built))
        # a class behind a chosen function, possibly through helpers, is that function's, not a factory of its own
        behind: set[str] = set()
        stack = [key for _, _, built in chosen for key in built]
        while stack:
            key = stack.pop()
            if key not in behind:
                behind.add(key)
                stack.extend(made_by.get(key, ()))
        for module, node, _ in chosen:
            yield Factory(
                name=node.name,
                path=module.path,
                line=node.lineno,
                kind="function",
                module=module.name,
                required=tuple(required_of(node)),
            )
        blocks = self._blocks()
        for model in self.classes.values():
            node = model.node
            if f"{model.module.path}:{node.name}" in behind or node in blocks or node.name.startswith("_"):
                continue
            if model.lightning or not self.classifier_shaped(model):
                continue
            init = model.methods("__init__")
            needed = tuple(required_of(init)[1:]) if init is not None else ()
            yield Factory(
                name=node.name,
                path=model.module.path,
                line=node.lineno,
                kind="class",
                module=model.module.name,
                required=needed,
            )

    def _blocks(self) -> set[ast.AST]:
        """Classes that are parts of others: mentioned in another network's body, together in a row of its table, or handed
        over as an argument."""
        blocks: set[ast.AST] = set()
        for model in self.classes.values():
            if not model.lightning:
                blocks |= {part.node for part in model.parts if part not in model.bases}
                blocks |= {base.node for base in model.bases if base.node.name not in self._called}
                tabled = (item for node in inside(model.node, ast.Subscript) for item in table_of(model.module, node))
                rows = [item for item in tabled if isinstance(item, ast.Tuple | ast.List)]
                together = [model.module.find_callee(part) for row in rows for part in row.elts if isinstance(part, ast.Name)]
                blocks |= {found[1] for found in together if found is not None and found[1] in self.classes}
        for module in self.repository.modules.values():
            for call in module.calls:
                for value in arguments_of(call) if last_name(call.func) not in _NOT_PARTS else ():
                    found = module.find_callee(value) if isinstance(value, ast.Name | ast.Attribute) else None
                    if found is not None and found[1] in self.classes:
                        blocks.add(found[1])
        return blocks

    @cached_property
    def _called(self) -> set[str]:
        """What something calls, by its last name."""
        return {last_name(call.func) for module in self.repository.modules.values() for call in module.calls}


def _tabled(parts: Iterable[ModelClass]) -> Iterator[tuple[Module, ast.Call]]:
    """The calls in the tables of which classes take one: `NETWORKS = {"small": resnet18(), ...}`."""
    for part in parts:
        for node in inside(part.node, ast.Subscript):
            yield from ((part.module, item) for item in table_of(part.module, node) if isinstance(item, ast.Call))


def _own_walk(function: Function) -> Iterator[ast.AST]:
    """The nodes of a function's body without those of nested functions and classes."""
    stack: list[ast.AST] = list(function.body)
    while stack:
        node = stack.pop()
        yield node
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Lambda):
            stack.extend(ast.iter_child_nodes(node))


def _is_stub(function: Function) -> bool:
    """Whether a function only declares what another statement of its file puts in its place."""
    return all(
        isinstance(item, ast.Pass) or (isinstance(item, ast.Expr) and isinstance(item.value, ast.Constant))
        for item in function.body
    )


def _is_class(key: str) -> bool:
    leaf = key.rpartition(":")[2].rpartition(".")[2]
    return leaf[:1].isupper()


def _is_test(module: Module, name: str) -> bool:
    stem = module.path.rpartition("/")[2]
    return name.startswith("test") or stem.startswith("test_") or "/tests/" in f"/{module.path}"
