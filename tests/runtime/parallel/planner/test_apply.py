"""Each kind of plan, read from a file, trains with the numbers of one process; what cannot be is said on every rank."""

import copy
import json

import pytest
import torch
from torch import nn

from headrace import parallel
from headrace.errors import InputError
from headrace.runtime.parallel.planner.operators import read_model
from headrace.runtime.parallel.planner.plan import plan, read_keep
from headrace.runtime.parallel.planner.rates import Link, Rates
from headrace.runtime.parallel.planner.saved import document
from tests.runtime.parallel import cases

pytestmark = pytest.mark.timeout(900)  # several processes that wait for each other, on whatever cores there are

RATES = Rates(linear=1e9, conv=1e9, matmul=1e9, memory=1e9, operator=1e-6, links=(Link(1e-6, 1e8),))
KINDS = {
    "data": lambda one: one.title.startswith("data parallel") and not one.zero and not one.checkpoint and not one.boxed,
    "zero": lambda one: one.zero == 2,
    "gathered": lambda one: one.zero == 3,
    "split": lambda one: one.layouts and not one.checkpoint and not one.zero and not one.stages,
    "pipeline": lambda one: one.stages and not one.zero and not one.layouts and not one.checkpoint,
    "split update": lambda one: one.stages and one.zero and not one.layouts and not one.checkpoint,
    "gathered stages": lambda one: one.stages and one.zero and not one.layouts and not one.checkpoint,
    "split stages": lambda one: one.stages and one.layouts and not one.checkpoint,
    "again": lambda one: one.checkpoint and not one.layouts and not one.stages,
    "stages again": lambda one: one.checkpoint and not one.layouts and one.stages,
}


def planned(module, shape, mesh, kind, keep=()):
    """What is in the file of a plan of that kind, the fastest of those that were weighed."""
    model = read_model(module, shape)

    def weighed(kind, memory):
        found = plan(model, mesh, RATES, memory, kept=read_keep(keep, model, mesh), optimizer="momentum")
        return found, next(one for one in (found.best, *found.others) if KINDS[kind](one))

    # Activations are computed again where there is no room for them.
    plainly = {"again": "data", "stages again": "pipeline"}.get(kind)
    found, chosen = weighed(kind, 0.99 * weighed(plainly, 8e9)[1].memory if plainly else 8e9)
    more = {"zero": 3} if kind == "gathered stages" else {}  # which nothing so small needs
    return {**document(found, model, mesh, RATES), "plan": {**chosen.to_json(), **more}}


def case(name, mesh, kind, **options):
    shape = tuple(cases.batch(name, 0)[0].shape)
    return planned(cases.model(name), shape, tuple(mesh), kind, **options)


def trainings(folder, wanted, steps):
    """For the ranks: each as its model's name, the mesh, the file and the number of steps."""
    found = []
    for at, (name, mesh, kind, keep) in enumerate(wanted):
        path = folder / f"{at}.json"
        path.write_text(json.dumps(case(name, mesh, kind, keep=keep)))
        found.append([name, list(mesh), str(path), steps])
    return found


def check(results, wanted):
    for at, one in enumerate(wanted):
        for found in (rank[at] for rank in results):
            assert found["losses"] < 1e-6, (one, found)
            assert found["values"] < 1e-6, (one, found)
            assert "captured" in " ".join(found["steps"]), (one, found)
            if one[2] not in ("data", "again"):  # each rank keeps a part
                assert found["own"] < found["all"] or one[1] == (1,), (one, found)
            assert bool(found["checkpoint"]) == ("again" in one[2])
            assert ("ZeRO 1" in " ".join(found["steps"])) == (one[2] == "split update")
            assert ("ZeRO 3" in " ".join(found["steps"])) == (one[2] == "gathered stages")


# What these leave out, a pipeline and a split with nothing else, a split update, stages whose parameters are gathered, all
# networks and meshes: `test_every_kind`. Each of these trains in test_stage_parameters too.
TWO = [
    ("mlp", (2,), "zero", ()),
    ("cnn", (2,), "split", ("head=split(0)",)),
    ("vit", (2,), "stages again", ()),
]


def test_two_ranks(ranks, tmp_path):
    check(ranks.run(2, "planned", trainings=trainings(tmp_path, TWO, 4)), TWO)


FOUR = [("chain", (2, 2), "split stages", ())]


@pytest.mark.slow  # plans on ranks: above; such stages on four: test_stage_parameters, also in `test_checkpoints`
def test_four_ranks(ranks, tmp_path):
    check(ranks.run(4, "planned", trainings=trainings(tmp_path, FOUR, 4)), FOUR)


@pytest.mark.slow
@pytest.mark.parametrize("mesh", [(1,), (2,), (4,), (2, 2)])
def test_every_kind(ranks, tmp_path, mesh):
    wide = len(mesh) == 1
    wanted = [(name, mesh, "data", ()) for name in ("mlp", "cnn", "vit") if mesh != (1,)]
    wanted += [(name, mesh, kind, ()) for name in ("mlp", "cnn", "vit") for kind in ("zero", "gathered") if mesh != (1,)]
    wanted += [(name, mesh, "pipeline", ()) for name in ("mlp", "vit", "chain") if mesh != (1,)]
    updates = ("split update", "gathered stages")
    wanted += [(name, mesh, kind, ()) for name in ("mlp", "vit", "chain") for kind in updates if not wide]
    wanted += [(name, mesh, "split stages", ()) for name in ("mlp", "chain") if not wide]
    wanted += [("vit", mesh, "stages again", ())] if mesh != (1,) else []
    heads = {"mlp": "5", "cnn": "head", "vit": "head"}
    words = "split(0)" if wide else "broadcast,split(0)"
    wanted += [(name, mesh, "split", (f"{head}={words}",)) for name, head in heads.items()]
    if mesh != (1,):
        parts = [f"blocks.*.mlp.{at}.weight={'' if wide else 'broadcast,'}split({dim})" for at, dim in ((0, 0), (2, 1))]
        wanted.append(("vit", mesh, "split", tuple(parts)))
        wanted.append(("vit", mesh, "again", ()))
    count = torch.tensor(mesh).prod().item()
    check(ranks.run(count, "planned", trainings=trainings(tmp_path, wanted, 20)), wanted)


def test_a_module_without_a_graph_and_a_batch_that_does_not_divide(ranks, tmp_path):
    path = tmp_path / "plan.json"
    path.write_text(json.dumps(case("cnn", (2,), "split", keep=["head=split(0)"])))
    for furthest, told in ranks.run(2, "planned_module", name="cnn", path=str(path)):
        assert furthest < 1e-6
        assert "7 rows do not divide over 2 ranks" in told


def test_all_ranks_are_told_alike_and_nothing_is_changed(ranks, tmp_path):
    paths = {}
    for kind in ("data", "zero", "pipeline"):
        paths[kind] = str(tmp_path / f"{kind}.json")
        (tmp_path / f"{kind}.json").write_text(json.dumps(case("mlp", (2,), kind)))
    other = tmp_path / "other.json"
    other.write_text(json.dumps(case("vit", (2,), "data")))
    results = ranks.run(2, "misplanned", paths=paths, other=str(other), missing=str(tmp_path / "none.json"))
    assert results[0] == results[1]
    told, unchanged = results[0]
    assert unchanged
    expected = (
        "none.json",
        "different plans",
        "0.weight is [16, 12], and in this one it is",
        "a model in which token is [1, 1, 16], and in this one it is no parameter",
        "a mesh of 2 ranks, and this one is 1 x 2",
        "takes a headrace.Graph with add_optimizer",
        "has taken a step",
        "has stages already",
        "leave optimizer out",
        "none.json",
    )
    assert len(told) == len(expected)
    for text, part in zip(told, expected, strict=True):
        assert part in text


class Functional(nn.Module):
    """A linear layer that is no module of its own."""

    def __init__(self):
        super().__init__()
        self.first, self.weight = nn.Linear(8, 16), nn.Parameter(torch.randn(12, 16))

    def forward(self, rows):
        return torch.nn.functional.linear(torch.relu(self.first(rows)), self.weight) * 2


def test_what_is_no_module_is_named(alone):
    written = planned(Functional(), (8, 8), (1,), "split", keep=["weight=split(1)"])
    with pytest.raises(InputError, match=r"a value at linear_1 in the model, from .* to .*module of its own"):
        parallel.apply_plan(Functional(), written, alone)


def test_a_model_that_computes_otherwise_is_refused(alone):
    def net(between):
        return nn.Sequential(nn.Linear(8, 16), between, nn.Linear(16, 4))

    written = planned(net(nn.ReLU()), (8, 8), (1,), "split", keep=["2=split(0)"])
    with pytest.raises(InputError, match=r"computes 1: relu\(linear\) \[8, 16\], where this one computes 1: gelu"):
        parallel.apply_plan(net(nn.GELU()), written, alone)
    module = net(nn.ReLU())
    applied = parallel.apply_plan(module, written, alone)
    with pytest.raises(InputError, match=r"rows of \[8\], and these are \[9\]"):
        applied.batch(torch.randn(8, 9), torch.zeros(8))
    with pytest.raises(InputError, match="global already"):
        parallel.apply_plan(module, written, alone)


def test_a_model_that_cannot_be_followed_is_an_error_with_a_reason(alone):
    written = planned(nn.Sequential(nn.Linear(8, 4)), (8, 8), (1,), "split", keep=["0=split(0)"])
    strange = copy.deepcopy(written)
    strange["plan"]["boxed"] = [["0", "elsewhere", ["split(0)"], ["broadcast"]]]
    with pytest.raises(InputError, match="elsewhere, which is no operator"):
        parallel.apply_plan(nn.Sequential(nn.Linear(8, 4)), strange, alone)
    piped = case("mlp", (2, 2), "split update")
    assert piped["plan"]["zero_axis"] != piped["plan"]["axis"]
    twice = {**piped["plan"], "zero_axis": piped["plan"]["axis"]}
    strange, module = {**piped, "mesh": [1, 1], "plan": twice}, cases.model("mlp")
    graph = cases.Step(module, cases.optimizer_of(module))
    with pytest.raises(InputError, match="an axis of their own"):
        parallel.apply_plan(graph, strange, parallel.world("cpu", (1, 1)))
    with pytest.raises(InputError, match="got a dict"):
        parallel.apply_plan({}, written, alone)

    class Holding(nn.Sequential):
        def __init__(self):
            super().__init__(nn.Linear(8, 4))
            self.opened = open(__file__)  # noqa: SIM115 - that it cannot be copied is the point

    holding = Holding()
    with pytest.raises(InputError, match="cannot be copied"):
        parallel.apply_plan(holding, written, alone)
    holding.opened.close()


@pytest.fixture
def alone():
    """A mesh of this process."""
    yield parallel.world("cpu")
    torch.distributed.destroy_process_group()
