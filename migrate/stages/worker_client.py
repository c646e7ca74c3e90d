"""Have the runtime's worker build, capture, prove and package the model, in the sandbox: one request, one response.

The worker is `python -m headrace.migrate.worker.worker REQUEST.json RESPONSE.json`; the migrator only knows that command line.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from ...errors import SandboxError
from ...specs import Preprocessing
from ..proving.sandbox import Sandbox
from ..proving.trace_transform import PROBE
from ..proving.verify import Recorded

__all__ = ["Sandbox", "ask", "class_names", "inspect", "model_name", "package", "smoke_test"]
WORKER = ("-P", "-m", "headrace.migrate.worker.worker")
Progress = Callable[[float, str], None]
# In a process of its own, in a folder of its own: nothing of the repository is on its path.
SMOKE = """
import json, sys
import torch, headrace
row = json.loads(sys.argv[2])
output = headrace.load(sys.argv[1])(torch.rand(1, *row))
output = output[0] if isinstance(output, (list, tuple)) else output
assert bool(torch.isfinite(output).all()), "the output is not finite"
print(json.dumps(list(output.shape)))
"""
SMOKE_ALL = """
import json, sys
from pathlib import Path
import torch, headrace
for name, path, row in json.loads(Path(sys.argv[1]).read_text()):
    try:
        graph = headrace.load(path)
        output = graph(torch.rand(1, *row))
        output = output[0] if isinstance(output, (list, tuple)) else output
        why = "" if torch.isfinite(output).all() else "the output is not finite"
    except Exception as error:
        why = " ".join(f"{type(error).__name__}: {error}".split())
    print("SMOKE", name, why, flush=True)
"""
NAMES = """
import json, os, sys
from pathlib import Path
request = json.loads(Path(sys.argv[1]).read_text())
sys.path.insert(1, request["here"])
from trace_probe import evaluate
names = evaluate(request["recipe"], request["recipe"]["names"])
if isinstance(names, dict):
    by_index = all(isinstance(key, int) or str(key).isdigit() for key in names)
    items = names.items() if by_index else ((index, name) for name, index in names.items())
    pairs = [(int(index), name) for index, name in items]
    if sorted(index for index, _ in pairs) != list(range(len(pairs))):
        raise SystemExit("the indices of the class names are not 0, 1, 2, ...")
    names = [value for _, value in sorted(pairs)]
Path(request["out"]).write_text(json.dumps([str(name) for name in names]))
"""


def model_name(name: str) -> str:
    """A name that a model repository takes: letters, digits, dot, dash and underscore, not starting with a dot or dash."""
    plain = re.sub(r"[^A-Za-z0-9_.-]+", "_", name).strip("_.-")
    return plain or "model"


def inspect(recipe: Mapping[str, Any], row: tuple[int, int, int] | None, sandbox: Sandbox) -> dict[str, Any]:
    """The worker's answer about the model: class, parameters, an input that works, number of classes, kind of output."""
    return ask({"task": "inspect", "recipe": dict(recipe), "input": list(row) if row else None}, sandbox)


def package(
    recipe: Mapping[str, Any],
    *,
    name: str,
    row: tuple[int, int, int],
    recorded: Recorded | None,
    own_outputs: bool,
    labels: list[str] | None,
    preprocessing: Preprocessing | None,
    precision: str,
    device: str,
    tuning_seconds: float | None,
    fresh: bool,
    provenance: Mapping[str, Any],
    sandbox: Sandbox,
    progress: Progress | None = None,
) -> dict[str, Any]:
    """The worker's answer to packaging the model as `scratch/models/<name>`.

    `recorded` gives the gate its images; `own_outputs` says that its outputs are this model's. `fresh` weights are randomised
    before parity, because freshly built layers can agree trivially. `device` is what the plan is made for, which by default
    takes the time that is usual there.
    """
    images: Path | None = None
    if recorded is not None and recorded.inputs.ndim == 4:
        images = sandbox.readable_folder() / "images.npz"
        arrays: dict[str, np.ndarray] = {"images": recorded.inputs.astype(np.float32)}
        if recorded.targets is not None:
            arrays["labels"] = recorded.targets
        if own_outputs and not fresh:
            arrays["outputs"] = recorded.outputs.astype(np.float32)
        np.savez(images, **arrays)  # type: ignore[arg-type]
    writable = sandbox.writable_folder()
    (writable / "models").mkdir()
    request = {
        "task": "package",
        "recipe": dict(recipe),
        "name": name,
        "out": str(writable / "models" / name),
        "input": list(row),
        "images": str(images) if images else None,
        "labels": labels,
        "preprocessing": preprocessing.to_json() if preprocessing else None,
        "precision": precision,
        "device": device,
        "randomise": fresh,
        "max_tuning_seconds": tuning_seconds,
        "provenance": dict(provenance),
    }
    answer = ask(request, sandbox, progress, writable=writable)
    if answer["ok"]:
        if any(path.is_symlink() for path in (writable / "models").rglob("*")):
            return {"ok": False, "stage": "package", "error": "the package holds links, which no package of Headrace does"}
        kept = sandbox.scratch / "models"  # out of reach of whatever runs later
        kept.mkdir(exist_ok=True)
        for folder in (writable / "models").iterdir():
            folder.rename(kept / folder.name)
    return answer


def ask(
    request: Mapping[str, Any], sandbox: Sandbox, progress: Progress | None = None, *, writable: Path | None = None
) -> dict[str, Any]:
    """One request to the worker. A worker that dies or breaks a limit is an answer too: {"ok": false, "error": ...}."""
    writable = writable or sandbox.writable_folder()
    asked, answered = sandbox.readable_folder() / "request.json", writable / "response.json"
    asked.write_text(json.dumps(request), encoding="utf-8")

    def on_line(line: str) -> None:
        word, _, rest = line.partition(" ")
        fraction, _, text = rest.partition(" ")
        if word == "PROGRESS" and progress is not None and re.fullmatch(r"\d(\.\d+)?", fraction):
            progress(min(1.0, float(fraction)), text)

    if sandbox.server is not None:
        why = sandbox.server(asked, answered, on_line)
    else:
        why = sandbox.run([*WORKER, str(asked), str(answered)], writable, on_line=on_line).why
    if not answered.exists():
        return {"ok": False, "stage": "build", "error": f"the worker left no answer: {why}"}
    answer: dict[str, Any] = json.loads(answered.read_text(encoding="utf-8"))
    return answer


def smoke_tests(artifacts: Mapping[str, tuple[Path, tuple[int, int, int]]], sandbox: Sandbox) -> dict[str, str | None]:
    """As `smoke_test`, for a whole repository of models in one fresh process, one after the other: the failures by name."""
    listed = [[name, str(path), list(row)] for name, (path, row) in artifacts.items()]
    asked = sandbox.readable_folder() / "artifacts.json"
    asked.write_text(json.dumps(listed), encoding="utf-8")
    found: dict[str, str | None] = {}

    def on_line(line: str) -> None:
        word, _, rest = line.partition(" ")
        name, _, why = rest.partition(" ")
        if word == "SMOKE" and name in artifacts:
            found[name] = why or None

    sandbox.run(["-P", "-c", SMOKE_ALL, str(asked)], sandbox.writable_folder(), on_line=on_line)
    # the process itself may have died over one of them: those that it did not come to are tried alone
    return {name: found[name] if name in found else smoke_test(*place, sandbox) for name, place in artifacts.items()}


def smoke_test(artifact: Path, row: tuple[int, int, int], sandbox: Sandbox) -> str | None:
    """Load the package in a fresh process that knows nothing of the repository, and run one input: the failure, or None."""
    return sandbox.run(["-P", "-c", SMOKE, str(artifact), json.dumps(list(row))], sandbox.writable_folder()).why


def class_names(recipe: Mapping[str, Any], sandbox: Sandbox) -> list[str]:
    """The class names that a piece of the user's code evaluates to. Raises SandboxError when it fails."""
    writable = sandbox.writable_folder()
    asked, answered = sandbox.readable_folder() / "request.json", writable / "names.json"
    request = {"recipe": dict(recipe), "here": str(PROBE.parent), "out": str(answered)}
    asked.write_text(json.dumps(request), encoding="utf-8")
    done = sandbox.run(["-c", NAMES, str(asked)], writable)
    if not done.ok:
        raise SandboxError(f"the class names could not be computed: {done.why}", output=done.stderr)
    names: list[str] = json.loads(answered.read_text(encoding="utf-8"))
    return names
