"""A training goes on from its last checkpoint, on as many ranks or on others, as if it had never stopped."""

import pytest
import torch

from headrace import parallel
from headrace.errors import InputError
from tests.runtime.parallel import cases

pytestmark = pytest.mark.timeout(900)  # several processes that wait for each other, on whatever cores there are


@pytest.mark.slow  # of shared stages and of a graph without: test_stage_parameters::test_checkpoints
def test_training_goes_on_on_another_number_of_ranks(ranks, tmp_path):
    folder = tmp_path / "checkpoints"
    (whole, *_) = ranks.run(1, "going_on", folder=str(tmp_path / "other"), until=7, every=100, zero=0, way="eager")
    ranks.run(2, "going_on", folder=str(folder), until=4, every=2, zero=3)
    # One that was being written when the job ended.
    (folder / "step-00000099").mkdir()
    results = ranks.run(3, "going_on", folder=str(folder), until=7, every=100, zero=3)
    assert [begun for begun, _ in results] == [4, 4, 4]
    tables = [{name: torch.tensor(values).double() for name, values in table.items()} for _, table in [whole, *results]]
    assert all(cases.furthest(tables[0], table) < 1e-6 for table in tables[1:])


def test_two_complete_ones_are_kept_and_the_newest_is_read(alone, tmp_path):
    mesh = parallel.placement("cpu", [0])

    def made(width=4):
        module = parallel.to_global(torch.nn.Linear(3, width), mesh)
        return module, torch.optim.Adam(module.parameters())

    module, optimizer = made()
    assert parallel.resume(tmp_path, module, optimizer) == 0
    for step in (1, 2, 3):
        with torch.no_grad():
            module._parameters["bias"].fill_(step)
        parallel.save(tmp_path, step, module, optimizer)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["step-00000002", "step-00000003"]
    other, optimizer = made()
    assert parallel.resume(tmp_path, other, optimizer) == 3
    assert parallel.whole(other.bias).tolist() == [3, 3, 3, 3]
    with pytest.raises(InputError, match="step-00000003 is no checkpoint of this module"):
        parallel.resume(tmp_path, *made(width=5))
    with pytest.raises(InputError, match="counts the steps"):
        parallel.save(tmp_path, -1, module, optimizer)
