"""What one rank computes of a step; what goes between ranks is in tests/runtime/parallel/test_stage_parameters.py."""

import pytest
import torch

from headrace import parallel
from headrace.runtime.training.pipeline_run import _received, assembled, of_all_rows
from tests.runtime.training.staged_cases import Step, batch, net, sgd


@pytest.mark.parametrize("schedule", ["gpipe", "1f1b", "interleaved"])
def test_sums_of_gradients_and_each_microbatchs_results(alone, schedule):
    model = net("mlp")
    graph = Step(model, sgd(model), parallel.world("cpu"), schedule=schedule, microbatches=4, update=False)
    graph(*batch("mlp", 0))
    (run,) = graph._trainer._runs.values()
    images, labels = batch("mlp", 1)
    with torch.no_grad():
        sums, results = run.run(graph._trainer._given(run.step), (images, labels))
    assert {name: len(parts) for name, parts in results.items()} == dict.fromkeys([*run.step.leaves, *run.step.divisors], 4)
    loss, scores = (assembled(name, run, results) for name in run.step.leaves)
    assert torch.allclose(scores, model(images))
    assert torch.allclose(loss, torch.nn.functional.cross_entropy(scores, labels))
    assert torch.equal(of_all_rows(scores, run.mesh), scores)
    model.zero_grad()
    (4 * torch.nn.functional.cross_entropy(model(images), labels)).backward()
    for name, value in graph._trainer.state.parameters.items():
        assert torch.allclose(sums[name], value.grad, rtol=1e-9, atol=1e-12)


def test_what_is_computed_again_is_not_kept(alone):
    """The bytes that lie here, beside what was given, when all microbatches went forward and none came back."""

    def kept(modules):
        model = net("vit")
        graph = Step(
            model, sgd(model), parallel.world("cpu"), schedule="gpipe", microbatches=4, update=False, checkpoint=modules(model)
        )
        graph(*batch("vit", 0))
        (run,) = graph._trainer._runs.values()
        given, inputs, most = graph._trainer._given(run.step), batch("vit", 1), []

        def exchange(moment, known, arriving, sent):
            here = [value for values in known for value in values.values()]
            ours = {value.untyped_storage().data_ptr() for value in (*given.values(), *inputs)}
            sizes = {value.untyped_storage().data_ptr(): value.untyped_storage().nbytes() for value in here}
            most.append(sum(size for place, size in sizes.items() if place not in ours))

        run._exchange = exchange  # one rank sends nothing
        with torch.no_grad():
            run.run(given, inputs)
        forward = run.step.stages * 4
        assert len(most) == 2 * forward
        return most[forward - 1]

    few, many = kept(lambda model: model.blocks), kept(lambda model: [])
    assert 0 < few < 0.2 * many, (few, many)


class Work:
    def wait(self):
        self.waited = True


def test_what_arrives_has_the_strides_it_is_known_by():
    work, value = Work(), torch.arange(6.0).reshape(2, 3)
    given = _received(value, work, (1, 2))
    assert work.waited
    assert given.stride() == (1, 2)
    assert torch.equal(given, value)
    assert _received(value, work, (3, 1)) is value
    assert _received(value, work, (0, 1)) is value  # an expanded value has no memory of its own to lie in
