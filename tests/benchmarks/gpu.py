"""`make bench-gpu`: what graph mode computes and gains on a CUDA GPU, in one JSON, within eight minutes.

It needs a checkout, torch with CUDA, numpy and psutil; penstock itself need not be installed. First every backend and pass
is held to float64 on the CPU. Then, per model and batch, eager, torch.compile and Penstock's plan are timed in turns, on
images that are on the GPU already. What no time is left for is skipped, and the JSON says so.
`--device cpu --quick` runs the same code on small models without a GPU; its times mean nothing.
"""

from __future__ import annotations

import argparse
import copy
import dataclasses
import datetime
import importlib.util
import json
import logging
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
MODELS = ("resnet50", "vit_small_patch16_224", "resnet101")
CONTENDERS = ("eager fp32", "eager bf16", "torch.compile bf16", "torch.compile bf16, CUDA graphs", "inductor bf16", "plan")
# Largest difference from float64 as a share of the outputs' range. On a GPU, torch's convolutions compute fp32 in TF32.
TOLERANCE = {"fp32": 3e-3, "bf16": 1e-1, "fp16": 2e-2}
BATCHES = (1, 2, 5, 33)
ROUNDS = 7


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--quick", action="store_true", help="small models and batches")
    parser.add_argument("--only", nargs="*", choices=MODELS, default=MODELS)
    parser.add_argument("--contenders", nargs="*", choices=CONTENDERS, default=CONTENDERS)
    parser.add_argument("--backends", nargs="*", help="those to hold to float64; all by default")
    parser.add_argument("--batches", default=None, help="default 1,8,32,128,256")
    parser.add_argument("--seconds", type=float, default=440.0, help="no new step begins when its time would go beyond")
    parser.add_argument("--out", type=Path, default=ROOT / "docs" / "bench-gpu.json")
    arguments = parser.parse_args()
    lacking = [name for name in ("torch", "numpy", "psutil") if importlib.util.find_spec(name) is None]
    if lacking:
        print(f"this benchmark needs {', '.join(lacking)}: pip install {' '.join(lacking)}")
        return 2
    import torch

    if arguments.device == "cuda" and not torch.cuda.is_available():
        print("no CUDA device: torch finds none on this machine; `--device cpu --quick` tries the script without one")
        return 2
    with tempfile.TemporaryDirectory(prefix="penstock-gpu-") as place:
        (Path(place) / "penstock").symlink_to(ROOT)  # the repository root is the package, whatever the checkout is called
        sys.path[:0] = [place, str(Path(__file__).parent)]
        os.environ["PENSTOCK_CACHE"] = "off"
        return Bench(arguments).run()


class Bench:
    """The steps, the time that is left for them, and what they found."""

    def __init__(self, arguments: argparse.Namespace) -> None:
        self.arguments = arguments
        self.device = arguments.device
        self.size = 32 if arguments.quick else 224
        usual = "1,3" if arguments.quick else "1,8,32,128,256"
        self.batches = tuple(int(part) for part in (arguments.batches or usual).split(","))
        self.begin = time.monotonic()
        self.found = {**about(arguments), "batches": list(self.batches), "correctness": [], "models": {}, "warnings": []}
        logger = logging.getLogger("penstock")
        handler = logging.Handler(logging.WARNING)
        handler.emit = lambda record: self.found["warnings"].append(record.getMessage())  # such as refused CUDA graphs
        logger.addHandler(handler)

    @property
    def left(self) -> float:
        return self.arguments.seconds - (time.monotonic() - self.begin)

    def run(self) -> int:
        """0 when everything that ran was right."""
        self.correctness()
        for name in self.arguments.only:
            self.model(name)
        for warning in self.found["warnings"]:
            print(f"warning: {warning}")
        self.found["seconds"] = time.monotonic() - self.begin
        self.write()
        wrong = [item for item in self.found["correctness"] if item["status"] in ("wrong", "failed")]
        right = sum(item["status"] == "right" for item in self.found["correctness"])
        print(f"{right} checks right, {len(wrong)} not; {self.found['seconds']:.0f} s; written to {self.arguments.out}")
        return 1 if wrong or not right else 0

    def write(self) -> None:
        self.arguments.out.parent.mkdir(parents=True, exist_ok=True)
        self.arguments.out.write_text(json.dumps(self.found, indent=1) + "\n", encoding="utf-8")

    def check(self, what: str, status: str, **more: object) -> None:
        self.found["correctness"].append({"what": what, "status": status, **more})
        print(f"{what}: {status} {' '.join(f'{key} {value}' for key, value in more.items())}", flush=True)

    def correctness(self) -> None:
        """Every pass and backend that can run on this device, on small models, against float64 on the CPU."""
        import torch
        from models import build

        from penstock.runtime import backends
        from penstock.runtime.capture import capture
        from penstock.runtime.passes import run_passes
        from penstock.runtime.programs import in_float64, runnable
        from penstock.runtime.randomise import randomised
        from penstock.runtime.session import Target

        for name in ("resnet50", "vit_small_patch16_224"):
            example = torch.randn(2, 3, 64, 64)
            model = randomised(build(name, 64, tiny=True), [example])
            exact = copy.deepcopy(model).double()
            rows = [torch.randn(batch, 64, 64, 3).permute(0, 3, 1, 2) for batch in BATCHES]
            with torch.no_grad():
                expected = [exact(images.double()) for images in rows]
            captured = capture(model.to(self.device), example.to(self.device))
            optimised, records = run_passes(captured)
            for record in records:
                status = {"rejected": "wrong"}.get(record.status, "right")
                self.check(f"pass {record.name} on a small {name}", status, was=record.status, why=record.why)
            # Folded in float64 too: weights that are rounded to float32 after folding differ by more than the rewrite does.
            proved, _ = run_passes(dataclasses.replace(captured, program=in_float64(captured.program)))
            graph = runnable(proved.program)
            with torch.no_grad():
                given = [graph(images.double().to(self.device))[0].cpu() for images in rows]
            worst = difference(expected, given)
            self.check(f"passes on a small {name}, float64", "right" if worst < 1e-9 else "wrong", difference=worst)
            for backend in backends.discover().values():
                if self.arguments.backends is not None and backend.name not in self.arguments.backends:
                    continue
                if backend.name == "kernels":  # here all that can stand must be right, fast or not, and soon
                    backend = dataclasses.replace(backend, timer=as_if_faster, seconds=10.0, preparation_seconds=15.0)
                for precision in [item for item in ("fp32", "bf16", "fp16") if item in backend.precisions]:
                    what = f"{backend.name} {precision} on a small {name}"
                    target = Target(device=self.device, precision=precision)
                    if why := backend.supports(target):
                        self.check(what, "skipped", why=why)
                    elif self.left < backend.preparation_seconds:
                        self.check(what, "skipped", why="no time left")
                    else:
                        self.backend(what, backend, optimised, target, rows, expected)
        self.write()

    def backend(self, what, backend, captured, target, rows, expected) -> None:
        import torch

        from penstock.errors import BackendError

        begin = time.monotonic()
        with tempfile.TemporaryDirectory() as folder:
            try:
                session = backend.open(Path(folder), target, backend.prepare(captured, target, Path(folder)))
                given = [torch.from_numpy(session.run([images.numpy()])[0]) for images in [*rows, *rows]]
                note = getattr(session, "note", "")
                session.close()
            except BackendError as error:
                self.check(what, "failed", why=str(error))
                return
        worst, most = difference([*expected, *expected], given), TOLERANCE[target.precision]
        status = "right" if worst <= most else "wrong"
        seconds = round(time.monotonic() - begin, 1)
        self.check(what, status, difference=worst, tolerance=most, seconds=seconds, note=note)

    def model(self, name: str) -> None:
        """One model: each contender prepared, compared with eager on held-out images, and timed per batch."""
        import torch
        from models import build, fitted, textures

        from penstock.runtime.randomise import randomised

        result = self.found["models"][name] = {"contenders": {}, "batches": {}}
        example = torch.randn(2, 3, self.size, self.size)
        model = randomised(build(name, self.size, tiny=self.arguments.quick), [example])
        model = fitted(model.to(self.device), self.size, count=96 if self.arguments.quick else 240)
        images, labels = textures(64 if self.arguments.quick else 192, self.size, seed=2)
        with torch.no_grad():
            scores = torch.cat([model(part.to(self.device)).cpu() for part in images.split(32)])
        result["eager_top1"] = (scores.argmax(1) == labels).double().mean().item()
        print(f"{name}: eager top-1 on {len(images)} held-out textures {result['eager_top1']:.1%}", flush=True)
        with tempfile.TemporaryDirectory() as folder:
            prepared = Contenders(model, images, labels, scores, self.batches, self.device, Path(folder), self.arguments.quick)
            calls = {}
            for what in self.arguments.contenders:
                record = result["contenders"][what] = {}
                begin = time.monotonic()
                if "eager" not in what and what != "inductor bf16" and self.left < (0 if self.arguments.quick else 60):
                    record["status"] = "skipped: no time left"
                    continue
                try:
                    call, record["about"] = prepared.get(what, self.left)
                    given = run_all(call, images, self.device)
                    for batch in self.batches:
                        call(repeated(images, batch).to(self.device))  # compiles or records what it needs
                except Exception as error:  # noqa: BLE001 - one contender's failure is a result; the others are measured
                    record["status"] = f"failed: {type(error).__name__}: {' '.join(str(error).split())[:500]}"
                    print(f"{name} {what}: {record['status']}", flush=True)
                    continue
                record |= {
                    "status": "ran",
                    "seconds_to_prepare": time.monotonic() - begin,
                    "top1_agreement": (given.argmax(1) == scores.argmax(1)).double().mean().item(),
                    "difference": difference([scores], [given]),
                }
                calls[what] = call
            for batch in self.batches:
                rows = repeated(images, batch).to(self.device)
                result["batches"][str(batch)] = line = timed(calls, rows, self.device, 5.0 if self.arguments.quick else 30.0)
                base = line.get("eager fp32", {}).get("ms")
                for what, item in line.items():
                    item["images_per_second"] = 1000 * batch / item["ms"]
                    item["ratio"] = base / item["ms"] if base else None
                    over = f", {item['ratio']:.2f}x eager fp32" if base else ""
                    print(f"{name} batch {batch} {what}: {item['images_per_second']:.5g} images/s{over}", flush=True)
            prepared.close()
        self.write()


class Contenders:
    """Ways to run one model, made when asked for: functions of images on the device, to float32 scores on it."""

    def __init__(self, model, images, labels, scores, batches, device, directory, quick) -> None:
        self.model, self.images, self.labels, self.scores = model, images, labels, scores
        self.batches, self.device, self.directory, self.quick = batches, device, directory, quick
        self.opened = []

    def get(self, what: str, left: float):
        """The function, and what else is to be said of it."""
        import torch

        if what == "eager fp32":
            return torch.no_grad()(self.model), {"tf32 in convolutions": torch.backends.cudnn.allow_tf32}
        if what == "inductor bf16":
            return self.inductor()
        if what == "plan":
            return self.plan(left)
        module = copy.deepcopy(self.model).to(torch.bfloat16, memory_format=torch.channels_last)
        about = {"memory format": "channels_last"}
        if what.startswith("torch.compile"):
            # One compilation for any batch: one for each would take longer than this benchmark may.
            mode = "reduce-overhead" if "CUDA graphs" in what else "default"
            module = torch.compile(module, mode=mode, dynamic=True)
            about |= {"mode": mode, "dynamic": True}

        @torch.no_grad()
        def call(images):
            return module(images.to(torch.bfloat16, memory_format=torch.channels_last)).float()

        return call, about

    def captured(self):
        from penstock.runtime.capture import capture
        from penstock.runtime.passes import run_passes
        from penstock.runtime.source import CapturedSource

        captured = capture(self.model, self.images[:2].to(self.device))
        return CapturedSource(captured, run_passes(captured)[0])

    def inductor(self):
        from penstock.runtime import backends
        from penstock.runtime.session import Target

        target, backend = Target(device=self.device, precision="bf16"), backends.get("inductor")
        files = backend.prepare(self.captured().graph_for(backend, None), target, self.directory)
        session = backend.open(self.directory, target, files)
        self.opened.append(session)
        return lambda images: session.run_tensors([images])[0], {
            "cuda graphs": session.note or "on" if self.device == "cuda" else "off"
        }

    def plan(self, left: float):
        from penstock.runtime.config import GraphConfig
        from penstock.runtime.runner import Runner
        from penstock.runtime.tune import tune

        source = self.captured()
        seconds = 4.0 if self.quick else max(20.0, min(100.0, left / 2))
        config = GraphConfig(precision="auto", buckets=self.batches, max_tuning_seconds=seconds)
        plan = tune(
            source, config, directory=self.directory, device=self.device, images=[self.images.numpy()],
            labels=self.labels.numpy(), scores=self.scores.numpy(),
        )  # fmt: skip
        runner = Runner(source.signature, plan, self.directory)
        self.opened.append(runner)
        choices = {str(batch): str(choice) for batch, choice in plan.choices.items()}
        return lambda images: runner.run([images])[0], {"choices": choices, "plan": plan.to_json()}

    def close(self) -> None:
        for item in self.opened:
            item.close()


def repeated(images, batch: int):
    """The first `batch` images, over again where there are fewer."""
    import torch

    return torch.cat([images] * -(-batch // len(images)))[:batch]


def run_all(call, images, device: str):
    import torch

    return torch.cat([call(part.to(device)).cpu() for part in images.split(32)])


def as_if_faster(contenders) -> list[float]:
    """Times with which a kernel is chosen wherever it can stand, the largest fusion first."""
    return [1.0 if item.operator == "torch" else 0.5 / len(item.names) for item in contenders]


def difference(expected, given) -> float:
    from penstock.runtime.numerics import largest_difference

    return max(largest_difference(a, b.double()) for a, b in zip(expected, given, strict=True))


def timed(calls, rows, device: str, milliseconds: float) -> dict[str, dict[str, float]]:
    """Milliseconds per call of each, the median and interquartile range of samples of so many milliseconds, taken in turns."""
    import torch

    def sample(call, count: int) -> float:
        if device == "cuda":
            torch.cuda.synchronize()
        begin = time.perf_counter()
        for _ in range(count):
            call(rows)
        if device == "cuda":
            torch.cuda.synchronize()
        return 1000 * (time.perf_counter() - begin) / count

    counts = {}
    for what, call in calls.items():
        sample(call, 2)
        counts[what] = max(1, min(200, round(milliseconds / sample(call, 2))))
    samples = {what: [] for what in calls}
    for turn in range(ROUNDS):
        order = list(calls.items())
        for what, call in order[turn % len(order) :] + order[: turn % len(order)] if order else []:
            samples[what].append(sample(call, counts[what]))
    spread = {what: statistics.quantiles(values, n=4) for what, values in samples.items()}
    return {
        what: {"ms": statistics.median(values), "spread_ms": spread[what][2] - spread[what][0], "calls": counts[what] * ROUNDS}
        for what, values in samples.items()
    }


def about(arguments: argparse.Namespace) -> dict[str, object]:
    """When, where and with what."""
    import torch

    from penstock.runtime.fingerprint import fingerprint

    versions = {"python": platform.python_version(), "torch": torch.__version__, "cuda": torch.version.cuda}
    if importlib.util.find_spec("triton"):
        import triton

        versions["triton"] = triton.__version__
    driver = None
    if arguments.device == "cuda":
        versions["cudnn"] = torch.backends.cudnn.version()
        try:
            asked = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
            driver = subprocess.run(asked, capture_output=True, text=True, check=True, timeout=30).stdout.split("\n")[0]
        except (OSError, subprocess.SubprocessError) as error:
            driver = f"unknown: {error}"
    return {
        "date": datetime.date.today().isoformat(),
        "command": " ".join(["python tests/benchmarks/gpu.py", *sys.argv[1:]]),
        "quick": arguments.quick,
        "device": torch.cuda.get_device_name() if arguments.device == "cuda" else "cpu",
        "driver": driver,
        "versions": versions,
        "fingerprint": fingerprint(),
    }


if __name__ == "__main__":
    sys.exit(main())
