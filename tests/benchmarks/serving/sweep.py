"""How throughput and latency of a server go with concurrency and batch size, beside what the machine can do.

    python -m tests.benchmarks.serving.sweep MODELS [--images DIR] [--concurrency 1,2,4,8,16,32,64] [--out DIR]

The machine's peaks and the model's batches are measured first, alone (roofline.py), then the server under each
concurrency in turn. The knee is the lowest concurrency that reaches 95 % of the most requests per second: beyond it more
requests at a time only wait longer.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from rich.console import Console

from headrace.errors import HeadraceError
from headrace.serving.bench.config import BenchConfig
from headrace.serving.bench.reporting.report import Figures, Report, bench_report, number, write_report
from headrace.serving.bench.reporting.result import BenchResult
from headrace.serving.bench.run import measure
from headrace.serving.bench.servers import run_to_end
from headrace.serving.bench.services import HEADRACE, only_model
from headrace.specs import Precision

from .bench_options import config_of, options
from .sweep_plot import capacity_plot

__all__ = ["Capacity", "sweep"]

KNEE_SHARE = 0.95
_ROOFLINE_SECONDS = 1800.0


@dataclass(frozen=True, kw_only=True)
class Capacity:
    """The server under each concurrency, and what `roofline` found."""

    bench: BenchResult
    machine: Mapping[str, Any]

    @property
    def best(self) -> int | None:
        """The concurrency with the most requests per second; None when nothing was answered."""
        rates = self._rates()
        return max(rates, key=rates.__getitem__) if rates else None

    @property
    def knee(self) -> int | None:
        """The lowest concurrency that nearly reaches the most."""
        rates = self._rates()
        most = max(rates.values(), default=0.0)
        return next((level for level, rate in sorted(rates.items()) if rate >= KNEE_SHARE * most), None)

    @property
    def roof(self) -> tuple[str, float] | None:
        """The highest roof among the plan's precisions, with its precision; None where the operations are not known.

        What is quantized may leave other layers in floats, but nothing can be faster than its fastest precision.
        """
        used = {Precision.read(batch["precision"]).dtype for batch in self.machine["batches"]}
        roofs = {name: max(found.values()) for name, found in self.machine["roofs"].items() if name in used}
        return max(roofs.items(), key=lambda pair: pair[1]) if roofs else None

    @property
    def shares(self) -> dict[str, float]:
        """The share of that roof that the server reached at its best, and the session alone at its best batch size."""
        if self.roof is None:
            return {}
        _, roof = self.roof
        alone = max(batch["rows_per_second"]["median"] for batch in self.machine["batches"])
        return {"served": max(self._rates().values(), default=0.0) / roof, "session": alone / roof}

    def _rates(self) -> dict[int, float]:
        found = {level: self.bench.requests_per_second(HEADRACE, level) for level in self.bench.concurrency}
        return {level: spread.median for level, spread in found.items() if spread is not None and spread.median > 0}

    def to_json(self) -> dict[str, Any]:
        """What the benchmark says, with the rest under "capacity"."""
        roof = None if self.roof is None else {"precision": self.roof[0], "rows_per_second": self.roof[1]}
        own = {"knee": self.knee, "best": self.best, "roof": roof, "shares": self.shares, "machine": dict(self.machine)}
        return {**self.bench.to_json(), "capacity": own}


def sweep(config: BenchConfig, *, console: Console | None = None) -> Capacity:
    """Measure the machine, then the server; write sweep.json, .md and .png into `config.out`.

    A baseline of `config` is not measured. Raises BenchError when the machine's figures cannot be taken, and what `measure`
    raises.
    """
    console = console or Console()
    name = config.model or only_model(config.models)
    out = config.out.resolve()
    logs = out / "logs"
    logs.mkdir(parents=True, exist_ok=True)
    machine = _machine(config.models / name, logs, config.seconds, console)
    found = Capacity(bench=measure(config, console=console), machine=machine)
    plot = partial(capacity_plot, found.bench, found.machine, found.knee)
    write_report(out, "sweep", _report(found), content=found.to_json(), plot=plot, console=console)
    return found


def _machine(folder: Path, logs: Path, seconds: float, console: Console) -> dict[str, Any]:
    target, log = logs / "roofline.json", logs / "roofline.log"
    target.unlink(missing_ok=True)
    log.write_bytes(b"")
    command = [sys.executable, str(Path(__file__).with_name("roofline.py")), str(folder.resolve()), str(target)]
    command += ["--seconds", str(min(1.0, seconds))]
    with console.status("measuring what the machine can do"):
        run_to_end(command, log=log, timeout_seconds=_ROOFLINE_SECONDS, tick=lambda: None, what="measuring the machine")
    found: dict[str, Any] = json.loads(target.read_text())
    return found


def _report(found: Capacity) -> Report:
    batches = Figures("The session alone, by batch size")
    for column in ("batch", "rows/s", "runs"):
        batches.column(column, justify="left" if column == "runs" else "right")
    for batch in found.machine["batches"]:
        rate = batch["rows_per_second"]
        spread = f"{number(rate['median'])} ({number(rate['low'])}-{number(rate['high'])})"
        batches.row(str(batch["batch"]), spread, batch["runs"])
    machine = Figures("The machine")
    for column in ("", "measured peak", "reached by", "roof of this model, images/s"):
        machine.column(column, justify="right" if column == "measured peak" else "left")
    for row in _machine_rows(found):
        machine.row(*row)
    served = bench_report(found.bench)
    return replace(served, tables=[*served.tables, batches, machine], sentences=[*served.sentences, *_sentences(found)])


def _machine_rows(found: Capacity) -> list[tuple[str, str, str, str]]:
    rows = []
    for precision, peak in found.machine["peaks"].items():
        roofs = found.machine["roofs"].get(precision, {})
        text = ", ".join(f"{number(roof)} at batch {batch}" for batch, roof in list(roofs.items())[:: max(1, len(roofs) - 1)])
        rows.append((precision, f"{number(peak['operations_per_second'] / 1e9)} GOP/s", str(peak["by"]), text or "-"))
    copied = found.machine["copy_bytes_per_second"] / 1e9
    return [*rows, ("copy", f"{number(copied)} GB/s", "torch", "read and written bytes counted")]


def _sentences(found: Capacity) -> list[str]:
    sentences = []
    if found.knee is not None and found.best is not None:
        sentences.append(f"The knee is at {found.knee} requests at a time; most are answered at {found.best}.")
    if found.roof is not None:
        precision, roof = found.roof
        served, alone = found.shares["served"], found.shares["session"]
        sentences.append(
            f"The roof in {precision} is {number(roof)} images/s: the session alone reaches {alone:.0%} of it, "
            f"the server with decoding and the load generator on the same machine {served:.0%}."
        )
    if "unknown" in found.machine:
        sentences.append(f"There is no roof: {found.machine['unknown']}.")
    return sentences


def main() -> int:
    parser = options(__doc__, concurrency="1,2,4,8,16,32,64", baseline=False)
    given = parser.parse_args()
    try:
        return 0 if sweep(config_of(given), console=Console()).bench.ok else 1
    except (HeadraceError, ValueError) as error:
        parser.error(str(error))


if __name__ == "__main__":
    sys.exit(main())
