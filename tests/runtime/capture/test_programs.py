import pytest
import torch
from torch import nn

from headrace.runtime.capture.programs import computing, runnable


class Kept(nn.Module):
    """A parameter, buffers of which one is in no state, a constant, and several results."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 3)
        self.register_buffer("shift", torch.randn(3))
        self.register_buffer("scale", torch.randn(3), persistent=False)

    def forward(self, rows, others):
        found = self.layer(rows) * self.scale + self.shift
        return {"found": found, "both": (found + others * torch.tensor([1.0, 2.0, 3.0]), rows)}


class Counting(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("count", torch.zeros(1))

    def forward(self, rows):
        self.count.add_(1)
        return rows + self.count


def test_without_a_module_it_computes_the_same():
    rows = torch.randn(5, 4), torch.randn(5, 3)
    program = torch.export.export(Kept(), rows)
    expected, given = runnable(program)(*rows), computing(program)(*rows)
    assert torch.equal(expected["found"], given["found"])
    assert all(map(torch.equal, expected["both"], given["both"]))
    with torch.no_grad():
        program.state_dict["shift"].add_(1)  # it is the program's own
    torch.testing.assert_close(computing(program)(*rows)["found"], given["found"] + 1)
    assert not isinstance(computing(program), nn.Module)


@pytest.mark.parametrize("make", [runnable, computing])
def test_what_writes_to_its_state_does_so(make):
    compute = make(torch.export.export(Counting(), (torch.zeros(2),)))
    assert [float(compute(torch.zeros(2))[0]) for _ in range(3)] == [1, 2, 3]
