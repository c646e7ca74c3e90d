"""Training loops as people write them: the migrated form is run, and its losses, statistics and weights are the original's."""

from __future__ import annotations

import ast

import numpy as np
import pytest
import torch

import headrace
from headrace.migrate.rewriting.rewrite import rewrite
from headrace.migrate.survey.survey import survey
from headrace.runtime.graph.training_step import training_step

HEAD = """\
import copy
import sys

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F


class Net(nn.Module):
    def __init__(self, classes=4):
        super().__init__()
        self.conv, self.norm = nn.Conv2d(2, 6, 3), nn.BatchNorm2d(6)
        self.drop, self.fc = nn.Dropout(0.2), nn.Linear(6, classes)

    def forward(self, x):
        x = F.relu(self.norm(self.conv(x))).mean((2, 3))
        return self.fc(self.drop(x))


def batches(seed):
    generator = torch.Generator().manual_seed(seed)
    sizes = [5] * 6
    return [(torch.randn(n, 2, 7, 6, generator=generator), torch.randint(4, (n,), generator=generator)) for n in sizes]


trace = []
model = Net()
criterion = nn.CrossEntropyLoss()
optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, weight_decay=1e-4)
scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.1, total_steps=40)
scaler = torch.amp.GradScaler("cpu", init_scale=1024.0, growth_interval=5)
ema = copy.deepcopy(model)
accumulate = 3
device = torch.device("cpu")
np.random.seed(0)


def shrink():
    if torch.is_grad_enabled():
        halve(model)


def halve(net):
    for part in net.modules():
        if isinstance(part, nn.BatchNorm2d):
            part.weight.grad.data.mul_(0.5)


def weight_norm():
    return sum(item.detach().norm().item() for item in model.parameters())


def update_ema():
    for old, new in zip(ema.parameters(), model.parameters()):
        old.data.mul_(0.9).add_(new.data, alpha=0.1)


"""
LOOPS = {
    "plain": """\
for epoch in range(3):
    for inputs, targets in batches(epoch):
        inputs, targets = inputs.to(device), targets.to(device)
        optimizer.zero_grad()
        outputs = model(inputs)
        loss = criterion(outputs, targets)
        loss.backward()
        optimizer.step()
        trace.append((loss.item(), outputs.max(1)[1].eq(targets).sum().item()))
""",
    "statistics before the update, schedule and EMA after it": """\
def train(epoch, net):
    net.train()
    for i, (inputs, targets) in enumerate(batches(epoch)):
        outputs = net(inputs)
        _, predicted = outputs.data.max(1)
        loss = criterion(outputs, targets)
        trace.append((loss.item(), (predicted == targets).float().mean().item()))

        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(net.parameters(), 0.3)
        optimizer.step()
        scheduler.step()
        update_ema()


for epoch in range(3):
    train(epoch, model)
trace += [(value.sum().item(),) for value in ema.parameters()]
""",
    "accumulation with a divided loss": """\
def train(epoch):
    total = 0.0
    optimizer.zero_grad()
    for i, (inputs, targets) in enumerate(batches(epoch)):
        outputs = model(inputs)
        loss = criterion(outputs, targets)
        loss = loss / accumulate
        loss.backward()
        if (i + 1) % accumulate == 0:
            optimizer.step()
            optimizer.zero_grad()
        total += loss.item()
        trace.append((loss.item(), total))


for epoch in range(3):
    train(epoch)
""",
    "accumulation with a divided start": """\
for epoch in range(3):
    for i, (inputs, targets) in enumerate(batches(epoch)):
        loss = F.cross_entropy(model(inputs), targets, label_smoothing=0.1)
        (loss / accumulate).backward()
        if (i + 1) % accumulate == 0:
            optimizer.step()
            optimizer.zero_grad()
        trace.append((loss.item(),))
""",
    "mixup": """\
for epoch in range(3):
    for inputs, targets in batches(epoch):
        lam = np.random.beta(0.4, 0.4)
        index = torch.randperm(len(inputs))
        mixed, targets_a, targets_b = lam * inputs + (1 - lam) * inputs[index], targets, targets[index]
        outputs = model(mixed)
        loss = lam * criterion(outputs, targets_a) + (1 - lam) * criterion(outputs, targets_b)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        trace.append((loss.item(),))
""",
    "scaler, unscaled for clipping": """\
for epoch in range(3):
    for inputs, targets in batches(epoch):
        optimizer.zero_grad()
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=False):
            outputs = model(inputs)
            loss = criterion(outputs, targets)
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        norm = nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
        scheduler.step()
        trace.append((loss.item(), norm.item(), scaler.get_scale()))
""",
    "scaler or none": """\
def train_one_epoch(model, loader, scaler=None):
    for image, target in loader:
        output = model(image)
        loss = criterion(output, target)

        optimizer.zero_grad()
        if scaler is not None:
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
        else:
            loss.backward()
            optimizer.step()
        trace.append((loss.item(), output.shape[0]))


for epoch in range(4):
    train_one_epoch(model, batches(epoch), scaler if epoch % 2 else None)
""",
    "bfloat16": """\
for epoch in range(3):
    for inputs, targets in batches(epoch):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            outputs = model(inputs)
            loss = criterion(outputs, targets)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        trace.append((loss.item(),))
""",
    "a class, and a check of the loss": """\
class Trainer:
    def __init__(self, net):
        self.net, self.optimizer = net, torch.optim.AdamW(net.parameters(), lr=0.01)
        self.criterion = nn.CrossEntropyLoss(label_smoothing=0.1)

    def run(self, loader):
        self.net.train()
        for step, batch in enumerate(loader):
            x, y = batch
            self.optimizer.zero_grad()
            logits = self.net(x)
            loss = self.criterion(logits, y)
            if not np.isfinite(loss.item()):
                print("loss is not finite")
                sys.exit(1)
            loss.backward()
            self.optimizer.step()
            trace.append((step, loss.item()))


trainer = Trainer(model)
for epoch in range(3):
    trainer.run(batches(epoch))
""",
    "a loss that is bound again after the update": """\
for epoch in range(3):
    for inputs, targets in batches(epoch):
        outputs = model(inputs)
        loss = criterion(outputs, targets)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        outputs, loss = outputs.float(), loss.float()
        trace.append((loss.item(), outputs.sum().item()))
""",
    "a function of one batch": """\
class Trainer:
    def __init__(self, net, optimizer):
        self.net, self.optimizer = net, optimizer

    def run_batch(self, source, targets):
        self.optimizer.zero_grad()
        output = self.net(source)
        loss = F.cross_entropy(output, targets)
        loss.backward()
        self.optimizer.step()
        return loss.item()


trainer = Trainer(model, optimizer)
for epoch in range(3):
    for source, targets in batches(epoch):
        trace.append((trainer.run_batch(source, targets),))
""",
    "batches without a for": """\
def train(net, steps):
    loader = iter(batches(0) * 3)
    while steps:
        x, y = next(loader)
        optimizer.zero_grad()
        outputs = net(x)
        loss = criterion(outputs, y)
        loss.backward()
        optimizer.step()
        steps -= 1
        trace.append((loss.item(),))


train(model, 18)
""",
    "so many steps": """\
def train(net, steps):
    loader = iter(batches(0) * 3)
    for step in range(steps):
        x, y = next(loader)
        optimizer.zero_grad()
        outputs = net(x)
        loss = F.cross_entropy(outputs, y) + 0.1 * outputs.square().mean()
        loss.backward()
        optimizer.step()
        trace.append((loss.item(), step))


train(model, 18)
""",
    "training and validation in one loop": """\
for epoch in range(3):
    for phase in ["train", "val"]:
        model.train(phase == "train")
        for inputs, labels in batches(epoch):
            optimizer.zero_grad()
            with torch.set_grad_enabled(phase == "train"):
                outputs = model(inputs)
                _, preds = torch.max(outputs, 1)
                loss = criterion(outputs, labels)
                if phase == "train":
                    loss.backward()
                    optimizer.step()
            trace.append((loss.item(), (preds == labels).sum().item()))
""",
    "a function that trains or evaluates": """\
def run(model, loader, optimizer=None):
    is_train = optimizer is not None
    model.train(is_train)
    for x, y in loader:
        pred = model(x)
        loss = criterion(pred, y)

        if is_train:
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        trace.append((loss.item(),))


for epoch in range(3):
    run(model, batches(epoch), optimizer)
    run(model, batches(epoch))
""",
    "another shape of what the model returns": """\
for epoch in range(3):
    for inputs, targets in batches(epoch):
        optimizer.zero_grad()
        outputs = model(inputs.unsqueeze(1).squeeze(1)).view(-1, 4)
        loss = criterion(outputs, targets)
        loss.backward()
        optimizer.step()
        trace.append((loss.item(), (outputs.argmax(1) == targets).sum().item()))
""",
    "probabilities with names of their own": """\
for epoch in range(3):
    for inputs, targets in batches(epoch):
        optimizer.zero_grad()
        outputs = model(inputs)
        outputs = outputs.reshape(inputs.size(0), -1)
        chances = F.log_softmax(outputs[:, :4], dim=1)
        loss = F.nll_loss(chances, targets)
        loss.backward()
        optimizer.step()
        trace.append((loss.item(), chances.max().item(), outputs.sum().item()))
""",
    "a function of one batch that trains or evaluates and squeezes": """\
def step(model, img, label, optimizer, criterion, is_train=True):
    preds = torch.squeeze(model(img))

    loss = criterion(preds, label)
    accuracy = (preds.argmax(dim=1) == label).sum().item() / len(preds.argmax(dim=1))

    if is_train:
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return loss.item(), accuracy


for epoch in range(3):
    for img, label in batches(epoch):
        trace.append(step(model, img, label, optimizer, criterion))
    for img, label in batches(epoch):
        trace.append(step(model, img, label, None, criterion, is_train=False))
""",
    "a function of one batch without a name for the outputs": """\
def step(x, y):
    optimizer.zero_grad()
    loss = criterion(model(x).flatten(1), y)
    loss.backward()
    optimizer.step()
    return loss


for epoch in range(3):
    for x, y in batches(epoch):
        trace.append((step(x, y).item(),))
""",
    "a function changes gradients before the update": """\
for epoch in range(3):
    for inputs, targets in batches(epoch):
        optimizer.zero_grad()
        outputs = model(inputs)
        loss = criterion(outputs, targets)
        loss.backward()
        if epoch:
            shrink()
        optimizer.step()
        trace.append((loss.item(),))
""",
    "a function reads weights before the update": """\
for epoch in range(3):
    for inputs, targets in batches(epoch):
        optimizer.zero_grad()
        outputs = model(inputs)
        loss = criterion(outputs, targets)
        loss.backward()
        size = weight_norm()
        optimizer.step()
        trace.append((loss.item(), size))
""",
    "a function that only tells, before the update": """\
def tell(loss, rows):
    trace.append((loss.item(), float(rows)))


for epoch in range(3):
    for inputs, targets in batches(epoch):
        optimizer.zero_grad()
        outputs = model(inputs)
        loss = criterion(outputs, targets)
        loss.backward()
        tell(loss, inputs.sum())
        correct = outputs.argmax(1).eq(targets).sum().item()
        optimizer.step()
""",
    "clipping of a list of weights": """\
weights = list(model.parameters())
for epoch in range(3):
    for inputs, targets in batches(epoch):
        optimizer.zero_grad()
        outputs = model(inputs)
        loss = criterion(outputs, targets)
        loss.backward()
        nn.utils.clip_grad_norm_(weights, 0.1)
        optimizer.step()
        trace.append((loss.item(),))
""",
    "a schedule of its own before the update": """\
class Decay:
    def __init__(self, optimizer):
        self.optimizer, self.rounds = optimizer, 0

    def __call__(self, index):
        self.rounds += 1
        for group in self.optimizer.param_groups:
            group["lr"] = 0.1 * 0.9**self.rounds


decay = Decay(optimizer)
for epoch in range(3):
    for index, (inputs, targets) in enumerate(batches(epoch)):
        optimizer.zero_grad()
        outputs = model(inputs)
        loss = criterion(outputs, targets)
        loss.backward()
        decay(index)
        optimizer.step()
        trace.append((loss.item(), optimizer.param_groups[0]["lr"]))
""",
    "callbacks between backward and update": """\
class Centralize:
    def on_after_backward(self, loss):
        for item in model.parameters():
            item.grad.mul_(0.5)


callbacks = [Centralize()]
for epoch in range(3):
    for inputs, targets in batches(epoch):
        optimizer.zero_grad()
        outputs = model(inputs)
        loss = criterion(outputs, targets)
        loss.backward()
        for callback in callbacks:
            callback.on_after_backward(loss)
        optimizer.step()
        trace.append((loss.item(),))
""",
    "a function that is handed over": """\
def train(epoch, hook):
    for inputs, targets in batches(epoch):
        optimizer.zero_grad()
        outputs = model(inputs)
        loss = criterion(outputs, targets)
        loss.backward()
        hook(epoch)
        optimizer.step()
        trace.append((loss.item(),))


for epoch in range(3):
    train(epoch, lambda epoch: [item.grad.mul_(0.5) for item in model.parameters()])
""",
    "a trainer whose subclass changes gradients": """\
class Trainer:
    def __init__(self, model, optimizer):
        self.model, self.optimizer = model, optimizer

    def after_backward(self, loss):
        pass

    def train(self, epoch):
        for inputs, targets in batches(epoch):
            self.optimizer.zero_grad()
            outputs = self.model(inputs)
            loss = criterion(outputs, targets)
            loss.backward()
            self.after_backward(loss)
            size = self.gradient_size
            self.optimizer.step()
            trace.append((loss.item(), size))

    @property
    def gradient_size(self):
        return sum(item.grad.norm().item() for item in self.model.parameters())


class Halving(Trainer):
    def after_backward(self, loss):
        for item in self.model.parameters():
            item.grad.mul_(0.5)


trainer = Halving(model, optimizer)
for epoch in range(3):
    trainer.train(epoch)
""",
    "an attack before the gradients are dropped": """\
def attacked(net, inputs, targets):
    inputs = inputs.clone().requires_grad_()
    F.cross_entropy(net(inputs), targets).backward()
    return (inputs + 0.1 * inputs.grad.sign()).detach()


for epoch in range(3):
    for inputs, targets in batches(epoch):
        inputs = attacked(model, inputs, targets)
        optimizer.zero_grad()
        outputs = model(inputs)
        loss = criterion(outputs, targets)
        loss.backward()
        optimizer.step()
        trace.append((loss.item(),))
""",
    "gradients are read after the loop": """\
def gradient_size(net):
    return sum(item.grad.norm().item() for item in net.parameters())


def train(epoch):
    for inputs, targets in batches(epoch):
        optimizer.zero_grad()
        outputs = model(inputs)
        loss = criterion(outputs, targets)
        loss.backward()
        optimizer.step()
        trace.append((loss.item(), 0.0))


for epoch in range(3):
    train(epoch)
    trace.append((0.0, gradient_size(model)))
""",
    "another name of the model": """\
net = model
for epoch in range(3):
    for inputs, targets in batches(epoch):
        optimizer.zero_grad()
        outputs = model(inputs)
        loss = criterion(outputs, targets)
        size = sum(item.detach().norm().item() for item in net.parameters())
        loss.backward()
        optimizer.step()
        trace.append((loss.item(), size))
""",
    "a decorator and a method read gradients": """\
def told(function):
    def wrapped(*given):
        function(*given)
        trace.append((0.0, sum(item.grad.norm().item() for item in model.parameters())))

    return wrapped


class Trainer:
    def fit(self):
        for epoch in range(3):
            self.train(epoch)
            trace.append((0.0, model.fc.weight.grad.norm().item()))

    @told
    def train(self, epoch):
        for inputs, targets in batches(epoch):
            optimizer.zero_grad()
            outputs = model(inputs)
            loss = criterion(outputs, targets)
            loss.backward()
            optimizer.step()
            trace.append((loss.item(), 0.0))


Trainer().fit()
""",
    "gradients of zeros": """\
for epoch in range(3):
    for inputs, targets in batches(epoch):
        optimizer.zero_grad(set_to_none=False)
        outputs = model(inputs)
        loss = criterion(outputs, targets)
        loss.backward()
        optimizer.step()
        trace.append((loss.item(),))
""",
    "gradients are read": """\
for epoch in range(3):
    for inputs, targets in batches(epoch):
        optimizer.zero_grad()
        outputs = model(inputs)
        loss = criterion(outputs, targets)
        loss.backward()
        optimizer.step()
        trace.append((loss.item(), model.fc.weight.grad.norm().item()))
""",
    "an average of the model after its call": """\
for epoch in range(3):
    for inputs, targets in batches(epoch):
        optimizer.zero_grad()
        outputs = model(inputs)
        ema.load_state_dict(model.state_dict())
        loss = criterion(outputs, targets)
        loss.backward()
        optimizer.step()
        trace.append((loss.item(), sum(value.float().sum().item() for value in ema.state_dict().values())))
""",
}
WHOLE = {
    "plain",
    "statistics before the update, schedule and EMA after it",
    "mixup",
    "a loss that is bound again after the update",
    "a function of one batch",
    "another shape of what the model returns",
    "probabilities with names of their own",
    "a function of one batch without a name for the outputs",
    "batches without a for",
    "so many steps",
    "a function that only tells, before the update",
}

# They are rewritten as others are, which train in `make test` too.
LIKE_OTHERS = {
    "accumulation with a divided start",
    "scaler or none",
    "a class, and a check of the loss",
    "a loss that is bound again after the update",
    "training and validation in one loop",
    "a function that trains or evaluates",
    "a function of one batch without a name for the outputs",
    "a function reads weights before the update",
    "a schedule of its own before the update",
    "callbacks between backward and update",
    "a function that is handed over",
    "gradients are read after the loop",
    "another name of the model",
    "a decorator and a method read gradients",
    "gradients of zeros",
    "gradients are read",
}


def executed(source, monkeypatch, backend="captured"):
    steps = []

    def forced(*given, **options):
        step = training_step(*given, **options, config=headrace.GraphConfig(backend=backend))
        steps.append(step)
        return step

    monkeypatch.setattr(headrace, "training_step", forced)
    torch.manual_seed(0)
    names = {"__name__": "script"}
    exec(compile(source, "script.py", "exec"), names)
    return names["trace"], names["model"].state_dict(), steps


def migrated_of(loop, folder):
    (folder / "script.py").write_text(HEAD + LOOPS[loop])
    (change,) = rewrite(survey(folder), select=["PS3"])
    assert change.rules == (["PS301"] if loop in WHOLE else ["PS302"]), change.findings
    (folder / "script.py").write_bytes(change.after)
    assert not any(item.changed for item in rewrite(survey(folder))), "the second run must change nothing"
    return change.after.decode()


@pytest.mark.parametrize("loop", sorted(LIKE_OTHERS))
def test_the_whole_step_or_the_pass_through_the_model_becomes_a_graph(tmp_path, loop):
    migrated_of(loop, tmp_path)


@pytest.mark.parametrize(
    "loop", [pytest.param(loop, marks=pytest.mark.slow) if loop in LIKE_OTHERS else loop for loop in LOOPS]
)
def test_the_migrated_loop_gives_the_same_losses(tmp_path, monkeypatch, loop):
    source, migrated = HEAD + LOOPS[loop], migrated_of(loop, tmp_path)
    expected, weights, _ = executed(source, monkeypatch)
    actual, graph_weights, steps = executed(migrated, monkeypatch)
    assert len(actual) == len(expected) >= 18
    assert loop not in ("batches without a for", "so many steps") or len(steps) == 1, "it is made before the loop"
    tolerance = 2e-2 if loop == "bfloat16" else 1e-5
    np.testing.assert_allclose(
        [number for row in actual for number in row], [number for row in expected for number in row], rtol=tolerance
    )
    for name, value in weights.items():
        torch.testing.assert_close(graph_weights[name], value, rtol=tolerance, atol=tolerance)
    ways = {record.way for step in steps for record in step.steps}
    assert "captured" in ways, [str(record) for step in steps for record in step.steps]


STEP = """\
optimizer.zero_grad()
    outputs = model(x)
    loss = criterion(outputs, y)
    loss.backward()
    optimizer.step()
"""
LEFT = {
    "two arguments": ("model(x)", "model(x, y)", "more than one argument"),
    "the model's own loss": ("outputs = model(x)", "outputs, extra = model(x)", "taken apart"),
    "outputs that are changed": (
        "outputs = model(x)\n",
        "outputs = model(x)\n    outputs = outputs + noise(outputs)\n",
        "outputs is changed",
    ),
    "outputs without history": ("outputs = model(x)", "outputs = model(x).detach()", "taken apart"),
    "outputs that come back from elsewhere": ("outputs = model(x)", "outputs = mean_of(model(x))", "taken apart"),
    "outputs of another device": ("outputs = model(x)", "outputs = model(x).squeeze().cpu()", "taken apart"),
    "a view that is written into": (
        "outputs = model(x)\n",
        "outputs = model(x)\n    flat = outputs.view(-1)\n    flat.mul_(2)\n",
        "outputs is changed",
    ),
    "a view of which a part is set": (
        "outputs = model(x)\n",
        "outputs = model(x).squeeze()\n    outputs[:, 0] = 0\n",
        "outputs is changed",
    ),
    "a view that a branch changes": (
        "outputs = model(x)\n    loss = criterion(outputs, y)",
        "outputs = model(x)\n    flat = outputs[0]\n    if y.sum():\n        flat = flat * 2\n    loss = criterion(flat, y)",
        "not computed from outputs",
    ),
    "a size that changes from batch to batch": (
        "outputs = model(x)\n",
        "n = count(y)\n    outputs = model(x).view(n, -1)\n",
        "taken apart",
    ),
    "a loss that is changed": ("loss.backward()", "loss += penalty(model)\n    loss.backward()", "changed before backward"),
    "a graph kept": ("loss.backward()", "loss.backward(retain_graph=True)", "takes arguments"),
    "an accelerator": ("loss.backward()", "accelerator.backward(loss)", "takes arguments"),
    "a closure": ("optimizer.step()", "optimizer.step(closure)", "closure"),
    "two optimizers": ("optimizer.step()", "optimizer.step()\n    optimizer_head.step()", "several optimizers"),
    "no optimizer": ("optimizer.step()", "update(model)", "no optimizer"),
    "a branch": ("loss.backward()", "if y.sum():\n        loss.backward()", "different branches"),
    "a condition made late": ("loss.backward()", "good = loss < 3\n    if good:\n        loss.backward()", "decided between"),
    "a way out": ("loss.backward()", "if skip(loss):\n        break\n    loss.backward()", None),
    "a random number after the forward pass": (
        "loss = criterion(outputs, y)",
        "share = torch.rand(())\n    loss = share * criterion(outputs, y)",
        "random numbers",
    ),
    "a criterion made anew": ("loss = ", "criterion = choose(x)\n    loss = ", "criterion"),
    "a function that drops gradients": (
        "loss.backward()\n    optimizer.step()",
        "clear()\n    loss.backward()\n    optimizer.step()\n\n\n"
        "def clear():\n    for item in net.parameters():\n        item.grad = None",
        "clear() comes to gradients",
    ),
    "an optimizer that a function makes anew": (
        "optimizer.step()",
        "optimizer.step()\n    restart()\n\n\ndef restart():\n    global optimizer\n    optimizer = SGD(net.parameters())",
        "optimizer is bound anew",
    ),
    "one line": ("loss.backward()\n    optimizer.step()", "loss.backward(); optimizer.step()", "share a line"),
    "hooks": ("outputs = model(x)", "model.register_forward_hook(print)\n    outputs = model(x)", "hooks"),
}


@pytest.mark.parametrize("case", LEFT)
def test_what_is_not_understood_stays_and_says_why(tmp_path, case):
    old, new, reason = LEFT[case]
    assert old in STEP
    source = f"import torch\n\nfor x, y in loader:\n    {STEP.replace(old, new)}"
    (tmp_path / "script.py").write_text(source)
    (change,) = rewrite(survey(tmp_path), select=["PS3"])
    if (
        reason is None
    ):  # the gradients of the batch that is left are dropped by the next: only the update must not be in the graph
        assert change.rules == ["PS302"]
        return
    assert not change.changed
    (finding,) = change.findings
    assert (finding.code, finding.fix) == ("PS303", "manual")
    assert reason in finding.message


@pytest.mark.parametrize(
    "loss", ["soften(model(x))", "model(x).view(x.size(0), -1)", "model(x) * 2", "model(x).squeeze(), y, weight=w"]
)
def test_in_a_function_of_one_batch_the_loss_of_more_than_a_view_stays(tmp_path, loss):
    """What such a function is given may be no tensor, and what it closes over would be a constant of the graph."""
    source = f"import torch\nfrom utils import soften\n\ndef step(model, x, y, w, optimizer, criterion):\n    {STEP}"
    source = source.replace("    outputs = model(x)\n", "").replace(
        "criterion(outputs, y)", f"criterion({loss}, y)".replace("w, y)", "w)")
    )
    (tmp_path / "script.py").write_text(source)
    (change,) = rewrite(survey(tmp_path), select=["PS3"])
    assert not change.changed
    assert "in a function of one batch" in change.findings[0].message


def test_comments_and_odd_spellings_stay(tmp_path):
    source = """\
import torch

def train():
\tfor x, y in loader :
\t\tout=net( x.cuda() )   # forward
\t\tloss=F.cross_entropy( out,y.cuda().long() )
\t\t# statistics
\t\tprint(loss.item())

\t\topt.zero_grad() # drop them

\t\tloss.backward()
\t\topt.step()

\t\tprint(out.argmax(1))
"""
    (tmp_path / "script.py").write_text(source)
    (change,) = rewrite(survey(tmp_path), select=["PS3"])
    after = change.after.decode()
    ast.parse(after)
    assert (
        after
        == """\
import headrace
import torch

def train():
\ttrain_step = headrace.training_step(net, F.cross_entropy, opt)
\tfor x, y in loader :
\t\t# forward
\t\tloss, out = train_step(x.cuda(), y.cuda().long())
\t\t# statistics
\t\tprint(loss.item())

\t\t# drop them

\t\tprint(out.argmax(1))
"""
    )


def test_semicolons_that_end_lines_are_no_second_statements(tmp_path):
    lines = [
        "optimizer.zero_grad();",
        "out = net(x);  # forward",
        "loss = criterion(out, y);",
        "loss.backward() ;",
        "optimizer.step();",
    ]
    source = "import torch\n\nfor x, y in loader:\n" + "".join(f"    {line}\n" for line in lines)
    (tmp_path / "script.py").write_text(source)
    (change,) = rewrite(survey(tmp_path), select=["PS3"])
    assert (
        change.after.decode()
        == """\
import headrace
import torch

train_step = headrace.training_step(net, criterion, optimizer)
for x, y in loader:
    # forward
    loss, out = train_step(x, y);
"""
    )
