"""What is trained by gradients, and what only looks at them."""

import ast

import pytest

from headrace.migrate.rewriting.rewrite import rewrite
from headrace.migrate.survey.gradients import explains
from headrace.migrate.survey.survey import project_index, survey


def loops(tmp_path, source):
    (tmp_path / "main.py").write_text("import torch\n" + source)
    return [(item.kind, item.model, item.inputs, item.targets) for item in survey(tmp_path).loops]


MAP = """
class Cam:
    def __init__(self, model, layer):
        self.model = model
        layer.register_full_backward_hook(self.keep)

    def generate(self, images):
        self.model.zero_grad()
        logits = self.model(images)
        logits[0, 1].backward()
        return self.gradients
"""


@pytest.mark.parametrize(
    ("source", "kind"),
    [
        (MAP, "predict"),
        (MAP.replace("layer.register_full_backward_hook(self.keep)", "").replace("self.gradients", "images.grad"), "predict"),
        (MAP + "\ndef fit(optimizer):\n    optimizer.step()\n", "train"),
        (MAP.replace("return self.gradients", "self.sgd.step()"), "train"),
        (MAP.replace("layer.register_full_backward_hook(self.keep)", ""), "predict"),
        # Who updates may stand elsewhere: a loss is what is learned from.
        (MAP.replace("layer.register_full_backward_hook(self.keep)", "").replace("logits[0, 1]", "self.loss(logits)"), "train"),
    ],
)
def test_gradients_that_are_only_looked_at_train_nothing(tmp_path, source, kind):
    assert loops(tmp_path, source) == [(kind, "self.model", "images", None)]


SERVICE = """
from cam import Cam


class Predictor:
    def __init__(self, path):
        self.model = torch.load(path)
        self.model.eval()
        self.cam = Cam(self.model, self.model.layer)

    def predict(self, image):
        with torch.no_grad():
            return self.model(image).argmax(1)

predictor = Predictor("best.pt")
print(predictor.predict(image), predictor.cam.generate(image))
"""


def test_a_map_stays_eager_and_says_so_and_the_prediction_beside_it_gets_a_graph(tmp_path):
    """A service that looks at gradients trains nothing."""
    (tmp_path / "cam.py").write_text(f"import torch\n{MAP}")
    (tmp_path / "main.py").write_text(f"import torch\n{SERVICE}")
    changes = {change.path: change for change in rewrite(survey(tmp_path), select=["PS202", "PS203", "PS303"])}
    said = [(item.code, item.path, item.message) for change in changes.values() for item in change.findings]
    (first, second) = said
    assert first[:2] == ("PS202", "cam.py")
    assert first[2].endswith("because the code around the call takes gradients, which a graph does not give")
    assert second == ("PS202", "main.py", "the prediction calls self.model eagerly")
    assert "self.graph = headrace.compile(self.model)" in changes["main.py"].after.decode()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("scores[0, 1].backward()", True),
        ("scores.backward(gradient=one_hot)", True),
        ("loss.backward()", False),
        ("criterion(scores, labels).backward()", False),
        ("F.cross_entropy(scores, labels).backward()", False),
        ("scores[0, 1].backward()\noptimizer.step()", False),
        ("manual_backward(scores)", False),
    ],
)
def test_what_explains_a_score_changes_no_weights(tmp_path, text, expected):
    (tmp_path / "main.py").write_text(f"import torch\n{text}\n")
    (module,) = project_index(survey(tmp_path)).repository.modules.values()
    call = next(node for node in ast.walk(module.tree) if isinstance(node, ast.Call))
    assert explains(module, call) is expected


ATTACK = """
def attack(model, images, labels, sizes):
    images = images.clone().detach()
    for size in sizes:
        images.requires_grad = True
        loss = torch.nn.functional.cross_entropy(model(images), labels)
        model.zero_grad()
        loss.backward()
        images = (images + size * images.grad.sign()).detach()
    return images
"""
DELTA = """
def attack(model, images, labels, size):
    delta = torch.zeros_like(images, requires_grad=True)
    loss = torch.nn.functional.cross_entropy(model(images + delta), labels)
    loss.backward()
    return images + size * delta.grad.sign()
"""
TRAINED = """
def train(model, optimizer, loader):
    for images, labels in loader:
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(images), labels).backward()
        optimizer.step()
"""


@pytest.mark.parametrize(
    ("source", "kind"),
    [
        (ATTACK, "predict"),
        (ATTACK.replace("images.requires_grad = True", "images.requires_grad_()"), "predict"),
        (DELTA, "predict"),
        (ATTACK.replace("images.requires_grad = True", "images.requires_grad = False"), "train"),
        (ATTACK.replace("return images", "optimizer.step()"), "train"),
        (ATTACK.replace("for size in sizes", "for images in model.parameters()"), "train"),
        (ATTACK.replace("images.grad.sign()", "model.weight.grad"), "train"),
    ],
)  # fmt: skip
def test_an_attack_changes_images_and_trains_nothing(tmp_path, source, kind):
    found = loops(tmp_path, TRAINED + source)
    assert [item[0] for item in found if item[0] != "evaluate"] == ["train", kind]


def test_an_attack_stays_eager_and_is_not_called_training(tmp_path):
    (tmp_path / "main.py").write_text("import torch\n" + TRAINED + ATTACK)
    changes = rewrite(survey(tmp_path), select=["PS202", "PS203", "PS303"])
    (said,) = [item for change in changes for item in change.findings if item.line == 13]
    assert said.code == "PS203"
    assert said.message.endswith("the code around the call takes gradients, which a graph does not give")


STEP = """
model = torch.nn.Linear(2, 2)
optimizer = torch.optim.SGD(model.parameters())
optimizer.zero_grad()
outputs = model(images)
loss = torch.nn.functional.cross_entropy(outputs, labels)
loss.backward()
optimizer.step()
"""
MOVED = """
from torch.autograd import grad

def attack(model, images, labels, steps):
    images.requires_grad = True
    for _ in range(steps):
        with torch.autocast("cpu"):
            scores = model(images)
        loss = torch.nn.functional.cross_entropy(scores, labels)
        images = images + grad(loss, images, only_inputs=True)[0]
    return images.detach()
"""


SHOWN = """
model = torch.nn.Linear(2, 2)
for images, labels in loader:
    outputs = model(images)
    loss = torch.nn.functional.cross_entropy(outputs, labels)
    break
loss.backward()
"""


HOOKED = """
class Extractor:
    def keep(self, gradient):
        self.gradient = gradient

    def outputs(self, image):
        features = self.model.features(image)
        features.register_hook(self.keep)
        return self.model.classifier(features.flatten(1))
"""


@pytest.mark.parametrize("source", [STEP, MOVED, HOOKED, SHOWN, f"{SHOWN}other = torch.load('net.pt')\nother.eval()\n"])
def test_what_is_always_differentiated_gets_no_step_of_evaluation(tmp_path, source):
    (tmp_path / "main.py").write_text("import torch\n" + source)
    (change,) = rewrite(survey(tmp_path), select=["PS201", "PS202", "PS203"])
    (said,) = change.findings
    assert said.message.endswith("the code around the call takes gradients, which a graph does not give")
    assert b"headrace" not in change.after


def test_a_model_that_is_put_in_evaluation_mode_after_its_calls_is_one_that_is_trained_meanwhile(tmp_path):
    """A notebook measures its model before the training, and evaluates another one at its end."""
    source = SHOWN.replace("    break\n", "    print(loss.item())\n").replace("loss.backward()", "")
    trained = "def fit(loss, optimizer):\n    loss.backward()\n    optimizer.step()\n"
    (tmp_path / "main.py").write_text(f"import torch\n{source}{trained}other = torch.load('net.pt')\nother.eval()\n")
    (change,) = rewrite(survey(tmp_path), select=["PS201", "PS203"])
    assert [item.code for item in change.findings] == ["PS203"]
    assert b"eval_step = headrace.evaluation_step(model)" in change.after


def test_what_is_differentiated_on_a_condition_gets_one(tmp_path):
    source = MOVED.replace("        images = images + grad", "        if steps > 1:\n            images = images + grad")
    (tmp_path / "main.py").write_text("import torch\n" + source)
    (change,) = rewrite(survey(tmp_path), select=["PS202"])
    assert b"eval_step = headrace.evaluation_step(model)" in change.after


def test_a_model_that_is_trained_and_evaluated_in_one_place_gets_a_step_for_its_evaluation(tmp_path):
    evaluated = "model.eval()\nwith torch.no_grad():\n    print(model(images).argmax(1))\n"
    (tmp_path / "main.py").write_text("import torch\n" + STEP + evaluated)
    (change,) = rewrite(survey(tmp_path), select=["PS20"])
    assert b"outputs = model(images)" in change.after
    assert b"print(model(images)" not in change.after


IMAGE = """
def activation(model, target, steps):
    image = torch.nn.Parameter(torch.zeros(1, 3, 32, 32))
    optimizer = torch.optim.SGD([image], lr=0.1)
    for _ in range(steps):
        loss = torch.nn.functional.mse_loss(model(image - 0.5), target)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    return image.detach()
"""


@pytest.mark.parametrize(
    ("source", "kind"),
    [
        (IMAGE, "predict"),
        (IMAGE.replace("[image]", "[image.requires_grad_()]"), "predict"),
        (IMAGE.replace("[image]", "params=(image,)"), "predict"),
        (IMAGE.replace("[image]", "[image, *model.parameters()]"), "train"),
        (IMAGE.replace("[image]", "[model.head.weight]"), "train"),
        (IMAGE.replace("[image]", "model.parameters()"), "train"),
    ],
)
def test_an_optimizer_of_tensors_alone_trains_no_network(tmp_path, source, kind):
    assert [item[0] for item in loops(tmp_path, source)] == [kind]


HANDED_ON = """
class Trainer:
    def __init__(self, model):
        self.model = model

    def training_step(self, batch):
        images, labels = batch
        outputs = self.model(images)
        return torch.nn.functional.cross_entropy(outputs, labels)

    def fit(self, loader, optimizer):
        for batch in loader:
            loss = self.training_step(batch)
            loss.backward()
            optimizer.step()
"""


@pytest.mark.parametrize(
    ("source", "kind"),
    [
        (HANDED_ON, "train"),
        (HANDED_ON.replace("training_step", "validation_step"), "predict"),
        (HANDED_ON.replace("    def training_step", "    @torch.no_grad()\n    def training_step"), "predict"),
        (HANDED_ON.replace("torch.nn.functional.cross_entropy(outputs, labels)", "outputs.argmax(1)"), "predict"),
    ],
)
def test_a_step_whose_loss_is_handed_on_to_be_learned_from_is_no_prediction(tmp_path, source, kind):
    assert [item[0] for item in loops(tmp_path, source)] == [kind]
    if kind == "train":
        assert not any(b"headrace" in change.after for change in rewrite(survey(tmp_path)))


@pytest.mark.parametrize(
    ("around", "steps"),
    [
        ("torch.set_grad_enabled(True)", 0),
        ("torch.enable_grad()", 0),
        ("torch.set_grad_enabled(mode=True)", 0),
        ("torch.set_grad_enabled(False)", 1),
        ("torch.set_grad_enabled(wanted)", 1),
        ("torch.no_grad()", 1),
    ],
)
def test_no_step_of_evaluation_stands_where_somebody_asked_for_gradients(tmp_path, around, steps):
    """A library of maps takes them later, elsewhere; the step would only ever call the model itself."""
    source = (
        "import torch, torchvision\nfrom torchcam.methods import GradCAM\n\n\ndef explain(model, image, wanted):\n"
        f"    model.eval()\n    maps = GradCAM(model)\n    with {around}:\n        scores = model(image)\n"
        "    return maps(scores.argmax().item(), scores)\n\n\n"
        "if __name__ == '__main__':\n    net = torchvision.models.resnet18()\n    explain(net, load(), True)\n"
        "    loss(net(load())).backward()\n"
    )
    (tmp_path / "main.py").write_text(source)
    changed = "".join(change.after.decode() for change in rewrite(survey(tmp_path)))
    assert changed.count("headrace.evaluation_step(") == steps
