"""Models of another precision than float32 take float32 images afterwards, and no other model is changed."""

import pytest
import torch
from torch import nn

from headrace.migrate.worker.precision import in_float32


class Fresh(nn.Module):
    """Makes a part of what it computes with in the default precision."""

    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(4, 3)

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        return self.fc(rows) + torch.ones(3)


class Converts(Fresh):
    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        return super().forward(rows.double())


class Casts(Fresh):
    """Gives a lower precision, and an int beside it."""

    @torch.autocast("cpu", dtype=torch.bfloat16)
    def forward(self, rows: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return self.fc(rows), rows.argmax(1)


class Mixed(Fresh):
    """Its parameters are of two precisions."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(3, dtype=torch.float64))


@pytest.fixture
def restored_default():
    yield
    torch.set_default_dtype(torch.float32)


@pytest.mark.usefixtures("restored_default")
@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.float16])
def test_what_takes_no_float32_is_brought_to_it(dtype: torch.dtype) -> None:
    torch.set_default_dtype(torch.float64)
    rows = torch.randn(2, 4, dtype=torch.float32)
    model = Fresh().to(dtype).eval()
    weight = model.fc.weight.detach().clone()
    assert in_float32(model, rows) == str(dtype).removeprefix("torch.")
    given = model(rows)
    assert given.dtype == torch.float32
    wanted = rows.double() @ weight.double().T + model.fc.bias.double() + 1
    assert torch.allclose(given.double(), wanted, atol=1e-5)
    assert in_float32(model, rows) is None


def test_what_an_autocast_within_gives_is_given_in_float32() -> None:
    model, rows = Casts().eval(), torch.randn(2, 4)
    before, chosen = model(rows)
    assert before.dtype == torch.bfloat16
    assert in_float32(model, rows) is None
    after, same = model(rows)
    assert (after.dtype, same.dtype) == (torch.float32, torch.int64)
    assert torch.equal(after, before.float())
    assert torch.equal(same, chosen)


@pytest.mark.parametrize("model", [Fresh(), Converts().double(), Mixed(), nn.Flatten()], ids=lambda model: type(model).__name__)
def test_no_other_is_changed(model: nn.Module) -> None:
    before = {name: value.dtype for name, value in model.state_dict().items()}
    assert in_float32(model, torch.randn(2, 4)) is None
    assert {name: value.dtype for name, value in model.state_dict().items()} == before
