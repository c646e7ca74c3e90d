import copy

import pytest
import torch
from torch import nn

import headrace
from headrace import GraphConfig
from headrace.errors import BackendError
from headrace.runtime.training.forms import StepForm, forms_for, race
from headrace.runtime.training.state import TrainingState
from headrace.runtime.training.step import capture_step


class TrainStep(headrace.Graph):
    def __init__(self, model, optimizer, config=None, **options):
        super().__init__(config=config)
        self.model = model
        self.add_optimizer(optimizer, **options)

    def build(self, images, labels):
        scores = self.model(images)
        loss = nn.functional.cross_entropy(scores, labels)
        loss.backward()
        return loss, scores


def network():
    torch.manual_seed(0)
    layers = [nn.Conv2d(3, 16, 3, padding=1, bias=False), nn.BatchNorm2d(16), nn.ReLU()]
    layers += [nn.Conv2d(16, 32, 3, stride=2), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Dropout(0.1)]
    return nn.Sequential(*layers, nn.Linear(32, 5))


def batch(shift=0.0):
    torch.manual_seed(1)
    return torch.randn(8, 3, 32, 32) + shift, torch.randint(0, 5, (8,))


OPTIMIZERS = {
    "sgd": lambda parameters: torch.optim.SGD(parameters, lr=0.05, momentum=0.9, weight_decay=1e-3),
    "adam": lambda parameters: torch.optim.Adam(parameters, lr=1e-3),
    "adamw": lambda parameters: torch.optim.AdamW(parameters, lr=1e-3),
}


def captured(model, optimizer, data, forms, lower=lambda value: value):
    """The exact step and those forms of it, where `lower` is put before the model, with the state that they start from."""
    for _ in range(2):
        nn.functional.cross_entropy(model(data[0]), data[1]).backward()
        optimizer.step()
        optimizer.zero_grad()
    state = TrainingState([model], optimizer)

    def capture(form):
        def forward(scale, images, labels):
            with torch.enable_grad(), torch.autocast("cpu", torch.bfloat16, enabled=form.precision == "bf16"):
                (images,) = form.laid_out([images])
                loss = nn.functional.cross_entropy(model(images if form == StepForm() else lower(images)), labels)
            loss.backward()
            return loss

        def update(shadow, parameters):
            with torch.no_grad():
                type(optimizer).step(shadow)

        return capture_step(forward, state, data, torch.ones(()), update, [], fused=form.fused, compared=True)

    exact = capture(StepForm())
    return exact, {form: capture(form) for form in forms}, [value.clone() for value in state.tensors(exact.slots)]


def test_nothing_is_tried_unless_precisions_were_named():
    model, (images, _) = network(), batch()
    optimizer = OPTIMIZERS["sgd"](model.parameters())
    assert forms_for((), [images], optimizer, updates=True) == []
    step = TrainStep(model, optimizer)
    for _ in range(3):
        step(*batch())
    assert not any(record.tried or record.form for record in step.steps)


def test_what_is_tried_follows_what_may_be_computed_in():
    model, (images, _) = network(), batch()
    optimizer = OPTIMIZERS["sgd"](model.parameters())
    assert [str(form) for form in forms_for(("fp32",), [images], optimizer, updates=True)] == [
        "channels-last, fused update",
        "fused update",
    ]
    assert [str(form) for form in forms_for(("fp32", "bf16"), [images], optimizer, updates=False)] == [
        "bf16, channels-last",
        "bf16",
        "channels-last",
    ]
    rows = images.flatten(1)
    other = torch.optim.RMSprop(model.parameters())  # has no fused kernel
    assert [str(form) for form in forms_for(("fp32", "bf16"), [rows], other, updates=True)] == ["bf16"]
    with torch.autocast("cpu", torch.bfloat16):  # the caller's own decides
        assert [str(form) for form in forms_for(("fp32", "bf16"), [rows], other, updates=True)] == []


@pytest.mark.parametrize("name", ["sgd", pytest.param("adam", marks=pytest.mark.slow), "adamw"])
def test_every_form_does_what_eager_does(name):
    model, data = network(), batch()
    optimizer = OPTIMIZERS[name](model.parameters())
    forms = forms_for(("fp32", "bf16"), data, optimizer, updates=True)
    exact, others, tensors = captured(model, optimizer, data, forms)
    before = [value.clone() for value in tensors]
    random = torch.get_rng_state()
    _, verdicts = race(exact, others, tensors, torch.ones(()), data, seconds=60.0)
    assert set(verdicts) == {str(form) for form in forms}
    assert not [verdict for verdict in verdicts.values() if "refused" in verdict], verdicts
    assert all(torch.equal(one, two) for one, two in zip(before, tensors, strict=True))
    assert torch.equal(random, torch.get_rng_state())
    if name != "sgd":
        assert "fused" in str([node.target for node in others[forms[0]].program.graph.nodes])


def test_a_mask_drawn_in_another_order_is_another_mask():
    """Dropout on feature maps goes through memory: channels last drops other values, and the two cannot be compared."""
    model, data = network(), batch()
    model.insert(3, nn.Dropout(0.3))
    form = StepForm(channels_last=True)
    exact, others, tensors = captured(model, OPTIMIZERS["sgd"](model.parameters()), data, [form])
    winner, verdicts = race(exact, others, tensors, torch.ones(()), data, seconds=60.0)
    assert winner is None
    assert "refused" in verdicts[str(form)]


def test_what_loses_the_gradient_is_refused():
    model, data = network(), batch()
    optimizer = OPTIMIZERS["sgd"](model.parameters())
    form = StepForm(channels_last=True)
    coarse = lambda images: (images * 2).round() / 2  # noqa: E731
    exact, others, tensors = captured(model, optimizer, data, [form], coarse)
    winner, verdicts = race(exact, others, tensors, torch.ones(()), data, seconds=60.0)
    assert winner is None
    assert "refused" in verdicts[str(form)]


class Difference(nn.Module):
    """What it gives is a small difference of large products, which bfloat16 does not see move."""

    def __init__(self):
        super().__init__()
        self.one, self.two = nn.Linear(3072, 5, bias=False), nn.Linear(3072, 5, bias=False)
        nn.init.normal_(self.one.weight, std=30.0)
        self.two.load_state_dict(self.one.state_dict())

    def forward(self, images):
        return self.one(images.flatten(1)) - self.two(images.flatten(1))


def test_a_form_whose_loss_does_not_fall_as_eagers_is_refused():
    torch.manual_seed(0)
    model, data = Difference(), batch()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
    form = StepForm(precision="bf16")
    exact, others, tensors = captured(model, optimizer, data, [form])
    winner, verdicts = race(exact, others, tensors, torch.ones(()), data, seconds=60.0)
    assert winner is None
    assert "updates its loss is" in verdicts["bf16"]


def test_what_has_no_room_for_copies_is_not_tried(monkeypatch):
    model, data = network(), batch()
    optimizer = OPTIMIZERS["sgd"](model.parameters())
    forms = forms_for(("fp32", "bf16"), data, optimizer, updates=True)
    exact, others, tensors = captured(model, optimizer, data, forms)
    size = sum(value.nbytes for value in tensors) / (1 << 20)
    for copies, tried in ((1, 0), (2, 1), (3, 2)):
        monkeypatch.setattr(headrace.runtime.training.forms, "free_megabytes", lambda copies=copies: 2.01 * copies * size)
        winner, verdicts = race(exact, others, tensors, torch.ones(()), data, seconds=0.0)
        assert ["no memory" in verdicts[str(form)] for form in forms] == [False] * tried + [True] * (len(forms) - tried)
        assert winner is None or winner in forms[:tried]


def test_steps_that_move_nothing_show_nothing():
    model, data = network(), batch()
    for parameter in list(model.parameters())[:-2]:
        parameter.requires_grad_(False)
    nn.init.zeros_(model[-1].weight)
    dead = nn.Sequential(model, nn.ReLU())  # its outputs are 0, and so are all gradients
    nn.init.constant_(model[-1].bias, -1.0)
    optimizer = OPTIMIZERS["sgd"](dead.parameters())
    form = StepForm(channels_last=True)
    exact, others, tensors = captured(dead, optimizer, data, [form])
    _, verdicts = race(exact, others, tensors, torch.ones(()), data, seconds=60.0)
    assert "nothing could be shown" in verdicts[str(form)]


OPTIONS = [{}, {"update": False}, {"accumulate": 2}, {"clip_grad_norm": 1.0}]
WAYS = [("sgd", "fp32"), ("adamw", "fp32,bf16"), ("adam", "bf16")]


@pytest.mark.parametrize(
    ("options", "name", "precision"),
    [  # each of the options with one of the ways, and each of the ways; the form is chosen and used in one way
        pytest.param(options, *way, marks=[] if way == WAYS[at % len(WAYS)] else pytest.mark.slow)
        for at, options in enumerate(OPTIONS)
        for way in WAYS
    ],
)
def test_a_graph_trains_on_in_the_form_that_it_chose(name, precision, options, monkeypatch):
    """Whichever is the fastest here: the form that comes first is made the winner."""

    def first(exact, others, *arguments, **settings):
        _, verdicts = race(exact, others, *arguments, **settings)
        return next(iter(others)), verdicts

    monkeypatch.setattr(headrace.runtime.training.trainer, "race", first)
    one, data = network(), batch()
    one[7].p = 0.0
    two = copy.deepcopy(one)
    mine, theirs = OPTIMIZERS[name](one.parameters()), OPTIMIZERS[name](two.parameters())
    step = TrainStep(two, theirs, GraphConfig(precision=precision, backend="captured"), **options)
    every, update = options.get("accumulate", 1), options.get("update", True)
    expected, found = [], []
    for turn in range(8):
        loss = nn.functional.cross_entropy(one(data[0]), data[1])
        loss.backward()
        if (turn + 1) % every == 0:
            if options.get("clip_grad_norm"):
                nn.utils.clip_grad_norm_(one.parameters(), 1.0)
            mine.step()
            mine.zero_grad()
        expected.append(loss.item())
        loss, scores = step(*data)
        if not update:
            theirs.step()
            theirs.zero_grad()
        assert scores.dtype == torch.float32 or precision == "bf16"
        found.append(loss.item())
    assert found == pytest.approx(expected, rel=1e-3 if precision == "fp32" else 3e-2)
    assert expected[0] - expected[-1] == pytest.approx(found[0] - found[-1], rel=0.2)
    last = step.steps[-1]
    assert last.way == "captured", last.why
    assert last.form
    assert last.form in str(last)
    assert not any(group.get("fused") for group in theirs.param_groups)


def test_only_fp32_and_bf16_are_left_to_a_trial():
    model = network()
    with pytest.raises(BackendError, match="fp32,bf16"):
        TrainStep(model, OPTIMIZERS["sgd"](model.parameters()), GraphConfig(precision="fp32,fp16"))
    with pytest.raises(BackendError, match="for inference"):
        TrainStep(model, OPTIMIZERS["sgd"](model.parameters()), GraphConfig(precision="fp32,bf16,int8"))
