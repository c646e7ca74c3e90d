"""Which collectives of a captured step go together; that steps on several ranks compute the same: parallel/test_graph.py."""

import pytest
import torch
from torch.fx.experimental.proxy_tensor import make_fx

from headrace import parallel
from headrace.runtime.training.collectives import bucket_collectives, plan_buckets

c10d = torch.ops._c10d_functional


@pytest.fixture
def group(alone):
    return parallel.world("cpu").get_group().group_name


def gathered(value, group):
    return c10d.wait_tensor(c10d.all_gather_into_tensor(value, 1, group))


def summed(value, group, op="sum"):
    return c10d.wait_tensor(c10d.all_reduce(value, op, group))


def scattered(value, group):
    return c10d.wait_tensor(c10d.reduce_scatter_tensor(value, "sum", 1, group))


def counted(program):
    names = ("all_gather_into_tensor", "all_reduce", "reduce_scatter_tensor")
    return [sum(f".{name}." in str(node.target) for node in program.graph.nodes) for name in names]


def bucketed(step, *given, limit=10**6):
    """The program before and after, proved on the same values; and how many gathers, sums and scatters it has."""
    program = make_fx(step, tracing_mode="fake")(*[value.clone() for value in given])
    plain, own = [value.clone() for value in given], [value.clone() for value in given]
    expected = program(*plain)
    plan = plan_buckets(program, limit)
    bucket_collectives(program, plan)
    found = program(*own)
    for wanted, value in zip([*expected, *plain], [*found, *own], strict=True):
        assert torch.equal(wanted, value)
        assert wanted.stride() == value.stride()
    return counted(program)


def test_a_program_without_collectives_stays(group):
    program = make_fx(lambda one, two: [one + two])(torch.ones(2), torch.ones(2))
    before = program.code
    plan = plan_buckets(program)
    assert not plan
    bucket_collectives(program, plan)
    assert program.code == before


def test_gathers_of_parameters_and_sums_of_gradients(group):
    def step(first, second, rows):
        wide = gathered(first, group)
        values = rows @ wide
        more = torch.tanh(values @ gathered(second, group)[:, :3])
        one, two = summed(more.t() @ values, group), summed(values.t() @ rows, group)
        three = scattered(more.sum(0), group)
        first.sub_(two.t()[:4], alpha=0.1)
        return [one, two, three]

    assert bucketed(step, torch.randn(4, 4), torch.randn(4, 5), torch.randn(6, 4)) == [1, 1, 1]


def test_a_sum_that_is_computed_with_is_not_put_off(group):
    def step(rows):
        mean = summed(rows.sum(0), group)
        other = summed((rows - mean).square().sum(0), group)
        return [mean, other.sqrt(), summed(rows.amax(0), group)]

    assert bucketed(step, torch.randn(6, 4)) == [0, 3, 0]


def test_a_parameter_that_is_written_before_its_gather(group):
    def step(first, second):
        one = gathered(first, group)
        first.view(-1).mul_(2.0)
        return [one, gathered(second, group), gathered(first, group)]

    assert bucketed(step, torch.randn(4), torch.randn(4)) == [2, 0, 0]


def test_what_a_waiting_sum_reads_is_written(group):
    def step(first, second):
        one = summed(first, group)
        two = summed(second, group)
        second.mul_(3.0)
        kept = one + second
        return [one, two, kept, summed(kept, group)]

    assert bucketed(step, torch.randn(4), torch.randn(4)) == [0, 2, 0]


def test_sums_that_are_added_to_gradients(group):
    def step(first, second, one, two):
        first.add_(summed(one * 2, group))
        second.add_(summed(two * 2, group))
        return [first * 1, second]

    assert bucketed(step, *torch.randn(4, 5)) == [0, 1, 0]


def test_other_kinds_and_dtypes_go_by_themselves(group):
    def step(one, two, three):
        largest = summed(one, group, "max")
        return [largest, summed(one, group, "max"), summed(one, group), summed(two, group), summed(three, group)]

    given = torch.randn(4), torch.randn(3, dtype=torch.float64), torch.randn(2)
    assert bucketed(step, *given) == [0, 4, 0]


def test_a_bucket_has_a_limit(group):
    def step(*values):
        return [summed(value * 2, group) for value in values] + [gathered(value, group) for value in values]

    assert bucketed(step, *torch.randn(6, 4), limit=32) == [3, 3, 0]
    assert bucketed(step, *torch.randn(6, 4), limit=1) == [6, 6, 0]


def test_values_that_lie_otherwise_in_memory(group):
    def step(one, two, three):
        return [summed(one * 2, group), summed(two * 2, group), summed(three, group)]

    image = torch.randn(2, 3, 4, 4).contiguous(memory_format=torch.channels_last)
    assert bucketed(step, image, torch.randn(5, 3).t(), torch.randn(4)) == [0, 1, 0]
