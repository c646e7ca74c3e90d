import dataclasses

import pytest
import torch
from torch import nn

from headrace.runtime.capture.capture import capture
from headrace.runtime.passes import discover, run_passes
from headrace.runtime.passes.fold_batch_norm import PASS


def norms_left(captured):
    return sum("batch_norm" in str(node.target) for node in captured.program.graph.nodes)


def folded(module, *shape):
    """The graph after the pass, checked in float64 against the module itself at an odd batch."""
    module = module.double().eval()
    captured = capture(module, torch.randn(2, *shape, dtype=torch.float64))
    before = {name: value.clone() for name, value in captured.program.state_dict.items()}
    result, (record,) = run_passes(captured, [PASS])
    for name, value in captured.program.state_dict.items():
        assert torch.equal(value, before[name]), f"the pass wrote to {name}"
    rows = torch.randn(3, *shape, dtype=torch.float64)
    torch.testing.assert_close(result.program.module()(rows)[0], module(rows), rtol=1e-10, atol=1e-10)
    return captured, result, record


@pytest.mark.parametrize(
    ("layers", "shape"),
    [
        ([nn.ReLU()], (4, 6, 6)),
        ([nn.BatchNorm2d(4)], (4, 6, 6)),  # nothing before it
        ([nn.Conv2d(4, 4, 1), nn.ReLU(), nn.BatchNorm2d(4)], (4, 6, 6)),
        ([nn.Linear(6, 6), nn.BatchNorm1d(4)], (4, 6)),  # dimension 1 is not the linear layer's output
    ],
)
def test_left_as_it_is(settled, layers, shape):
    captured, result, record = folded(settled(nn.Sequential(*layers)), *shape)
    assert result is captured
    assert record.status == "unchanged"


@pytest.mark.parametrize(
    ("layers", "shape"),
    [
        ([nn.Conv2d(4, 6, 3), nn.BatchNorm2d(6)], (4, 7, 5)),
        ([nn.Conv2d(4, 6, 3, bias=False), nn.BatchNorm2d(6)], (4, 7, 5)),
        ([nn.Conv2d(4, 6, 3, bias=False), nn.BatchNorm2d(6, affine=False)], (4, 7, 5)),
        ([nn.Conv2d(4, 8, 3, groups=4, stride=2, dilation=2), nn.BatchNorm2d(8)], (4, 9, 9)),
        ([nn.Conv2d(4, 4, 3, groups=4, padding="same"), nn.BatchNorm2d(4, eps=0.1)], (4, 6, 6)),
        ([nn.Conv1d(4, 6, 3), nn.BatchNorm1d(6)], (4, 9)),
        ([nn.Conv3d(2, 3, 2), nn.BatchNorm3d(3)], (2, 4, 4, 4)),
        ([nn.ConvTranspose2d(4, 6, 3, stride=2, groups=2), nn.BatchNorm2d(6)], (4, 5, 5)),
        ([nn.ConvTranspose1d(4, 6, 3), nn.BatchNorm1d(6)], (4, 5)),
        ([nn.Linear(4, 6, bias=False), nn.BatchNorm1d(6)], (4,)),
    ],
)
def test_folded(settled, layers, shape):
    _, result, record = folded(settled(nn.Sequential(*layers)), *shape)
    assert norms_left(result) == 0
    assert record.status == "applied"
    assert record.difference < 1e-12
    assert result.passes == ("fold_batch_norm",)
    assert not [name for name in result.program.state_dict if "running" in name]


def test_a_weight_that_two_convolutions_share_is_not_spoilt(settled):
    class Shared(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b, self.plain = (
                nn.Conv2d(4, 4, 3, padding=1),
                nn.Conv2d(4, 4, 3, padding=1),
                nn.Conv2d(4, 4, 3, padding=1),
            )
            self.b.weight = self.plain.weight = self.a.weight
            self.b.bias = self.a.bias
            self.norms = nn.ModuleList([nn.BatchNorm2d(4), nn.BatchNorm2d(4)])

        def forward(self, x):
            return self.plain(self.norms[1](self.b(self.norms[0](self.a(x)).relu())))

    _, result, _ = folded(settled(Shared()), 4, 6, 6)
    assert norms_left(result) == 0


def test_one_convolution_called_twice_with_two_norms(settled):
    class Twice(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv = nn.Conv2d(4, 4, 3, padding=1)
            self.norms = nn.ModuleList([nn.BatchNorm2d(4), nn.BatchNorm2d(4)])

        def forward(self, x):
            return self.norms[1](self.conv(self.norms[0](self.conv(x))))

    _, result, _ = folded(settled(Twice()), 4, 6, 6)
    assert norms_left(result) == 0


def test_a_convolution_whose_result_has_another_user_is_kept(settled):
    class TwoUsers(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv, self.norm = nn.Conv2d(4, 4, 3), nn.BatchNorm2d(4)

        def forward(self, x):
            y = self.conv(x)
            return self.norm(y) + y

    captured, result, _ = folded(settled(TwoUsers()), 4, 6, 6)
    assert result is captured


def test_a_norm_that_is_an_output_is_folded(settled):
    class Outputs(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv, self.norm = nn.Conv2d(4, 4, 3), nn.BatchNorm2d(4)

        def forward(self, x):
            return self.norm(self.conv(x))

    _, result, _ = folded(settled(Outputs()), 4, 6, 6)
    assert norms_left(result) == 0


def test_a_vanishing_variance_does_not_give_infinite_weights():
    module = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4, eps=1e-30)).eval()
    with torch.no_grad():
        module[1].running_var.fill_(0.0)
        module[1].weight.fill_(1e30)
    captured = capture(module, torch.randn(2, 3, 6, 6))
    result, _ = run_passes(captured, [PASS])
    assert norms_left(result) == 1


def test_the_folded_program_can_be_saved(settled, tmp_path, conv_net):
    result, _ = run_passes(capture(conv_net, torch.randn(2, 3, 8, 8)))
    torch.export.save(result.program, tmp_path / "model.pt2")
    rows = torch.randn(5, 3, 8, 8)
    torch.testing.assert_close(torch.export.load(tmp_path / "model.pt2").module()(rows)[0], conv_net(rows))


@dataclasses.dataclass(frozen=True)
class Wrong:
    """A pass that doubles a weight, or fails."""

    name: str = "wrong"
    order: int = 1
    fails: bool = False

    def apply(self, captured):
        if self.fails:
            raise RuntimeError("boom")
        from headrace.runtime.capture.programs import rebuilt

        state = {name: value.detach() * 2 for name, value in captured.program.state_dict.items()}
        state = {name: nn.Parameter(value) for name, value in state.items()}
        return dataclasses.replace(captured, program=rebuilt(captured.program, captured.program.graph_module, state_dict=state))


@pytest.mark.parametrize("fails", [False, True])
def test_a_wrong_pass_is_rejected_and_the_graph_stays(fails):
    captured = capture(nn.Linear(4, 3), torch.randn(2, 4))
    result, (record,) = run_passes(captured, [Wrong(fails=fails)])
    assert result is captured
    assert record.status == "rejected"
    assert record.why


def test_passes_are_found_by_file_name():
    names = [item.name for item in discover()]
    assert "fold_batch_norm" in names
    assert len(set(names)) == len(names)


def test_a_disabled_pass_leaves_the_graph_alone_and_says_so(conv_net):
    captured = dataclasses.replace(capture(conv_net, torch.randn(2, 3, 8, 8)), disabled=("fold_batch_norm",))
    result, records = run_passes(captured, [PASS])
    assert result is captured
    assert [(record.name, record.status) for record in records] == [("fold_batch_norm", "disabled")]


class Attending(nn.Module):
    """Asks for float32 inside of an autocast block, as linear attention does (timm's EfficientViT)."""

    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4))

    def forward(self, x):
        x = self.body(x)
        with torch.autocast(x.device.type, enabled=False):
            return x.float().softmax(1).to(torch.float32) * 2


def test_what_a_nested_block_casts_to_is_float64_in_the_proof_too():
    captured = capture(Attending().eval(), torch.randn(2, 3, 8, 8))
    _, records = run_passes(captured)
    assert {record.name: record for record in records}["fold_batch_norm"].status == "applied", records
