"""Faults in what a backend computes: the autotuner is given a backend that is wrong, and must not choose it."""

from __future__ import annotations

import copy
import functools
import tempfile
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from headrace import GraphConfig
from headrace.errors import BackendError, ParityError
from headrace.runtime import backends
from headrace.runtime.backends import Backend
from headrace.runtime.base.session import Session, Target
from headrace.runtime.capture.capture import capture
from headrace.runtime.tuning.judging_data import JudgingData
from headrace.runtime.tuning.reference import Reference
from headrace.runtime.tuning.source import CapturedSource
from headrace.runtime.tuning.tune import tune
from headrace.specs import BF16, FP32

from .faults import Fault

Rows = list[np.ndarray]
Run = Callable[[Sequence[np.ndarray]], Rows]
BUCKETS = (1, 4, 32)
CLASSES = 10
# The same network, taken for one that gives several labels, or embeddings.
LABELS, EMBEDDINGS = "logits=multi-label:0.2", "logits=raw,features=embedding"
# What a gate says, and what it is called in the table.
_GATES = (
    ("depends on the rows beside it", "rows of other magnitude, and of NaN, beside each other"),
    ("called again after other rows", "the same rows again, from another thread"),
    ("was overwritten by later calls", "the first answer, looked at again"),
    ("memory grew by", "memory over the measured calls"),
    ("inputs that are rare", "rare inputs: black, saturated, of one color, stark, faint"),
    ("times as large", "scale of the scores"),
    ("rows in another order", "rows in another order, full and ragged"),
    ("top-1 agrees", "top-1 agreement on images"),
    ("labels above their thresholds", "labels that hold on images"),
    ("its cosine with the model", "cosine with the model's embedding"),
    ("values are off by", "error of the scores on images"),
    ("of the five best", "top-5 agreement on images"),
    ("NaN or infinite", "not finite where the model is"),
    ("root mean square", "error of another output"),
    ("outputs are [", "names, shapes and types"),
    ("differs by", "parity with eager"),
    ("agrees in", "parity with eager"),
)


class Net(nn.Module):
    """Convolutions, batch norms, pools, an embedding and scores: a small network in which each fault has its place."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.norm = nn.Conv2d(3, 12, 3, padding=1, bias=False), nn.BatchNorm2d(12)
        self.second, self.norm2 = nn.Conv2d(12, 12, 3, padding=1, groups=2), nn.BatchNorm2d(12)
        self.relu, self.pool, self.drop = nn.ReLU(), nn.AvgPool2d(2, stride=2, padding=1), nn.Dropout(0.2)
        self.head = nn.Linear(12, CLASSES)

    def forward(self, images: torch.Tensor) -> dict[str, torch.Tensor]:
        x = self.pool(self.relu(self.norm(self.first(images))))
        x = self.relu(self.norm2(self.second(x))) + x
        features = self.drop(x.mean((2, 3)))
        return {"logits": self.head(features), "features": features}


def pictures(count: int = 96, seed: int = 5) -> tuple[np.ndarray, np.ndarray]:
    """Colored waves under noise, float32 [count, 3, 16, 16], whose directions and lengths are their classes [count]."""
    random = np.random.default_rng(seed)
    classes = np.arange(count) % CLASSES
    y, x = np.mgrid[0:16, 0:16]
    along = np.stack([np.cos(classes * np.pi / CLASSES), np.sin(classes * np.pi / CLASSES)], 1) * (
        0.6 + classes[:, None] % 3 * 0.4
    )
    phase = random.uniform(0, 6, (count, 1, 1)) + along[:, :1, None] * x + along[:, 1:, None] * y
    color = random.normal(0, 0.4, (count, 3, 1, 1))
    return (np.sin(phase)[:, None] + color + random.normal(0, 0.2, (count, 3, 16, 16))).astype(np.float32), classes


@functools.cache
def net() -> Net:
    """Trained to tell the classes of the pictures, so that its margins are those of a network in use."""
    torch.manual_seed(0)
    model = Net()
    images, classes = (torch.from_numpy(value) for value in pictures(800, seed=1))
    optimizer = torch.optim.Adam(model.parameters(), 1e-2)
    for _ in range(120):
        chosen = torch.randint(len(images), (128,))
        nn.functional.cross_entropy(model(images[chosen])["logits"], classes[chosen]).backward()
        optimizer.step()
        optimizer.zero_grad()
    return model.eval()


@functools.cache
def images() -> np.ndarray:
    """What lossy candidates are judged by."""
    return pictures()[0]


class _Source(CapturedSource):
    """It computes its reference once for all candidates of a task with images and once for those without: nothing in it is
    random."""

    def reference(self, target: Target, *, rows: int, judging: JudgingData, seconds: float) -> Reference:
        key = repr(self.task), bool(judging.images)
        if key not in _REFERENCES:
            _REFERENCES[key] = super().reference(target, rows=rows, judging=judging, seconds=60)
        known = _REFERENCES[key]
        copies = [[value.copy() for value in side] for side in (known.inputs, known.outputs)]
        return replace(known, inputs=copies[0], outputs=copies[1])


_REFERENCES: dict[tuple[str, bool], Reference] = {}


@functools.cache
def source(task: str = "") -> CapturedSource:
    return _Source.of(capture(net(), torch.from_numpy(images()[:2]), task=task))


def run_module(model: nn.Module) -> Run:
    def run(inputs: Sequence[np.ndarray]) -> Rows:
        with torch.no_grad():
            return [value.numpy() for value in model(torch.from_numpy(inputs[0])).values()]

    return run


@dataclass(frozen=True, kw_only=True)
class Planted(Backend):
    """A backend that computes what it is told to."""

    name: str = "planted"
    format: str = "torch"
    devices: tuple[str, ...] = ("cpu",)
    precisions: Any = (FP32, BF16)
    preparation_seconds: float = 0.0
    run: Run = field(default=lambda inputs: [])

    def missing(self) -> str | None:
        return None

    def prepare(self, captured: Any, target: Target, directory: Path, records: Any = None) -> list[str]:
        return []

    def _open(self, paths: list[Path], target: Target) -> Session:
        return PlantedSession(self.run)


@dataclass
class PlantedSession:
    run: Run

    def close(self) -> None:
        pass


def judged(run: Run, *, lossy: bool = False, task: str = "") -> str | None:
    """Who refuses a backend that computes that; None where it is in the plan. `task` says what the outputs are."""
    backends.discover()["planted"] = Planted(run=run)
    config = GraphConfig(
        backend="planted", precision="bf16" if lossy else "fp32", buckets=BUCKETS, threads=1, max_tuning_seconds=0.05
    )
    judging = JudgingData((images(),)) if lossy else JudgingData()
    try:
        with tempfile.TemporaryDirectory() as folder:
            plan = tune(source(task), config, directory=Path(folder), device="cpu", judging=judging)
        lost = [item.why for item in plan.measurements if item.status in ("refused", "failed")]
        return _by(lost[0]) if set(plan.choices) != set(BUCKETS) else None
    except (ParityError, BackendError) as error:
        return _by(str(error))
    finally:
        del backends.discover()["planted"]


def _by(why: str) -> str:
    return next((name for text, name in _GATES if text in why), why)


def _in_module(change: Callable[[Net, float], Any]) -> Callable[[float], str | None]:
    def plant(magnitude: float) -> str | None:
        model = copy.deepcopy(net())
        with torch.no_grad():
            change(model, magnitude)
        return judged(run_module(model))

    return plant


def in_outputs(change: Callable[[Rows, Sequence[np.ndarray], float], Rows | None], **how: Any) -> Callable[[float], str | None]:
    """`change(outputs, inputs, magnitude)` alters the outputs in their place, or returns others."""
    run = run_module(net())

    def plant(magnitude: float) -> str | None:
        def wrong(inputs: Sequence[np.ndarray]) -> Rows:
            outputs = [value.copy() for value in run(inputs)]
            return change(outputs, inputs, magnitude) or outputs

        return judged(wrong, **how)

    return plant


def _each(value: np.ndarray) -> np.ndarray:
    return value.mean(axis=tuple(range(1, value.ndim)), keepdims=True)


def scaled(of: Callable[[Net], torch.Tensor], row: Any = slice(None)) -> Callable[[Net, float], None]:
    def change(model: Net, magnitude: float) -> None:
        of(model)[row] *= 1 + magnitude

    return change


def swapped(value: torch.Tensor) -> None:
    value[[0, 1]] = value[[1, 0]]


def replaced(name: str, make: Callable[[float], nn.Module]) -> Callable[[Net, float], None]:
    return lambda model, magnitude: setattr(model, name, make(magnitude))


def add(outputs: Rows, what: Any, *, to: int = 0) -> None:
    outputs[to] += np.asarray(what, np.float32)


def neighbors(outputs: Rows, inputs: Sequence[np.ndarray], magnitude: float) -> None:
    add(outputs, magnitude * np.roll(outputs[0], 1, axis=0))


def nan_before(outputs: Rows, inputs: Sequence[np.ndarray], magnitude: float) -> None:
    """As a product that reads beyond the end of its row, and multiplies what it finds by zero."""
    outputs[0][:-1][np.isnan(inputs[0][1:]).any(axis=(1, 2, 3))] = np.nan


def zero_beyond(outputs: Rows, inputs: Sequence[np.ndarray], magnitude: float) -> None:
    """The last rows of a full batch of 32: the larger the magnitude, the more."""
    for value in outputs:
        value[32 - round(magnitude) :] = 0


def nan_on_rare_inputs(outputs: Rows, inputs: Sequence[np.ndarray], magnitude: float) -> None:
    """NaN for so many of all pictures, whatever they show: a hash of the pixels chooses."""
    chosen = [zlib.crc32(image.tobytes()) < magnitude * 2**32 for image in inputs[0]]
    outputs[0][chosen] = np.nan


def cut_inputs(magnitude: float) -> str | None:
    """As int8 whose range was taken too small: the share of the pixels' range that is cut off."""
    run = run_module(net())
    most = (1 - magnitude) * np.abs(images()).max()
    return judged(lambda inputs: run([np.clip(inputs[0], -most, most)]), lossy=True)


def with_memory(change: Callable[[Rows, list[Any], float], None]) -> Callable[[float], str | None]:
    """Faults that remember: `change(outputs, memory, magnitude)`, with a list that lives as long as the session."""

    def plant(magnitude: float) -> str | None:
        memory: list[Any] = []
        run = run_module(net())

        def wrong(inputs: Sequence[np.ndarray]) -> Rows:
            outputs = [value.copy() for value in run(inputs)]
            change(outputs, memory, magnitude)
            return outputs

        return judged(wrong)

    return plant


def stale(outputs: Rows, memory: list[Any], magnitude: float) -> None:
    before = memory[-1:]
    memory[:] = [outputs[0].copy()]
    for other in before:
        rows = min(len(other), len(outputs[0]))
        outputs[0][:rows] = (1 - magnitude) * outputs[0][:rows] + magnitude * other[:rows]


def accumulating(outputs: Rows, memory: list[Any], magnitude: float) -> None:
    memory.append(None)
    add(outputs, magnitude * (len(memory) - 1))


def random_numbers(outputs: Rows, memory: list[Any], magnitude: float) -> None:
    add(outputs, magnitude * np.random.default_rng().standard_normal(outputs[0].shape))


def now_and_then(outputs: Rows, memory: list[Any], magnitude: float) -> None:
    memory.append(None)
    if len(memory) % max(1, round(1 / magnitude)) == 0:
        outputs[0] *= 0


def leaking(outputs: Rows, memory: list[Any], magnitude: float) -> None:
    memory.append(np.ones(int(magnitude * 2**20), np.uint8))


def one_buffer(magnitude: float) -> str | None:
    run = run_module(net())
    held = [np.empty((1024, *value.shape[1:]), np.float32) for value in run([images()[:1]])]

    def wrong(inputs: Sequence[np.ndarray]) -> Rows:
        for own, value in zip(held, run(inputs), strict=True):
            own[: len(value)] = value
        return [own[: len(inputs[0])] for own in held]

    return judged(wrong)


def in_place(magnitude: float) -> str | None:
    run = run_module(net())

    def wrong(inputs: Sequence[np.ndarray]) -> Rows:
        outputs = run(inputs)
        inputs[0][...] *= 1 - magnitude
        return outputs

    return judged(wrong)


def one_thread(magnitude: float) -> str | None:
    """What only the thread that opened the session gets right."""
    import threading

    run, mine = run_module(net()), threading.get_ident()

    def wrong(inputs: Sequence[np.ndarray]) -> Rows:
        outputs = [value.copy() for value in run(inputs)]
        add(outputs, magnitude * (threading.get_ident() != mine))
        return outputs

    return judged(wrong)


def softmax(value: np.ndarray) -> np.ndarray:
    powers = np.exp(value - value.max(axis=1, keepdims=True))
    return powers / powers.sum(axis=1, keepdims=True)


def rounded(value: np.ndarray, bits: int) -> np.ndarray:
    """float32 with so many bits of the fraction: 10 are TF32's and float16's, 7 bfloat16's."""
    return ((value.view(np.uint32) + (1 << (22 - bits))) & np.uint32(~((1 << (23 - bits)) - 1) & 0xFFFFFFFF)).view(np.float32)


def _modules() -> list[Fault]:
    changes: list[tuple[str, Callable[[Net, float], Any], float | None, str]] = [
        ("wrong weights in one channel", scaled(lambda model: model.first.weight, 3), 0.5, "of the weights"),
        ("one wrong weight", scaled(lambda model: model.second.weight, (2, 1, 1, 1)), 1.0, "of the weight"),
        ("wrong bias in the head", scaled(lambda model: model.head.bias), 1.0, "of the bias"),
        ("channels swapped", lambda model, _: swapped(model.first.weight), None, ""),
        ("channels of the head swapped", lambda model, _: swapped(model.head.weight), None, ""),
        ("another epsilon in a batch norm", lambda model, size: setattr(model.norm, "eps", 1e-5 + size), 0.1, ""),
        ("statistics of a batch norm not folded", scaled(lambda model: model.norm2.running_mean), 1.0, "of the mean"),
        ("a fused ReLU lost", replaced("relu", nn.LeakyReLU), 1.0, "slope below zero"),
        ("a ReLU cut off at 2", replaced("relu", lambda _: nn.Hardtanh(0, 2)), None, ""),
        ("padding not counted in a pool", replaced("pool", lambda _: nn.AvgPool2d(2, 2, 1, count_include_pad=False)), None, ""),
        ("a pool that takes the largest", replaced("pool", lambda _: nn.MaxPool2d(2, 2, 1)), None, ""),
        ("padding by reflection", lambda model, _: _reflecting(model.first), None, ""),
        ("images shifted by a pixel", lambda model, _: _shifted(model), None, ""),
        ("left in training mode", lambda model, _: model.train(), None, ""),
        ("dropout left on", lambda model, _: model.drop.train(), None, ""),
        ("groups of a convolution exchanged", lambda model, _: _exchanged(model.second.weight), None, ""),
    ]
    return [Fault(name, "candidate", _in_module(change), size, unit) for name, change, size, unit in changes]


def _reflecting(layer: nn.Conv2d) -> None:
    layer.padding_mode, layer._reversed_padding_repeated_twice = "reflect", [1, 1, 1, 1]


def _shifted(model: Net) -> None:
    model.first = nn.Sequential(nn.ZeroPad2d((1, -1, 0, 0)), model.first)


def _exchanged(weight: torch.Tensor) -> None:
    weight.copy_(torch.cat([weight[6:], weight[:6]]))


def _outputs() -> list[Fault]:
    changes: list[tuple[str, Any, float | None, str]] = [
        ("scores scaled", lambda out, _, size: add(out, size * out[0]), 1.0, "of the scores"),
        ("scores shifted", lambda out, _, size: add(out, size), 1.0, ""),
        ("one class wrong", lambda out, _, size: out[0].__setitem__((..., 3), out[0][:, 3] + size), 1.0, ""),
        ("labels permuted", lambda out, *_: [np.roll(out[0], 1, axis=1), out[1]], None, ""),
        ("outputs in another order", lambda out, *_: out[::-1], None, ""),
        ("softmax twice", lambda out, *_: [softmax(out[0]), out[1]], None, ""),
        ("transposed where the batch has as many rows as classes", _transposed, None, ""),
        ("second head dead", lambda out, *_: [out[0], 0 * out[1]], None, ""),
        ("second head wrong", lambda out, _, size: add(out, size * out[1], to=1), 1.0, "of its values"),
        ("rows zero beyond a size", zero_beyond, 16.0, "rows of 32"),
        ("the first row for all", lambda out, *_: [np.repeat(value[:1], len(value), 0) for value in out], None, ""),
        ("leak from the row before", neighbors, 1.0, "of its scores"),
        ("NaN of a row in the row before it", nan_before, None, ""),
        ("leak from the mean of the batch", lambda out, _, size: add(out, size * out[0].mean(0)), 1.0, "of the mean"),
        ("depends on the place in the batch", lambda out, _, size: add(out, size * np.arange(len(out[0]))[:, None]), 1.0, ""),
        ("wrong for one row alone", lambda out, _, size: add(out, size * (len(out[0]) == 1)), 1.0, ""),
        ("wrong for odd batches", lambda out, _, size: add(out, size * (len(out[0]) % 2)), 1.0, ""),
        ("wrong for dark images", lambda out, rows, size: add(out, (_each(rows[0])[:, 0, 0] < 0) * size), 1.0, ""),
        ("NaN on a rare input", nan_on_rare_inputs, 0.5, "of the inputs"),
        ("NaN on black images", lambda out, rows, _: [_where(_range(rows[0]) == 0, np.nan, out[0]), out[1]], None, ""),
        ("another value on images of one color", lambda out, rows, size: add(out, size * _plain(rows[0])), 1.0, ""),
        ("wrong at the hardest contrast", lambda out, rows, size: add(out, size * _stark(rows[0])), 1.0, ""),
        ("NaN in one class", lambda out, *_: out[0].__setitem__((..., 7), np.nan), None, ""),
        ("infinite where it is large", lambda out, *_: [np.where(value > 3, np.inf, value) for value in out], None, ""),
        ("saturated scores", lambda out, _, size: [np.minimum(out[0], (1 - size) * 8), out[1]], 0.9, "of a score of 8"),
        ("computed in bfloat16", lambda out, *_: [rounded(value, 7) for value in out], None, ""),
        ("computed in float16 or TF32", lambda out, *_: [rounded(value, 10) for value in out], None, ""),
        ("another type", lambda out, *_: [value.astype(np.float64) for value in out], None, ""),
        ("an axis lost", lambda out, *_: [out[0][:, :1], out[1]], None, ""),
        ("an output lost", lambda out, *_: out[:1], None, ""),
    ]
    return [Fault(name, "candidate", in_outputs(change), size, unit) for name, change, size, unit in changes]


def _flat(value: np.ndarray) -> np.ndarray:
    return value.reshape(len(value), -1)


def _range(value: np.ndarray) -> np.ndarray:
    return np.ptp(_flat(value), axis=1)


def _where(rows: np.ndarray, value: float, outputs: np.ndarray) -> np.ndarray:
    return np.where(rows[:, None], np.float32(value), outputs)


def _plain(images: np.ndarray) -> np.ndarray:
    return (np.ptp(images, axis=(2, 3)) == 0).all(axis=1)[:, None]


def _stark(images: np.ndarray) -> np.ndarray:
    """Rows whose neighboring pixels differ by most of the range of all pictures, nearly everywhere."""
    steps = np.abs(np.diff(images, axis=3)).mean(axis=(1, 2, 3))
    return (steps > 0.6 * np.ptp(pictures()[0]))[:, None]


def _transposed(outputs: Rows, inputs: Sequence[np.ndarray], magnitude: float) -> Rows:
    return [outputs[0].T.copy() if len(outputs[0]) == CLASSES else outputs[0][::-1].copy(), outputs[1]]


def _lossy() -> list[Fault]:
    def one_hot(out: Rows, *_: Any) -> Rows:
        return [np.eye(CLASSES, dtype=np.float32)[out[0].argmax(1)], out[1]]

    changes: list[tuple[str, Any, float | None, str]] = [
        ("scores scaled", lambda out, _, size: add(out, -size * out[0]), 1.0, "of the scores"),
        ("scores replaced by the best class alone", one_hot, None, ""),
        ("noise in the scores", lambda out, *rest: _noise(out, rest[1]), 1.0, "of their spread"),
        ("two classes swapped", lambda out, *_: [out[0][:, [1, 0, *range(2, CLASSES)]], out[1]], None, ""),
        ("a class that never wins", lambda out, _, size: out[0].__setitem__((..., 2), out[0][:, 2] - 8 * size), 1.0, ""),
        ("NaN on a rare input", nan_on_rare_inputs, 0.5, "of the inputs"),
        ("second head NaN", lambda out, *_: out[1].fill(np.nan), None, ""),
        ("second head dead", lambda out, *_: [out[0], 0 * out[1]], None, ""),
        ("rows zero beyond a size", zero_beyond, 16.0, "rows of 32"),
        ("leak from the row before", neighbors, 1.0, "of its scores"),
        ("softmax twice", lambda out, *_: [softmax(out[0]), out[1]], None, ""),
    ]
    found = [Fault(name, "lossy candidate", in_outputs(change, lossy=True), size, unit) for name, change, size, unit in changes]
    return [*found, Fault("int8 with saturated range", "lossy candidate", cut_inputs, 0.9, "of the range")]


def _noise(outputs: Rows, size: float) -> None:
    spread = run_module(net())([images()])[0].std()
    add(outputs, size * spread * np.random.default_rng(0).standard_normal(outputs[0].shape))


def faults() -> list[Fault]:
    """Every fault of this stage."""
    remembering = [
        ("stale buffer", stale, 1.0, "of the answer before"),
        ("accumulates over calls", accumulating, 1.0, "per call"),
        ("answers at random", random_numbers, 1.0, ""),
        ("wrong now and then", now_and_then, 0.5, "of the calls"),
        ("slow memory leak", leaking, 8.0, "MB per call"),
    ]
    return [
        *_modules(),
        *_outputs(),
        *(Fault(name, "candidate", with_memory(change), size, unit) for name, change, size, unit in remembering),
        Fault("answers overwritten by the next call", "candidate", one_buffer),
        Fault("writes to its inputs", "candidate", in_place, 0.5, "of the values"),
        Fault("another thread gets another answer", "candidate", one_thread, 1.0),
        *_lossy(),
    ]


def clean() -> list[tuple[str, str | None]]:
    """What must be accepted, and who refused it."""
    low = copy.deepcopy(net()).bfloat16()

    def in_bf16(inputs: Sequence[np.ndarray]) -> Rows:
        with torch.no_grad():
            return [value.float().numpy() for value in low(torch.from_numpy(inputs[0]).bfloat16()).values()]

    tasks = {"bf16 on images": "", "bf16 of several labels": LABELS, "bf16 of embeddings": EMBEDDINGS}
    lossy = [(name, judged(in_bf16, lossy=True, task=task)) for name, task in tasks.items()]
    return [("fp32", judged(run_module(net()))), *lossy]
