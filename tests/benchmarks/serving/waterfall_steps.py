"""The steps from a plain PyTorch service to Headrace, one change at a time, each a service that can be started."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from headrace.errors import BenchError
from headrace.serving.bench.servers import Service, run_to_end
from headrace.serving.bench.services import headrace_service
from headrace.serving.config import ServeConfig

__all__ = ["FIRST", "Step", "make_steps", "write_forms"]

FIRST = "baseline"
_BUILD_SECONDS = 3600.0


@dataclass(frozen=True, kw_only=True)
class Step:
    """One change. `service` is the service that has it and all before it; None where there is none, and `why` says why.

    `name` is the service's; `title` names the change for people, `runs` says what then runs.
    """

    name: str
    title: str
    runs: str = ""
    why: str = ""
    service: Service | None = None

    def without(self, why: str) -> Step:
        """The same step as one that could not be made."""
        return replace(self, service=None, why=why)

    def to_json(self) -> dict[str, Any]:
        return {"name": self.name, "title": self.title, "runs": self.runs, "why": self.why}


# Forms of the model (forms.py) in order, with the title of the change that each is.
_FORMS = {
    "unbatched": ("server", "Headrace's server: images decoded beside the model"),
    "eager": ("batching", "dynamic batching"),
    "graph": ("graph", "graph captured, constants and normalizations folded"),
    "layout": ("layout", "layout: channels last"),
    "compiled": ("compiled", "compiled kernels, fp32"),
    "precision": ("precision", "precision: bf16, fp16 or fp8"),
    "int8": ("int8", "int8"),
}


def make_steps(forms: Sequence[Mapping[str, Any]], path: str, *, frontends: int | None = None) -> list[Step]:
    """Every step in order, from the forms of the model as the process of forms.py wrote them; `path` is the route measured.

    `frontends` is the number of processes of the last step; by default as many as the server would take, at least one.
    """
    steps = [
        Step(
            name=FIRST,
            title="a PyTorch service",
            runs="FastAPI, eager fp32, Pillow, one image at a time",
        ),
        Step(
            name="persistent",
            title="persistent process, eval() and no_grad()",
            why="the PyTorch service has them already, as its documentation shows it: that is where this starts",
        ),
    ]
    models: Path | None = None
    written = {str(form["form"]): form for form in forms}
    options: tuple[str, ...] = ("--frontends", "0", "--decoding", "exact")

    def add(name: str, title: str, runs: str, *more: str) -> None:
        assert models is not None, "the first form is written, or nothing is measured"
        service = headrace_service(models, path, name=name, options=(*options, *more), trusted=True)
        steps.append(Step(name=name, title=title, runs=runs, service=service))

    def take(form: str, name: str, title: str, *more: str) -> None:
        nonlocal models
        found = written[form]
        if found["models"] is None:
            steps.append(Step(name=name, title=title, why=found["why"]))
            return
        models = Path(found["models"])
        add(name, title, found["runs"], *more)

    for form, (name, title) in _FORMS.items():
        take(form, name, title, *(("--instances", "1") if form == "unbatched" else ()))
    if models is None:
        raise BenchError(f"no form of the model could be written: {steps[-1].why}")
    options = ("--frontends", "0", "--decoding", "fast")
    add("fast", "libjpeg-turbo and SIMD resize", "--decoding fast, the default")
    options = ("--frontends", "0", "--decoding", "scaled")
    add("scaled", "scaled decoding of large JPEGs", "--decoding scaled")
    take("pixels", "pixels", "preprocessing in the graph")
    count = frontends or max(1, ServeConfig(models=models).front_ends)
    title, name = "requests taken in processes of their own", "processes"
    if sys.platform == "linux":
        options = ("--decoding", "scaled")
        add(name, title, f"--frontends {count}", "--frontends", str(count))
    else:
        steps.append(Step(name=name, title=title, why=f"front ends in processes need Linux, this is {sys.platform}"))
    return steps


def write_forms(
    recipe: Mapping[str, Any],
    artifact: Path,
    out: Path,
    images: Sequence[Path],
    *,
    logs: Path,
    report: Callable[[str], None] = lambda text: None,
) -> list[dict[str, Any]]:
    """Have a process of its own write every form of the model below `out`; `report` is called with what it does.

    The user's code builds the model in that process. Raises BenchError saying what went wrong there.
    """
    asked, answered, log = logs / "forms.request.json", logs / "forms.response.json", logs / "forms.log"
    answered.unlink(missing_ok=True)
    request = {
        "recipe": dict(recipe),
        "artifact": str(artifact.resolve()),
        "out": str(out.resolve()),
        "images": [str(path.resolve()) for path in images],
    }
    asked.write_text(json.dumps(request))
    log.write_bytes(b"")

    def tick() -> None:
        progress = [line for line in log.read_text(errors="replace").splitlines() if line.startswith("PROGRESS ")]
        if progress:
            report(progress[-1].split(" ", 2)[-1])

    # Not as a module of tests/: the user's code may have a package of that name.
    command = [sys.executable, "-P", str(Path(__file__).with_name("forms.py")), str(asked), str(answered)]
    run_to_end(command, log=log, timeout_seconds=_BUILD_SECONDS, tick=tick, what="writing the forms of the model")
    found: list[dict[str, Any]] = json.loads(answered.read_text())
    return found
