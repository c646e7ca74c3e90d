"""`training_step` against the loop that it stands for, statement by statement."""

import copy
import gc
import io
import weakref

import numpy as np
import pytest
import torch
from torch import nn

import headrace
from headrace import GraphConfig
from headrace.errors import InputError

CAPTURED = GraphConfig(backend="captured")
ROWS = [6, 6, 6, 5] * 4


class Net(nn.Module):
    def __init__(self, dropout=0.3):
        super().__init__()
        self.conv, self.norm = nn.Conv2d(2, 5, 3), nn.BatchNorm2d(5)
        self.drop, self.head = nn.Dropout(dropout), nn.Linear(5, 4)

    def forward(self, x):
        return self.head(self.drop(self.norm(self.conv(x)).relu().mean((2, 3))))


def batches(seed=0, rows=ROWS):
    generator = torch.Generator().manual_seed(seed)
    return [
        (torch.randn(count, 2, 9, 7, generator=generator), torch.randint(4, (count,), generator=generator)) for count in rows
    ]


def twins(dropout=0.3, lr=0.05):
    torch.manual_seed(1)
    one = Net(dropout)
    two = copy.deepcopy(one)
    made = [torch.optim.SGD(model.parameters(), lr=lr, momentum=0.9, weight_decay=1e-3) for model in (one, two)]
    return one, made[0], two, made[1]


def same(one, two):
    for (name, a), (_, b) in zip(one.state_dict().items(), two.state_dict().items(), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-6, atol=1e-7, msg=name)


def test_one_call_is_the_loops_five_statements():
    one, first, two, second = twins()
    criterion = nn.CrossEntropyLoss(label_smoothing=0.1)
    torch.manual_seed(5)
    expected = []
    for images, labels in batches():
        first.zero_grad()
        outputs = one(images)
        loss = criterion(outputs, labels)
        loss.backward()
        nn.utils.clip_grad_norm_(one.parameters(), 0.5)
        first.step()
        expected.append((loss.item(), outputs.detach()))
    torch.manual_seed(5)
    step = headrace.training_step(two, criterion, second, clip_grad_norm=0.5, config=CAPTURED)
    for (images, labels), (wanted, logits) in zip(batches(), expected, strict=True):
        loss, outputs = step(images, labels)
        assert not loss.requires_grad
        np.testing.assert_allclose(loss.item(), wanted, rtol=1e-6)
        torch.testing.assert_close(outputs, logits, rtol=1e-6, atol=1e-6)
    same(one, two)
    assert step.steps[-1].way == "captured"


@pytest.mark.parametrize("accumulate", [1, 3])
def test_without_the_update_gradients_are_left_to_the_loop(accumulate):
    one, first, two, second = twins()
    schedules = [torch.optim.lr_scheduler.OneCycleLR(item, 0.1, total_steps=len(ROWS)) for item in (first, second)]
    criterion = nn.CrossEntropyLoss()
    torch.manual_seed(5)
    expected = []
    for i, (images, labels) in enumerate(batches()):
        loss = criterion(one(images), labels) / accumulate
        loss.backward()
        if (i + 1) % accumulate == 0:
            first.step()
            first.zero_grad()
            schedules[0].step()
        expected.append(loss.item())
    torch.manual_seed(5)
    step = headrace.training_step(
        two, lambda outputs, labels: criterion(outputs, labels) / accumulate, second, update=False, config=CAPTURED
    )
    actual = []
    for i, (images, labels) in enumerate(batches()):
        loss, _ = step(images, labels)
        if (i + 1) % accumulate == 0:
            assert all(value.grad is not None for value in two.parameters())
            second.step()
            second.zero_grad()
            schedules[1].step()
        actual.append(loss.item())
    np.testing.assert_allclose(actual, expected, rtol=1e-6)
    same(one, two)
    assert "captured" in {record.way for record in step.steps}
    assert step.captures <= 2 * 2  # two sizes, with and without gradients: the schedule's momentum makes no capture anew


def test_a_divided_loss_comes_back_whole():
    one, _, two, second = twins(dropout=0.0)
    step = headrace.training_step(two, nn.functional.cross_entropy, second, update=False, divide=4, config=CAPTURED)
    for images, labels in batches(rows=[3] * 5):
        loss = nn.functional.cross_entropy(one(images), labels)
        (loss / 4).backward()
        torch.testing.assert_close(step(images, labels)[0], loss.detach())
        for a, b in zip(one.parameters(), two.parameters(), strict=True):
            torch.testing.assert_close(a.grad, b.grad)


def test_mixup_with_a_share_that_is_a_number():
    one, first, two, second = twins(dropout=0.0)
    criterion = nn.CrossEntropyLoss()
    shares = np.random.default_rng(0).beta(1.0, 1.0, len(ROWS))
    step = headrace.training_step(
        two, lambda outputs, a, b, lam: lam * criterion(outputs, a) + (1 - lam) * criterion(outputs, b), second, config=CAPTURED
    )
    for lam, (images, labels) in zip(map(float, shares), batches(), strict=True):
        other = labels.flip(0)
        first.zero_grad()
        outputs = one(images)
        loss = lam * criterion(outputs, labels) + (1 - lam) * criterion(outputs, other)
        loss.backward()
        first.step()
        np.testing.assert_allclose(step(images, labels, other, lam)[0].item(), loss.item(), rtol=1e-5)
    assert step.steps[-1].way == "captured"
    same(one, two)


def test_autocast_around_the_call_and_a_scaler():
    one, first, two, second = twins(dropout=0.0)
    criterion = nn.CrossEntropyLoss()
    scalers = [torch.amp.GradScaler("cpu", init_scale=2.0**12, growth_interval=3) for _ in range(2)]
    step = headrace.training_step(two, criterion, second, update=False, grad_scaler=scalers[1], config=CAPTURED)
    for images, labels in batches():
        losses = []
        for model, optimizer, scaler in ((one, first, scalers[0]), (two, second, scalers[1])):
            optimizer.zero_grad()
            with torch.autocast("cpu", dtype=torch.bfloat16):
                if model is one:
                    loss = criterion(model(images), labels)
                else:
                    loss, outputs = step(images, labels)
                    assert outputs.dtype == torch.bfloat16
            if model is one:
                scaler.scale(loss).backward()
            scaler.unscale_(optimizer)
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            scaler.step(optimizer)
            scaler.update()
            losses.append(loss.item())
        np.testing.assert_allclose(losses[1], losses[0], rtol=1e-2)
    assert scalers[0].get_scale() == scalers[1].get_scale() > 2.0**12
    assert "captured" in {record.way for record in step.steps}


def test_asked_for_again_it_is_the_same_graph_until_something_differs():
    model, optimizer = Net(), None
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    criterion = nn.CrossEntropyLoss()
    weight = 0.5

    def ask(**options):
        return headrace.training_step(model, lambda outputs, labels: weight * criterion(outputs, labels), optimizer, **options)

    step = ask()
    assert ask() is step
    assert ask(update=False) is not step
    weight = 0.25
    assert ask() is not step
    again = headrace.training_step(model, criterion, optimizer)
    assert headrace.training_step(model, criterion, optimizer) is again
    model.drop.p = 0.6
    assert headrace.training_step(model, criterion, optimizer) is not again
    assert len(vars(optimizer)["_headrace_steps"]) <= 4


def test_it_leaves_no_trace_in_what_is_saved_or_copied_and_dies_with_the_optimizer():
    model = Net()
    optimizer = torch.optim.Adam(model.parameters())
    step = headrace.training_step(model, nn.CrossEntropyLoss(), optimizer)
    step(*batches()[0])
    assert "_headrace_steps" not in vars(copy.deepcopy(optimizer))
    torch.save([model, optimizer], file := io.BytesIO())
    assert "_headrace_steps" not in vars(torch.load(io.BytesIO(file.getvalue()), weights_only=False)[1])
    gone = weakref.ref(model)
    del model, optimizer, step
    gc.collect()
    assert gone() is None


def test_a_parallel_model_trains_eagerly_and_says_why(tmp_path):
    torch.distributed.init_process_group("gloo", init_method=f"file://{tmp_path}/meet", rank=0, world_size=1)
    try:
        one, first, two, second = twins()
        wrapped = nn.parallel.DistributedDataParallel(two)
        step = headrace.training_step(wrapped, nn.CrossEntropyLoss(), second)
        torch.manual_seed(2)
        expected = []
        for images, labels in batches(rows=[4] * 4):
            first.zero_grad()
            loss = nn.functional.cross_entropy(one(images), labels)
            loss.backward()
            first.step()
            expected.append(loss.item())
        torch.manual_seed(2)
        np.testing.assert_allclose([step(*item)[0].item() for item in batches(rows=[4] * 4)], expected, rtol=1e-6)
        record = step.steps[-1]
        assert record.way == "eager"
        assert "DistributedDataParallel" in record.why
    finally:
        torch.distributed.destroy_process_group()


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"model": "resnet"}, "nn.Module"),
        ({"criterion": None}, "callable"),
        ({"divide": 0}, "divide"),
        ({"update": False, "clip_grad_norm": 1.0}, "update=False"),
        ({"update": False, "accumulate": 2}, "update=False"),
    ],
)
def test_mistakes_are_told(change, why):
    model = Net()
    given = {"model": model, "criterion": nn.CrossEntropyLoss(), "optimizer": torch.optim.SGD(model.parameters()), **change}
    with pytest.raises(ValueError, match=why):
        headrace.training_step(**given)


def test_images_that_are_no_tensor_are_told():
    model = Net()
    step = headrace.training_step(model, nn.CrossEntropyLoss(), torch.optim.SGD(model.parameters()))
    with pytest.raises(InputError, match="dict"):
        step({"images": torch.randn(2, 2, 9, 7)}, torch.tensor([0, 1]))


def test_targets_that_are_no_tensor_go_to_the_criterion_as_they_are():
    def criterion(outputs, targets, reduction, rows):
        return torch.nn.functional.cross_entropy(outputs[:rows], targets["labels"][:rows], reduction=reduction)

    model = Net()
    step = headrace.training_step(model, criterion, torch.optim.SGD(model.parameters(), lr=0.1))
    before = model.state_dict()[next(iter(model.state_dict()))].clone()
    loss, outputs = step(torch.randn(3, 2, 9, 7), {"labels": torch.tensor([0, 1, 0])}, "sum", 2)
    assert loss.ndim == 0
    assert not loss.requires_grad
    assert outputs.shape[0] == 3
    assert not torch.equal(model.state_dict()[next(iter(model.state_dict()))], before)


class Wrapping:
    """What wraps an optimizer of torch's, as Lookahead and schedules with a warm-up do."""

    def __init__(self, optimizer):
        self.optimizer, self.steps = optimizer, 0

    def zero_grad(self):
        self.optimizer.zero_grad()

    def step(self):
        self.steps += 1
        self.optimizer.step()


@pytest.mark.parametrize("options", [{}, {"update": False}, {"clip_grad_norm": 0.1, "divide": 2}])
def test_an_optimizer_that_wraps_another_is_stepped_as_it_is(options):
    torch.manual_seed(0)
    model = Net()
    other = copy.deepcopy(model)
    wrapping, plain = (Wrapping(torch.optim.SGD(item.parameters(), lr=0.1, momentum=0.9)) for item in (model, other))
    with pytest.warns(UserWarning, match="Wrapping is no torch.optim.Optimizer"):
        step = headrace.training_step(model, nn.CrossEntropyLoss(), wrapping, **options)
    for index in range(3):
        torch.manual_seed(index)
        x, y = torch.randn(4, 2, 9, 7), torch.randint(2, (4,))
        torch.manual_seed(index)
        loss, outputs = step(x, y)
        torch.manual_seed(index)
        expected = other(x)
        wanted = nn.functional.cross_entropy(expected, y)
        (wanted / options.get("divide", 1)).backward()
        if "clip_grad_norm" in options:
            nn.utils.clip_grad_norm_(other.parameters(), 0.1)
        if options.get("update", True):
            plain.step()
            plain.zero_grad()
        torch.testing.assert_close((loss, outputs), (wanted.detach(), expected.detach()))
        assert not outputs.requires_grad
    assert wrapping.steps == plain.steps
    for one, two in zip(model.parameters(), other.parameters(), strict=True):
        torch.testing.assert_close(one, two)
        torch.testing.assert_close(one.grad, two.grad)
