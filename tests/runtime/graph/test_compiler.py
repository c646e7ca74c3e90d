"""Capturing and planning leave torch, Python and the user's modules as they were, in every thread."""

import contextlib
import gc
import random
import threading
import weakref
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

import headrace
from headrace import GraphConfig
from headrace.runtime import backends

BACKENDS = [
    name
    for name, item in backends.discover().items()
    if item.missing() is None and name != "inductor" and "cpu" in item.devices
]
SECOND = "openvino"  # starts from the same portable graph as ONNX Runtime, by the same way


def surroundings():
    """What belongs to the process or the thread and could be disturbed."""
    return {
        "torch's random numbers": torch.get_rng_state().tolist(),
        "Python's random numbers": random.getstate(),
        "NumPy's random numbers": np.random.get_state()[1].tolist(),
        "default dtype": torch.get_default_dtype(),
        "gradients": torch.is_grad_enabled(),
        "inference mode": torch.is_inference_mode_enabled(),
        "autocast": torch.is_autocast_enabled("cpu"),
        "threads": torch.get_num_threads(),
        "deterministic": torch.are_deterministic_algorithms_enabled(),
    }


def inside(module):
    """Everything that a module holds, by identity, and the versions of its tensors."""
    return [
        (
            name,
            item.training,
            {key: id(value) for key, value in vars(item).items() if key != "training"},
            {
                kind: {key: id(value) for key, value in vars(item)[kind].items()}
                for kind in ("_parameters", "_buffers", "_modules")
            },
            {key: [id(hook) for hook in value.values()] for key, value in vars(item).items() if key.endswith("hooks")},
            [(value._version, value.requires_grad, value.grad) for value in [*item.parameters(), *item.buffers()]],
        )
        for name, item in module.named_modules()
    ]


@contextlib.contextmanager
def default_dtype(dtype):
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


@contextlib.contextmanager
def two_threads():
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        yield
    finally:
        torch.set_num_threads(before)


@pytest.mark.parametrize(
    ("backend", "mode"),
    [
        *(pytest.param(name, torch.enable_grad, marks=pytest.mark.slow if name == SECOND else []) for name in BACKENDS),
        pytest.param("eager", torch.no_grad, marks=pytest.mark.slow),
        ("eager", torch.inference_mode),
    ],
)
def test_what_surrounds_a_capture_is_as_it_was(conv_net, backend, mode):
    seen = []
    conv_net.append = None  # an attribute of the user's own
    conv_net.train()
    conv_net.norm1.eval()
    conv_net.head.weight.requires_grad_(False)
    conv_net.head.register_forward_hook(lambda module, given, result: seen.append(1))
    conv_net.stem.register_forward_pre_hook(lambda module, given: (given[0] * 1.0,))
    conv_net.register_state_dict_pre_hook(lambda *_: None)
    images = torch.randn(3, 3, 12, 12)
    config = GraphConfig(backend=backend, buckets=(1, 2), threads=1)
    with default_dtype(torch.float64), two_threads(), mode():
        module, around = inside(conv_net), surroundings()
        graph = headrace.compile(conv_net, images, config=config)
        result = graph(images)
        assert surroundings() == around
        assert inside(conv_net) == module
    count = len(seen)
    graph(images)
    assert len(seen) == count  # replayed without the module
    with torch.no_grad():
        torch.testing.assert_close(result.clone(), conv_net.eval()(images), atol=1e-5, rtol=1e-5)


def test_random_numbers_of_the_user_go_on_as_without_the_graph(conv_net):
    def draws(between):
        torch.manual_seed(5)
        random.seed(5)
        np.random.seed(5)
        between()
        return torch.rand(3).tolist(), random.random(), np.random.rand()

    graph = headrace.compile(conv_net, config=GraphConfig(backend="eager", buckets=(1, 2)))
    images = torch.ones(2, 3, 10, 10)
    assert draws(lambda: graph(images)) == draws(lambda: None)


@pytest.mark.parametrize("backend", [pytest.param(name, marks=pytest.mark.slow if name == SECOND else []) for name in BACKENDS])
def test_an_autocast_around_the_call_changes_nothing(conv_net, backend):
    images = torch.randn(3, 3, 12, 12)
    with torch.no_grad():
        expected = conv_net(images)
    config = GraphConfig(backend=backend, buckets=(1, 2), threads=1)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        graph = headrace.compile(conv_net, images, config=config)
        result = graph(images)
        assert torch.is_autocast_enabled("cpu")
    for actual in (result, graph(images)):
        torch.testing.assert_close(actual, expected, atol=1e-5, rtol=1e-5)


def together(*functions):
    """Run them at once, each in a thread of its own; what went wrong in any is raised here."""
    with ThreadPoolExecutor(len(functions)) as pool:
        errors = [future.exception() for future in [pool.submit(function) for function in functions]]
    errors = [error for error in errors if error is not None]
    # A barrier that others broke off is not what went wrong.
    for error in sorted(errors, key=lambda error: isinstance(error, threading.BrokenBarrierError)):
        raise error


class Small(nn.Module):
    """What graphs in several threads need of a network."""

    def __init__(self):
        super().__init__()
        self.stem, self.norm, self.head = nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Linear(4, 5)

    def forward(self, images):
        return self.head(self.norm(self.stem(images)).mean((2, 3)))


@pytest.fixture
def small():
    torch.manual_seed(0)
    return Small().eval()


def test_many_threads_with_several_shapes_while_parameters_change_in_between(small):
    graph = headrace.compile(small, config=GraphConfig(backend="onnxruntime", buckets=(1, 4), threads=1))
    rounds, sizes = 2, (8, 10, 12)
    images = {(size, batch): torch.randn(batch, 3, size, size) for size in sizes for batch in (1, 3, 4, 6)}
    for turn in range(rounds):
        with torch.no_grad():
            small.head.bias.add_(turn)
            small.stem.weight = nn.Parameter(small.stem.weight.flip(0).clone())
            expected = {key: small(value) for key, value in images.items()}

        def work(size, expected=expected):
            for key in expected:
                if key[0] == size:
                    torch.testing.assert_close(graph(images[key]), expected[key], atol=1e-5, rtol=1e-5)

        together(*(lambda size=size: work(size) for size in 2 * sizes))
    assert graph.captures == rounds * len(sizes)
    assert sum("model.stem.weight was replaced" in item.reason for item in graph.recompiles) == (rounds - 1) * len(sizes)


def test_threads_that_drop_each_others_captures_still_get_their_own_answers(small):
    graph = headrace.compile(small, config=GraphConfig(backend="eager", buckets=(1,), threads=1, max_captures=1))
    images = {(size, batch): torch.randn(batch, 3, size, size) for size in (7, 9, 11) for batch in (1, 2, 3)}
    with torch.no_grad():
        expected = {key: small(value) for key, value in images.items()}

    def work(size):
        for key, value in images.items():
            if key[0] == size:
                torch.testing.assert_close(graph(value), expected[key], atol=1e-5, rtol=1e-5)
                assert repr(graph)

    together(*(lambda size=size: work(size) for size in (7, 9, 11)))
    assert 3 <= graph.captures <= 9
    assert len(graph._kept) == 1


def test_a_graph_answers_while_another_captures(small):
    eager = GraphConfig(backend="eager", buckets=(1, 4), threads=1)
    ready = headrace.compile(small, torch.randn(4, 3, 8, 8), config=eager)
    images = torch.randn(3, 3, 8, 8)
    expected, captured, answers = ready(images), threading.Event(), []

    def capture():
        try:
            for size in (9, 10, 11):
                headrace.compile(small, torch.randn(1, 3, size, size), config=eager)
        finally:
            captured.set()

    def answer():
        while not captured.is_set():
            answers.append(ready(images))

    together(capture, answer)
    assert len(answers) > 1
    for item in answers:
        torch.testing.assert_close(item, expected, atol=1e-5, rtol=1e-5)


def test_graphs_that_share_a_module_captured_at_once_leave_it_in_its_mode(small):
    small.train()
    before = {name: value.clone() for name, value in small.state_dict().items()}
    graphs = [headrace.compile(small, config=GraphConfig(backend="eager", buckets=(1,), threads=1)) for _ in range(4)]
    images, results = torch.randn(3, 3, 10, 10), {}
    together(*(lambda item=item: results.update({item: item(images)}) for item in graphs))
    assert all(item.training for item in small.modules())
    assert all(torch.equal(value, before[name]) for name, value in small.state_dict().items())
    with torch.no_grad():
        expected = small.eval()(images)
    for item in graphs:
        torch.testing.assert_close(results[item], expected, atol=1e-5, rtol=1e-5)


def test_a_graph_that_nobody_needs_is_freed_at_once(small):
    graph = headrace.compile(small, config=GraphConfig(backend="eager", buckets=(1,), threads=1)).debug(0)
    graph(torch.randn(2, 3, 8, 8))
    known, folder = weakref.ref(graph), graph._latest.folder.path
    gc.collect()
    gc.disable()
    try:
        del graph
        assert known() is None
        assert not Path(folder).exists()
    finally:
        gc.enable()
