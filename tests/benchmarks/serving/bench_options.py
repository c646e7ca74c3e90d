"""The options that the tools beside `headrace bench` share with it."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from headrace.migrate.resolving.resolve import resolve
from headrace.migrate.survey.survey import survey
from headrace.serving.bench.config import BenchConfig
from headrace.serving.bench.services import only_model

__all__ = ["config_of", "options"]


def options(about: str | None, *, concurrency: str, baseline: bool) -> argparse.ArgumentParser:
    """A parser with the options of every such tool; `baseline` says that the original repository is needed."""
    parser = argparse.ArgumentParser(description=(about or "").partition("\n")[0])
    parser.add_argument("models", type=Path, help="a model repository, as headrace migrate writes it")
    parser.add_argument("--model", help="the model to measure, where there are several")
    if baseline:
        parser.add_argument("--baseline", type=Path, required=True, help="the original repository")
    parser.add_argument("--images", type=Path, nargs="+", default=(), help="image files or folders to send")
    parser.add_argument("--concurrency", default=concurrency, help=f"requests at a time (default {concurrency})")
    parser.add_argument("--rounds", type=int, default=3, help="interleaved repetitions (default 3)")
    parser.add_argument("--seconds", type=float, default=5.0, help="length of one measurement (default 5)")
    parser.add_argument("--warm-up", type=float, default=1.0, help="seconds of load before each (default 1)")
    parser.add_argument(
        "--keep", action="store_true", help="start the services once, not for every round: what they try at first ends with it"
    )
    parser.add_argument("--out", type=Path, default=Path("build/bench"), help="where figures and logs go")
    return parser


def config_of(given: argparse.Namespace) -> BenchConfig:
    """What such a parser was given. Raises BenchError and AmbiguousError where no model is named, ValueError for numbers."""
    recipe: dict[str, Any] | None = resolve(survey(given.baseline)).recipe.to_json() if "baseline" in given else None
    return BenchConfig(
        models=given.models, out=given.out, model=given.model or only_model(given.models), images=tuple(given.images),
        baseline=recipe, concurrency=tuple(int(part) for part in given.concurrency.split(",")), rounds=given.rounds,
        seconds=given.seconds, warm_up_seconds=given.warm_up, restart=not given.keep, trust_repository=True,
    )  # fmt: skip
