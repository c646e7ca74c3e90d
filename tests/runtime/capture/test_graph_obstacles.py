"""Modules that cannot become a graph: each says so on the lines that bear its code in a comment, and on no other."""

import dataclasses
import inspect
import re
import sys
from concurrent.futures import ThreadPoolExecutor
from random import random, seed

import numpy as np
import pytest
import torch
from torch import nn

from headrace.errors import CaptureError
from headrace.runtime.capture.capture import capture

CODE = re.compile(r"# (PG1\d\d)")


def marked(module):
    """Code and line of each comment that names a code in the module's class."""
    lines, start = inspect.getsourcelines(type(module))
    return {(code, start + index) for index, line in enumerate(lines) for code in CODE.findall(line)}


def refused(module, inputs):
    with pytest.raises(CaptureError) as caught:
        capture(module, inputs)
    return caught.value.obstacles


class Branches(nn.Module):
    def forward(self, x):
        if x.sum() > 0:  # PG120
            x = x * 2
        for _ in range(int(x.abs().max()) + 1):  # PG120
            x = x + 1
        while (x > 10).any():  # PG120
            x = x / 2
        flag = bool((x > 0).all())  # PG120
        return x if flag else -x


class Values(nn.Module):
    def forward(self, x):
        classes = x.argmax(1).tolist()  # PG120
        return x * classes[0] + x.mean().item()  # PG120


class Multiplied(nn.Module):
    def forward(self, x):
        return x * x.abs().max().item()  # PG120


class Formatted(nn.Module):
    def forward(self, x):
        self.note = f"{x.mean().item():.3f}"  # PG120
        return x * 2


class Buffer(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("flag", torch.tensor(True))

    def forward(self, x):
        return x * 2 if self.flag else x  # PG120


class Hooked(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4, 4)
        self.means = []
        self.linear.register_forward_hook(lambda module, inputs, output: self.means.append(float(output.mean())))  # PG120

    def forward(self, x):
        return self.linear(x)


class Caught(nn.Module):
    def forward(self, x):
        try:
            if x.sum() > -1e9:  # PG120
                return x * 2
        except Exception:  # noqa: BLE001
            return x
        return x


class Numpy(nn.Module):
    def forward(self, x):
        if x.sum() > 0:  # PG120
            x = x * 2
        y = torch.from_numpy(np.tanh(x.detach().numpy()))  # PG122
        if y.sum() > 0:  # PG120
            y = y * 2
        return y + torch.as_tensor(np.asarray(x) * 2)  # PG122


class Batches(nn.Module):
    def forward(self, x):
        groups = int(x.shape[0] / 1)  # PG121
        x = x.view(groups, -1)
        rows = len(x)  # PG121
        x = x.reshape(rows, -1)
        if x.shape[0] == 2:  # PG121
            x = x + 1
        return torch.stack([row * 2 for row in x])  # PG121


class Two(nn.Module):
    def forward(self, x):
        return x.view(2, -1)  # PG121


class Three(nn.Module):
    def forward(self, x):
        return x + torch.zeros(3, 4)  # PG121


class Exactly(nn.Module):
    def forward(self, x):
        assert x.shape[0] == 3, "needs 3"  # PG121
        return x * 2


class Even(nn.Module):
    def forward(self, x):
        assert x.shape[1] == 4
        assert x.shape[0] % 2 == 0  # PG121
        return x * 2


class Zipped(nn.Module):
    def forward(self, x):
        return torch.stack([a + b for a, b in zip(x, x, strict=True)])  # PG121


class Remembered(nn.Module):
    def __init__(self):
        super().__init__()
        self.cache = {}

    def forward(self, x):
        key = x.shape[0]
        if key not in self.cache:  # PG121
            self.cache[key] = torch.arange(key).float()
        return x + self.cache[key][:, None]


class Mixed(nn.Module):
    def forward(self, x):
        if x.sum() > 0:  # PG120
            x = x * 2
        x = x.view(2, -1)  # PG121
        return torch.from_numpy(x.numpy())  # PG122


class Counts(nn.Module):
    def __init__(self):
        super().__init__()
        self.calls = 0

    def forward(self, x):  # PG109
        self.calls += 1
        return x * self.calls


class Dice(nn.Module):
    def forward(self, x):  # PG109
        return x * random()


class Coin(nn.Module):
    def forward(self, x):  # PG109
        return x * 2 if random() < 0.5 else x


class Noise(nn.Module):
    def forward(self, x):
        return x * torch.rand(1)  # PG109


class FreshLayer(nn.Module):
    def forward(self, x):
        return nn.Linear(4, 4)(x)  # PG109


class WritesAttribute(nn.Module):
    def __init__(self):
        super().__init__()
        self.steps = torch.zeros(())

    def forward(self, x):
        self.steps += 1  # PG106
        return x + self.steps


class WritesPart(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("seen", torch.zeros(4))

    def forward(self, x):
        self.seen[0] += 1  # PG106
        return x * 2


class WritesParameter(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, x):
        with torch.no_grad():
            self.linear.weight.clamp_(-0.1, 0.1)  # PG106
        return self.linear(x)


class WritesData(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, x):  # PG106
        self.linear.weight.data.clamp_(-0.1, 0.1)
        return self.linear(x)


class BuiltLate(nn.Module):
    def __init__(self):
        super().__init__()
        self.head = None

    def forward(self, x):  # PG100
        if self.head is None:
            self.head = nn.Linear(4, 5)
        return self.head(x)


class Exits(nn.Module):
    def forward(self, x):
        sys.exit(3)  # PG100


class Keyword(nn.Module):
    def forward(self, *, x):  # PG100
        return x


class Elsewhere(nn.Module):
    def forward(self, x):
        return x + torch.zeros(4, device="meta")  # PG100


class TextBeside(nn.Module):
    def forward(self, x):  # PG103
        return {"logits": x, "name": "cat"}


class ArrayBeside(nn.Module):
    def forward(self, x):  # PG103
        return x, np.zeros(3)


class BatchBeside(nn.Module):
    def forward(self, x):  # PG103
        return x, x.shape[0]


class Nothing(nn.Module):
    def forward(self, x):  # PG103
        return None


class Generated(nn.Module):
    def forward(self, x):  # PG103
        return (x * scale for scale in range(3))


class Array(nn.Module):
    def forward(self, x):  # PG103
        return (x * 2).numpy()  # PG122


@dataclasses.dataclass(frozen=True)
class Noted:
    logits: torch.Tensor
    note: str = ""


class DataclassWithText(nn.Module):
    def forward(self, x):  # PG103
        return Noted(x * 2)


class Complex(nn.Module):
    def forward(self, x):  # PG104
        return torch.fft.rfft(x, dim=1)


class Reduced(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, x):  # PG104
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return self.linear(x)


class Found(nn.Module):
    def forward(self, x):
        return torch.unique(x.argmax(1))  # PG105


MODULES = [kind for kind in list(vars().values()) if isinstance(kind, type) and issubclass(kind, nn.Module)]


@pytest.mark.parametrize("kind", MODULES, ids=lambda kind: kind.__name__)
def test_every_obstacle_is_named_at_its_line_and_nothing_else(kind):
    torch.manual_seed(0)
    seed(0)
    module, rows = kind(), torch.randn(3, 4)
    if kind is Found:
        rows = torch.eye(4)  # as many different classes as rows, so that the output looks like a batch
    found = refused(module, rows)
    assert {(item.code, item.line) for item in found} == marked(module)
    for item in found:
        assert item.path == __file__
        assert re.search(r"[;:(]", item.message), "what is wrong, and what to do about it"


def test_what_other_threads_compute_is_refused():
    class Threads(nn.Module):
        def forward(self, x):
            with ThreadPoolExecutor(2) as pool:
                one, other = pool.map(lambda value: value * 2, [x, x + 1])
            return one + other

    (found,) = refused(Threads(), torch.randn(3, 4))  # which of the two depends on how the threads are scheduled
    assert found.code in ("PG120", "PG122")
    assert found.path == __file__


def test_the_message_lists_all_in_the_order_of_their_lines():
    with pytest.raises(CaptureError) as caught:
        capture(Mixed(), torch.randn(2, 4))
    summary, *lines = str(caught.value).splitlines()
    assert summary == "Mixed cannot become one graph"
    assert [CODE.search(f"# {line.split(': ')[1]}")[1] for line in lines] == ["PG120", "PG121", "PG122"]


def quantized():
    return torch.ao.quantization.quantize_dynamic(nn.Sequential(nn.Linear(4, 4)), {nn.Linear}, dtype=torch.qint8)


def with_weight(weight):
    module = nn.Module()
    module.register_buffer("weight", weight)
    return module


def made_in_inference_mode():
    with torch.inference_mode():
        return nn.Linear(4, 4)


@pytest.mark.filterwarnings("ignore:.*(quantization|sparse|Sparse)")
@pytest.mark.parametrize(
    ("make", "code", "text"),
    [
        (quantized, "PG112", "0 is quantized already; give the float model"),
        (lambda: with_weight(torch.eye(4).to_sparse()), "PG112", "weight is sparse_coo; store it dense"),
        (lambda: with_weight(torch.eye(4).to_sparse_csr()), "PG112", "weight is sparse_csr; store it dense"),
        (lambda: with_weight(torch.quantize_per_tensor(torch.eye(4), 0.1, 0, torch.quint8)), "PG112", "weight is quantized"),
        (made_in_inference_mode, "PG112", "weight was made in inference mode"),
        (lambda: torch.jit.trace(nn.Linear(4, 4), torch.randn(2, 4)), "PG108", "the module is compiled TorchScript"),
        (lambda: nn.Linear(4, 4).half(), "PG100", "fails on inputs of float32 [2, 4], so mend that first: RuntimeError"),
        (lambda: lambda x: x, "PG100", "a function is no nn.Module; wrap it in one"),
        (lambda: None, "PG100", "a NoneType is no nn.Module"),
    ],
)
def test_what_a_module_is_made_of(make, code, text):
    found = refused(make(), torch.randn(2, 4))
    assert code in {item.code for item in found}
    assert any(text in item.message for item in found), found


def test_statistics_must_be_finite_and_masks_need_not():
    class Masked(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("mask", torch.full((5, 5), float("-inf")).triu(1))

        def forward(self, x):
            return ((x @ x.transpose(1, 2)) + self.mask).softmax(-1).sum(1)

    rows = torch.randn(3, 5, 4)
    torch.testing.assert_close(capture(Masked(), rows).program.module()(rows)[0], Masked()(rows))
    norm = nn.BatchNorm1d(4)
    norm.running_var[1] = float("inf")
    assert {item.code for item in refused(norm, torch.randn(2, 4))} == {"PG110"}


@pytest.mark.parametrize(
    ("inputs", "code", "text"),
    [
        ({"image": torch.zeros(2, 4)}, "PG101", "the inputs are a dict; pass its tensors in the order"),
        (3, "PG101", "the inputs are a int"),
        ([[torch.zeros(2, 4)]], "PG101", "input 0 is a list"),
        (np.zeros((2, 4)), "PG101", "the inputs are a ndarray"),
        (torch.eye(4).to_sparse(), "PG101", "input 0 is a sparse_coo tensor; make it dense"),
        (torch.nested.nested_tensor([torch.zeros(2), torch.zeros(3)]), "PG101", "input 0 is a nested tensor"),
        ((torch.zeros(2, 4), torch.zeros(2, 4, device="meta")), "PG102", "input 1 is on meta, input 0 on cpu"),
    ],
)
@pytest.mark.filterwarnings("ignore:.*nested tensors")
def test_inputs_that_no_graph_takes(inputs, code, text):
    (found,) = refused(nn.Identity(), inputs)
    assert found.code == code
    assert text in found.message


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_a_module_that_insists_on_a_gpu_is_told_what_to_write():
    class Padded(nn.Module):
        def forward(self, x):
            return x + torch.zeros(4).cuda()

    (found,) = refused(Padded(), torch.randn(2, 4))
    assert (found.code, found.message.endswith("write .to(x.device), of the module's input x, in place of .cuda()")) == (
        "PG100",
        True,
    ), found
