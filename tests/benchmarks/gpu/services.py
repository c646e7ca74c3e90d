"""The services under load: FastAPI with eager PyTorch, and `headrace serve` of the plan, one after the other in every round."""

from __future__ import annotations

import json
import shutil
import statistics
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gpu.bench import described
from gpu.pipeline import LEAST_AGREEMENT, K

if TYPE_CHECKING:
    from gpu.bench import Bench, Subject

BASELINE, HEADRACE = "baseline", "headrace"
_SOURCE = """
import torch
from models import build
model = build({name!r}, {size}, tiny={tiny})
model.load_state_dict(torch.load({weights!r}, map_location="cpu", weights_only=True))
"""
_BESIDE = "models.py"


def over_http(
    bench: Bench,
    subject: Subject,
    preprocessing: Any,
    photos: Sequence[Path],
    textures: Sequence[Path],
    classes: Sequence[int],
    found: dict[str, Any],
) -> None:
    """Fills `found`: what each service answers and how fast, at every concurrency, with the ratios to the baseline.

    A service that does not start is a failure; the others are measured. Raises when fewer than two are left.
    """
    from headrace.serving.bench.load.load import LoadRequest
    from headrace.serving.bench.servers import Server
    from headrace.serving.bench.services import under_load

    logs = bench.folder / "logs"
    logs.mkdir()
    services = _services(bench, subject, preprocessing, logs)
    found["services"] = {}
    concurrencies = (1, 4) if bench.quick else (1, 64, 256, 512, 1024)
    rounds = 1 if bench.quick else 2
    with ExitStack() as stack:
        servers: dict[str, Server] = {}
        for service, what in services:
            record = found["services"][service.name] = {"is": what}
            if len(servers) > 1 and bench.here < 30 + 3 * rounds * len(concurrencies) * len(servers):
                record["status"] = "skipped: no time left"
                continue
            limit = max(60.0, min(180.0, bench.left))
            server = stack.enter_context(Server(service, folder=logs, timeout_seconds=limit))
            try:
                server.wait_ready()
                server.pause()
                record |= {"status": "ran", "start_seconds": round(server.start_seconds, 1), "ready": server.ready}
                record |= _answers(under_load, LoadRequest, server, textures, classes, logs)
            except Exception as error:  # noqa: BLE001 - one service's failure is a result; the others are measured
                record["status"] = f"failed: {described(error)}"
                record["log"] = server.log.read_text(errors="replace")[-3000:]
                bench.failed(f"served by {service.name}: {record['status']}")
                continue
            servers[service.name] = server
            bench.say(
                f"{service.name}: ready after {server.start_seconds:.0f} s, right on {record['accuracy']:.1%} of the textures"
            )
        if len(servers) < 2:
            raise RuntimeError(f"only {', '.join(servers) or 'none'} of the services could be measured")
        each = 0.7 if bench.quick else max(1.2, min(5.0, (bench.here - 5) / (rounds * len(concurrencies) * len(servers)) - 1.0))
        found |= {"seconds_each": each, "rounds": rounds, "concurrency": {}}
        for concurrency in concurrencies:
            samples: dict[str, list[Any]] = {name: [] for name in servers}
            used: dict[str, list[float]] = {name: [] for name in servers}
            for number in range(rounds):
                for name, server in list(servers.items())[:: 1 if number % 2 == 0 else -1]:
                    request = LoadRequest(
                        url=server.url, images=tuple(map(str, photos)), connections=concurrency,
                        processes=min(concurrency, 1 if bench.quick else 5), seconds=each,
                        warm_up_seconds=0.2 if bench.quick else 0.6,
                    )  # fmt: skip
                    before = server.cpu_seconds()
                    samples[name].append(under_load(server, request, folder=logs))
                    used[name].append((server.cpu_seconds() - before) / (request.seconds + request.warm_up_seconds))
            found["concurrency"][str(concurrency)] = line = {name: _summary(taken) for name, taken in samples.items()}
            for name, item in line.items():
                item["processors_used"] = statistics.median(used[name])
                base = line.get(BASELINE, {}).get("requests_per_second")
                item["ratio"] = item["requests_per_second"] / base if base else None
                more = f", {item['ratio']:.2f}x the baseline" if base and name != BASELINE else ""
                bench.say(
                    f"{concurrency} at a time, {name}: {item['requests_per_second']:.5g} requests/s{more}, "
                    f"{item['processors_used']:.1f} processors"
                )
                if item["errors"]:
                    bench.failed(f"served by {name}, {concurrency} at a time: {item['errors']}")
    found["best"] = {name: max(line[name]["requests_per_second"] for line in found["concurrency"].values()) for name in servers}
    _compare_answers(bench, found["services"])
    if found["best"].get(BASELINE) and HEADRACE in found["best"]:
        found["ratio"] = found["best"][HEADRACE] / found["best"][BASELINE]
        bench.say(f"served, each at its best concurrency: headrace {found['ratio']:.2f}x the PyTorch service")
    found["status"] = "ran"


def _answers(under_load: Any, request: Any, server: Any, textures: Sequence[Path], classes: Sequence[int], logs: Path) -> dict:
    """Every texture once: the share that is answered with its class."""
    asked = request(kind="once", url=server.url, images=tuple(map(str, textures)), connections=4)
    result = under_load(server, asked, folder=logs)
    if not any(answer is not None for answer in result.answers):
        raise RuntimeError(f"it answered none of the images: {result.error_examples}")
    right = sum(answer == wanted for answer, wanted in zip(result.answers, classes, strict=True))
    return {"accuracy": right / len(classes), "answers": list(result.answers), "errors": result.errors}


def _compare_answers(bench: Bench, services: dict[str, dict[str, Any]]) -> None:
    """The share of textures whose class is the baseline's; bf16 and another JPEG decoder may change those that are close."""
    wanted = services[BASELINE].get("answers")
    for name, record in services.items():
        if wanted and name != BASELINE and "answers" in record:
            same = sum(a == b for a, b in zip(record["answers"], wanted, strict=True)) / len(wanted)
            record["top1_agreement"] = same
            if same < LEAST_AGREEMENT:
                bench.failed(f"served by {name}: top-1 agrees with the baseline's for {same:.1%} of the textures")


def _summary(taken: Sequence[Any]) -> dict[str, Any]:
    """The medians of the rounds; all rates, so that their spread is seen."""
    rates = [one.requests_per_second for one in taken]
    latency = {key: statistics.median(one.latency_ms[key] for one in taken) for key in taken[0].latency_ms}
    errors: dict[str, int] = {}
    for one in taken:
        for reason, count in one.errors.items():
            errors[reason] = errors.get(reason, 0) + count
    return {
        "requests_per_second": statistics.median(rates),
        "rounds": rates,
        "latency_ms": latency,
        "rejected": sum(sum(one.rejected.values()) for one in taken),
        "errors": errors,
    }


def _services(bench: Bench, subject: Subject, preprocessing: Any, logs: Path) -> list[tuple[Any, str]]:
    """By importance, each with what it is."""
    from headrace.serving.bench.servers import Service
    from headrace.serving.bench.services import headrace_service

    models = _packaged(bench, subject, preprocessing)
    settings = {
        "recipe": _recipe(bench, subject), "preprocessing": preprocessing.to_json(), "name": subject.name,
        "task": {"heads": [{"output": "scores", "kind": "single-label"}]}, "device": bench.device,
    }  # fmt: skip
    (logs / "baseline.json").write_text(json.dumps(settings))
    path = f"/v1/classify/{subject.name}?k={K}"
    naive = (sys.executable, "-m", "headrace.serving.bench.baseline", str(logs / "baseline.json"), "{ready}")
    one = ("--frontends", "0", "--decoding")
    return [
        (Service(name=BASELINE, command=naive, path=path), "FastAPI, eager fp32, Pillow, one image at a time"),
        (headrace_service(models, path, name=HEADRACE, trusted=True), "headrace serve, as it comes"),
        (
            headrace_service(models, path, name="headrace-exact", options=(*one, "exact"), trusted=True),
            "headrace serve in one process, Pillow's pixels: batching and the plan",
        ),
        (
            headrace_service(models, path, name="headrace-one-process", options=(*one, "fast"), trusted=True),
            "headrace serve in one process, decoding by libjpeg-turbo where it is installed",
        ),
    ]


def _recipe(bench: Bench, subject: Subject) -> dict[str, Any]:
    """How the baseline builds the model: its definition in a repository of its own, with the weights beside it."""
    import torch

    root = bench.folder / "repository"
    root.mkdir()
    shutil.copy(Path(__file__).resolve().parents[1] / _BESIDE, root)
    torch.save(subject.model.state_dict(), root / "weights.pt")
    source = _SOURCE.format(name=subject.name, size=bench.size, tiny=bench.quick, weights=str(root / "weights.pt"))
    return {"root": str(root), "directory": ".", "script": _BESIDE, "argv": [], "source": source, "expression": "model"}


def _packaged(bench: Bench, subject: Subject, preprocessing: Any) -> Path:
    """A model repository with the plan and the files that it opens, as measured before."""
    from models import CLASSES

    from headrace.runtime.artifact.package import write_package

    files, models = bench.folder / "served-files", bench.folder / "models"
    models.mkdir()
    for name in sorted({name for choice in subject.plan.choices.values() for name in choice.files}):
        (files / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(subject.directory / name, files / name)
    write_package(
        models / subject.name, name=subject.name, files_from=files, signature=subject.signature, preprocessing=preprocessing,
        labels=[f"texture {number}" for number in range(CLASSES)], parity=subject.plan.worst_parity(), plans=[subject.plan],
        provenance={"written_by": "make bench-gpu"},
    )  # fmt: skip
    return models
