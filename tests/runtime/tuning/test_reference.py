"""The reference outputs, and how far a rounding error goes in a model."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch
from torch import nn

from headrace.runtime.base.session import Target
from headrace.runtime.capture.capture import capture
from headrace.runtime.tuning.reference import make_reference


class Viewing(nn.Module):
    """Fails on channels-last inputs, as networks that were written before `flatten` do."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 3)
        self.fc = nn.Linear(4 * 36, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.fc(self.conv(x).view(x.shape[0], -1))


def test_a_model_of_one_layout_has_a_reference() -> None:
    model = Viewing().eval()
    reference = make_reference(capture(model, torch.rand(2, 3, 8, 8)), Target(), rows=5)
    with torch.no_grad():
        expected = model(torch.from_numpy(reference.inputs[0]))
    assert torch.allclose(torch.from_numpy(reference.outputs[0]), expected, atol=1e-5)
    assert 0 < reference.noise[0] < 1e-4


def test_who_is_judged_after_others_may_pass_by_luck_less_often() -> None:
    reference = make_reference(capture(Viewing().eval(), torch.rand(2, 3, 8, 8)), Target(), rows=2)
    shares = [reference.share_of_doubt(number, 0.05) for number in range(200)]
    assert shares[:3] == [0.025, 0.05 / 6, 0.05 / 12]
    assert reference.share_of_doubt(1, 0.05) == shares[1]  # the same arithmetic at another batch size
    assert 0.0497 < sum(shares) < 0.05


class Steep(nn.Module):
    """Rounds what is above 1 a hundred thousand times worse than the rest, as attention over large values does."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x.flatten(1)
        return torch.stack([x.sum(1), (torch.relu(x - 1) * 1e5).sin().sum(1)], 1)


def test_where_candidates_are_off_eager_is_asked_how_much_it_varies_there() -> None:
    rows = torch.rand(6, 3, 4, 4, generator=torch.Generator().manual_seed(0))
    rows[5] += 1  # not among the few whose variation is known from the first
    made = make_reference(capture(Steep().eval(), rows[:2]), Target(), rows=6)
    reference = replace(made, inputs=[rows.numpy()], outputs=[Steep()(rows).numpy()], noise=(1e-5,))
    given = [value.copy() for value in reference.outputs]
    given[0][5, 1] += 0.01
    places = np.arange(6)
    assert reference.learn_noise(given, places)
    assert reference.noise[0] > 1e-3
    assert not reference.learn_noise(given, places), "it is known now"
    assert not reference.learn_noise([], places), "what gives no outputs is wrong in another way"
    assert not reference.learn_noise([given[0][:, :1]], places)
    other = replace(reference, noise=(1e-5,))
    other.inputs[0] *= 1.001  # as a candidate does that writes to what it is given
    other.learn_noise([given[0][:3]], places[:3])
    assert other.noise[0] < 1e-4, "of the rows that were run"
