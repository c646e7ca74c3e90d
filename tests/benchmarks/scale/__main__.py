"""How many machines for how many images: stages measured, simulated, and multiplied.

python -m tests.benchmarks.scale measure MODELS --images DIR --out docs/stages.json     (make stages; a quiet machine)
python -m tests.benchmarks.scale validate       the simulation beside the served figures of the same minutes
python -m tests.benchmarks.scale predict        clusters, as JSON
python -m tests.benchmarks.scale docs           docs/scale.md, .json and .png
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path

from headrace.errors import HeadraceError
from headrace.runtime.base.atomic import write_aside

from .gpu import figures
from .sizing import Demand
from .stages import read
from .validate import compare

_STAGES = Path("docs/stages.json")


def _measure(given: argparse.Namespace) -> int:
    from .measure import MeasureConfig, measure

    config = MeasureConfig(
        models=given.models,
        model=given.model,
        images=tuple(given.images),
        connections=tuple(given.connections),
        rounds=given.rounds,
        seconds=given.seconds,
        stage_seconds=given.stage_seconds,
    )
    command = " ".join(["python -m tests.benchmarks.scale", *given.arguments])
    found = measure(config, command=command, progress=lambda line: print(line, file=sys.stderr, flush=True))
    write_aside(given.out, (json.dumps(found, indent=1) + "\n").encode())
    return 0


def _validate(given: argparse.Namespace) -> int:
    compared = compare(read(given.stages), seconds=given.seconds, seed=given.seed)
    for one in compared:
        verdict = "within" if one.holds else "OUTSIDE" if one.must_hold else "outside (shown only)"
        figures = f"measured {one.measured:,.1f}, simulated {one.simulated:,.1f}, {one.error:+.0%}"
        print(f"{one.traffic:<16} {one.figure:<11} {figures}: {verdict}")
    return 0 if all(one.holds for one in compared if one.must_hold) else 1


def _predict(given: argparse.Namespace) -> int:
    from .predict import predict

    found = predict(read(given.stages), figures(given.stages.parent), _demand(given), requests=given.requests, seed=given.seed)
    print(json.dumps(found, indent=1))
    return 0


def _docs(given: argparse.Namespace) -> int:
    from .page import markdown
    from .plot import plot
    from .predict import predict

    recorded, gpu, demand = read(given.stages), figures(given.stages.parent), _demand(given)
    compared = compare(recorded, seconds=given.seconds, seed=given.seed)
    predicted = predict(recorded, gpu, demand, requests=given.requests, seed=given.seed)
    from_means = compare(recorded, spec=recorded.spec.without_spread(), seconds=given.seconds, seed=given.seed)
    picture = given.out.with_suffix(".png")
    page = markdown(recorded, compared, predicted, gpu, demand, from_means=from_means, plot=picture.name)
    record = {"validation": [one.to_json() for one in compared], **predicted}
    write_aside(given.out.with_suffix(".json"), (json.dumps(record, indent=1) + "\n").encode())
    write_aside(picture, plot(compared, predicted["episodes"]))
    write_aside(given.out.with_suffix(".md"), page.encode())
    return 0


def _demand(given: argparse.Namespace) -> Demand:
    return Demand(images_per_day=given.images_per_day, peak=given.peak, image_bytes=read(given.stages).image_bytes)


def main(arguments: Sequence[str] | None = None) -> int:
    arguments = sys.argv[1:] if arguments is None else arguments
    parser = argparse.ArgumentParser(
        prog="python -m tests.benchmarks.scale", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    tasks = parser.add_subparsers(required=True)
    measuring = tasks.add_parser("measure", help="measure the stages and the server in the same minutes")
    measuring.add_argument("models", type=Path, help="a model repository")
    measuring.add_argument("--model", help="the tensor model in it, where there are several")
    measuring.add_argument("--images", type=Path, nargs="*", default=(), help="files or folders; by default the model's sample")
    measuring.add_argument("--connections", type=int, nargs="+", default=(1, 2, 4, 8, 16, 32))
    measuring.add_argument("--rounds", type=int, default=5)
    measuring.add_argument("--seconds", type=float, default=4.0, help="of each closed loop; Poisson traffic takes twice that")
    measuring.add_argument("--stage-seconds", type=float, default=14.0, help="of the stages in each round")
    measuring.add_argument("--out", type=Path, default=_STAGES)
    measuring.set_defaults(task=_measure)
    for name, task, text in (
        ("validate", _validate, "simulate what was served, and compare"),
        ("predict", _predict, "simulate clusters"),
        ("docs", _docs, "write the page"),
    ):
        command = tasks.add_parser(name, help=text)
        command.add_argument("--stages", type=Path, default=_STAGES)
        command.add_argument("--seed", type=int, default=0)
        if task is not _predict:
            command.add_argument("--seconds", type=float, default=20.0, help="virtual seconds of each kind of traffic")
        if task is not _validate:
            command.add_argument("--requests", type=int, default=8000, help="with which a rate is tried")
            command.add_argument("--images-per-day", type=float, default=100e6)
            command.add_argument("--peak", type=float, default=3.0, help="the busiest moment over the mean of the day")
        if task is _docs:
            command.add_argument("--out", type=Path, default=Path("docs/scale"), help="without its suffixes")
        command.set_defaults(task=task)
    given = parser.parse_args(arguments)
    given.arguments = arguments
    try:
        return int(given.task(given))
    except (HeadraceError, ValueError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
