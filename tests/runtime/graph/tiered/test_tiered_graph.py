"""The module answers until a graph pays; a packaged model comes first; nothing that is slower is used."""

import copy
import logging
import pickle
import shutil
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from torch import nn

import headrace
from headrace import GraphConfig
from headrace.errors import CaptureError, InputError
from headrace.runtime.graph import compiler
from headrace.runtime.graph.graph import ModuleGraph
from headrace.runtime.graph.loaded import LoadedGraph
from headrace.runtime.graph.tiered import tiered_graph
from headrace.runtime.graph.tiered.tiered_graph import TieredGraph

CONFIG = GraphConfig(backend="onnxruntime", buckets=(1, 4), threads=1, max_tuning_seconds=1)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Dropout(0.5))
        self.head = nn.Linear(8, 5)

    def forward(self, x):
        return self.head(self.body(x).mean((2, 3)))


def wanted(model, images):
    with torch.no_grad():
        return Net.forward(model, images)


def new_model():
    torch.manual_seed(1)
    return Net().eval()


@pytest.fixture
def model():
    return new_model()


def packaged(folder):
    headrace.compile(new_model(), torch.randn(2, 3, 9, 9), config=CONFIG).save(folder / "net")
    return folder


@pytest.fixture
def package(once, tmp_path, monkeypatch):
    """Of a model like `model`, packaged once; each test has a copy."""
    shutil.copytree(once("tiered-net", packaged), tmp_path / "models")
    monkeypatch.setenv("HEADRACE_MODELS", str(tmp_path / "models"))
    return tmp_path / "models" / "net"


@pytest.fixture
def soon(monkeypatch):
    """A package is looked for after the first call."""
    monkeypatch.setattr(tiered_graph, "_OPENING", 1e-9)


def rows_of_the_module(graph):
    """How many rows each call of the module by the graph has, as a list that grows."""
    rows, run = [], graph._call_eagerly

    def counted(*inputs):
        rows.append(len(inputs[0]))
        return run(*inputs)

    graph._call_eagerly = counted
    return rows


def test_few_calls_are_the_modules_own(model, package):
    graph = headrace.compile(model)
    assert isinstance(graph, TieredGraph)
    rows = rows_of_the_module(graph)
    images = torch.randn(3, 3, 9, 9)
    for _ in range(3):
        outputs = graph(images)
        assert torch.equal(outputs, wanted(model, images))
        assert not outputs.requires_grad
    assert graph.captures == 0
    assert graph.packaged is None
    assert rows == [3, 3, 3]


def test_more_calls_are_the_packages(model, package, soon):
    graph = headrace.compile(model)
    for rows in (3, 3, 1, 17, 4):
        images = torch.randn(rows, 3, 9, 9)
        torch.testing.assert_close(graph(images), wanted(model, images), rtol=1e-4, atol=1e-5)
    assert graph.packaged is not None
    assert graph.captures == 0
    assert str(package) in repr(graph)


def test_other_weights_are_the_modules_again(model, package, soon):
    graph = headrace.compile(model)
    images = torch.randn(2, 3, 9, 9)
    for _ in range(2):
        graph(images)
    assert graph.packaged is not None
    with torch.no_grad():
        model.head.bias += 1
    for _ in range(3):
        torch.testing.assert_close(graph(images), wanted(model, images), rtol=1e-4, atol=1e-5)
    assert graph.packaged is None


def test_inputs_that_the_package_does_not_take_are_the_modules(model, package, soon):
    graph = headrace.compile(model)
    for side in (9, 9, 12):
        images = torch.randn(2, 3, side, side)
        torch.testing.assert_close(graph(images), wanted(model, images), rtol=1e-4, atol=1e-5)
    assert graph.packaged is not None


def test_the_same_program_is_run_on_nothing_but_the_scripts_own_batch(model, package, soon):
    graph = headrace.compile(model)
    rows, images = rows_of_the_module(graph), torch.randn(3, 3, 9, 9)
    for _ in range(3):
        torch.testing.assert_close(graph(images), wanted(model, images), rtol=1e-4, atol=1e-5)
    assert graph.packaged is not None
    assert set(rows) == {3}


class Written(Net):
    """What Net computes, written in another way."""

    def forward(self, x):
        return self.head(self.body(x).mean(3).mean(2))


def test_another_program_is_looked_into_once_its_calls_took_ten_times_what_that_takes(model, package, soon):
    other = Written().eval()
    other.load_state_dict(model.state_dict())
    graph, images = headrace.compile(other), torch.randn(3, 3, 9, 9)
    rows = rows_of_the_module(graph)
    for _ in range(20):
        graph(images)
    assert graph.packaged is None
    assert rows == [3] * 20, "a short script does not pay for what would be shown"
    for _ in range(10 * 2 * tiered_graph.RARE_ROWS // 3):
        torch.testing.assert_close(graph(images), wanted(model, images), rtol=1e-4, atol=1e-5)
    assert graph.packaged is not None
    assert tiered_graph.RARE_ROWS in rows


class Bright(Net):
    """Another program with the same weights, for images that are brighter than those of the first batches."""

    def forward(self, x):
        return super().forward(x) + (x.amax((1, 2, 3)) > 9)[:, None].float()


def test_a_program_that_differs_later_is_noticed_when_the_module_answers_as_well(model, package, soon, caplog, monkeypatch):
    monkeypatch.setattr(tiered_graph, "RARE_ROWS", 0)  # it is looked into soon
    other = Bright().eval()
    other.load_state_dict(model.state_dict())
    graph, images = headrace.compile(other), torch.randn(2, 3, 9, 9)
    for _ in range(8):
        graph(images)
    assert graph.packaged is not None
    graph._accounts[next(iter(graph._accounts))].eager = 0.0  # what a comparison costs is not the point here
    with caplog.at_level(logging.WARNING):
        for _ in range(32):
            answer = graph(10 + images)
    assert "is used no more: output 0 differs by" in caplog.text
    assert graph.packaged is None
    torch.testing.assert_close(answer, wanted(model, 10 + images) + 1, rtol=1e-4, atol=1e-5)


class Clock:
    """Time that passes where it is told to, of which this process gets a share."""

    def __init__(self, monkeypatch, share=1.0):
        self.now, self.calls = 0.0, []
        monkeypatch.setattr(tiered_graph.time, "perf_counter", lambda: self.now)
        monkeypatch.setattr(tiered_graph.time, "thread_time", lambda: self.now * share)

    def taking(self, seconds, run, name):
        def timed(*inputs):
            self.now += seconds
            self.calls.append(name)
            return run(*inputs)

        return timed


@pytest.mark.parametrize(("share", "calls"), [(1.0, 5), (0.1, 50)])
def test_a_capture_takes_longer_where_calls_do(model, monkeypatch, share, calls):
    """As beside other programs, or in a container with a tenth of a core."""
    clock = Clock(monkeypatch, share)
    graph = TieredGraph(model, patience=0.5)
    graph._call_eagerly = clock.taking(1.0, graph._call_eagerly, "module")
    asked = []
    monkeypatch.setattr(TieredGraph, "_capture", lambda *_: asked.append(len(clock.calls)))
    for _ in range(60):
        graph(torch.randn(2, 3, 9, 9))
    assert asked[0] == calls


@pytest.mark.parametrize(("seconds", "last"), [(5.0, "module"), (0.9, "package"), (0.1, "package")])
def test_what_is_slower_than_the_module_is_not_used(model, package, monkeypatch, seconds, last):
    clock = Clock(monkeypatch)
    graph = headrace.compile(model)
    graph._call_eagerly = clock.taking(1.0, graph._call_eagerly, "module")
    found = tiered_graph.find_packaged

    def slow(*given):
        loaded = found(*given)
        monkeypatch.setattr(LoadedGraph, "__call__", clock.taking(seconds, LoadedGraph.__call__, "package"))
        return loaded

    monkeypatch.setattr(tiered_graph, "find_packaged", slow)
    images = torch.randn(2, 3, 9, 9)
    for _ in range(12):
        torch.testing.assert_close(graph(images), wanted(model, images), rtol=1e-4, atol=1e-5)
    assert clock.calls.count("package") >= 3
    assert clock.calls[-1] == last
    assert clock.calls[-6:].count(last) >= 5  # one of them may be a comparison


def test_patience_0_opens_or_captures_at_the_first_call(model, package, monkeypatch):
    monkeypatch.setenv("HEADRACE_PATIENCE", "0")
    images = torch.randn(2, 3, 9, 9)
    graph = headrace.compile(model)
    graph(images)
    assert graph.packaged is not None
    with torch.no_grad():
        model.head.bias += 1
    other = TieredGraph(model)
    torch.testing.assert_close(other(images), wanted(model, images), rtol=1e-4, atol=1e-5)
    assert (other.packaged, other.captures) == (None, 1)


def test_patience_runs_out(model):
    graph = TieredGraph(model, patience=1e-9)
    images = torch.randn(2, 3, 9, 9)
    graph(images)
    assert graph.captures == 0, "one call must show what the module takes"
    torch.testing.assert_close(graph(images), wanted(model, images), rtol=1e-4, atol=1e-5)
    assert graph.captures == 1
    with pytest.raises(ValueError, match="patience"):
        TieredGraph(model, patience=-1.0)


def test_the_module_is_in_evaluation_mode_for_the_call_alone(model):
    model.train()
    model.body[1].eval()
    graph = headrace.compile(model)
    images = torch.randn(2, 3, 9, 9)
    before = model.body[1].running_mean.clone()
    assert torch.equal(graph(images), graph(images)), "no dropout"
    assert torch.equal(before, model.body[1].running_mean)
    assert model.training
    assert model.body[3].training
    assert not model.body[1].training


def test_an_autocast_around_the_call_is_the_callers_while_the_module_answers(model, package, soon):
    graph = headrace.compile(model)
    images = torch.randn(2, 3, 9, 9)
    with torch.autocast("cpu", torch.bfloat16):
        assert graph(images).dtype == torch.bfloat16
    graph(images)
    assert graph.packaged is not None, "which is compared in fp32"


def test_what_cannot_be_captured_stays_eager_and_says_so_once(caplog):
    class Branching(Net):
        def forward(self, x):
            return super().forward(x) if float(x.sum()) > 0 else -super().forward(x)

    model = Branching().eval()
    graph = TieredGraph(model, patience=1e-9)
    with caplog.at_level(logging.WARNING):
        for sign in (1, -1, 1, -1):
            images = torch.rand(2, 3, 9, 9) * sign
            with torch.no_grad():
                assert torch.equal(graph(images), model(images))
    assert len([record for record in caplog.records if "stays eager" in record.message]) == 1
    assert "eager" in repr(graph)
    with pytest.raises(CaptureError):
        TieredGraph(model, patience=0)(images)


@pytest.mark.parametrize("patience", [0.0, 1e-9])
def test_a_module_that_changes_its_input_answers_itself(patience, caplog):
    """The script may read it afterwards, and the module before the graph did change it."""

    class Scaling(Net):
        def forward(self, x):
            x.sub_(0.5).mul_(2)
            return super().forward(x)

    model = Scaling().eval()
    graph = TieredGraph(model, patience=patience)
    for _ in range(3):
        ours, theirs = (torch.full((2, 3, 9, 9), 0.75) for _ in range(2))
        with torch.no_grad():
            assert torch.equal(graph(ours), model(theirs))
        assert torch.equal(ours, theirs)
        assert ours[0, 0, 0, 0] == 0.5
    assert graph.captures == (patience == 0.0)  # where no call of the module was there to show it
    assert caplog.text.count("computes in place of its input") == 1


def test_compiling_ahead_is_a_graph_at_once(model):
    graph = headrace.compile(model).compile(torch.randn(2, 3, 9, 9))
    assert graph.captures == 1
    assert graph.plan.choices
    rows = rows_of_the_module(graph)
    graph(torch.randn(2, 3, 9, 9))
    assert rows == []


def test_copies_and_pickles_of_what_holds_it_have_their_own(model, package, soon):
    class Holder:
        def __init__(self):
            self.model = model
            self.graph = headrace.compile(model)

    holder = Holder()
    images = torch.randn(2, 3, 9, 9)
    for _ in range(2):
        holder.graph(images)
    copied = copy.deepcopy(holder)
    assert copied.graph.model is copied.model is not model
    assert copied.graph.packaged is None
    with torch.no_grad():
        copied.model.head.bias += 1
    torch.testing.assert_close(copied.graph(images), holder.graph(images) + 1, rtol=1e-4, atol=1e-5)
    again = pickle.loads(pickle.dumps(holder.graph))
    assert torch.equal(again(images), wanted(model, images))


def test_a_module_without_tensors_gets_them_at_its_first_call():
    lazy = nn.Sequential(nn.Flatten(), nn.LazyLinear(3)).eval()
    graph = headrace.compile(lazy)
    images = torch.randn(2, 3, 4, 4)
    for _ in range(3):
        assert torch.equal(graph(images), lazy(images))


def test_a_submodule_or_tensor_that_is_replaced_is_noticed(model, package, soon):
    graph = headrace.compile(model)
    images = torch.randn(2, 3, 9, 9)
    for _ in range(2):
        graph(images)
    assert graph.packaged is not None
    model.body[0] = nn.Conv2d(3, 8, 3)
    assert torch.equal(graph(images), wanted(model, images))
    assert graph.packaged is None


def test_a_configuration_asks_for_a_graph(model):
    assert type(headrace.compile(model, config=CONFIG)) is ModuleGraph


def test_what_is_no_batch_is_refused_at_the_first_call(model):
    with pytest.raises(InputError, match="no rows"):
        headrace.compile(model)(torch.randn(0, 3, 9, 9))


def test_threads_get_their_own_answers(model, package, soon):
    graph = headrace.compile(model)
    failures = []

    def call(seed):
        for turn in range(8):
            images = torch.randn(1 + (seed + turn) % 4, 3, 9, 9, generator=torch.Generator().manual_seed(100 * seed + turn))
            if not torch.allclose(graph(images), wanted(model, images), rtol=1e-4, atol=1e-5):
                failures.append((seed, turn))

    threads = [threading.Thread(target=call, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
    assert graph.packaged is not None


class Meeting(nn.Module):
    """Whose call lasts until another thread is in it, too."""

    def __init__(self):
        super().__init__()
        self.head = nn.Linear(3, 2)
        self.others = threading.Barrier(2)
        self.modes = set()

    def forward(self, x):
        self.modes.add(self.training)
        self.others.wait(timeout=60)
        return self.head(x)


@pytest.mark.parametrize("observed", [False, True])
def test_threads_call_the_module_side_by_side(observed):
    model = Meeting().eval()
    if observed:
        model.head.register_forward_hook(lambda *_: None)
    graph = headrace.compile(model)
    with ThreadPoolExecutor(2) as pool:
        rows = [torch.randn(4, 3) for _ in range(8)]
        answers = list(pool.map(graph, rows))
    for row, answer in zip(rows, answers, strict=True):
        torch.testing.assert_close(answer, model.head(row))


def test_the_time_of_calls_side_by_side_is_shared_among_them():
    graph = headrace.compile(Meeting().eval())
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(graph, [torch.randn(4, 3)] * 2))
    (account,) = graph._accounts.values()
    assert account.rows == 8
    assert account.timed == [2, 0]
    assert graph._side_by_side == 0


def test_a_module_in_training_mode_is_called_by_one_thread_after_the_other(model):
    model.train()
    graph = headrace.compile(model)
    images = torch.randn(2, 3, 9, 9)
    with ThreadPoolExecutor(4) as pool:
        answers = list(pool.map(graph, [images] * 32))
    assert model.training
    assert model.body[3].training
    expected = wanted(model.eval(), images)  # the dropout drew in none of them
    for answer in answers:
        torch.testing.assert_close(answer, expected)


@pytest.mark.parametrize("by", ["a package", "a graph"])
def test_while_a_hook_of_the_script_looks_on_the_module_answers(model, request, soon, by):
    if by == "a package":
        request.getfixturevalue("package")
    graph = headrace.compile(model)
    images = torch.randn(2, 3, 9, 9)
    if by == "a graph":
        graph.compile(images)
    for _ in range(3):
        graph(images)
    assert (graph.packaged is not None, graph.captures) == ((True, 0) if by == "a package" else (False, 1))
    seen, rows = [], rows_of_the_module(graph)
    handle = model.body[0].register_forward_hook(lambda layer, inputs, output: seen.append(output))
    for _ in range(2):
        assert torch.equal(graph(images), wanted(model, images))
    assert len(seen) == 4  # two by `wanted`
    assert rows == [2, 2]
    handle.remove()
    rows.clear()
    graph(images)
    assert len(seen) == 4
    assert rows in ([], [2])  # a package is compared now and then
    assert graph.captures == (by == "a graph")


def test_hooks_of_another_model_keep_no_graph_from_answering(model):
    graph = headrace.compile(model)
    images = torch.randn(2, 3, 9, 9)
    graph.compile(images)
    rows = rows_of_the_module(graph)
    other = nn.Linear(2, 2)
    other.register_forward_hook(lambda layer, inputs, output: None)
    torch.testing.assert_close(graph(images), wanted(model, images), rtol=1e-4, atol=1e-5)
    assert rows == []


def test_a_script_that_prints_what_is_logged_prints_nothing_of_ours(caplog, monkeypatch):
    """As scripts made of a template do: its root logger writes to the standard output, so what is told there is compared."""
    monkeypatch.setattr(compiler, "_MOST_SECONDS", 0.001)  # so short that something is left out, and told
    graph = TieredGraph(nn.Sequential(nn.Conv2d(3, 4, 3), nn.AdaptiveAvgPool2d(1), nn.Flatten()).eval(), patience=0)
    with caplog.at_level(logging.INFO):
        graph(torch.rand(2, 3, 8, 8))
    assert graph.captures == 1
    assert [record.getMessage() for record in caplog.records if record.levelno >= logging.INFO] == []


SCRIPTED = {
    "traced": lambda net: torch.jit.trace(net, torch.randn(2, 3, 9, 9)),
    "scripted": torch.jit.script,
    "frozen": lambda net: torch.jit.freeze(torch.jit.script(net)),  # has no training mode
}


@pytest.mark.parametrize("make", SCRIPTED.values(), ids=SCRIPTED)
@pytest.mark.parametrize("patience", ["0", "0.0001", "10"])
@pytest.mark.parametrize("step", [headrace.compile, headrace.evaluation_step])
def test_torchscript_is_a_graph_already_and_answers_itself(monkeypatch, make, patience, step):
    monkeypatch.setenv("HEADRACE_PATIENCE", patience)
    model = make(new_model())
    graph = step(model)
    for rows in (4, 4, 1, 3) * 5:
        images = torch.randn(rows, 3, 9, 9)
        with torch.no_grad():
            assert torch.equal(graph(images), model(images))
    assert ("is compiled TorchScript" in repr(graph)) or patience != "0"


def test_torchscript_in_training_mode_is_evaluated_and_stays_in_it():
    model = new_model()
    scripted = torch.jit.script(copy.deepcopy(model).train())
    images = torch.randn(4, 3, 9, 9)
    torch.testing.assert_close(headrace.compile(scripted)(images), wanted(model, images))
    assert scripted.training


def test_what_is_in_torchscript_is_not_told_of_again(monkeypatch):
    monkeypatch.setenv("HEADRACE_PATIENCE", "0")
    with pytest.raises(CaptureError) as told:
        headrace.compile(nn.Sequential(torch.jit.script(new_model())))(torch.randn(2, 3, 9, 9))
    assert str(told.value).count("PG108") == 1


@pytest.mark.parametrize("make", [SCRIPTED["traced"], SCRIPTED["scripted"]], ids=["traced", "scripted"])
def test_torchscript_with_the_weights_of_a_package_is_answered_by_it(package, monkeypatch, make):
    monkeypatch.setenv("HEADRACE_PATIENCE", "0")
    model = make(new_model())
    graph = headrace.compile(model)
    images = torch.randn(4, 3, 9, 9)
    with torch.no_grad():
        torch.testing.assert_close(graph(images), model(images), atol=1e-4, rtol=1e-4)
    assert "packaged with the same weights" in repr(graph)
