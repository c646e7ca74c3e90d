"""The graph against what the script computed: what eager's own noise excuses is excused, and no more."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from headrace.errors import BackendError, ParityError
from headrace.migrate.worker import packaging
from headrace.migrate.worker.packaging import Order, _with_original, package_model
from headrace.runtime.base.config import GraphConfig
from headrace.runtime.base.session import Target
from headrace.runtime.capture.capture import capture
from headrace.runtime.tuning.judging_data import JudgingData
from headrace.runtime.tuning.reference import make_reference

ROW = (3, 12, 12)


class Coarse(nn.Module):
    """Scores of which only the last digits count, so that another rounding of the input is seen."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 6, 3)
        self.fc = nn.Linear(6, 4)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        scores: torch.Tensor = self.fc(torch.relu(self.conv(images)).mean((2, 3)))
        return torch.sin(4e5 * scores)


@pytest.mark.parametrize(("off", "passes"), [(0.0, True), (0.25, True), (20.0, False)])
def test_differences_are_held_to_what_eager_itself_varies_by(tmp_path: Path, off: float, passes: bool) -> None:
    torch.manual_seed(0)
    module = Coarse().eval()
    images = torch.rand(24, *ROW, generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        outputs = module(images).numpy()
    captured = capture(module, images[:2])
    (noise,) = make_reference(captured, Target(device="cpu"), rows=5, judging=JudgingData((images[:5].numpy(),))).noise
    assert noise > 1e-3 * np.ptp(outputs, axis=0).max(), "else nothing would be excused"
    outputs[7, 2] += off * 8 * noise
    order = Order(
        name="coarse", out=tmp_path, row=ROW, config=GraphConfig(), images=images.numpy(), outputs=outputs, provenance={}
    )
    if passes:
        record = _with_original(captured, order, "cpu")
        assert record is not None
        assert (record.status, record.rows) == ("passed", 24)
    else:
        with pytest.raises(ParityError, match="does not compute what the script computed"):
            _with_original(captured, order, "cpu")
    assert not list(tmp_path.iterdir()), "eager mode runs what is in memory"


@pytest.mark.parametrize(("rows", "off", "passes"), [(1, 0.0, True), (3, 0.0, True), (1, 1e-2, False)])
def test_one_image_alone_is_held_to_what_the_script_computed(tmp_path: Path, rows: int, off: float, passes: bool) -> None:
    torch.manual_seed(0)
    module = nn.Sequential(nn.Conv2d(3, 6, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(6, 4)).eval()
    images = torch.rand(1, *ROW, generator=torch.Generator().manual_seed(1)).repeat(rows, 1, 1, 1)
    with torch.no_grad():
        outputs = module(images).numpy()
    outputs[0, 1] += off
    order = Order(
        name="one", out=tmp_path, row=ROW, config=GraphConfig(), images=images.numpy(), outputs=outputs, provenance={}
    )
    captured = capture(module, torch.rand(2, *ROW))
    if passes:
        record = _with_original(captured, order, "cpu")
        assert record is not None
        assert (record.status, record.why) == ("passed", None)
    else:
        with pytest.raises(ParityError, match="does not compute what the script computed"):
            _with_original(captured, order, "cpu")


@pytest.mark.parametrize(("seconds", "batches"), [(0.0, [1]), (1000.0, [1, 4])])
def test_eager_mode_is_not_timed_at_batch_sizes_that_take_it_long(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seconds: float, batches: list[int]
) -> None:
    monkeypatch.setattr(packaging, "_DUEL_CALL_SECONDS", seconds)
    module = nn.Sequential(nn.Conv2d(3, 6, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(6, 4)).eval()
    config = GraphConfig(precision="fp32", backend="onnxruntime", buckets=(1, 2, 4), max_tuning_seconds=0.2)
    order = Order(name="one", out=tmp_path / "one", row=ROW, config=config, provenance={})
    made = package_model(module, order, lambda fraction, text: None)
    assert [duel.batch for duel in made.duels] == batches


@pytest.mark.parametrize(("off", "passes"), [(0.0, True), (0.5, False)])
def test_one_number_for_each_image_is_a_column_of_the_package(tmp_path: Path, off: float, passes: bool) -> None:
    torch.manual_seed(0)
    module = nn.Sequential(nn.Conv2d(3, 6, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(6, 1)).eval()
    images = torch.rand(6, *ROW)
    with torch.no_grad():
        outputs = module(images).squeeze(1).numpy() + off
    config = GraphConfig(precision="fp32", backend="onnxruntime", buckets=(1, 2), max_tuning_seconds=0.2)
    order = Order(
        name="one", out=tmp_path / "one", row=ROW, config=config, images=images.numpy(), outputs=outputs, provenance={}
    )
    if passes:
        assert package_model(module, order, lambda fraction, text: None).parity.status == "passed"
    else:
        with pytest.raises(ParityError, match="does not compute what the script computed"):
            package_model(module, order, lambda fraction, text: None)


def test_images_that_were_made_judge_no_lossy_precision(tmp_path: Path) -> None:
    """They were called labeled images, on which so many points of accuracy at most are lost."""
    torch.manual_seed(0)
    module = nn.Sequential(nn.Conv2d(3, 3, 1), nn.AdaptiveAvgPool2d(1), nn.Flatten()).eval()
    nn.init.dirac_(module[0].weight)
    images = torch.rand(96, *ROW) + torch.rand(96, 3, 1, 1)  # the brightest channel is the class
    with torch.no_grad():
        outputs = module(images).numpy()
    config = GraphConfig(precision="int8", backend="onnxruntime", buckets=(1,), max_tuning_seconds=0.2)
    order = Order(
        name="made", out=tmp_path / "made", row=ROW, config=config, images=images.numpy(), targets=outputs.argmax(1),
        outputs=outputs, provenance={},
    )  # fmt: skip
    assert "labeled images" in str(package_model(module, order, lambda fraction, text: None).parity.why)
    with pytest.raises(BackendError, match="int8 takes its ranges from real images"):
        package_model(module, replace(order, made=True), lambda fraction, text: None)
