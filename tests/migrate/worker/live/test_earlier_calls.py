import copy

import pytest
import torch
from torch import nn

from headrace.errors import SandboxError
from headrace.migrate.worker.live.earlier_calls import drop_histories, kept_of_earlier_calls, refuse_kept

IMAGES = torch.rand(2, 3, 8, 8, generator=torch.Generator().manual_seed(0))


class Net(nn.Module):
    def __init__(self, keeps: str) -> None:
        super().__init__()
        self.keeps, self.offset, self.grids, self.calls, self.seen = keeps, None, {}, 0, []
        self.part = nn.Sequential(nn.Conv2d(3, 4, 3), nn.Flatten(), nn.Linear(144, 5))
        self.register_buffer("running", torch.zeros(3, 1, 1))
        self.eval()

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        if self.keeps == "first" and self.offset is None:
            self.offset = images.mean().detach()
        elif self.keeps == "buffer":
            self.running.mul_(0.8).add_(images.mean((0, 2, 3)).view(3, 1, 1), alpha=0.2)
        elif self.keeps == "list":
            self.seen.append(images.mean())
        elif self.keeps == "latest":
            self.offset = images.mean()
        elif self.keeps == "shape":
            if images.shape not in self.grids:
                self.grids[images.shape] = torch.arange(8.0) / 8
            images = images + self.grids[images.shape]
        elif self.keeps == "count":
            self.calls += 1
        offset = self.offset if self.offset is not None else sum(self.seen[:1], torch.zeros(()))
        return self.part(images - offset - self.running)


@pytest.mark.parametrize(("keeps", "names"), [("first", ["offset"]), ("buffer", ["running"]), ("list", ["seen"])])
def test_what_earlier_images_leave_in_a_model_is_named(keeps: str, names: list[str]) -> None:
    model = Net(keeps)
    assert kept_of_earlier_calls(model, IMAGES) == names
    assert model.offset is None
    assert model.seen == []
    assert not model.running.any()


@pytest.mark.parametrize("keeps", ["nothing", "latest", "shape", "count"])
def test_what_does_not_decide_later_answers_may_be_kept(keeps: str) -> None:
    assert kept_of_earlier_calls(Net(keeps), IMAGES) == []


def test_the_name_tells_the_module_that_keeps_it() -> None:
    assert kept_of_earlier_calls(nn.Sequential(Net("first")).eval(), IMAGES) == ["0.offset"]


def test_a_model_that_fails_on_other_images_is_left_to_capture() -> None:
    assert kept_of_earlier_calls(nn.Sequential(nn.Linear(3, 2)).eval(), IMAGES) == []


def test_what_modules_keep_of_a_call_that_had_gradients_can_be_copied() -> None:
    class Keeping(torch.nn.Linear):
        def forward(self, values: torch.Tensor) -> torch.Tensor:
            self.features = super().forward(values)
            self.all = [self.features * 2, 3]
            return self.features

    net = torch.nn.Sequential(Keeping(4, 3))
    net(torch.rand(2, 4))
    with pytest.raises(RuntimeError, match="deepcopy"):
        copy.deepcopy(net)
    drop_histories(net)
    assert torch.equal(copy.deepcopy(net)[0].features, net[0].features)


def test_a_refusal_names_what_is_kept() -> None:
    with pytest.raises(SandboxError, match=r"called with before, of which it keeps something \(offset\)"):
        refuse_kept(Net("first"), IMAGES)
    refuse_kept(Net("latest"), IMAGES)
