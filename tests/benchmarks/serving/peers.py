"""Headrace beside other servers of the same model, and beside other frameworks by hand in the PyTorch service.

    python -m tests.benchmarks.serving.peers MODELS --baseline REPO [--peers litserve,ray] [--session headrace] [--out DIR]

Each is started by itself and driven in turn by the same load generator; those that are not installed are left out, said so.
Other servers are found in a folder, `--peers-from`, by default examples/peers: a file per service, and peers.json beside them.

    {"environments": "../../build/peers", "install": "make peers", "services": {"litserve": {"path": "/predict", ...}}}

`environments` holds a virtual environment per service, `install` is the command that makes them; `path`, `encoding` and `field`
say where and how the service takes an image (see `Service`). NAME_service.py is started as

    ENVIRONMENTS/NAME/bin/python NAME_service.py --model MODELS/NAME --session SESSION --ready-file FILE
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import get_args

from rich.console import Console

from headrace.errors import BenchError, HeadraceError
from headrace.runtime.artifact.artifact import load_artifact
from headrace.serving.bench.config import BenchConfig
from headrace.serving.bench.load.messages import Encoding
from headrace.serving.bench.reporting.plots import bench_plot
from headrace.serving.bench.reporting.report import Figures, bench_report, latencies, shown_name, with_spread, write_report
from headrace.serving.bench.reporting.result import BenchResult
from headrace.serving.bench.run import measure
from headrace.serving.bench.servers import Service
from headrace.serving.bench.services import only_model

from .bench_options import config_of, options
from .frameworks import FRAMEWORKS

__all__ = ["SESSIONS", "bench", "by_hand_services", "peers_in", "services_table"]

MANIFEST = "peers.json"
SESSIONS = ("onnxruntime", "headrace")


def peers_in(
    folder: Path, model: Path, *, session: str = "onnxruntime", names: Sequence[str] | None = None
) -> tuple[tuple[Service, ...], dict[str, str]]:
    """The services that are installed, and for the others why they are left out. `names` are those wanted; by default all.

    `model` is the model's folder. With the session "onnxruntime" they run its fp32 graph as that comes, with "headrace" what
    Headrace compiled, so that the server alone differs. Raises BenchError where the folder does not say what is in it.
    """
    try:
        content = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
        services, install = dict(content["services"]), str(content["install"])
        environments = folder / str(content["environments"])
        for service in services.values():
            if service["encoding"] not in get_args(Encoding):
                raise ValueError(f"no encoding {service['encoding']!r}")
            str(service["path"]), str(service["field"])
    except OSError as error:
        raise BenchError(
            f"{folder / MANIFEST} cannot be read ({error.strerror}); give --peers-from DIR, such as examples/peers"
        ) from error
    except (KeyError, TypeError, ValueError) as error:
        raise BenchError(f"{folder / MANIFEST} does not say which services there are: {error!r}") from error
    wanted = list(services) if names is None else list(names)
    if unknown := sorted(set(wanted) - set(services)):
        raise BenchError(f"{folder} has no service {unknown[0]!r}; it has {', '.join(services)}")
    found, absent = [], {}
    for name in wanted:
        python = environments / name / "bin" / "python"
        if not python.exists():
            absent[name] = f"it is not installed; `{install}` does that"
            continue
        script = folder.resolve() / f"{name}_service.py"
        command = (str(python.absolute()), str(script), "--model", str(model.resolve()), "--session", session)
        service = services[name]
        found.append(
            Service(
                name=name,
                command=(*command, "--ready-file", "{ready}"),
                path=service["path"],
                encoding=service["encoding"],
                field=service["field"],
            )
        )
    return tuple(found), absent


def by_hand_services(config: BenchConfig, frameworks: Sequence[str] = FRAMEWORKS) -> tuple[Service, ...]:
    """The original model in the PyTorch service, run by each of these frameworks; told what it serves as the baseline is."""
    name = config.model or only_model(config.models)
    row = ",".join(map(str, load_artifact(config.models / name, trusted=True).signature.inputs[0].row_shape))
    settings = str(config.out.resolve() / "logs" / "baseline.json")  # `measure` writes it
    script = str(Path(__file__).with_name("frameworks.py").resolve())
    return tuple(
        Service(
            name=framework,
            command=(sys.executable, "-P", script, framework, row, settings, "{ready}"),
            path=f"/v1/classify/{name}?k={config.k}",
        )
        for framework in frameworks
    )


def bench(config: BenchConfig, others: Sequence[Service], *, console: Console) -> BenchResult:
    """As `headrace bench`, with others between the PyTorch service and Headrace; a row of the table for each."""
    result = measure(config, console=console, others=others)
    report = bench_report(result)
    report = replace(report, tables=[services_table(result, report.title)])
    plot = partial(bench_plot, result)
    write_report(config.out.resolve(), "bench", report, content=result.to_json(), plot=plot, console=console)
    return result


def services_table(result: BenchResult, title: str) -> Figures:
    """Many services below each other: a row per concurrency and service, and how much faster the last one is than it."""
    table = Figures(title)
    table.column("at a\ntime")
    table.column("service", justify="left")
    table.column("req/s")
    table.column("p50 / p99\nms", no_wrap=True)
    table.column(f"{shown_name(result.services[-1])}\nis faster", style="bold")
    for concurrency in result.concurrency:
        for name in result.services:
            last = name == result.services[-1]
            table.row(
                str(concurrency) if name == result.services[0] else "",
                shown_name(name),
                with_spread(result.requests_per_second(name, concurrency)),
                latencies(result, name, concurrency),
                "" if last else with_spread(result.ratio(concurrency, reference=name), "x", digits=2),
                end_section=last,
            )
    return table


def main() -> int:
    parser = options(__doc__, concurrency="16", baseline=True)
    parser.add_argument("--peers", help="which of the folder's servers, with commas between; by default all")
    parser.add_argument("--peers-from", type=Path, default=Path("examples/peers"), help="a folder with peers.json")
    parser.add_argument("--session", choices=SESSIONS, default="onnxruntime", help="what the other servers run")
    parser.add_argument(
        "--no-frameworks", action="store_true", help="leave out torch.compile, ONNX Runtime and OpenVINO by hand"
    )
    given = parser.parse_args()
    console = Console(soft_wrap=True)
    try:
        config = config_of(given)
        names = given.peers.split(",") if given.peers else None
        model = given.models / (config.model or only_model(given.models))
        found, absent = peers_in(given.peers_from, model, session=given.session, names=names)
        for name, why in absent.items():
            console.print(f"{name} is left out: {why}", highlight=False)
        by_hand = () if given.no_frameworks else by_hand_services(config)
        return 0 if bench(config, (*by_hand, *found), console=console).ok else 1
    except (HeadraceError, ValueError) as error:
        parser.error(str(error))


if __name__ == "__main__":
    sys.exit(main())
