import pytest
import torch
from torch import nn

from headrace.runtime.capture.capture import capture
from headrace.runtime.passes import discover, run_passes
from headrace.runtime.passes.fold_scale import PASS

SCALING = ("mul", "div", "add", "sub", "neg", "addcmul", "batch_norm")


def scales_left(captured):
    names = [str(node.target).removeprefix("aten.").split(".")[0].rstrip("_") for node in captured.program.graph.nodes]
    return [name for name in names if name in SCALING or name == "rsub"]


def folded(module, *shape):
    """The graph after the pass, checked in float64 against the module itself at an odd batch, and folded again: unchanged."""
    module = module.double().eval()
    captured = capture(module, torch.randn(2, *shape, dtype=torch.float64))
    before = {name: value.clone() for name, value in captured.program.state_dict.items()}
    result, (record,) = run_passes(captured, [PASS])
    assert record.status in ("applied", "unchanged"), record.why
    for name, value in captured.program.state_dict.items():
        assert torch.equal(value, before[name]), f"the pass wrote to {name}"
    for batch in (1, 2, 3):
        rows = torch.randn(batch, *shape, dtype=torch.float64)
        with torch.no_grad():
            torch.testing.assert_close(result.program.module()(rows)[0], module(rows), rtol=1e-10, atol=1e-10)
    assert PASS.apply(result) is result
    return captured, result


class Calls(nn.Module):
    """A layer or layers, a parameter `c`, and a function of both."""

    def __init__(self, function, layer, *shape):
        super().__init__()
        self.function, self.layer = function, layer
        self.c = nn.Parameter(torch.rand(shape) + 0.5)

    def forward(self, x):
        return self.function(self.layer, self.c, x)


def conv(**more):
    return nn.Conv2d(4, 6, 3, **more)


AFTER = {
    "mul": (lambda layer, c, x: layer(x) * c, conv(), (6, 1, 1)),
    "mul the other way, no bias": (lambda layer, c, x: c * layer(x), conv(bias=False, padding=1), (1, 6, 1, 1)),
    "a view of the parameter": (lambda layer, c, x: layer(x) * c.view(1, -1, 1, 1), conv(), (6,)),
    "views of views": (lambda layer, c, x: layer(x) * c.unsqueeze(-1).unsqueeze(-1), conv(groups=2, stride=2), (6,)),
    "add": (lambda layer, c, x: layer(x) + c, conv(bias=False), (6, 1, 1)),
    "sub with alpha": (lambda layer, c, x: torch.sub(layer(x), c, alpha=3), conv(), (6, 1, 1)),
    "subtracted with alpha": (lambda layer, c, x: torch.sub(c, layer(x), alpha=3), conv(), (6, 1, 1)),
    "rsub": (lambda layer, c, x: 2 - layer(x), conv(), (1,)),
    "div": (lambda layer, c, x: layer(x) / c, conv(), (6, 1, 1)),
    "neg and a number": (lambda layer, c, x: -layer(x) * 3 + 1.5, conv(), (1,)),
    "addcmul": (lambda layer, c, x: torch.addcmul(c, c, layer(x), value=0.5), conv(), (6, 1, 1)),
    "in place": (lambda layer, c, x: layer(x).mul_(c).add_(c), conv(), (6, 1, 1)),
    "a scalar tensor": (lambda layer, c, x: layer(x) * c, conv(), ()),
    "permuted, ConvNeXt's way": (lambda layer, c, x: (c * layer(x).permute(0, 2, 3, 1)).permute(0, 3, 1, 2), conv(), (6,)),
    "flattened to tokens": (lambda layer, c, x: layer(x).flatten(2).transpose(1, 2) * c, conv(), (6,)),
    "with dropout between": (lambda layer, c, x: nn.functional.dropout(layer(x), 0.1, False) * c, conv(), (6, 1, 1)),
    "transposed convolution": (
        lambda layer, c, x: layer(x) * c + c,
        nn.ConvTranspose2d(4, 6, 3, groups=2, stride=2, padding=1),
        (6, 1, 1),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", AFTER)
def test_folded_into_the_layer_before(name):
    _, result = folded(Calls(*AFTER[name][:2], *AFTER[name][2]), 4, 7, 5)
    assert scales_left(result) == []


def test_folded_into_a_linear_layer_before():
    def branch(layer, c, x):
        return x + c * layer(x)

    _, result = folded(Calls(branch, nn.Linear(6, 6), 6), 5, 6)
    assert scales_left(result) == ["add"]  # the residual sum


@pytest.mark.parametrize(
    ("layers", "shape"),
    [
        ([nn.ConvTranspose2d(4, 6, 3, stride=2, groups=2), nn.BatchNorm2d(6)], (4, 5, 5)),
        ([nn.Linear(4, 6), nn.BatchNorm1d(6)], (4,)),
        ([nn.BatchNorm2d(4), nn.Conv2d(4, 6, 3)], (4, 7, 5)),
        ([nn.BatchNorm2d(4), nn.Conv2d(4, 6, 3, padding="valid", groups=2, bias=False)], (4, 7, 5)),
        ([nn.BatchNorm1d(4), nn.Linear(4, 6)], (4,)),
        ([nn.Conv2d(4, 6, 3), nn.Flatten(2), nn.BatchNorm1d(6)], (4, 7, 5)),
        ([nn.BatchNorm2d(4), nn.Flatten(2), nn.Conv1d(4, 3, 1)], (4, 7, 5)),
    ],
)
def test_batch_normalization(settled, layers, shape):
    _, result = folded(settled(nn.Sequential(*layers)), *shape)
    assert scales_left(result) == []


def test_batch_normalization_of_tokens(settled):
    class Tokens(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear, self.norm = nn.Linear(4, 6), nn.BatchNorm1d(6)

        def forward(self, x):
            x = self.linear(x)
            return self.norm(x.flatten(0, 1)).reshape(x.shape).relu()

    _, result = folded(settled(Tokens()), 5, 4)
    assert scales_left(result) == []


BEFORE = {
    "affine": (lambda layer, c, x: layer(torch.addcmul(c, c, x)), nn.Linear(4, 6), (4,), (5, 4)),
    "affine, transposed": (lambda layer, c, x: layer((x * c + c).transpose(1, 2)), nn.Linear(5, 6), (5, 1), (5, 4)),
    "standardized": (lambda layer, c, x: layer((x - c) / c), conv(), (4, 1, 1), (4, 7, 5)),
    "scaled, with padding": (lambda layer, c, x: layer(x * c), conv(padding=2, groups=2), (4, 1, 1), (4, 7, 5)),
    "scaled, transposed convolution": (
        lambda layer, c, x: layer(x * c), nn.ConvTranspose2d(4, 6, 3, groups=2), (4, 1, 1), (4, 7, 5),
    ),
    "two readers of the source": (
        lambda layer, c, x: layer(x * c).sum((1, 2, 3)) + x.sum((1, 2, 3)), conv(), (4, 1, 1), (4, 7, 5),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", BEFORE)
def test_folded_into_the_layer_after(name):
    function, layer, shape, row = BEFORE[name]
    _, result = folded(Calls(function, layer, *shape), *row)
    assert scales_left(result) == (["add"] if name.startswith("two") else [])


def test_only_the_scale_of_what_is_padded_with_zeros():
    module = Calls(lambda layer, c, x: layer((x - c) / c), conv(padding=1), 4, 1, 1)
    _, result = folded(module, 4, 7, 5)
    assert scales_left(result) == ["sub"]


LEFT = {
    "nothing to scale": (lambda layer, c, x: layer(x).relu(), conv(), (1,)),
    "after something else": (lambda layer, c, x: layer(x).relu() * c, conv(), (6, 1, 1)),
    "not per channel": (lambda layer, c, x: layer(x) * c, conv(), (5, 3)),
    "per channel and row": (lambda layer, c, x: layer(x) * c, conv(), (6, 5, 1)),
    "broadcast up": (lambda layer, c, x: layer(x) * c, nn.Conv2d(4, 1, 3), (6, 1, 1)),
    "one dimension more": (lambda layer, c, x: (layer(x) * c).squeeze(0), conv(), (1, 1, 6, 1, 1)),
    "divided by it": (lambda layer, c, x: c / (layer(x).abs() + 1), conv(), (6, 1, 1)),
    "read twice": (lambda layer, c, x: (y := layer(x)) * c + y, conv(), (6, 1, 1)),
    "moved and read twice": (lambda layer, c, x: (y := layer(x).flatten(2)) * c + y, conv(), (6, 1)),
    "the product of two layers": (lambda layer, c, x: layer(x) * layer(x + 1).relu(), conv(padding=1), (1,)),
    "shifted, then padded": (lambda layer, c, x: layer(x.relu() + c), conv(padding=1), (4, 1, 1)),
    "channels mixed with space": (lambda layer, c, x: layer(x).flatten(1) * c, conv(), (90,)),
}


@pytest.mark.parametrize("name", LEFT)
def test_left_as_it_is(name):
    function, layer, shape = LEFT[name]
    captured, result = folded(Calls(function, layer, *shape), 4, 7, 5)
    if name in ("the product of two layers", "divided by it"):  # other parts of it are scaled
        assert len(scales_left(result)) >= 1
    else:
        assert result is captured


def test_a_weight_that_two_layers_share_is_not_spoilt():
    def function(layer, c, x):
        return layer(x) * c + layer(x).relu()

    _, result = folded(Calls(function, conv(), 6, 1, 1), 4, 7, 5)
    assert scales_left(result) == ["add"]


def test_what_is_written_to_later_is_not_read_in_its_place():
    class Written(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv, self.c = nn.Conv2d(4, 6, 3), nn.Parameter(torch.rand(4, 1, 1))

        def forward(self, x):
            x = x.abs().sqrt()
            scaled = x * self.c
            x.sub_(3)
            return self.conv(scaled).mean((2, 3)).sum(1) + x.mean((1, 2, 3))

    _, result = folded(Written(), 4, 7, 5)
    assert "mul" in scales_left(result)


def test_a_scale_that_overflows_the_weights_stays():
    module = Calls(lambda layer, c, x: layer(x) / (c * 0), conv(), 6, 1, 1)
    captured = capture(module, torch.randn(2, 4, 7, 5))
    result, records = run_passes(captured)
    assert {record.name: record.status for record in records}["fold_scale"] == "unchanged"
    assert "div" in scales_left(result)


def test_it_runs_after_batch_normalization_is_folded(settled):
    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv, self.norm, self.gamma = (
                nn.Conv2d(4, 4, 3, padding=1),
                nn.BatchNorm2d(4),
                nn.Parameter(torch.rand(4, 1, 1)),
            )

        def forward(self, x):
            return x + self.gamma * self.norm(self.conv(x))

    captured = capture(settled(Block()).eval(), torch.randn(2, 4, 6, 6))
    result, records = run_passes(captured)
    assert [item.name for item in discover()].index("fold_scale") > [item.name for item in discover()].index("fold_batch_norm")
    assert {"fold_batch_norm", "fold_scale"} <= set(result.passes), records
    assert scales_left(result) == ["add"]
