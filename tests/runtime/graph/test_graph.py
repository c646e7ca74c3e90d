import copy
import dataclasses
import pickle
import textwrap
import threading

import numpy as np
import pytest
import torch
from torch import nn

import headrace
from headrace import GraphConfig
from headrace.errors import ArtifactError, BackendError, CaptureError, InputError
from headrace.specs import Preprocessing, Resize

FAST = GraphConfig(backend="eager", buckets=(1, 4), threads=1)


class Classify(headrace.Graph):
    def __init__(self, model, config=FAST):
        super().__init__(config=config)
        self.model = model.eval()

    def build(self, images):
        return self.model(images).softmax(dim=1)


class Small(nn.Module):
    """What a graph's own calls, copies and files need of a network."""

    def __init__(self):
        super().__init__()
        self.norm, self.head = nn.BatchNorm1d(3), nn.Linear(3, 5)

    def forward(self, images):
        return self.head(self.norm(images.mean((2, 3))))


@pytest.fixture
def small(settled):
    torch.manual_seed(0)
    return settled(Small()).eval()


@pytest.fixture
def graph(small):
    return Classify(small)


def expected(model, images):
    with torch.no_grad():
        return model(images).softmax(dim=1)


def test_called_with_any_batch_it_gives_what_build_gives(conv_net):
    graph = Classify(conv_net)
    for batch in (3, 1, 4, 9, 2):  # 9 is more than the largest bucket
        images = torch.randn(batch, 3, 20, 12)
        result = graph(images)
        torch.testing.assert_close(result, expected(conv_net, images), atol=1e-5, rtol=1e-5)
        assert (result.dtype, result.device, result.requires_grad) == (torch.float32, images.device, False)
    assert graph.captures == 1


def test_strided_inputs_and_inputs_that_require_grad(conv_net):
    graph = Classify(conv_net)
    stored = torch.randn(4, 20, 12, 3, requires_grad=True)
    strided = stored.permute(0, 3, 1, 2)[::2]
    torch.testing.assert_close(graph(strided), expected(conv_net, strided), atol=1e-5, rtol=1e-5)
    assert stored.grad is None


def test_the_config_default_measures_and_parity_is_recorded(conv_net):
    graph = Classify(conv_net, GraphConfig(max_tuning_seconds=3, buckets=(1, 2), threads=1))
    graph(torch.randn(2, 3, 16, 16))
    assert graph.parity.passed
    assert graph.parity.batches == (1, 2, 5)
    assert graph.parity.top1_agreement == 1.0
    assert {item.choice.backend for item in graph.plan.measurements} >= {"eager", "onnxruntime"}


def test_changed_parameters_are_seen_at_the_next_call(graph, small):
    images = torch.randn(2, 3, 16, 16)
    changes = {
        "in place": lambda: small.head.weight.mul_(-2),
        "load_state_dict": lambda: small.load_state_dict({name: 1.5 * value for name, value in small.state_dict().items()}),
        "replaced parameter": lambda: setattr(small.head, "weight", nn.Parameter(torch.randn(5, 3))),
        "replaced module": lambda: setattr(small, "head", nn.Linear(3, 5)),
        "buffer": lambda: small.norm.running_mean.add_(1),
        "data": lambda: setattr(small.head.weight, "data", torch.randn(5, 3)),
    }
    before = graph(images)
    for count, (name, change) in enumerate(changes.items(), start=2):
        with torch.no_grad():
            change()
        after = graph(images)
        assert graph.captures == count, name
        assert not torch.allclose(before, after), name
        torch.testing.assert_close(after, expected(small, images), atol=1e-5, rtol=1e-5)
        graph(images)
        assert graph.captures == count, name
        before = after


def test_after_an_optimizer_step_the_plan_is_kept_and_the_weights_are_new(graph, small):
    images = torch.randn(4, 3, 16, 16)
    graph(images)
    plan = graph.plan
    optimizer = torch.optim.SGD(small.parameters(), lr=0.5)
    small.train()
    small(images).square().mean().backward()
    optimizer.step()
    result = graph(images)
    assert small.training
    assert {item.median_ms for item in graph.plan.measurements} == {item.median_ms for item in plan.measurements}
    torch.testing.assert_close(result, expected(small.eval(), images), atol=1e-5, rtol=1e-5)


def test_another_row_shape_is_another_capture_and_both_are_kept(graph, small):
    for size in (16, 24, 16, 24):
        images = torch.randn(2, 3, size, size)
        torch.testing.assert_close(graph(images), expected(small, images), atol=1e-5, rtol=1e-5)
    assert graph.captures == 2


def test_the_number_of_kept_captures_is_bounded(small):
    assert GraphConfig().max_captures == 4
    graph = Classify(small, GraphConfig(backend="eager", buckets=(1,), max_captures=2))
    for size in (4, 5, 6):
        graph(torch.randn(1, 3, size, size))
    assert len(graph._kept) == 2
    graph(torch.randn(1, 3, 6, 6))
    assert graph.captures == 3


def test_calls_from_several_threads(graph, small):
    batches = [torch.randn(size, 3, 16, 16) for size in (1, 2, 3, 4, 5, 6)]
    results = [None] * len(batches)

    def call(index):
        results[index] = graph(batches[index])

    threads = [threading.Thread(target=call, args=(index,)) for index in range(len(batches))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert graph.captures == 1
    for images, result in zip(batches, results, strict=True):
        torch.testing.assert_close(result, expected(small, images), atol=1e-5, rtol=1e-5)


@dataclasses.dataclass
class Output:
    logits: torch.Tensor
    hidden: tuple


class Structured(nn.Module):
    def __init__(self, kind):
        super().__init__()
        self.linear, self.kind = nn.Linear(6, 4), kind

    def forward(self, x):
        logits = self.linear(x)
        return {
            "tuple": (logits, x.mean(1)),
            "list": [logits],
            "dict": {"logits": logits, "none": None},
            "class": Output(logits, (x * 2, None)),
        }[self.kind]


@pytest.mark.parametrize("kind", ["tuple", "list", "dict", "class"])
def test_outputs_have_the_structure_that_the_module_returns(kind, tmp_path):
    module, rows = Structured(kind), torch.randn(3, 6)
    graph = headrace.compile(module, torch.randn(1, 6), config=FAST)
    result = graph(rows)
    with torch.no_grad():
        wanted = module(rows)
    assert type(result) is type(wanted)
    flat = torch.utils._pytree.tree_leaves(dataclasses.asdict(result) if kind == "class" else result)
    flat_wanted = torch.utils._pytree.tree_leaves(dataclasses.asdict(wanted) if kind == "class" else wanted)
    for a, b in zip(flat, flat_wanted, strict=True):
        assert (a is None and b is None) or torch.allclose(a, b, atol=1e-6)
    loaded = headrace.load(graph.save(tmp_path / "model"))(rows)
    assert type(loaded) is (dict if kind == "class" else type(wanted))


def test_modules_in_lists_and_constant_tensors_are_part_of_the_graph():
    class Ensemble(headrace.Graph):
        def __init__(self, models):
            super().__init__(config=FAST)
            self.models = models
            self.weights = torch.tensor([0.25, 0.75])

        def build(self, x):
            return sum(weight * model(x) for weight, model in zip(self.weights, self.models, strict=True))

    models = [nn.Linear(5, 3), nn.Linear(5, 3)]
    graph, rows = Ensemble(models), torch.randn(4, 5)
    torch.testing.assert_close(graph(rows), 0.25 * models[0](rows) + 0.75 * models[1](rows), atol=1e-6, rtol=1e-6)
    with torch.no_grad():
        models[1].bias.add_(1)
        graph.weights.copy_(torch.tensor([0.5, 0.5]))
    torch.testing.assert_close(graph(rows), 0.5 * models[0](rows) + 0.5 * models[1](rows), atol=1e-6, rtol=1e-6)


def test_a_graph_without_parameters():
    class Softmax(headrace.Graph):
        def build(self, x):
            return x.softmax(1)

    rows = torch.randn(3, 7)
    torch.testing.assert_close(Softmax(config=FAST)(rows), rows.softmax(1))


def test_an_obstacle_in_build_names_the_graph_and_the_line():
    class Fixed(headrace.Graph):
        def build(self, x):
            return x if x.sum() > 0 else -x

    with pytest.raises(CaptureError, match=r"Fixed cannot become one graph[\s\S]*test_graph.py:\d+: PG120"):
        Fixed(config=FAST)(torch.randn(2, 3))


def test_a_graph_without_build_says_so():
    with pytest.raises(CaptureError, match="must define build"):
        headrace.Graph()(torch.randn(2, 3))


@pytest.mark.parametrize("value", ["text", np.zeros((1, 3, 16, 16), np.float32), torch.zeros(0, 3, 16, 16)])
def test_inputs_that_are_no_rows_of_tensors_are_refused(graph, value):
    with pytest.raises(InputError):
        graph(value)


def test_a_wrong_dtype_or_channel_count_is_reported_as_the_modules_own_error(graph):
    for images in (torch.randn(1, 3, 16, 16).double(), torch.randn(1, 4, 16, 16)):
        with pytest.raises(CaptureError, match="PG100"):
            graph(images)
    assert graph(torch.randn(1, 3, 16, 16)).shape == (1, 5)


def test_before_the_first_call_there_is_no_plan_and_nothing_to_save(graph, tmp_path):
    assert "not captured yet" in repr(graph)
    with pytest.raises(BackendError, match="not captured yet"):
        _ = graph.plan
    with pytest.raises(ArtifactError, match="nothing to save"):
        graph.save(tmp_path / "model")


def test_print_shows_modules_inputs_outputs_and_choices(conv_net):
    graph = Classify(conv_net)
    graph(torch.randn(1, 3, 16, 16))
    text = str(graph)
    for part in (
        "Classify(",
        "(model): ConvNet",
        "input images: float32 ['batch', 3, 16, 16]",
        "output output",
        "batch 4: eager fp32",
    ):
        assert part in text


def test_compile_takes_a_module_without_a_subclass_and_never_changes_it(small):
    small.train()
    before = copy.deepcopy(small.state_dict())
    graph = headrace.compile(small, torch.randn(1, 3, 16, 16), config=FAST)
    assert graph.captures == 1
    assert [spec.name for spec in graph.signature.inputs] == ["images"]
    images = torch.randn(5, 3, 16, 16)
    result = graph(images)
    assert small.training
    assert all(torch.equal(value, before[name]) for name, value in small.state_dict().items())
    torch.testing.assert_close(result, small.eval()(images), atol=1e-5, rtol=1e-5)


def test_saved_and_loaded_in_a_process_without_the_models_source(conv_net, tmp_path, warm_python):
    graph = Classify(conv_net)
    images = torch.randn(5, 3, 20, 12)
    result = graph(images)
    folder = graph.save(tmp_path / "models" / "net", labels=list("abcde"), probabilities=True)
    np.save(tmp_path / "images.npy", images.numpy())
    code = f"""
        import numpy, torch, headrace
        graph = headrace.load({str(folder)!r})
        images = torch.from_numpy(numpy.load({str(tmp_path / "images.npy")!r}))
        numpy.save({str(tmp_path / "out.npy")!r}, graph(images).numpy())
        print(graph.signature.inputs[0].name, graph.plan.portable, graph.parity.status, graph.artifact.task.heads[0])
    """
    script = tmp_path / "elsewhere.py"
    script.write_text(textwrap.dedent(code))
    done = warm_python([script], cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["images", "False", "passed", "class", "probabilities"]
    np.testing.assert_allclose(np.load(tmp_path / "out.npy"), result.numpy(), atol=1e-6)


def test_an_eager_plan_is_saved_with_its_program_and_the_portable_graph(conv_net, tmp_path):
    graph = Classify(conv_net, GraphConfig(backend="eager", buckets=(1, 2)))
    images = torch.randn(3, 3, 16, 16)
    result = graph(images)
    loaded = headrace.load(graph.save(tmp_path / "net"))
    assert {path.name for path in (tmp_path / "net" / "1").iterdir()} == {"model.onnx", "model.pt2", "headrace.json"}
    torch.testing.assert_close(loaded(images), result)
    assert "fold_batch_norm" in [record.name for record in loaded.passes]


class Bessel(nn.Module):
    """Ends in an operator that ONNX does not have."""

    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, images):
        return torch.special.bessel_j0(self.model(images))


def test_what_has_no_form_in_onnx_is_saved_with_its_own_program(conv_net, tmp_path):
    images = torch.randn(3, 3, 16, 16)
    graph = headrace.compile(Bessel(conv_net).eval(), config=GraphConfig(backend="eager", buckets=(1, 2)))
    result = graph(images)
    loaded = headrace.load(graph.save(tmp_path / "net"))
    assert {path.name for path in (tmp_path / "net" / "1").iterdir()} == {"model.pt2", "headrace.json"}
    assert "bessel_j0" in loaded.artifact.provenance["no_portable_graph"]
    torch.testing.assert_close(loaded(images), result)


def test_a_loaded_graph_has_what_it_can_do_and_no_more(graph, tmp_path):
    graph(torch.randn(1, 3, 16, 16))
    loaded = headrace.load(graph.save(tmp_path / "net"))
    assert not isinstance(loaded, headrace.Graph)
    assert {name for name in dir(loaded) if not name.startswith("_")} == {
        "artifact",
        "close",
        "parity",
        "passes",
        "plan",
        "signature",
    }
    assert loaded.parity == loaded.plan.worst_parity()


def test_a_loaded_graph_checks_its_inputs(graph, tmp_path):
    graph(torch.randn(1, 3, 16, 16))
    loaded = headrace.load(graph.save(tmp_path / "net"))
    for value in (
        torch.randn(1, 3, 16, 17),
        torch.randn(3, 16, 16),
        torch.randn(1, 3, 16, 16).double(),
        torch.zeros(0, 3, 16, 16),
    ):
        with pytest.raises(InputError, match="images"):
            loaded(value)
    with pytest.raises(InputError, match="takes 1 tensors"):
        loaded()
    assert loaded(torch.randn(2, 3, 16, 16)).shape == (2, 5)


def test_saving_again_after_training_replaces_the_model(graph, small, tmp_path):
    images = torch.randn(2, 3, 16, 16)
    graph(images)
    folder = graph.save(tmp_path / "net")
    with torch.no_grad():
        small.head.weight.neg_()
    result = graph(images)
    graph.save(folder)
    torch.testing.assert_close(headrace.load(folder)(images), result)


def test_saving_after_a_change_without_a_call_saves_the_new_weights(small, tmp_path):
    graph = Classify(small, GraphConfig(backend="eager", buckets=(1, 2)))
    images = torch.randn(2, 3, 16, 16)
    graph(images)
    with torch.no_grad():
        small.norm.weight.mul_(3)
        small.head.weight.neg_()
    loaded = headrace.load(graph.save(tmp_path / "net"))
    torch.testing.assert_close(loaded(images), expected(small, images), atol=1e-5, rtol=1e-5)


def test_a_capture_that_fails_leaves_the_graph_usable(small):
    graph = Classify(small)
    images = torch.randn(2, 3, 16, 16)
    graph(images)
    with torch.no_grad():
        small.head.weight.fill_(float("nan"))
    for _ in range(2):
        with pytest.raises(CaptureError, match="PG110"):
            graph(images)
    with torch.no_grad():
        small.head.weight.fill_(1.0).mul_(torch.arange(5.0)[:, None])
    torch.testing.assert_close(graph(images), expected(small, images), atol=1e-5, rtol=1e-5)


def test_saved_with_preprocessing_it_takes_images_in_triton_too(graph, tmp_path):
    graph(torch.randn(1, 3, 16, 16))
    steps = Preprocessing(geometry=(Resize(size=(16, 16)),))
    graph.save(tmp_path / "net", labels=list("abcde"), preprocessing=steps, probabilities=True)
    assert {path.name for path in tmp_path.iterdir()} == {"net", "net_decode", "net_classify"}
    assert headrace.load(tmp_path / "net").artifact.preprocessing == steps


@pytest.mark.cuda
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU")
def test_on_cuda_the_answer_stays_on_the_device(conv_net):
    graph = headrace.compile(
        conv_net.cuda(), torch.randn(1, 3, 16, 16, device="cuda"), config=GraphConfig(max_tuning_seconds=5)
    )
    images = torch.randn(5, 3, 16, 16, device="cuda")
    result = graph(images)
    assert result.device == images.device
    torch.testing.assert_close(result, conv_net(images), atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize(
    "kind",
    [
        pytest.param(Classify, id="own", marks=pytest.mark.slow),
        pytest.param(lambda model: headrace.compile(model.eval(), config=FAST), id="compile"),
    ],
)
def test_a_copy_is_a_graph_of_its_own(small, kind):
    graph, images = kind(small), torch.randn(2, 3, 20, 12)
    before = graph(images)
    copied = copy.deepcopy(graph)
    assert copied.captures == 0
    torch.testing.assert_close(copied(images), before)
    with torch.no_grad():
        for value in copied.model.parameters():
            value.mul_(0.5)
    assert not torch.allclose(copied(images), before)
    torch.testing.assert_close(graph(images), before)
    assert graph.captures == 1


def test_a_pickle_of_a_graph_is_captured_where_it_is_loaded(small):
    graph, images = Classify(small), torch.randn(2, 3, 20, 12)
    loaded = pickle.loads(pickle.dumps(graph))
    torch.testing.assert_close(loaded(images), graph(images))


def test_a_training_graph_is_not_copied(small):
    graph = Classify(small, GraphConfig())
    graph.add_optimizer(torch.optim.SGD(graph.model.parameters(), lr=0.1))
    with pytest.raises(ArtifactError, match="copy its modules and its optimizer"):
        copy.deepcopy(graph)
