"""Which calls are those of a model, and what each is for."""

import pytest

from headrace.migrate.survey.survey import survey


def loops(tmp_path, source):
    (tmp_path / "main.py").write_text("import torch\n" + source)
    return [(item.kind, item.model, item.inputs, item.targets) for item in survey(tmp_path).loops]


LOOP = "model.eval()\nfor {batch} in loader:\n    outputs = {call}\n    hits += (outputs.argmax(1) == labels).sum()\n"


@pytest.mark.parametrize(
    ("batch", "call", "inputs"),
    [
        ("images, labels", "model(images)", "images"),
        ("images, labels", "model(pixel_values=images).logits", "images"),
        ("images, labels", "model(x=images.to(device))", "images.to(device)"),
        ("inputs, labels", "model(**inputs).logits", "inputs"),
    ],
)
def test_an_input_may_be_given_by_name(tmp_path, batch, call, inputs):
    assert loops(tmp_path, LOOP.format(batch=batch, call=call)) == [("evaluate", "model", inputs, "labels")]


@pytest.mark.parametrize("call", ["model(**options)", "model(pretrained=images)", "model(*images)", "model()"])
def test_what_is_no_input_makes_no_call_of_a_model(tmp_path, call):
    assert loops(tmp_path, LOOP.format(batch="images, labels", call=call)) == []


NOT_MODELS = """
class Base:
    def run_model(self, x):
        return x

class Service(Base):
    def __init__(self):
        self.model = self._load()
        self.model_names = self._normalize_model_names(getattr(self.model, "names", None))

    def _normalize_model_names(self, names):
        return list(names)

    @property
    def net(self):
        return self.model

    def classify(self, image):
        self.run_model(image)
        self.helper.choose_model(image)
        return self.net(image), self.model(image)

def export(file):
    from somewhere import metadata as _metadata
    return _metadata.Populator.with_model_file(file)
"""


def test_a_method_of_its_class_and_an_imported_function_are_no_models(tmp_path):
    assert [name for _, name, _, _ in loops(tmp_path, NOT_MODELS)] == ["self.net", "self.model"]


# What a function imports for itself: a class, a function, and a network that another file has made.
IMPORTED_WITHIN = """
class Trainer:
    def __init__(self, model, images):
        from ema import EMA
        self.ema = EMA(model, decay=0.9)

def explain(predictor, images):
    from registry import model_spec
    from nets import model, net
    model = model.eval()
    return model_spec(predictor.name), net(images), model(images)
"""


def test_what_a_function_imports_is_no_model_unless_the_other_file_makes_one(tmp_path):
    (tmp_path / "ema.py").write_text("class EMA:\n    def __init__(self, model, decay):\n        self.decay = decay\n")
    (tmp_path / "registry.py").write_text("def model_spec(name):\n    return name\n")
    network = "class Net(torch.nn.Module):\n    def forward(self, x):\n        return x\n"
    (tmp_path / "nets.py").write_text(f"import torch\n{network}net = Net()\nmodel = Net()\n")
    assert [name for _, name, _, _ in loops(tmp_path, IMPORTED_WITHIN)] == ["net", "model"]


OF_CLASSES = """
import torch
from pydantic import BaseModel

class Answer(BaseModel):
    text: str

class Service:
    model = None

    @classmethod
    def load(cls):
        cls.model = torch.load("net.pt")

def answer(text, images):
    Service.load()
    return Answer.model_validate_json(text), Service.model(images)
"""


REGISTRY = """
class Database:
    def store_model_lineage(self, lineage):
        return lineage

class Trail:
    def __init__(self, database, registry, teacher):
        self.database, self.registry = database, registry
        self.teacher_model = teacher
        self.heads = SimpleNamespace(side_net=teacher)
        self.add_module("ema_model", teacher)

    @property
    def best_model_yet(self):
        return self.teacher_model

    def predict(self, images, lineage):
        self.database.store_model_lineage(lineage)
        self.registry.search_model_versions(lineage)
        return {call}(images).argmax(1)
"""


@pytest.mark.parametrize(
    "call",
    [
        "self.teacher_model",
        "self.heads.side_net",
        "self.ema_model",
        "self.best_model_yet",
        "self.registry.net2",
        "lineage.model_",
    ],
)
def test_what_objects_do_with_models_is_no_model_and_what_they_hold_is(tmp_path, call):
    assert loops(tmp_path, REGISTRY.replace("{call}", call)) == [("predict", call, "images", None)]


def test_a_method_of_a_class_itself_is_no_model_and_what_a_class_holds_is(tmp_path):
    assert [name for _, name, _, _ in loops(tmp_path, OF_CLASSES)] == ["Service.model"]


PUT_IN_PLACE = """
from functools import partial

def cut(model):
    def last_only(self, x):
        return self.backbone(x)[-1]

    model.forward = {value}
    return model
"""


@pytest.mark.parametrize("value", ["partial(last_only, model)", "last_only.__get__(model)", "last_only"])
def test_a_function_that_becomes_a_networks_forward_is_its_own_method(tmp_path, value):
    source = PUT_IN_PLACE.replace("{value}", value)
    assert loops(tmp_path, source) == []
    assert len(loops(tmp_path, source.replace("model.forward", "model.other"))) == 1


@pytest.mark.parametrize("framework", ["mxnet", "tensorflow", "paddle", "flax.linen"])
def test_another_frameworks_network_is_no_model(tmp_path, framework):
    root = framework.partition(".")[0]
    source = (
        f"import {framework}\n\n\ndef evaluate(model, loader):\n    for images, labels in loader:\n"
        f"        hits = {root}.sum(model(images) == labels)\n\n\n"
        "def evaluate_here(model, loader):\n    for images, labels in loader:\n"
        "        hits = torch.sum(model(images) == labels)\n\n\n"
        f"def compare(model, theirs_model, loader):\n    for images, labels in loader:\n"
        f"        theirs_model({root}.array(images)), torch\n\n\n"
        f"net = {framework}.Net()\nfor images, labels in loader:\n    net(images)\n"
    )
    assert loops(tmp_path, source) == [("evaluate", "model", "images", "labels")]


WRAPPERS = """
import torchvision


class Normalized(torch.nn.Module):
    def __init__(self, net, mean):
        super().__init__()
        self.net, self.mean = net, mean

    def forward(self, x):
        return self.net(x - self.mean)


base = torchvision.models.resnet18()
several = [base for _ in range(3)]
other = Normalized(torch.nn.Identity(), 0.5)
made = {made}
for images, labels in loader:
    other(images)
    hits += (made(images).argmax(1) == labels).sum()
"""


@pytest.mark.parametrize(
    "made",
    [
        "Normalized(base, 0.5)",
        "Normalized([base, base], 0.5)",
        "Normalized([torchvision.models.resnet18() for _ in range(3)], 0.5).eval()",
        "Normalized(torch.nn.ModuleList([base]), 0.5)",
        "Normalized(*(base for _ in range(2)))",
        "Normalized(several, 0.5)",
        "Normalized(torchvision.models.resnet18(), 0.5).to(device)",
    ],
)
def test_a_wrapper_of_a_model_is_a_model(tmp_path, made):
    assert loops(tmp_path, WRAPPERS.replace("{made}", made)) == [("evaluate", "made", "images", "labels")]


def test_labels_may_be_an_entry_of_the_batch(tmp_path):
    source = (
        "for batch in loader:\n    outputs = model(pixel_values=batch['pixel_values']).logits\n"
        "    hits += (outputs.argmax(1) == batch['labels']).sum()\nfor batch in loader:\n"
        "    print(model(batch['image']), batch['path'])\n"
    )
    assert loops(tmp_path, source) == [
        ("evaluate", "model", "batch['pixel_values']", "batch['labels']"), ("predict", "model", "batch['image']", None)
    ]  # fmt: skip


def test_a_name_that_takes_what_it_returns_was_a_class(tmp_path):
    source = (
        "model = choose(name)\nmodel = model(settings)\nmodel.eval()\nscores = model(images)\nself.net = self.net(images)\n"
    )
    assert [item[1:3] for item in loops(tmp_path, source)] == [("model", "images")]


@pytest.mark.parametrize(
    "made",
    [
        "poptorch.inferenceModel(model, options=options)",
        "torch_tensorrt.compile(model, inputs=[x])",
        "optimum.onnxruntime.ORTModel.from_pretrained('a')",
        "cv2.dnn.readNetFromONNX('a.onnx')",
    ],
)
@pytest.mark.parametrize("name", ["fast_model", "model"])
def test_what_another_runtime_makes_of_a_model_is_none(tmp_path, made, name):
    source = (
        f"import {made.partition('(')[0].rpartition('.')[0]}\nimport torch, torchvision\n\n\n"
        "model = torchvision.models.resnet18()\n"
        f"{name} = {made}\nfor images, labels in loader:\n    {name}(images)\n"
    )
    assert loops(tmp_path, source) == []
    plain = source.replace(f"\n{name} = {made}", f"\n{name} = torchvision.models.resnet18()")
    assert [found for _, found, _, _ in loops(tmp_path, plain)] == [name]


CHOSEN = """
class SmallModel(torch.nn.Module):
    def forward(self, x): return x

def main(cfg, images):
    {made}
    return chosen
"""


@pytest.mark.parametrize(
    "made",
    [
        'pytorch_model_name = globals()[cfg["name"]]\n    chosen = pytorch_model_name(cfg)',
        'net = vars(zoo)[cfg["name"]]\n    chosen = net(cfg.width)',
        "model = zoo.__dict__[cfg.name]\n    chosen = model(cfg.width)",
        "chosen = model_class(cfg.width)",
        "chosen = base_model(cfg)",
        "chosen = net(self.num_classes)",
    ],
)
def test_what_makes_a_model_of_its_settings_is_no_model(tmp_path, made):
    assert (
        loops(tmp_path, CHOSEN.format(made=made).replace("main(cfg", "main(self, cfg, zoo, model_class, base_model, net")) == []
    )


@pytest.mark.parametrize(
    ("made", "model"),
    [
        ('net = models["ema"]\n    chosen = net(images)', "net"),
        ("net = vars(self)\n    net = net['net']\n    chosen = net(images)", "net"),
        ("chosen = net(images)", "net"),
        ('net = vars(self)["net"]\n    chosen = net(images)', "net"),
        ('net = self.__dict__["net"]\n    chosen = net(images)', "net"),
        ("model_name = self.model\n    model_name.eval()\n    chosen = model_name(images)", "model_name"),
    ],
)
def test_a_model_that_is_looked_up_is_a_model(tmp_path, made, model):
    text = CHOSEN.format(made=made).replace("main(cfg", "main(self, models, net, cfg")
    assert [item[1] for item in loops(tmp_path, text)] == [model]


EXPLAINED = "def explain(image):\n    model.zero_grad()\n    scores = model(image)\n    {backward}\n    return gradients[0]\n"


@pytest.mark.parametrize(
    ("backward", "more", "kind"),
    [
        ("scores[0, scores.argmax()].backward()", "", "predict"),
        ("class_score = scores[0, 3]\n    class_score.backward(retain_graph=True)", "", "predict"),
        ("scores.backward(gradient=one_hot)", "", "predict"),
        # A loss is what is learned from, wherever the weights are changed; and a file that changes them trains.
        ("loss = criterion(scores, 3)\n    loss.backward()", "", "train"),
        ("accelerator.backward(criterion(scores, 3))", "", "train"),
        ("scores.sum().backward()", "optimizer.step()\n", "train"),
        ("scores.sum().backward()", "for p in model.parameters():\n    p.data.sub_(p.grad)\n", "train"),
    ],
)
def test_gradients_of_a_score_for_a_map_of_it_train_nothing(tmp_path, backward, more, kind):
    found = loops(tmp_path, f"model.eval()\n{EXPLAINED.format(backward=backward)}{more}")
    assert [item[0] for item in found] == [kind]


def test_the_transforms_of_published_weights_are_no_model(tmp_path):
    source = (
        "from torchvision.models import ResNet50_Weights, resnet50\n"
        "preprocess = ResNet50_Weights.DEFAULT.transforms()\nnet = resnet50()\nnet.eval()\n"
        "for image in images:\n    batch = preprocess(image).unsqueeze(0)\n    print(net(batch))\n"
    )
    assert [item[1:3] for item in loops(tmp_path, source)] == [("net", "batch")]
