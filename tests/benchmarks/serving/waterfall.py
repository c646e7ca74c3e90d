"""The waterfall: from a plain PyTorch service to Headrace, one change at a time, all measured in turn in one run.

    python -m tests.benchmarks.serving.waterfall MODELS --baseline REPO [--frontends N] [--out DIR]

Every step is a server of its own that runs beside the others, stopped (SIGSTOP) while one of them is measured, so that each
ratio is taken within a round. A step that this model does not have is named with the reason.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from rich.console import Console

from headrace.errors import BenchError, HeadraceError
from headrace.serving.bench.config import BenchConfig
from headrace.serving.bench.images import ImageSet, choose_images
from headrace.serving.bench.reporting.report import write_report
from headrace.serving.bench.reporting.result import BenchResult
from headrace.serving.bench.run import measure
from headrace.serving.bench.servers import terminate_as_exit
from headrace.serving.bench.services import only_model

from .bench_options import config_of, options
from .waterfall_report import waterfall_plot, waterfall_report
from .waterfall_result import Waterfall
from .waterfall_steps import Step, make_steps, write_forms

__all__ = ["divided", "other_answers", "waterfall"]

_CALIBRATING = 64  # images that set ranges where int8 is made anew; they are not sent
_LEAST_SENT = 8
_LEAST_AGREEMENT = 0.95


def waterfall(config: BenchConfig, *, frontends: int | None = None, console: Console | None = None) -> Waterfall:
    """Measure every step at the one concurrency of `config`; write waterfall.json, .md and .png into `config.out`.

    Raises BenchError when `config` has no baseline to start from or several concurrencies, and what `measure` raises.
    """
    console = console or Console()
    if config.baseline is None:
        raise BenchError("the waterfall starts from the original repository: name it with --baseline REPO")
    if len(config.concurrency) != 1 or config.protocol != "http":
        raise BenchError("the waterfall is measured at one concurrency over HTTP: give --concurrency one number")
    name = config.model or only_model(config.models)
    out = config.out.resolve()
    logs = out / "logs"
    logs.mkdir(parents=True, exist_ok=True)
    found_images = choose_images(
        config.images,
        repository=Path(config.baseline["root"]),
        model=config.models / name,
        synthetic_into=out / "images",
        limit=config.max_images + _CALIBRATING,
    )
    calibrating, sent = divided(found_images)
    with terminate_as_exit(), console.status("writing the forms of the model") as status:
        forms = write_forms(
            config.baseline,
            config.models / name,
            out / "models",
            calibrating,
            logs=logs,
            report=status.update,
        )
    steps = make_steps(forms, f"/v1/classify/{name}?k={config.k}", frontends=frontends)
    services = tuple(step.service for step in steps if step.service is not None)
    chosen = replace(config, model=name, images=tuple(sent.files))
    result = measure(chosen, console=console, others=services, alone=True)
    result = replace(
        result,
        images={**result.images, "source": sent.source, "synthetic": sent.synthetic},
        warnings=(*result.warnings, *_synthetic(sent), *other_answers(steps, result)),
    )
    found = Waterfall(bench=result, steps=_as_started(steps, result))
    plot = partial(waterfall_plot, found)
    write_report(out, "waterfall", waterfall_report(found), content=found.to_json(), plot=plot, console=console)
    return found


def divided(images: ImageSet) -> tuple[list[Path], ImageSet]:
    """Images that may set the ranges of int8, evenly spread, and those that are sent: what is both would judge itself."""
    count = min(_CALIBRATING, max(0, len(images.files) - _LEAST_SENT) // 4)
    taken = {math.floor((number + 0.5) * len(images.files) / count) for number in range(count)}
    kept = [number for number in range(len(images.files)) if number not in taken]
    sent = replace(
        images,
        files=tuple(images.files[number] for number in kept),
        classes=tuple(images.classes[number] for number in kept),
        source=f"{len(kept)} sent of {images.source}" if taken else images.source,
    )
    return [images.files[number] for number in sorted(taken)], sent


def _synthetic(images: ImageSet) -> Sequence[str]:
    return ("the images are synthetic, so the answers mean nothing; give real ones with --images",) if images.synthetic else ()


def other_answers(steps: Sequence[Step], result: BenchResult) -> Sequence[str]:
    """Which steps answer so differently that their speed is worth nothing."""
    found = []
    for step in (step for step in steps if step.name in result.services):
        agreement = result.agreement_of(step.name)
        if agreement.share is not None and agreement.share < _LEAST_AGREEMENT:
            same = f"has the same top-1 class for only {agreement.agreed} of {agreement.compared} images"
            found.append(f"{step.title} ({step.runs}) {same}: something is wrong there, and its speed means nothing")
    return found


def _as_started(steps: Sequence[Step], result: BenchResult) -> tuple[Step, ...]:
    """Steps whose service did not start say so."""
    return tuple(
        step.without(f"its service did not start: {result.left_out[step.name]}") if step.name in result.left_out else step
        for step in steps
    )


def main() -> int:
    parser = options(__doc__, concurrency="16", baseline=True)
    parser.add_argument("--frontends", type=int, help="front-end processes of the last step; by default by the cores")
    given = parser.parse_args()
    try:
        return 0 if waterfall(config_of(given), frontends=given.frontends, console=Console()).bench.ok else 1
    except (HeadraceError, ValueError) as error:
        parser.error(str(error))


if __name__ == "__main__":
    sys.exit(main())
