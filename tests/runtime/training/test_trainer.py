import copy
import importlib.util
import io
import itertools
import warnings
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

import headrace
from headrace import GraphConfig
from headrace.errors import ArtifactError, BackendError, InputError
from headrace.runtime.training import trainer

DIGITS = Path(__file__).parents[3] / "examples" / "digits" / "model.py"


class TrainStep(headrace.Graph):
    def __init__(self, model, criterion, optimizer, config=None, **options):
        super().__init__(config=config)
        self.model, self.criterion = model, criterion
        self.add_optimizer(optimizer, **options)

    def build(self, images, labels):
        loss = self.criterion(self.model(images), labels)
        loss.backward()
        return loss


@pytest.fixture(scope="module")
def digits():
    from sklearn.datasets import load_digits  # takes seconds

    data = load_digits()
    images = torch.from_numpy(np.kron(data.images, np.ones((4, 4))) / 8 - 1).float()[:, None]
    return images, torch.from_numpy(data.target)


def smallcnn(**options):
    spec = importlib.util.spec_from_file_location("digits_model", DIGITS)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    torch.manual_seed(0)
    return module.SmallCNN(**options)


class Net(nn.Module):
    """Small, with everything that a step must get right: batch statistics, dropout, tied and frozen weights."""

    def __init__(self, dropout=0.5):
        super().__init__()
        self.conv = nn.Conv2d(1, 6, 3, stride=2)
        self.norm = nn.BatchNorm2d(6)
        self.one, self.two = nn.Linear(6, 6), nn.Linear(6, 6)
        self.two.weight = self.one.weight
        self.frozen = nn.Linear(6, 6).requires_grad_(False)
        self.unused = nn.Linear(3, 3)
        self.drop = nn.Dropout(dropout)
        self.head = nn.Linear(6, 10)

    def forward(self, x):
        x = self.norm(self.conv(x)).relu().mean((2, 3))
        return self.head(self.drop(self.frozen(self.two(self.one(x).relu()))))


def batches(digits, count, size=16):
    images, labels = digits
    return [(images[at * size :][:size], labels[at * size :][:size]) for at in range(count)]


def eager_losses(model, optimizer, data, *, accumulate=1, criterion=None, after=lambda: None, scaler=None):
    losses = []
    for index, (images, labels) in enumerate(data):
        loss = (criterion or nn.CrossEntropyLoss())(model(images), labels)
        (loss if scaler is None else scaler.scale(loss)).backward()
        losses.append(loss.item())
        if (index + 1) % accumulate == 0:
            after()
            if scaler is None:
                optimizer.step()
            else:
                scaler.step(optimizer)
                scaler.update()
            optimizer.zero_grad()
    return losses


def same_state(one, two):
    for (name, a), (_, b) in zip(one.state_dict().items(), two.state_dict().items(), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-6, atol=1e-7, msg=name)


OPTIMIZERS = {
    "sgd": lambda p: torch.optim.SGD(p, lr=0.05, momentum=0.9, weight_decay=1e-4),
    "nesterov": lambda p: torch.optim.SGD(p, lr=0.05, momentum=0.9, nesterov=True),
    "plain": lambda p: torch.optim.SGD(p, lr=0.05),
    "adam": lambda p: torch.optim.Adam(p, lr=1e-3),
    "amsgrad": lambda p: torch.optim.Adam(p, lr=1e-3, amsgrad=True),
    "adamw": lambda p: torch.optim.AdamW(p, lr=3e-3, weight_decay=0.01),
    "foreach": lambda p: torch.optim.AdamW(p, lr=3e-3, foreach=True),
    "rmsprop": lambda p: torch.optim.RMSprop(p, lr=1e-3, momentum=0.9),
    "nadam": lambda p: torch.optim.NAdam(p, lr=1e-3),
    "adagrad": lambda p: torch.optim.Adagrad(p, lr=1e-2),
    "groups": lambda p: torch.optim.SGD(
        [{"params": list(p)[:2], "lr": 0.1}, {"params": list(p)[2:], "weight_decay": 0.1}], lr=0.01, momentum=0.5
    ),
}


@pytest.mark.parametrize(
    ("name", "accumulate", "steps"),
    [
        ("adamw", 2, 44),
        # Every optimizer, without accumulation, over fewer steps: the next test.
        *(
            pytest.param(*item, 100, marks=pytest.mark.slow)
            for item in (("sgd", 1), ("sgd", 4), ("adam", 1), ("adam", 4), ("adamw", 1), ("adamw", 4))
        ),
    ],
)
def test_the_loss_over_many_steps_is_eagers(digits, name, accumulate, steps):
    data = (batches(digits, 25, 32) * 4)[:steps]
    one = smallcnn()
    two = copy.deepcopy(one)
    torch.manual_seed(7)
    expected = eager_losses(one, (optimizer := OPTIMIZERS[name](one.parameters())), data, accumulate=accumulate)
    torch.manual_seed(7)
    step = TrainStep(two, nn.CrossEntropyLoss(), OPTIMIZERS[name](two.parameters()), accumulate=accumulate)
    actual = [step(images, labels).item() for images, labels in data]
    np.testing.assert_allclose(actual, expected, rtol=1e-5)
    same_state(one, two)
    assert expected[-1] < expected[0]
    assert optimizer.state_dict()["param_groups"] == step._trainer.optimizer.state_dict()["param_groups"]
    # Whether the captured one then runs is decided by the speeds of that moment, and so is which kind of step came last.
    whole = [record for record in step.steps if record.update == "captured"]
    assert whole, step.steps
    assert any(record.captured_ms is not None for record in whole), step.steps
    assert {record.why for record in whole} <= {"", "eager is as fast"}


@pytest.mark.parametrize("name", list(OPTIMIZERS))
def test_each_optimizer_is_captured_whole_and_does_what_it_does_in_eager(digits, name):
    one, data = Net(), batches(digits, 8)
    two = copy.deepcopy(one)
    torch.manual_seed(3)
    expected = eager_losses(one, OPTIMIZERS[name](one.parameters()), data)
    torch.manual_seed(3)
    step = TrainStep(two, nn.CrossEntropyLoss(), OPTIMIZERS[name](two.parameters()), GraphConfig(backend="captured"))
    np.testing.assert_allclose([step(*item).item() for item in data], expected, rtol=1e-6)
    same_state(one, two)
    record = step.steps[-1]
    assert (record.way, record.update, record.why) == ("captured", "captured", "")
    assert two.one.weight is two.two.weight
    assert two.unused.weight.grad is None


class Counting(torch.optim.Optimizer):
    """Keeps a Python number per parameter."""

    def __init__(self, params):
        super().__init__(params, {"lr": 0.1})

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            for value in group["params"]:
                if value.grad is not None:
                    count = self.state[value].get("count", 0) + 1
                    self.state[value]["count"] = count
                    value.add_(value.grad, alpha=-group["lr"] / count)


class Stateful(torch.optim.Optimizer):
    """Keeps a Python number of its own."""

    def __init__(self, params):
        super().__init__(params, {"lr": 0.1})
        self.count = 0

    @torch.no_grad()
    def step(self):
        self.count += 1
        for group in self.param_groups:
            for value in group["params"]:
                if value.grad is not None:
                    value.add_(value.grad, alpha=-group["lr"] / self.count)


@pytest.mark.parametrize(
    ("optimizer", "why"),
    [
        (lambda p: torch.optim.RAdam(p, lr=1e-3), "update not captured"),
        (Counting, "keeps 'count' as a int"),
        (Stateful, "keeps numbers of its own"),
    ],
)
def test_an_optimizer_that_cannot_be_captured_runs_after_the_captured_pass_and_says_so(digits, optimizer, why):
    one, data = Net(), batches(digits, 8)
    two = copy.deepcopy(one)
    torch.manual_seed(3)
    expected = eager_losses(one, optimizer(one.parameters()), data)
    torch.manual_seed(3)
    step = TrainStep(two, nn.CrossEntropyLoss(), optimizer(two.parameters()), GraphConfig(backend="captured"))
    np.testing.assert_allclose([step(*item).item() for item in data], expected, rtol=1e-6)
    same_state(one, two)
    record = step.steps[-1]
    assert (record.way, record.update) == ("captured", "after")
    assert why in record.why
    assert why in str(step)


def test_the_learning_rate_is_read_at_every_step(digits):
    one, data = Net(dropout=0.0), batches(digits, 12)
    two = copy.deepcopy(one)
    a, b = OPTIMIZERS["adam"](one.parameters()), OPTIMIZERS["adam"](two.parameters())
    schedules = [torch.optim.lr_scheduler.CosineAnnealingLR(item, T_max=12) for item in (a, b)]
    expected = eager_losses(one, a, data[:6], after=lambda: None)
    step = TrainStep(two, nn.CrossEntropyLoss(), b, GraphConfig(backend="captured"))
    actual = [step(*item).item() for item in data[:6]]
    for item in (a, b):
        item.param_groups[0]["lr"] = 0.05
    expected += eager_losses(one, a, data[6:])
    actual += [step(*item).item() for item in data[6:]]
    np.testing.assert_allclose(actual, expected, rtol=1e-6)
    assert len({record.inputs for record in step.steps}) == 1
    assert schedules


def test_a_scheduler_steps_once_per_update(digits):
    one, data = Net(dropout=0.0), batches(digits, 8)
    two = copy.deepcopy(one)
    a, b = OPTIMIZERS["sgd"](one.parameters()), OPTIMIZERS["sgd"](two.parameters())
    plain, given = (torch.optim.lr_scheduler.StepLR(item, 1, gamma=0.5) for item in (a, b))
    losses = []
    for images, labels in data:
        loss = nn.functional.cross_entropy(one(images), labels)
        (loss / 1).backward()
        losses.append(loss.item())
        if len(losses) % 2 == 0:
            a.step()
            plain.step()
            a.zero_grad()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        step = TrainStep(two, nn.CrossEntropyLoss(), b, lr_scheduler=given, accumulate=2)
        np.testing.assert_allclose([step(*item).item() for item in data], losses, rtol=1e-6)
    assert b.param_groups[0]["lr"] == a.param_groups[0]["lr"] == 0.05 * 0.5**4


def test_settings_that_change_with_the_schedule_are_never_stale(digits):
    """OneCycleLR moves the momentum too, which a captured step has as a constant."""
    one, data = Net(dropout=0.0), batches(digits, 16)
    two = copy.deepcopy(one)
    a, b = OPTIMIZERS["sgd"](one.parameters()), OPTIMIZERS["sgd"](two.parameters())
    plain, given = (torch.optim.lr_scheduler.OneCycleLR(item, 0.1, total_steps=20) for item in (a, b))
    losses = []
    for item in data:
        losses += eager_losses(one, a, [item])
        plain.step()
    step = TrainStep(two, nn.CrossEntropyLoss(), b, GraphConfig(backend="captured"), lr_scheduler=given)
    np.testing.assert_allclose([step(*item).item() for item in data], losses, rtol=1e-6)
    assert "change from step to step" in step.steps[-1].why


@pytest.mark.parametrize("clip", [{"clip_grad_norm": 0.1}, {"clip_grad_value": 0.01}])
def test_gradients_are_clipped(digits, clip):
    one, data = Net(), batches(digits, 8)
    two = copy.deepcopy(one)

    def after():
        if "clip_grad_norm" in clip:
            nn.utils.clip_grad_norm_(one.parameters(), 0.1)
        else:
            nn.utils.clip_grad_value_(one.parameters(), 0.01)

    torch.manual_seed(3)
    expected = eager_losses(one, OPTIMIZERS["sgd"](one.parameters()), data, after=after)
    torch.manual_seed(3)
    step = TrainStep(two, nn.CrossEntropyLoss(), OPTIMIZERS["sgd"](two.parameters()), GraphConfig(backend="captured"), **clip)
    np.testing.assert_allclose([step(*item).item() for item in data], expected, rtol=1e-6)
    assert step.steps[-1].update == "captured"
    same_state(one, two)


def test_a_grad_scaler_scales_the_loss_and_skips_overflowing_steps(digits):
    one, data = Net(dropout=0.0), batches(digits, 8)
    data[4] = (data[4][0] * float("inf"), data[4][1])
    two = copy.deepcopy(one)
    one.norm.eval(), two.norm.eval()  # or the overflow would stay in its statistics
    a, b = (torch.amp.GradScaler("cpu", init_scale=1024.0, growth_interval=3) for _ in range(2))
    expected = eager_losses(one, OPTIMIZERS["sgd"](one.parameters()), data, scaler=a)
    optimizer = OPTIMIZERS["sgd"](two.parameters())
    step = TrainStep(two, nn.CrossEntropyLoss(), optimizer, GraphConfig(backend="captured"), grad_scaler=b)
    np.testing.assert_allclose([step(*item).item() for item in data], expected, rtol=1e-6)
    assert a.get_scale() == b.get_scale() != 1024.0
    same_state(one, two)
    assert "the scaler decides in Python" in step.steps[-1].why


@pytest.mark.parametrize("inside", [True, False])
def test_autocast_in_build_or_by_configuration(digits, inside):
    one, data = Net(dropout=0.0), batches(digits, 8)
    two = copy.deepcopy(one)

    class Step(TrainStep):
        def build(self, images, labels):
            with torch.autocast("cpu", torch.bfloat16, enabled=inside or torch.is_autocast_enabled("cpu")):
                return super().build(images, labels)

    def criterion(scores, labels):
        assert scores.dtype == torch.bfloat16
        return nn.functional.cross_entropy(scores.float(), labels)

    expected, optimizer = [], OPTIMIZERS["sgd"](one.parameters())
    for images, labels in data:
        with torch.autocast("cpu", torch.bfloat16):
            loss = criterion(one(images), labels)
            loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        expected.append(loss.item())
    config = GraphConfig(backend="captured", precision="auto" if inside else "bf16")
    step = Step(two, criterion, OPTIMIZERS["sgd"](two.parameters()), config)
    np.testing.assert_allclose([step(*item).item() for item in data], expected, rtol=2e-2)
    assert step.steps[-1].way == "captured", step.steps[-1].why


def test_checkpointed_modules_compute_again_and_give_the_same(digits):
    one, data = smallcnn(dropout=0.5), batches(digits, 6)
    two = copy.deepcopy(one)
    torch.manual_seed(3)
    expected = eager_losses(one, OPTIMIZERS["sgd"](one.parameters()), data)
    torch.manual_seed(3)
    step = TrainStep(
        two, nn.CrossEntropyLoss(), OPTIMIZERS["sgd"](two.parameters()), checkpoint=[two.features[0], two.features[1]]
    )
    np.testing.assert_allclose([step(*item).item() for item in data], expected, rtol=1e-5)
    assert "forward" not in vars(two.features[0])


def test_dropout_draws_anew_at_every_captured_step(digits):
    model = Net(dropout=0.5)
    step = TrainStep(model, nn.CrossEntropyLoss(), torch.optim.SGD(model.parameters(), lr=0.0), GraphConfig(backend="captured"))
    ((images, labels),) = batches(digits, 1)
    losses = {step(images, labels).item() for _ in range(8)}
    assert step.steps[-1].way == "captured"
    assert len(losses) == 8


@pytest.mark.parametrize(
    ("eager", "captured", "way", "turns"),
    [((2.0,), (1.0,), "captured", 4), ((1.0,), (2.0,), "eager", 4), ((1.0, 1.4), (0.9, 1.2), "captured", 8)],
    ids=["always faster", "always slower", "now and then"],
)
def test_what_is_faster_in_every_turn_is_chosen_after_a_few(digits, monkeypatch, eager, captured, way, turns):
    clock, taken = [0.0], []
    monkeypatch.setattr(trainer, "_now", lambda inputs: clock[0])
    for name, seconds in (("_eagerly", itertools.cycle(eager)), ("_replayed", itertools.cycle(captured))):
        original = getattr(trainer.Trainer, name)

        def timed(self, *arguments, original=original, seconds=seconds, name=name):
            clock[0] += next(seconds)
            taken.append(name)
            return original(self, *arguments)

        monkeypatch.setattr(trainer.Trainer, name, timed)
    model = Net(dropout=0.0)
    step = TrainStep(model, nn.CrossEntropyLoss(), torch.optim.SGD(model.parameters(), lr=0.0))
    ((images, labels),) = batches(digits, 1)
    while not step.steps or step.steps[-1].captured_ms is None:
        step(images, labels)
        assert len(taken) < 30
    assert step.steps[-1].way == way
    # The first call of all may be eager, and one that a capture is held to is; the first timed one of each way does not count.
    assert turns <= taken.count("_replayed") <= turns + 1


def test_modules_keep_their_modes_and_frozen_ones_their_values(digits):
    model = Net()
    model.norm.eval()
    before = copy.deepcopy(model.state_dict())
    step = TrainStep(model, nn.CrossEntropyLoss(), OPTIMIZERS["sgd"](model.parameters()), GraphConfig(backend="captured"))
    for item in batches(digits, 5):
        step(*item)
    assert not model.norm.training
    assert model.conv.training
    assert torch.equal(model.norm.running_mean, before["norm.running_mean"])
    assert torch.equal(model.frozen.weight, before["frozen.weight"])
    assert torch.equal(model.unused.weight, before["unused.weight"])
    assert not torch.equal(model.head.weight, before["head.weight"])
    model.norm.train()
    step(*batches(digits, 1)[0])
    assert not torch.equal(model.norm.running_mean, before["norm.running_mean"])


def test_eager_and_graph_steps_may_be_mixed(digits):
    one, data = Net(dropout=0.0), batches(digits, 12)
    two = copy.deepcopy(one)
    a, b = OPTIMIZERS["adamw"](one.parameters()), OPTIMIZERS["adamw"](two.parameters())
    expected = eager_losses(one, a, data)
    step = TrainStep(two, nn.CrossEntropyLoss(), b, GraphConfig(backend="captured"))
    actual = [step(*item).item() for item in data[:4]]
    actual += eager_losses(two, b, data[4:6])
    actual += [step(*item).item() for item in data[6:]]
    np.testing.assert_allclose(actual, expected, rtol=1e-6)
    same_state(one, two)


def test_state_goes_to_eager_and_comes_back_through_a_file(digits):
    one, data = Net(dropout=0.0), batches(digits, 15)
    optimizer = OPTIMIZERS["adam"](one.parameters())
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, 2, gamma=0.7)
    start = copy.deepcopy(one)
    expected = []
    for item in data:
        expected += eager_losses(one, optimizer, [item])
        schedule.step()

    def graph(model):
        own = OPTIMIZERS["adam"](model.parameters())
        plan = torch.optim.lr_scheduler.StepLR(own, 2, gamma=0.7)
        return TrainStep(model, nn.CrossEntropyLoss(), own, lr_scheduler=plan), own, plan

    step, _, _ = graph(start)
    actual = [step(*item).item() for item in data[:5]]
    file = io.BytesIO()
    torch.save(step.state_dict(), file)
    file.seek(0)
    state = torch.load(file, weights_only=True)
    eager = Net(dropout=0.0)  # on in eager, from the parts
    eager.load_state_dict(state["modules"]["model"])
    other = OPTIMIZERS["adam"](eager.parameters())
    other.load_state_dict(state["training"]["optimizer"])
    later = torch.optim.lr_scheduler.StepLR(other, 2, gamma=0.7)
    later.load_state_dict(state["training"]["lr_scheduler"])
    for item in data[5:10]:
        actual += eager_losses(eager, other, [item])
        later.step()
    step, _, _ = graph(Net(dropout=0.0))  # and back into another graph
    step.load_state_dict(
        {
            "modules": {"model": eager.state_dict(), "criterion": {}},
            "training": {
                **state["training"], "optimizer": other.state_dict(), "lr_scheduler": later.state_dict(), "updates": 10,
            },
        }
    )  # fmt: skip
    actual += [step(*item).item() for item in data[10:]]
    np.testing.assert_allclose(actual, expected, rtol=1e-6)


def test_a_last_smaller_batch_is_a_kind_of_its_own_and_kinds_are_bounded(digits):
    one, (images, labels) = Net(dropout=0.0), digits
    two = copy.deepcopy(one)
    data = [(images[:size], labels[:size]) for size in (16, 16, 5, 16, 5, 16, 5, 5, 7, 8, 9, 10, 11, 12, 13, 14, 16)]
    expected = eager_losses(one, OPTIMIZERS["sgd"](one.parameters()), data)
    step = TrainStep(two, nn.CrossEntropyLoss(), OPTIMIZERS["sgd"](two.parameters()))
    np.testing.assert_allclose([step(*item).item() for item in data], expected, rtol=1e-6)
    assert len(step.steps) <= 8


def test_what_cannot_be_captured_trains_eagerly_and_says_why(digits):
    class Choosy(TrainStep):
        def build(self, images, labels):
            scores = self.model(images)
            loss = self.criterion(scores if scores.sum() > 0 else -scores, labels)
            loss.backward()
            return loss

    model = Net(dropout=0.0)
    before = model.head.weight.detach().clone()
    step = Choosy(model, nn.CrossEntropyLoss(), OPTIMIZERS["sgd"](model.parameters()))
    for item in batches(digits, 5):
        step(*item)
    assert {record.way for record in step.steps} == {"eager"}
    assert "forward and backward not captured" in step.steps[-1].why
    assert not torch.equal(before, model.head.weight)


def test_several_outputs_keep_their_structure(digits):
    class Both(TrainStep):
        def build(self, images, labels):
            scores = self.model(images)
            loss = self.criterion(scores, labels)
            loss.backward()
            return {"loss": loss, "correct": (scores.argmax(1) == labels).sum()}

    model = Net()
    step = Both(model, nn.CrossEntropyLoss(), OPTIMIZERS["sgd"](model.parameters()), GraphConfig(backend="captured"))
    for item in batches(digits, 5):
        result = step(*item)
        assert set(result) == {"loss", "correct"}
        assert not result["loss"].requires_grad
        assert 0 <= int(result["correct"]) <= 16


@pytest.mark.slow
def test_inductor_trains_too(digits):
    one, data = nn.Sequential(nn.Flatten(), nn.Linear(1024, 10)), batches(digits, 4)
    two = copy.deepcopy(one)
    expected = eager_losses(one, OPTIMIZERS["sgd"](one.parameters()), data)
    step = TrainStep(two, nn.CrossEntropyLoss(), OPTIMIZERS["sgd"](two.parameters()), GraphConfig(backend="inductor"))
    np.testing.assert_allclose([step(*item).item() for item in data], expected, rtol=1e-4)
    assert step.steps[-1].way == "inductor"


@pytest.mark.parametrize(
    ("options", "text"),
    [({"accumulate": 0}, "accumulate"), ({"clip_grad_norm": -1.0}, "clip_grad_norm"), ({"lr_scheduler": 3}, "lr_scheduler")],
)
def test_bad_options_are_refused(options, text):
    model = Net()
    with pytest.raises(ValueError, match=text):
        TrainStep(model, nn.CrossEntropyLoss(), OPTIMIZERS["sgd"](model.parameters()), **options)


def test_a_training_graph_is_no_inference_graph(digits, tmp_path):
    model = Net()
    step = TrainStep(model, nn.CrossEntropyLoss(), OPTIMIZERS["sgd"](model.parameters()))
    ((images, labels),) = batches(digits, 1)
    with pytest.raises(ArtifactError, match=r"headrace.compile\(model\)"):
        step.save(tmp_path / "net")
    with pytest.raises(ArtifactError, match="compile"):
        step.compile(images, labels)
    with pytest.raises(BackendError, match="no plan"):
        _ = step.plan
    with pytest.raises(InputError):
        step(images, "labels")
    with pytest.raises(ValueError, match="already"):
        step.add_optimizer(OPTIMIZERS["sgd"](model.parameters()))
    for config in (GraphConfig(backend="openvino"), GraphConfig(precision="fp8"), GraphConfig(precision="int8")):
        with pytest.raises(BackendError, match="for inference"):
            TrainStep(model, nn.CrossEntropyLoss(), OPTIMIZERS["sgd"](model.parameters()), config)
    step(images, labels)
    assert "trained by SGD" in str(step)
    assert headrace.compile(model, images[:2]).signature


def test_state_of_another_kind_of_graph_is_refused():
    model = Net()
    step = TrainStep(model, nn.CrossEntropyLoss(), OPTIMIZERS["sgd"](model.parameters()))
    plain = headrace.compile(model)
    with pytest.raises(InputError, match="modules"):
        step.load_state_dict(plain.state_dict())
    with pytest.raises(InputError, match="optimizer"):
        step.load_state_dict({**step.state_dict(), "training": None})
