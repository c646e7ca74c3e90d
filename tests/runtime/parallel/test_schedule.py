"""Schedules of pipelines: every action once and in an order that can be, and those of the papers."""

import pytest
import torch

from headrace import parallel
from headrace.errors import InputError
from headrace.runtime.parallel.schedule import SCHEDULES, Action, PipelineMesh, timeline


def dealt(schedule, size, each):
    rounds = [[rank + size * turn for turn in range(each)] for rank in range(size)]
    return rounds if schedule == "interleaved" else [[*range(rank * each, (rank + 1) * each)] for rank in range(size)]


def drawn(found, rank):
    return " ".join("." if not moment[rank] else f"{'FB'[moment[rank].backward]}{moment[rank].microbatch}" for moment in found)


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("size", [1, 2, 4])
@pytest.mark.parametrize("each", [1, 3])
@pytest.mark.parametrize("microbatches", [1, 3, 4, 9])
def test_every_action_once_and_after_what_it_needs(schedule, size, each, microbatches):
    stages, ranks = size * each, dealt(schedule, size, each)
    done = set()
    for moment in timeline(ranks, microbatches, schedule):
        assert len(moment) == size
        for rank, action in enumerate(moment):
            if action is not None:
                backward, stage, microbatch = action
                assert stage in ranks[rank]
                assert action not in done
                assert not stage or Action(False, stage - 1, microbatch) in done
                if backward:
                    assert Action(stage < stages - 1, min(stage + 1, stages - 1), microbatch) in done
        done.update(filter(None, moment))
    assert len(done) == 2 * stages * microbatches


def test_those_of_the_papers():
    found = timeline(dealt("1f1b", 4, 1), 8, "1f1b")
    assert drawn(found, 0).startswith("F0 F1 F2 F3 . . . B0 F4 B1 F5")
    assert drawn(found, 3).startswith(". . . F0 B0 F1 B1 F2")
    assert len(found) == 2 * 8 + 2 * 3
    assert drawn(timeline(dealt("gpipe", 2, 1), 3, "gpipe"), 1) == ". F0 F1 F2 B0 B1 B2 ."
    assert (
        len(timeline(dealt("interleaved", 4, 2), 8, "interleaved")) == 2 * 8 * 2 + 8
    )  # 1F1B with two stages each waits for 12


def test_the_bounds_on_what_is_under_way():
    for schedule, most in (("1f1b", [4, 3, 2, 1]), ("gpipe", [8] * 4)):
        found = timeline(dealt(schedule, 4, 1), 8, schedule)
        for rank in range(4):
            pending = [0]
            for moment in found:
                action = moment[rank]
                pending.append(pending[-1] + (0 if action is None else -1 if action.backward else 1))
            assert max(pending) == most[rank]


def test_a_mesh(alone):
    mesh = PipelineMesh(parallel.world("cpu", [1, 1]), microbatches=2)
    assert (mesh.axis, mesh.own, mesh.size, mesh.replicas) == ("model", 0, 1, 1)
    assert mesh.rank_of(3, 4) == 0
    assert mesh.any(None) is None
    assert mesh.any("a problem") == "a problem"
    value = torch.arange(3.0)
    mesh.from_first(value)
    assert torch.equal(mesh.most(value.clone()), torch.arange(3.0))
    assert torch.equal(mesh.rows(torch.arange(4)), torch.arange(4))
    for wrong in (torch.arange(3), torch.tensor(1.0)):
        with pytest.raises(InputError, match="rows do not divide into 2 microbatches"):
            mesh.rows(wrong)
    with pytest.raises(InputError, match="0 stages do not share out"):
        mesh.check_stages(0)
    for wrong in (0, 2.5, "2"):
        with pytest.raises(InputError, match="integer of at least 1"):
            PipelineMesh(parallel.world("cpu"), microbatches=wrong)


def test_a_mesh_over_whose_axis_parameters_are_global(alone):
    placed = parallel.world("cpu", [1, 1, 1])
    mesh = PipelineMesh(placed, microbatches=2, tensor=("model",))
    assert (mesh.axis, mesh.data.mesh_dim_names, mesh.tensor.mesh_dim_names) == ("axis2", ("data",), ("model",))
    assert mesh.stage.mesh_dim_names == ("data", "model")
    assert len(mesh.groups()) == 3
    assert len(mesh.groups(copies=True)) == 2
    for value in (torch.ones(4), parallel.to_global(torch.ones(4), placed["model"], parallel.sbp.split(0))):
        assert mesh.counts(value)  # what several ranks have counts once: test_stage_parameters clips by norms
    assert PipelineMesh(placed, microbatches=2, tensor=("data", "model")).data is None
    with pytest.raises(InputError, match="one or two axes .* global over none of them"):
        PipelineMesh(placed, microbatches=2)
    with pytest.raises(InputError, match="global over 'axis2', which is to have the stages; .* mesh.'data'."):
        PipelineMesh(placed, microbatches=2, tensor=("model", "axis2"))
