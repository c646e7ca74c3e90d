"""What the code around a model's calls tells, where their words alone mislead: of images that come as rows of their pixels, of
inputs that are no tensors, of answers that are ranked as classes are, and of what a name is said to be."""

import ast
import contextlib
import sys

from ..reading.nodes import arguments_of, inside, text_of, values_of
from ..reading.scopes import Function, Module, bound_names, dotted, last_name, parameters

_OF_IMAGES = frozenset(["torchvision", "PIL", "cv2", "skimage", "imageio"])
"""Libraries of images: what a file that imports none makes flat is something else."""
_OF_TENSORS = frozenset(
    {"H", "T", "data", "device", "dtype", "grad", "grad_dtype", "grad_fn", "imag", "itemsize", "layout", "mH", "mT", "name"}
    | {"names", "nbytes", "ndim", "output_nr", "real", "requires_grad", "retains_grad", "shape", "volatile"}
)
"""What tensors have that is not called, but for `is_cuda` and its like."""
_MOVES = frozenset(["to", "cuda", "cpu", "half", "float"])
_TEXTS = frozenset(["str", "input", "os.fspath"])
_PATHS = ("os.path.", "pathlib.", "tempfile.")
"""Beginnings of what gives paths."""
_LISTS_FILES = frozenset(["glob", "iglob", "rglob", "listdir", "scandir", "iterdir"])
_SAME_ITEMS = frozenset(["tqdm", "sorted", "list", "tuple", "set", "enumerate", "reversed"])
_RANKS = frozenset(["softmax", "log_softmax", "Softmax", "LogSoftmax", "argmax", "topk"])
"""What is asked of scores of classes: their shares, and which is the highest."""


def gives_rows(module: Module) -> bool:
    """Whether a file gives networks images as rows of their pixels, as `model(images.view(-1, 784))`: it imports a library of
    images, and makes rows elsewhere than in a network's own `forward`."""
    if not any(name.partition(".")[0] in _OF_IMAGES for name in module.imports.values()):
        return False
    functions = ((call, module.function_of(call)) for call in module.calls if _makes_rows(call))
    return any(function is None or function.name != "forward" for _, function in functions)


def _makes_rows(call: ast.Call) -> bool:
    """Whether a call makes rows: `.view(-1, 784)`, `.reshape(len(x), -1)`, `.flatten(1)`, or `.view(-1)` of one image."""
    name, sizes = last_name(call.func), arguments_of(call)
    if name in ("flatten", "ravel", "Flatten"):
        return isinstance(call.func, ast.Attribute)
    sizes = sizes[0].elts if len(sizes) == 1 and isinstance(sizes[0], ast.Tuple | ast.List) else sizes
    return name in ("view", "reshape") and 1 <= len(sizes) <= 2 and any(ast.unparse(size) == "-1" for size in sizes)


def ranked(module: Module) -> set[str]:
    """The names of what answers a file with scores that it ranks as those of classes: `softmax(net(x), dim=1)`, or
    `answer = net(x)` and `answer.argmax(1)`, or `torch.max(answer, 1)`."""
    answers: dict[str, set[str]] = {}
    for node in module.of_kind(ast.Assign):
        if isinstance(node.value, ast.Call) and (asked := dotted(node.value.func)) is not None:
            for name in filter(None, map(dotted, node.targets)):
                answers.setdefault(name, set()).add(asked)
    found: set[str] = set()
    for call in module.calls:
        if (scores := _ranked_by(module, call)) is not None:
            asked = dotted(scores.func) if isinstance(scores, ast.Call) else None
            found |= answers.get(dotted(scores) or "", set()) | ({asked} if asked is not None else set())
    return found


def _ranked_by(module: Module, call: ast.Call) -> ast.expr | None:
    """What a call ranks, if it does."""
    made = call.func.func if isinstance(call.func, ast.Call) else call.func  # nn.Softmax(dim=1)(scores)
    name = last_name(made)
    given = [*call.args]
    if isinstance(made, ast.Attribute) and not (module.expand(made) or "").startswith(("torch.", "numpy.")):
        given.insert(0, made.value)
    axis = len(given) > 1 or any(item.arg in ("dim", "axis") for item in call.keywords)
    if not given or not (name in _RANKS or (name == "max" and axis)):
        return None
    scores = given[0]
    return scores.value if isinstance(scores, ast.Attribute) and scores.attr == "data" else scores


def part_of_input(module: Module, function: Function | None, given: ast.expr) -> str | None:
    """What the code around a call reads of what a model is given and no tensor has, as `data.y` of a graph or `batch["image"]`
    of named parts; None where it reads nothing of that kind."""
    nodes = [node for node in ast.walk(function or module.tree) if module.function_of(node) is function]
    parts = [node for node in nodes if isinstance(node, ast.Attribute | ast.Subscript) and _is_of_object(module, node)]
    stored = [node for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)]
    name, line = _moved(given), given.lineno
    while name is not None:
        lines = [node.lineno for node in stored if node.id == name]
        begin = max((bound for bound in lines if bound < line), default=0)
        end = min((bound for bound in lines if bound >= line), default=sys.maxsize)
        read = [node for node in parts if ast.unparse(node.value) == name and begin < node.lineno < end]
        if read:
            return ast.unparse(min(read, key=lambda node: (node.lineno, node.col_offset)))
        bindings = [
            node.value
            for node in nodes
            if isinstance(node, ast.Assign) and node.lineno == begin and any(ast.unparse(item) == name for item in node.targets)
        ]
        name, line = (_moved(bindings[0]) if bindings else None), begin
    return None


def is_text(module: Module, function: Function | None, given: ast.expr, depth: int = 0) -> bool:
    """Whether what a model is given is a text or the path of a file, as detectors take that open it themselves."""
    if isinstance(given, ast.JoinedStr) or (isinstance(given, ast.Constant) and isinstance(given.value, str)):
        return True
    if isinstance(given, ast.Call):
        made = module.expand(given.func) or dotted(given.func) or ""
        return made in _TEXTS or made.startswith(_PATHS)
    if not isinstance(given, ast.Name) or depth > 5:
        return False
    scope = function or module.tree
    loops = [node for node in ast.walk(scope) if isinstance(node, ast.For) and given.id in bound_names(node.target)]
    values = values_of(scope, given.id)
    return bool(loops or values) and all(
        [*map(_lists_files, loops), *(is_text(module, function, value, depth + 1) for value in values)]
    )


def _lists_files(loop: ast.For) -> bool:
    """Whether a loop goes over files: `for path in tqdm(folder.glob("*.png"))`."""
    over = loop.iter
    while isinstance(over, ast.Call) and last_name(over.func) in _SAME_ITEMS and over.args:
        over = over.args[0]
    return isinstance(over, ast.Call) and last_name(over.func) in _LISTS_FILES


def _moved(value: ast.expr) -> str | None:
    """The name of a value that is only brought to a device: `data.to(device)`."""
    while isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute) and value.func.attr in _MOVES:
        value = value.func.value
    return value.id if isinstance(value, ast.Name) else None


def _is_of_object(module: Module, node: ast.Attribute | ast.Subscript) -> bool:
    if isinstance(node, ast.Subscript):
        return text_of(node.slice) is not None
    parent = module.parents[node]
    called = isinstance(parent, ast.Call) and parent.func is node
    return not called and node.attr not in _OF_TENSORS and not node.attr.startswith("is_")


def annotated_as(module: Module, function: Function | None, name: str) -> set[str]:
    """The types, in full, with which a name is annotated: a parameter, a variable, or an attribute or property of the class."""
    around = [function, *module.ancestors(function)] if function is not None else []
    owner = next((node for node in around if isinstance(node, ast.ClassDef)), None)
    first, _, attribute = name.partition(".")
    given = parameters(function) if function is not None else []
    found: list[ast.expr | None] = []
    if not attribute:
        found += [item.annotation for item in given if item.arg == name]
        found += [item.annotation for item in inside(function or module.tree, ast.AnnAssign) if dotted(item.target) == name]
    elif owner is not None and given and given[0].arg == first:
        methods = [item for item in owner.body if isinstance(item, ast.FunctionDef) and item.name == attribute]
        found += [item.returns for item in methods if any(last_name(mark).endswith("property") for mark in item.decorator_list)]
        found += [item.annotation for item in inside(owner, ast.AnnAssign) if dotted(item.target) in (name, attribute)]
    parts = [part for item in found if item is not None for part in ast.walk(item)]
    texts = [part.value for part in parts if isinstance(part, ast.Constant) and isinstance(part.value, str)]
    with contextlib.suppress(SyntaxError):
        parts += [part for text in texts for part in ast.walk(ast.parse(text, mode="eval"))]
    return {full for part in parts if (full := module.expand(part)) is not None}
