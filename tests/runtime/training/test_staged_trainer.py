"""Graphs with stages in one process: what they compute, and what they reject. On several ranks: test_stage_parameters."""

import copy
import re

import pytest
import torch
from torch import nn
from torch.nn import functional

import headrace
from headrace import parallel
from headrace.errors import InputError
from tests.runtime.training.staged_cases import CLASSES, MLP, Step, batch, net, sgd, train


class Chain(nn.Module):
    """Two linear layers around what a test puts between them."""

    def __init__(self, *between, wide=8):
        super().__init__()
        self.first, self.between, self.last = nn.Linear(12, wide), nn.Sequential(*between), nn.Linear(wide, CLASSES)

    def forward(self, rows):
        return self.last(self.between(self.first(rows)))


class Loss(Step):
    """`Step` with another build."""

    def __init__(self, model, build, **options):
        self.given = build
        super().__init__(model, sgd(model), parallel.world("cpu"), stages=lambda net: [net.first, net.last], **options)

    def build(self, images, labels):
        return self.given(self.model, images, labels)


def mean(model, images, labels):
    loss = functional.cross_entropy(model(images), labels)
    loss.backward()
    return loss


def rejected(message, model, build=mean, given=None, **options):
    graph = Loss(model.double(), build, **options)
    before = copy.deepcopy(model.state_dict())
    modes = [part.training for part in model.modules()]
    with pytest.raises(InputError, match=message) as error:
        graph(*(given or batch("mlp", 0)))
    assert all(torch.equal(value, before[key]) for key, value in model.state_dict().items())
    assert all(value.grad is None for value in model.parameters())
    assert modes == [part.training for part in model.modules()]
    assert not any(part._forward_pre_hooks or part._forward_hooks for part in model.modules())
    return str(error.value)


@pytest.mark.parametrize(("name", "schedule"), [("mlp", "gpipe"), ("cnn", "1f1b"), ("vit", "interleaved")])
def test_one_rank_trains_as_without_stages(alone, name, schedule):
    expected, one = train(name, 3, clip=0.05)
    given, graph = train(name, 3, parallel.world("cpu"), clip=0.05, schedule=schedule, microbatches=4)
    for (loss, scores), (own, rows) in zip(expected, given, strict=True):
        assert torch.allclose(loss, own, rtol=1e-12, atol=0)
        assert torch.allclose(scores, rows)
    for wanted, value in zip(one.model.parameters(), graph.model.parameters(), strict=True):
        assert torch.allclose(wanted, value, rtol=1e-10, atol=1e-12)
    (record,) = graph.steps
    assert (
        str(record)
        == f"step for [{tuple(batch(name, 0)[0].shape)}, (16,)]: captured (4 stages on 1 ranks, {schedule}, 4 microbatches)"
    )


def test_another_batch_is_captured_anew_and_the_update_may_be_the_users(alone):
    model, other = net("mlp"), net("mlp")
    graph = Step(model, sgd(model), parallel.world("cpu"), update=False)
    for rows in (16, 4, 16):
        graph(*batch("mlp", rows, rows))
        mean(other, *batch("mlp", rows, rows))
    assert graph.captures == 2
    for wanted, value in zip(other.parameters(), model.parameters(), strict=True):
        assert torch.allclose(wanted.grad, value.grad, rtol=1e-10, atol=1e-12)  # sums of three


def test_modules_that_are_computed_again(alone):
    """One inside of another, one in no stage, and one that its stage calls twice, with a function between."""

    class Twice(Chain):
        def __init__(self):
            super().__init__(nn.Linear(8, 8), nn.GELU(), nn.Sequential(nn.Linear(8, 8), nn.Tanh()))
            self.loose = nn.Sequential(nn.Linear(8, 8), nn.ReLU(inplace=True))

        def forward(self, rows):
            values = self.loose(self.first(rows).sigmoid())
            return self.last(self.between(self.between(values).cos()) + values)

    model = Twice().double()
    other = copy.deepcopy(model)
    many = Step(
        model,
        sgd(model),
        parallel.world("cpu"),
        stages=lambda net: [net.first, net.between, net.last],
        checkpoint=[model.between, model.between[2], model.loose],
    )
    one = Step(other, sgd(other), config=headrace.GraphConfig(backend="eager"))
    for at in range(3):
        assert torch.allclose(many(*batch("mlp", at))[0], one(*batch("mlp", at))[0], rtol=1e-12)
    for wanted, value in zip(other.parameters(), model.parameters(), strict=True):
        assert torch.allclose(wanted, value, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_other_precisions_of_parameters(alone, dtype):
    model = MLP().to(dtype)
    graph = Step(model, sgd(model), parallel.world("cpu"))
    images, labels = batch("mlp", 0)
    expected = functional.cross_entropy(model(images.to(dtype)), labels)
    assert torch.allclose(graph(images.to(dtype), labels)[0], expected, rtol=2e-2)


def test_values_that_go_by_no_module(alone):
    """Parameters whose gradient is a value of the next stage as it is, detached values, and stages that learn nothing."""

    class Odd(Chain):
        def __init__(self):
            super().__init__(nn.Tanh())
            self.one, self.two = (nn.Parameter(torch.randn(8)) for _ in range(2))
            self.last.requires_grad_(False)

        def forward(self, rows):
            values, sums = self.first(rows), self.one + self.two
            with torch.no_grad():
                scale = values.abs().sum(1, keepdim=True)
            return self.last((self.between(values / scale) + sums) * values.detach())

    model = Odd().double()
    other = copy.deepcopy(model)
    stages = {"stages": lambda net: [net.first, net.between, net.last], "microbatches": 4}
    many, one = Step(model, sgd(model), parallel.world("cpu"), **stages), Step(other, sgd(other))
    for at in range(3):
        assert torch.allclose(many(*batch("mlp", at))[0], one(*batch("mlp", at))[0], rtol=1e-12)
    for wanted, value in zip(other.parameters(), model.parameters(), strict=True):
        assert torch.allclose(wanted, value, rtol=1e-10, atol=1e-12)


def test_what_a_microbatch_would_compute_otherwise_is_rejected(alone):
    told = rejected("batch normalization in training mode, in between.0 ", Chain(nn.BatchNorm1d(8)))
    assert re.search(r"test_staged_trainer.py:\d+", told)
    assert "put it in evaluation mode" in told
    assert "set a dropout's p to 0" in rejected("draws random numbers, in between.1", Chain(nn.Tanh(), nn.Dropout(0.1)))
    rejected("draws random numbers, in ", Chain(), lambda m, x, y: mean(lambda r: m(functional.dropout(r)), x, y))

    class Centered(nn.Module):
        def forward(self, rows):
            return rows - rows.mean(0)

    rejected("output 0 of build for the whole batch is not that of its microbatches", Chain(Centered()))

    class Counting(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("calls", torch.zeros(()))

        def forward(self, rows):
            self.calls += 1
            return rows

    rejected("writes to between.0.calls, in between.0", Chain(Counting()))
    rejected("writes to an input of build, in build", Chain(), lambda m, x, y: mean(m, x.mul_(2), y))


def test_batch_normalization_that_only_applies_and_dropout_of_nothing(alone):
    model = Chain(nn.BatchNorm1d(8).eval(), nn.Dropout(0.0)).double()
    expected = functional.cross_entropy(model(batch("mlp", 0)[0]), batch("mlp", 0)[1])
    assert torch.allclose(Loss(model, mean)(*batch("mlp", 0)), expected)


def test_losses_that_are_no_mean_over_rows_are_rejected(alone):
    def build(**options):
        def loss(model, images, labels):
            value = functional.cross_entropy(model(images), labels, **options)
            value.backward()
            return value

        return loss

    rejected("must be a mean over rows", Chain(), build(reduction="sum"))
    rejected("divided by", Chain(), build(weight=torch.arange(1.0, CLASSES + 1, dtype=torch.float64)))
    graph = Loss(Chain().double(), mean)
    images, labels = batch("mlp", 0)
    for _ in range(2):
        graph(images, labels)
    before = [value.clone() for value in graph.model.parameters()]
    labels[0] = -100
    with pytest.raises(InputError, match="divided by 7 for one microbatch and by 8 for another"):
        graph(images, labels)
    assert all(torch.equal(one, two) for one, two in zip(before, graph.model.parameters(), strict=True))
    graph(*batch("mlp", 1))


def test_what_build_does_with_gradients_and_results_is_rejected(alone):
    def clipping(model, images, labels):
        loss = mean(model, images, labels)
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        return loss

    rejected("computes with gradients after backward.*clip_grad_norm", Chain(), clipping)

    def no_gradient(model, images, labels):
        return functional.cross_entropy(model(images), labels)

    rejected("build calls backward", Chain(), no_gradient)

    def returning(more):
        def build(model, images, labels):
            scores = model(images)
            loss = functional.cross_entropy(scores, labels)
            loss.backward()
            return loss, more(scores, images)

        return build

    rejected("returns a count", Chain(), returning(lambda scores, _: (scores.argmax(1) == 0).sum()))
    rejected(r"returns a tensor \[12, 8\]", Chain(), returning(lambda scores, _: scores.T))
    rejected("an input or a gradient", Chain(), returning(lambda _, images: images))

    def reading(model, images, labels):
        loss = mean(model, images, labels)
        return loss if float(loss) > 0 else -loss

    rejected(r"a Python value is read out of a tensor", Chain(), reading)


def test_parameters_that_are_global(alone):
    """Over an axis of one rank: with buffers, another batch, and an update that is the user's."""

    class Normed(Chain):
        def __init__(self):
            super().__init__(nn.BatchNorm1d(8).eval(), nn.Tanh())

    model, other = Normed().double(), Normed().double()
    mesh = parallel.world("cpu", (1, 1))
    parallel.to_global(model, mesh["data"])
    graph = Step(model, sgd(model), mesh, stages=lambda net: [net.first, net.last], update=False)
    other.load_state_dict(graph.state_dict()["modules"]["model"])
    for rows in (16, 4):
        loss, scores = graph(*batch("mlp", 0, rows))
        assert torch.allclose(mean(other, *batch("mlp", 0, rows)), loss, rtol=1e-12)
        assert type(loss) is type(scores) is torch.Tensor
    for wanted, value in zip(other.parameters(), model.parameters(), strict=True):
        assert torch.allclose(wanted.grad, parallel.whole(value.grad), rtol=1e-10, atol=1e-12)


def test_parameters_that_are_global_otherwise_are_rejected(alone):
    def graph_of(change, shape=(1, 1), **options):
        model = Chain(nn.Tanh()).double()
        mesh = parallel.world("cpu", shape)
        change(model, mesh)
        return Step(model, sgd(model), mesh, stages=lambda net: [net.first, net.last], **options)

    with pytest.raises(InputError, match="some of the graph's parameters and buffers are global"):
        graph_of(lambda model, mesh: parallel.to_global(model.first, mesh["data"]))
    with pytest.raises(InputError, match="global over 'model', which is to have the stages"):
        graph_of(parallel.to_global)
    strange = parallel.world("cpu", names=["elsewhere"])
    with pytest.raises(InputError, match=r"over the axes elsewhere of ranks \[0\], which are none .* \(data, model\)"):
        graph_of(lambda model, _: parallel.to_global(model, strange))
    graph = graph_of(lambda *_: None)
    parallel.to_global(graph.model, graph._pipeline.placement["data"])
    with pytest.raises(InputError, match="became global after add_pipeline"):
        graph(*batch("mlp", 0))

    def split(model, mesh):
        parallel.to_global(model, mesh["data"], {"first.weight": parallel.sbp.split(1)})

    with pytest.raises(InputError, match=r"test_staged_trainer.py:\d+: .* write parallel.to_global"):
        graph_of(split)(*batch("mlp", 0))


def test_stages_that_cannot_be_are_rejected(alone):
    def graph_of(stages, model=None, **options):
        model = (model or MLP()).double()
        graph = Step(model, sgd(model), **options)
        for module, number in stages(model):
            graph.set_stage(module, number)
        graph.add_pipeline(parallel.world("cpu"), microbatches=2)
        return graph

    for stages, message in [
        (lambda net: [(net.first, 0), (net.second, 2)], r"numbered 0, 1, 2 and so on; set_stage was given \[0, 2\]"),
        (
            lambda net: [(net.first, 1), (net.second, 0)],
            "second is of stage 0 and is called when stage 1 has begun",
        ),
        (
            lambda net: [(net.first, 0), (net.third, 1), (net.last, 0)],
            "last is of stage 0 .* in the order in which build calls",
        ),
        (
            lambda net: [(net.first, 0), (net.second, 2), (net.third, 1)],
            "second of stage 2 is called before any module of stage 1",
        ),
        (lambda net: [(net.first, 0), (nn.Linear(2, 2), 1)], "is in none of the graph's modules"),
        (lambda net: [], "0 stages do not share out"),
    ]:
        with pytest.raises(InputError, match=message):
            graph_of(stages)(*batch("mlp", 0))

    class Unused(MLP):
        def __init__(self):
            super().__init__()
            self.unused = nn.Linear(2, 2)

    with pytest.raises(InputError, match="build calls no module of stage 1"):
        graph_of(lambda net: [(net.first, 0), (net.unused, 1)], Unused())(*batch("mlp", 0))

    class Tied(Chain):
        def forward(self, rows):
            return self.last(self.first(rows)) @ self.last.weight @ self.first.weight

    with pytest.raises(InputError, match="the parameter first.weight is used in stages 0, 1"):
        graph_of(lambda net: [(net.first, 0), (net.last, 1)], Tied())(*batch("mlp", 0))

    class Twice(Chain):
        def forward(self, rows):
            return self.last(self.between(self.first(functional.pad(self.last(self.first(rows)), (0, 0)))))

    with pytest.raises(InputError, match="first is of stage 0 and is called when stage 1 has begun"):
        graph_of(lambda net: [(net.first, 0), (net.last, 1)], Twice())(*batch("mlp", 0))

    model = MLP().double()
    with pytest.raises(InputError, match="a pipeline takes no grad_scaler"):
        Step(model, sgd(model), parallel.world("cpu"), grad_scaler=torch.amp.GradScaler("cpu"))(*batch("mlp", 0))
    with pytest.raises(InputError, match="checkpoint names MLP, .* of stages 0, 1, 2, 3, .* inside of one stage"):
        Step(model, sgd(model), parallel.world("cpu"), checkpoint=[model.first, model])(*batch("mlp", 0))


class Overwrites(Chain):
    """Its middle stage writes to the first one's value, which the last reads through `view`, taken before."""

    def __init__(self, view, at_once):
        super().__init__(nn.ReLU(inplace=True))
        self.view, self.at_once = view, at_once

    def forward(self, rows):
        begun = self.first(rows)
        view = self.view(begun)
        values = self.between(begun)
        if self.at_once:  # still in the stage that wrote
            values = values + view.abs()
        return self.last(values) + view.sum(1, keepdim=True)


@pytest.mark.parametrize("at_once", [False, True])
def test_what_is_written_in_place_and_read_in_another_stage(alone, at_once):
    def graph_of(model, mesh=None):
        return Step(model.double(), sgd(model), mesh, stages=lambda net: [net.first, net.between, net.last])

    model = Overwrites(lambda values: values, at_once)
    other = copy.deepcopy(model)
    many, one = graph_of(model, parallel.world("cpu")), graph_of(other)
    for at in range(3):
        assert torch.allclose(many(*batch("mlp", at))[0], one(*batch("mlp", at))[0], rtol=1e-12)
    with pytest.raises(InputError, match="writes in place, in between.0 .* is read elsewhere"):
        graph_of(Overwrites(lambda values: values[:, :8], at_once), parallel.world("cpu"))(*batch("mlp", 0))


def test_rows_and_precisions_that_cannot_be_are_rejected(alone):
    model = net("mlp")
    graph = Step(model, sgd(model), parallel.world("cpu"), microbatches=3)
    with pytest.raises(InputError, match="16 rows do not divide into 3 microbatches"):
        graph(*batch("mlp", 0))
    graph(*batch("mlp", 0, 3))
    with pytest.raises(InputError, match="input 0 has no rows"):
        graph(*batch("mlp", 0, 0))
    with pytest.raises(InputError, match="inputs have 3 and 6 rows"):
        graph(batch("mlp", 0, 6)[0], batch("mlp", 0, 3)[1])
    with torch.autocast("cpu"), pytest.raises(InputError, match="outside of autocast"):
        graph(*batch("mlp", 0, 6))
    model.first.weight = nn.Parameter(model.first.weight.detach().clone())
    with pytest.raises(InputError, match="a parameter was replaced"):
        graph(*batch("mlp", 0, 3))
    for config in (headrace.GraphConfig(backend="eager"), headrace.GraphConfig(precision="bf16")):
        other = Step(net("mlp"), sgd(model), parallel.world("cpu"))
        other.config = config
        with pytest.raises(InputError, match="captured and in fp32"):
            other(*batch("mlp", 0))


def test_a_later_step_that_takes_other_ways_is_rejected(alone):
    class Branching(Chain):
        """In evaluation mode it calls a module that the first step did without."""

        def forward(self, rows):
            return self.last(self.first(rows) if self.training else self.between(self.first(rows)))

    graph = Loss(Branching(nn.Linear(8, 8)).double(), mean)
    graph(*batch("mlp", 0))
    graph.model.eval()
    with pytest.raises(InputError, match="in other stages than in its first step"):
        graph(*batch("mlp", 1))
    graph.model.train()
    graph(*batch("mlp", 2))
    assert graph.captures == 1
