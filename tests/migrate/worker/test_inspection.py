from pathlib import Path

import pytest
import torch
from torch import nn

from headrace.errors import SandboxError
from headrace.migrate.worker.inspection import inspect_model, output_kind, scores
from headrace.runtime.tuning.randomize import noise, randomized

HERE = Path(__file__).parent


class Convolutional(nn.Module):
    """Runs on any size; its residual branch and its head start at zero, as many do."""

    def __init__(self, channels=3, classes=7, head=None):
        super().__init__()
        self.conv = nn.Conv2d(channels, 8, 3, padding=1, bias=False)
        self.bn = nn.BatchNorm2d(8)
        self.branch = nn.Sequential(nn.Conv2d(8, 8, 3, padding=1), nn.BatchNorm2d(8))
        self.drop = nn.Dropout(0.9)
        self.fc = nn.Linear(8, classes)
        self.head = head or nn.Identity()
        self.scale = nn.Parameter(1e-6 * torch.ones(8))
        nn.init.zeros_(self.branch[1].weight)
        nn.init.zeros_(self.fc.weight)
        nn.init.zeros_(self.fc.bias)

    def forward(self, x):
        x = torch.relu(self.bn(self.conv(x)))
        x = x + self.branch(x) * self.scale[:, None, None]
        return self.head(self.fc(self.drop(x.mean((2, 3)))))


class Flat(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.conv = nn.Conv2d(1, 4, 3, padding=1)
        self.fc = nn.Linear(4 * width * width, 3)

    def forward(self, x):
        return self.fc(self.conv(x).flatten(1))


def found(model, **options):
    return inspect_model(model.eval(), HERE, **options)


def test_a_given_size_is_checked_and_the_rest_reported():
    answer = found(Convolutional(), size=(3, 20, 24))
    assert answer.input == (3, 20, 24)
    assert answer.class_name == "Convolutional"
    assert answer.factory.startswith("test_inspection.py:")
    assert answer.classes == 7
    assert answer.output == "logits"
    assert answer.parameters == sum(value.numel() for value in Convolutional().parameters())
    with pytest.raises(SandboxError, match=r"does not run on an input of \[1, 20, 24\].*--input-size C,H,W.*channels"):
        found(Convolutional(), size=(1, 20, 24))


def test_several_sizes_work_so_none_is_chosen():
    answer = found(Convolutional(channels=1))
    assert answer.input is None
    assert (1, 224, 224) in answer.candidates
    assert (1, 28, 28) in answer.candidates


@pytest.mark.parametrize("width", [28, 32, 64])
def test_the_only_size_that_works_is_chosen(width):
    answer = found(Flat(width))
    assert answer.input == (1, width, width)
    assert answer.candidates == ((1, width, width),)


@pytest.mark.parametrize(("width", "size"), [(784, (1, 28, 28)), (3072, (3, 32, 32)), (64, (1, 8, 8))])
def test_a_perceptron_tells_its_size(width, size):
    answer = found(nn.Sequential(nn.Flatten(), nn.Linear(width, 10), nn.Softmax(dim=1)))
    assert answer.input == size
    assert answer.output == "probabilities"
    assert answer.factory is None


def test_a_size_stated_by_the_model_is_chosen():
    model = Convolutional()
    model.img_size = 40
    assert found(model).input == (3, 40, 40)
    model = Convolutional()
    model.default_cfg = {"input_size": (3, 36, 44)}
    assert found(model).input == (3, 36, 44)


def test_nothing_works():
    with pytest.raises(SandboxError, match="nor on"):
        found(Flat(17))


@pytest.mark.parametrize(
    ("head", "kind"),
    [
        (None, "logits"),
        (nn.Softmax(dim=1), "probabilities"),
        (nn.LogSoftmax(dim=1), "log_probabilities"),
        (nn.Sigmoid(), "logits"),
    ],
)
def test_kinds_of_output_even_behind_a_zero_head(head, kind):
    model = Convolutional(head=head).eval()
    assert output_kind(randomized(model, [noise((2, 3, 16, 16))]), (3, 16, 16)) == kind


def test_a_map_is_taken_where_nothing_else_is_given():
    segment = nn.Sequential(nn.Conv2d(3, 4, 3, padding=1))
    answer = found(segment, size=(3, 12, 10))
    assert (answer.input, answer.classes, answer.output) == ((3, 12, 10), None, "map")
    pooled = nn.Sequential(nn.Conv2d(3, 4, 8), nn.AvgPool2d(1))  # scores at one size, maps at larger ones
    pooled.input_size = (3, 8, 8)
    assert found(pooled).classes == 4


def test_scores_are_found_in_what_models_return():
    rows = torch.zeros(2, 5)
    assert scores(rows) is rows
    assert scores((rows, torch.zeros(2, 3))) is rows
    assert scores({"aux": torch.zeros(2, 3), "logits": rows}) is rows
    fully_convolutional = torch.randn(2, 5, 1, 1)
    assert torch.equal(scores(fully_convolutional), fully_convolutional[:, :, 0, 0])
    for wrong in (torch.zeros(2), torch.zeros(2, 3, 4), torch.zeros(2, 3, dtype=torch.int64), None, "text", []):
        with pytest.raises(TypeError):
            scores(wrong)


def test_randomizing_leaves_the_model_alone_and_makes_outputs_that_vary():
    model = Convolutional().eval()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    other = randomized(model, [noise((2, 3, 16, 16))], seed=1)
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert not any(module.training for module in other.modules())
    rows = other(noise((16, 3, 16, 16), seed=2))
    assert torch.isfinite(rows).all()
    assert rows.std(dim=0).min() > 1e-3
    for module in other.modules():
        if isinstance(module, nn.BatchNorm2d):
            assert (module.running_var > 0).all()
            assert module.momentum == 0.1
            assert module.running_mean.abs().max() > 0
    assert (other.branch[1].weight != 0).all()
    assert (other.scale.abs() > 1e-4).any()


def test_randomizing_is_repeatable():
    model = Convolutional().eval()
    one, same, other = (randomized(model, [noise((2, 3, 16, 16))], seed=seed) for seed in (3, 3, 4))
    assert all(torch.equal(value, same.state_dict()[name]) for name, value in one.state_dict().items())
    assert not torch.equal(one.fc.weight, other.fc.weight)


def test_deep_residual_networks_stay_finite():
    class Deep(nn.Module):
        def __init__(self):
            super().__init__()
            self.blocks = nn.ModuleList(nn.Sequential(nn.Conv2d(4, 4, 3, padding=1), nn.BatchNorm2d(4)) for _ in range(60))
            self.fc = nn.Linear(4, 3)

        def forward(self, x):
            for block in self.blocks:
                x = torch.relu(x + block(x))
            return self.fc(x.mean((2, 3)))

    rows = randomized(Deep().eval(), [noise((2, 4, 8, 8))])(noise((8, 4, 8, 8), seed=5))
    assert torch.isfinite(rows).all()
    assert 1e-3 < rows.abs().max() < 1e5
