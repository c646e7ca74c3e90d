"""Ways to run one model: eager, torch.compile, the inductor backend alone, and Headrace's plan."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

# Seconds that one takes to be made on a usual machine; with less left it is not begun.
NEEDS = {
    "eager fp32": 0.0,
    "eager bf16": 0.0,
    "torch.compile bf16": 30.0,
    "plan": 25.0,
    "torch.compile bf16, CUDA graphs": 40.0,
    "inductor bf16": 40.0,
    "kernels bf16": 40.0,
    "kernels int8": 40.0,
    "plan int8": 75.0,
    "plan fp8": 45.0,
}
_ALL_PRECISIONS = 75.0  # seconds of tuning: enough for the kernels in bf16, then in int8
_SHARE = 0.6  # of a section's time, for the tuning of a plan
OURS = ("plan", "plan int8", "plan fp8", "inductor bf16", "kernels bf16", "kernels int8")


class Contenders:
    """Made when asked for: functions of images on the device, to float32 scores on it. `planned` is what the plan left:
    (signature, plan), with its files in `directory`."""

    def __init__(
        self,
        model: torch.nn.Module,
        images: torch.Tensor,
        labels: torch.Tensor,
        scores: torch.Tensor,
        *,
        batches: Sequence[int],
        device: str,
        directory: Path,
        quick: bool,
    ) -> None:
        self.model, self.images, self.labels, self.scores = model, images, labels, scores
        self.batches, self.device, self.directory, self.quick = tuple(batches), device, directory, quick
        self.planned: tuple[Any, Any] | None = None
        self._opened: list[Any] = []
        self._source: Any = None

    def get(self, what: str, left: float) -> tuple[Callable[[torch.Tensor], torch.Tensor], dict[str, Any]]:
        """The function, and what else is to be said of it."""
        import torch

        if what == "eager fp32":
            return torch.no_grad()(self.model), {"tf32 in convolutions": torch.backends.cudnn.allow_tf32}
        if what in ("inductor bf16", "kernels bf16", "kernels int8"):
            return self.backend(*what.split())
        if what.startswith("plan"):
            return self.plan(left, what.removeprefix("plan").strip())
        module = copy.deepcopy(self.model).to(torch.bfloat16, memory_format=torch.channels_last)
        about: dict[str, Any] = {"memory format": "channels_last"}
        if what.startswith("torch.compile"):
            # One compilation for any batch: one for each would take longer than this benchmark may.
            mode = "reduce-overhead" if "CUDA graphs" in what else "default"
            module = torch.compile(module, mode=mode, dynamic=True)
            about |= {"mode": mode, "dynamic": True}

        @torch.no_grad()
        def call(images: torch.Tensor) -> torch.Tensor:
            return module(images.to(torch.bfloat16, memory_format=torch.channels_last)).float()

        return call, about

    def source(self) -> Any:
        """The model captured and rewritten, once."""
        from headrace.runtime.capture.capture import capture
        from headrace.runtime.passes import run_passes
        from headrace.runtime.tuning.source import CapturedSource

        if self._source is None:
            captured = capture(self.model, self.images[:2].to(self.device))
            self._source = CapturedSource(captured, run_passes(captured)[0])
        return self._source

    def backend(self, name: str, precision: str) -> tuple[Callable[[torch.Tensor], torch.Tensor], dict[str, Any]]:
        """One backend of the plan's, without a plan; `record` is what it measured, where it writes that down."""
        from headrace.runtime import backends
        from headrace.runtime.base.calibration import Calibration
        from headrace.runtime.base.session import Target
        from headrace.specs import BF16, INT8_BF16

        target, backend = Target(device=self.device, precision=INT8_BF16 if precision == "int8" else BF16), backends.get(name)
        graph = self.source().graph_for(backend, Calibration([self.images[:64].numpy()]) if precision == "int8" else None)
        files = backend.prepare(graph, target, self.directory)
        session: Any = backend.open(self.directory, target, files)
        self._opened.append(session)
        records = [json.loads((self.directory / file).read_text()) for file in files if file.endswith(".json")]
        return lambda images: session.run_tensors([images])[0], {
            "cuda graphs": session.note or "on" if self.device == "cuda" else "off", "record": records,
        }  # fmt: skip

    def plan(self, left: float, precision: str = "") -> tuple[Callable[[torch.Tensor], torch.Tensor], dict[str, Any]]:
        """What the plan chose, of all precisions if there is time for that, or of one, which must pass its gate."""
        from headrace.runtime.base.config import GraphConfig
        from headrace.runtime.graph.runner import Runner
        from headrace.runtime.tuning.judging_data import JudgingData
        from headrace.runtime.tuning.tune import tune

        source = self.source()
        seconds = 4.0 if self.quick else max(30.0, min(180.0, _SHARE * left))
        # Tuning takes precisions in order and skips what no time is left for: with little, all of it is for what will win.
        usual = "auto" if self.quick or seconds >= _ALL_PRECISIONS else "bf16"
        config = GraphConfig(precision=precision or usual, buckets=self.batches, max_tuning_seconds=seconds)
        plan = tune(
            source, config, directory=self.directory, device=self.device,
            judging=JudgingData((self.images.numpy(),), self.labels.numpy(), scores=(self.scores.numpy(),)),
        )  # fmt: skip
        if not precision:
            self.planned = source.signature, plan
        runner = Runner(source.signature, plan, self.directory)
        self._opened.append(runner)
        choices = {str(batch): str(choice) for batch, choice in plan.choices.items()}
        about = {
            "choices": choices,
            "precision": config.precision,
            "tuning_seconds_at_most": seconds,
            "plan": plan.to_json(),
        }
        return lambda images: runner.run([images])[0], about

    def close(self) -> None:
        for item in self._opened:
            item.close()
        self._opened.clear()


def repeated(images: torch.Tensor, batch: int) -> torch.Tensor:
    """The first `batch` images, over again where there are fewer."""
    import torch

    return torch.cat([images] * -(-batch // len(images)))[:batch]


def run_all(call: Callable[[torch.Tensor], torch.Tensor], images: torch.Tensor, device: str) -> torch.Tensor:
    import torch

    return torch.cat([call(part.to(device)).cpu() for part in images.split(32)])


def difference(expected: Sequence[torch.Tensor], given: Sequence[torch.Tensor]) -> float:
    from headrace.runtime.base.numerics import largest_difference

    return max(largest_difference(a, b.double()) for a, b in zip(expected, given, strict=True))
