"""What is seen of a script's models: which are called with images, how, and what their outputs are used for."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

from headrace.migrate.worker.live.calls import ModuleCalls
from headrace.migrate.worker.live.seen import Call, Seen, tensors_in, value_at

HERE = Path(__file__).parent
IMAGES = torch.rand(4, 3, 8, 8)


class Net(nn.Module):
    def __init__(self, classes: int = 5) -> None:
        super().__init__()
        self.body = nn.Conv2d(3, 4, 3)
        self.head = nn.Linear(4, classes)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return self.head(self.body(images).mean((2, 3)))


class WithLoss(nn.Module):
    def __init__(self, net: nn.Module) -> None:
        super().__init__()
        self.net = net

    def forward(self, images: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        return F.cross_entropy(self.net(images), targets)


def only(calls: ModuleCalls) -> Seen:
    (seen,) = calls.seen.values()
    return seen


def test_nothing_is_seen_of_modules_without_weights_and_of_other_inputs() -> None:
    with ModuleCalls(HERE) as calls:
        nn.Upsample(scale_factor=2)(IMAGES)
        nn.Linear(4, 2)(torch.rand(3, 4))
        nn.Conv2d(64, 4, 3)(torch.rand(2, 64, 8, 8))
    assert not calls.seen


def test_images_may_have_as_many_channels_as_a_satellites_and_features_are_none() -> None:
    scenes, bands, head = torch.rand(2, 6, 8, 8), nn.Sequential(nn.Conv2d(6, 4, 3), nn.Flatten()), nn.Conv2d(12, 4, 3)
    with ModuleCalls(HERE) as calls:
        for _ in range(2):
            bands(scenes)
            head(torch.rand(2, 12, 8, 8))
    assert [(seen.module, seen.sites.total()) for seen in calls.seen.values()] == [(bands, 2)]
    with ModuleCalls(HERE) as calls:
        Net()(IMAGES)
        bands(scenes)
    assert isinstance(only(calls).module, Net)


@pytest.mark.filterwarnings("ignore")  # torch.jit is deprecated, and sizes become constants in its trace
def test_sizes_are_numbers_also_in_a_call_that_is_traced() -> None:
    with ModuleCalls(HERE) as calls:
        torch.jit.trace(Net().eval(), IMAGES, check_trace=False)
    [call] = only(calls).first.values()
    assert [type(size) for size in call.row] == [int, int, int]


def test_only_the_outermost_call_counts_and_torch_is_as_before() -> None:
    before = nn.Module.__call__
    net = Net().eval()
    with ModuleCalls(HERE) as calls, torch.no_grad():
        for _ in range(3):
            net(IMAGES).argmax(1)
    assert nn.Module.__call__ is before
    seen = only(calls)
    assert seen.module is net
    ((site, evaluating), count), *rest = seen.sites.items()
    assert (site.partition(":")[0], evaluating, count, rest) == ("test_calls.py", True, 3, [])
    assert set(seen.reads[()]) >= {"argmax"}
    assert seen.initial is None


def test_wrappers_are_looked_through() -> None:
    net = Net()
    with ModuleCalls(HERE) as calls:
        nn.DataParallel(net)(IMAGES)
    assert only(calls).module is net


def test_what_may_be_trained_is_remembered_as_it_was() -> None:
    net = Net()
    wanted = net.head.weight.detach().clone()
    optimizer = torch.optim.SGD(net.parameters(), lr=1.0)
    with ModuleCalls(HERE) as calls:
        F.cross_entropy(net(IMAGES), torch.arange(4)).backward()
        optimizer.step()
    seen = only(calls)
    assert seen.initial is not None
    assert torch.equal(seen.initial["head.weight"], wanted)
    assert not torch.equal(net.head.weight, wanted)
    assert "cross_entropy" in seen.reads[()]


def test_weights_that_the_first_call_makes_are_remembered_as_it_made_them() -> None:
    net = nn.Sequential(nn.LazyConv2d(4, 3), nn.LazyBatchNorm2d(affine=False), nn.Flatten(), nn.LazyLinear(5))
    heard, made = [], []
    optimizer: torch.optim.Optimizer | None = None
    with ModuleCalls(HERE, lambda seen, call: heard.append(calls.own_weights(seen)["3.weight"].shape)) as calls:
        for _ in range(2):
            loss = F.cross_entropy(net(IMAGES), torch.arange(4))
            optimizer = optimizer or torch.optim.SGD(net.parameters(), lr=1.0)
            made.append(net[3].weight.detach().clone())
            loss.backward()
            optimizer.step()
    seen = only(calls)
    assert heard == [(5, 144), (5, 144)]
    assert seen.initial is not None
    assert torch.equal(seen.initial["3.weight"], made[0])


@pytest.mark.parametrize("how", ["keyword", "dict", "batch"])
def test_images_are_found_wherever_they_lie(how: str) -> None:
    class Odd(Net):
        def forward(self, pixel_values=None, batch=None):  # type: ignore[no-untyped-def,override]
            images = pixel_values if pixel_values is not None else batch["image"] if how == "dict" else batch[0]
            return {"logits": super().forward(images), "hidden": images}

    given = {"keyword": {"pixel_values": IMAGES}, "dict": {"batch": {"image": IMAGES}}, "batch": {"batch": [IMAGES, 3]}}[how]
    slot = {"keyword": (1, "pixel_values"), "dict": (1, "batch", "image"), "batch": (1, "batch", 0)}[how]
    with ModuleCalls(HERE) as calls:
        output = Odd()(**given)
        output["logits"].softmax(1)
    seen = only(calls)
    call = seen.first[False]
    assert call.slot == slot
    assert value_at((call.args, call.kwargs), slot) is IMAGES
    assert [path for path, _ in tensors_in(call.output)] == [("logits",), ("hidden",)]
    assert set(seen.reads) == {("logits",)}


def test_flattened_images_of_a_loader_are_images() -> None:
    loader = DataLoader(TensorDataset(torch.rand(4, 1, 8, 8), torch.arange(4)), batch_size=2)
    net = nn.Linear(64, 3)
    with ModuleCalls(HERE) as calls:
        for images, _ in loader:
            net(images.view(-1, 64))
    call = only(calls).first[False]
    assert (call.flat, call.row) == (True, (1, 8, 8))
    assert isinstance(call.dataset, TensorDataset)


PICTURE = Image.fromarray(np.arange(64, dtype=np.uint8).reshape(8, 8))
COLORED = PICTURE.convert("RGB")


def read(picture: Image.Image) -> torch.Tensor:
    """As torchvision's ToTensor gives it: channels first, from 0 to 1."""
    pixels = torch.from_numpy(np.array(picture)).view(picture.height, picture.width, len(picture.getbands()))
    return pixels.permute(2, 0, 1).contiguous().float().div(255)


@pytest.mark.parametrize(
    ("given", "row"),
    [
        (lambda: read(PICTURE).view(-1).unsqueeze(0), (1, 8, 8)),
        (lambda: torch.stack([read(PICTURE).flatten(), read(PICTURE).flatten()]), (1, 8, 8)),
        (lambda: torch.tensor(np.array(PICTURE).reshape(1, -1) / 255).float(), (1, 8, 8)),
        (lambda: read(COLORED).reshape(1, -1), (3, 8, 8)),
        # Nobody knows in which order the colors stand, or the numbers are others than the pixels.
        (lambda: torch.tensor(np.array(COLORED).reshape(1, -1) / 255).float(), None),
        (lambda: torch.from_numpy(np.array(COLORED)).float().view(1, -1), None),
        (lambda: torch.rand(1, 8, 8).view(1, -1), None),
        (lambda: read(PICTURE.resize((9, 9)))[:, :8, :7].reshape(1, -1), None),
        (lambda: read(PICTURE).view(-1), None),
        (lambda: (read(PICTURE).view(1, -1) * 255).to(torch.int64), None),
    ],
)
def test_rows_of_the_pixels_of_a_picture_are_images(given, row) -> None:
    class Head(nn.Linear):
        def forward(self, rows: torch.Tensor) -> torch.Tensor:
            return super().forward(rows.float())

    with ModuleCalls(HERE) as calls, torch.no_grad():
        rows = given()
        Head(rows.shape[-1], 3).eval()(rows).argmax(-1)
    if row is None:
        assert not calls.seen
    else:
        call = only(calls).first[True]
        assert (call.flat, call.row) == (True, row)


def test_a_models_output_is_no_row_of_pixels() -> None:
    body, head = nn.Conv2d(1, 1, 3, padding=1).eval(), nn.Linear(64, 3).eval()
    with ModuleCalls(HERE) as calls, torch.no_grad():
        head(body(read(PICTURE).unsqueeze(0)).flatten(1)).argmax(1)
    assert not any(call.flat for seen in calls.seen.values() for call in seen.first.values())


def test_forward_called_as_a_method_is_a_call() -> None:
    net = Net().eval()
    with ModuleCalls(HERE) as calls, torch.no_grad():
        for _ in range(3):
            torch.max(net.forward(IMAGES), 1)
    seen = only(calls)
    assert seen.module is net
    assert sum(seen.sites.values()) == 3
    assert "argmax" in seen.reads[()]
    assert "forward" in vars(Net)
    assert net.forward(IMAGES).shape == (4, 5)


@pytest.mark.parametrize("wrap", [nn.DataParallel, lambda net: nn.DataParallel(nn.DataParallel(net))])
def test_forward_of_what_is_around_a_model_is_called_as_a_method(wrap) -> None:
    wrapped = wrap(Net().eval())
    with ModuleCalls(HERE) as calls, torch.no_grad():
        torch.max(wrapped.forward(IMAGES), 1)
    seen = only(calls)
    assert isinstance(seen.module, Net)
    assert sum(seen.sites.values()) == 1
    assert "argmax" in seen.reads[()]


def test_forward_that_takes_any_number_of_tensors_is_called_as_a_method() -> None:
    class Any(Net):
        def forward(self, *images: torch.Tensor) -> torch.Tensor:
            return self.head(self.body(images[-1]).mean((2, 3)))

    net = Any().eval()
    with ModuleCalls(HERE) as calls, torch.no_grad():
        torch.max(net.forward(IMAGES, IMAGES), 1)
    seen = only(calls)
    assert seen.module is net
    assert len(next(iter(seen.first.values())).args) == 2


def test_forward_called_as_a_method_that_calls_another_is_a_call() -> None:
    class Layered(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.stem = nn.Sequential(nn.Sequential(nn.Conv2d(3, 3, 1)), nn.Sequential(nn.Conv2d(3, 5, 8)))

        def _forward_impl(self, images: torch.Tensor) -> torch.Tensor:
            return self.stem(images).flatten(1)

        def forward(self, images: torch.Tensor) -> torch.Tensor:
            return self._forward_impl(images)

    net = Layered()
    with ModuleCalls(HERE) as calls:
        for _ in range(3):
            F.cross_entropy(net.forward(IMAGES), torch.arange(4)).backward()
    seen = only(calls)
    assert seen.module is net
    assert sum(seen.sites.values()) == 3
    assert "cross_entropy" in seen.reads[()]


def test_a_module_that_gives_its_loss_is_not_the_model() -> None:
    net = Net()
    with ModuleCalls(HERE) as calls:
        wrapped = WithLoss(net)
        for _ in range(2):
            wrapped(IMAGES, torch.arange(4))
    assert only(calls).module is net


def test_a_module_whose_forward_is_called_as_a_method_and_gives_its_loss_is_not_the_model() -> None:
    class Step(nn.Module):
        def __init__(self, net: nn.Module) -> None:
            super().__init__()
            self.net = net

        def forward(self, batch: tuple[torch.Tensor, torch.Tensor]) -> tuple[torch.Tensor, torch.Tensor]:
            images, targets = batch
            scores = self.net(images)
            return F.cross_entropy(scores, targets), (scores.argmax(1) == targets).float().mean()

        def training_step(self) -> torch.Tensor:
            return self.forward((IMAGES, torch.arange(4)))[0]

    net = Net()
    with ModuleCalls(HERE) as calls:
        step = Step(net)
        for _ in range(3):
            step.training_step().backward()
    seen = only(calls)
    assert seen.module is net
    assert sum(seen.sites.values()) == 3
    assert {"cross_entropy", "argmax"} <= set(seen.reads[()])


def test_what_feeds_another_module_is_said() -> None:
    body, head = nn.Sequential(nn.Conv2d(3, 4, 8), nn.Flatten()), nn.Linear(4, 2)
    with ModuleCalls(HERE) as calls:
        head(body(IMAGES)).argmax(1)
    part, whole = calls.seen.values()
    assert (part.module, part.feeds, whole.feeds) == (body, {("Linear", False)}, set())
    assert (whole.module.parts(), whole.ordinal, dict(whole.reads[()])) == ([body, head], 1, {"argmax": 1})


def test_a_listener_hears_of_a_call_before_it_is_made_and_may_end_the_run() -> None:
    class Ended(BaseException):
        pass

    heard: list[tuple[Seen, Call]] = []

    def hear(seen: Seen, call: Call) -> None:
        heard.append((seen, call))
        raise Ended

    net = Net()
    with pytest.raises(Ended), ModuleCalls(HERE, hear):
        net(IMAGES)
    ((seen, call),) = heard
    assert seen.module is net
    assert call.output is None
    assert net(IMAGES).shape == (4, 5)
