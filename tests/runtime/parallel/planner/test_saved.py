"""Plans as files: what was written is read again, and what is no plan is said to be none."""

import copy
import dataclasses
import functools
import json

import pytest
from torch import nn

from headrace.errors import InputError
from headrace.runtime.parallel.planner.operators import read_model
from headrace.runtime.parallel.planner.plan import plan
from headrace.runtime.parallel.planner.rates import Link, Rates
from headrace.runtime.parallel.planner.saved import Program, document, read_plan

RATES = Rates(linear=1e9, conv=1e9, matmul=1e9, memory=1e9, operator=1e-6, links=(Link(1e-6, 1e8),))


def net(width=16, classes=4):
    return nn.Sequential(nn.Linear(8, width), nn.ReLU(), nn.Linear(width, classes))


@functools.cache
def written(mesh=(2, 2)):
    """Which nobody changes."""
    model = read_model(net(), (16, 8))
    found = plan(model, mesh, RATES, 8e9)
    return found, json.loads(json.dumps(document(found, model, mesh, RATES)))


def test_every_plan_is_read_as_it_was_written(tmp_path):
    found, data = written()
    for one in (found.best, *found.others):
        again, program = read_plan({**data, "plan": json.loads(json.dumps(one.to_json()))})
        assert again == one
        assert program.mesh == (2, 2)
        assert program.parameters["2.weight"] == (4, 16)
    assert any(one.stages for one in found.others)
    path = tmp_path / "plan.json"
    path.write_text(json.dumps(data))
    assert read_plan(path)[0] == read_plan(str(path))[0] == found.best


@pytest.mark.parametrize(
    ("place", "value"),
    [
        (("mesh",), [2, 0]),
        (("mesh",), "22"),
        (("mesh",), [2]),
        (("plan", "zero"), 4),
        (("plan", "zero"), True),
        (("plan", "zero_axis"), "rows"),
        (("plan", "seconds"), float("nan")),
        (("plan", "memory"), "much"),
        (("plan", "inputs"), ["split(0)"]),
        (("plan", "inputs"), ["split(0)", "split(-1)"]),
        (("plan", "layouts"), {"0.weight": ["split(0)", "everywhere"]}),
        (("plan", "layouts"), 3),
        (("plan", "boxed"), [["0", "linear", ["broadcast", "broadcast"]]]),
        (("plan", "stages"), [["0.linear", "1.relu"]]),
        (("plan", "microbatches"), 1.5),
        (("plan", "checkpoint"), True),
        (("plan", "more"), 1),
        (("program", "parameters"), {"0.weight": [1.5]}),
        (("program",), None),
        (("plan",), []),
    ],
)
def test_what_is_no_plan_is_an_error(place, value):
    data = copy.deepcopy(written()[1])
    holder = data
    for key in place[:-1]:
        holder = holder[key]
    holder[place[-1]] = value
    with pytest.raises(InputError, match="is not what headrace plan-parallel --save writes"):
        read_plan(data)


def test_a_file_that_is_none_is_named(tmp_path):
    for name, text in (("none.json", None), ("half.json", '{"mesh": [2'), ("deep.json", "[" * 100_000), ("list.json", "[]")):
        path = tmp_path / name
        if text is not None:
            path.write_text(text)
        with pytest.raises(InputError, match=name):
            read_plan(path)


def test_programs_that_differ_are_both_named():
    one = Program.of(read_model(net(), (16, 8)), (2,))
    assert one.difference(Program.of(read_model(net().double(), (16, 8)), (2,))) is None
    other = Program.of(read_model(net(width=32), (16, 8)), (2,))
    assert one.difference(other) == "a model in which 0.weight is [16, 8], and in this one it is [32, 8]"
    longer = Program.of(read_model(nn.Sequential(*net(), nn.ReLU()), (16, 8)), (2,))
    assert one.difference(longer) == "a model of 3 operators, and this one has 4"
    assert longer.difference(dataclasses.replace(longer, mesh=(2, 1))) == "a mesh of 2 ranks, and this one is 2 x 1"
    without = net()
    without[2].bias = None
    assert one.difference(Program.of(read_model(without, (16, 8)), (2,))) == (
        "a model in which 2.bias is [4], and in this one it is no parameter"
    )
