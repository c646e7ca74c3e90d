"""Which layers answer with classes, and which calls make a published classifier."""

import ast
import re

from ..reading.nodes import inside, keyword_of, text_of
from ..reading.scopes import Function, Module, dotted, last_name

COUNTS_CLASSES = re.compile(
    r"(^|_)(n|num|nb|number|no)?_?(of_)?(class(es)?|categories|labels|cls)$"
    r"|(^|_)(class(es)?|cls|labels?|categor(y|ies))_?(n|num|nums|nb|number|count|size|cnt)$"
    r"|^out(put)?_?(dim|size)s?$|^(dim|size)s?_?out(put)?s?$",
    re.I,
)
_SHORT = re.compile(r"^(n|nout|(n|num|nb|number_of)_?out(put)?s?|outputs)$", re.I)
"""What a last layer's count may also be called, where it is a last layer's."""
_FEATURES = re.compile(r"emb|feat|proj|hidden|latent|dim|width|channels", re.I)
_HEAD_NAME = re.compile(r"head|classif|logit|^(last_)?fc$|^(last|final)_?(layer|linear)?$", re.I)
HEADS = frozenset(["Linear", "Conv2d", "LazyLinear"])
PATCHING = frozenset(["Rearrange", "rearrange", "Unfold", "unfold"])
"""How networks without a convolution cut an image into patches."""
_WITHOUT_PLACES = frozenset(["flatten", "mean", "reshape", "squeeze", "view"])
_ZOOS = (
    "torchvision.models",
    "timm",
    "pretrainedmodels",
    "efficientnet_pytorch",
    "torch.hub.load",
    "transformers.AutoModelForImage",
)
_NOT_MODELS = ("timm.data", "timm.layers", "timm.loss", "timm.optim", "timm.scheduler", "timm.utils")


def is_zoo_constructor(name: str | None) -> bool:
    """Whether a dotted callee builds a model from a published library."""
    if name is None or not name.startswith(_ZOOS) or name.startswith(_NOT_MODELS):
        return False
    *_, leaf = parts = name.split(".")
    if any(part.endswith("_Weights") for part in parts):
        return False  # which weights, and the transforms that belong to them
    return leaf not in ("list_models", "is_model", "list_modules", "get_weight", "get_model_weights", "resolve_data_config")


def ends_in_rows(forward: Function | None) -> bool:
    """Whether a network takes the places out of what its last convolution gives: `return x.flatten(1)`, `x[:, :, 0, 0]`."""
    last = forward.body[-2:] if forward is not None else []
    values = [node.value for node in last if isinstance(node, ast.Assign | ast.Return)]
    return any(
        (isinstance(value, ast.Call) and last_name(value.func) in _WITHOUT_PLACES)
        or (isinstance(value, ast.Subscript) and isinstance(value.slice, ast.Tuple))
        for value in values
    )


_OTHER_TASKS = re.compile("detection|segmentation|video|optical_flow")
_VISION_BODY = re.compile(
    r"^transformers\.(ViT|Swin|Swinv2|ConvNext|ConvNextV2|Beit|DeiT|Dinov2|ResNet|RegNet|MobileViT|EfficientNet|CLIPVision|Siglip\w*)Model\."
)


def makes_published(module: Module, call: ast.Call) -> bool:
    """Whether a call makes a model of a published library for images, chosen by a name too: `getattr(models, arch)()`."""
    made: ast.expr | None = call.func
    if isinstance(made, ast.Call) and last_name(made.func) == "getattr" and made.args:
        return (module.expand(made.args[0]) or "").startswith(_ZOOS)
    if isinstance(made, ast.Subscript):
        return module.expand(made.value) == "torchvision.models.__dict__" or any(
            _is_published(module.expand(item) or "") for item in table_of(module, made)
        )
    return _is_published(module.expand(made) or "")


def table_of(module: Module, node: ast.Subscript) -> list[ast.expr]:
    """The values of a table of the file, of which a network may be one: `NETWORKS[arch]`."""
    if not isinstance(node.value, ast.Name):
        return []
    bound = (item for item in module.tree.body if isinstance(item, ast.Assign) and node.value.id in map(dotted, item.targets))
    return [
        value
        for item in bound
        if isinstance(item.value, ast.Dict | ast.List | ast.Tuple)
        for value in (item.value.values if isinstance(item.value, ast.Dict) else item.value.elts)
    ]


def _is_published(name: str) -> bool:
    return (is_zoo_constructor(name) and not _OTHER_TASKS.search(name)) or bool(_VISION_BODY.match(name))


def answers_with_classes(published: list[ast.Call], linear: list[ast.Call], others: set[str]) -> bool:
    """Whether a class around published models is a classifier: with a Linear of its own, or with the whole model's answer.

    `linear` are the calls that make its Linear layers, `others` the names of all that it calls.
    """
    if linear:
        return any(is_head(call) or _may_count_classes(_outputs(call)) for call in linear)
    given = [keyword for call in published for keyword in call.keywords]
    bodies = [item for item in given if item.arg in ("num_classes", "features_only") and isinstance(item.value, ast.Constant)]
    if any(bool(item.value.value) == (item.arg == "features_only") for item in bodies if isinstance(item.value, ast.Constant)):
        return False
    return not others & {"Identity", "children", "create_feature_extractor", "IntermediateLayerGetter"}


def is_head(call: ast.Call) -> bool:
    """Whether a layer's outputs are classes, as its arguments name them."""
    name, out = last_name(call.func), _outputs(call)
    if name not in HEADS or out is None:
        return False
    return counts_classes(out) or (name != "Conv2d" and (is_count(out) or bool(_SHORT.search(_leaf(out)))))


def is_single(call: ast.Call) -> bool:
    """Whether a layer gives one number: `nn.Linear(128, 1)`."""
    out = _outputs(call) if last_name(call.func) in ("Linear", "LazyLinear") else None
    return isinstance(out, ast.Constant) and out.value == 1


def counts_classes(out: ast.expr) -> bool:
    """Whether an expression is, by its name, a number of classes."""
    return bool(COUNTS_CLASSES.search(_leaf(out)))


def is_count(out: ast.expr) -> bool:
    """Whether an expression is a number of several, or counts a list."""
    if isinstance(out, ast.Constant):
        return isinstance(out.value, int) and out.value > 1
    return isinstance(out, ast.Call) and last_name(out.func) == "len"


def may_be_head(node: ast.Assign) -> bool:
    """Whether an attribute is a head by its name, of a layer that could count classes: `self.color_head = Linear(64, k)`."""
    named = any(isinstance(target, ast.Attribute) and _HEAD_NAME.search(target.attr) for target in node.targets)
    layers = [call for call in inside(node.value, ast.Call) if last_name(call.func) == "Linear"] if named else []
    return any(_may_count_classes(_outputs(call)) for call in layers)


def _may_count_classes(out: ast.expr | None) -> bool:
    return out is not None and not isinstance(out, ast.Constant) and bool(_leaf(out)) and not _FEATURES.search(_leaf(out))


def _outputs(call: ast.Call) -> ast.expr | None:
    """The number of a layer's outputs."""
    position = 0 if last_name(call.func) == "LazyLinear" else 1
    named = keyword_of(call, "out_features") or keyword_of(call, "out_channels")
    return named.value if named is not None else call.args[position] if len(call.args) > position else None


def _leaf(node: ast.expr) -> str:
    """The last word of a name, an attribute, or a key: `num_classes` of `cfg["num_classes"]`."""
    return (text_of(node.slice) or "") if isinstance(node, ast.Subscript) else last_name(node)


def is_written_out(call: ast.Call) -> bool:
    """Whether an `nn.Sequential(...)` is a whole classifier: images in, a Linear of classes last."""
    last = call.args[-1] if call.args else None
    if not isinstance(last, ast.Call) or not is_head(last):
        return False
    names = {last_name(node.func) for node in inside(call, ast.Call)}
    return last_name(last.func) == "Linear" and bool(names & (PATCHING | {"Conv2d"}))
