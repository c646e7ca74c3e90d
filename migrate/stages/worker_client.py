"""Have the worker build, capture, prove and package the model, in the sandbox: one request, one response.

The worker is `python -m headrace.migrate.worker.worker REQUEST.json RESPONSE.json`; the migrator only knows that command line.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

import numpy as np

from ...errors import SandboxError
from ..proving.confined_run import TIME_LIMIT
from ..proving.sandbox import Sandbox, read_left, read_left_json
from ..proving.trace_transform import PROBE
from ..proving.verify import Recorded
from ..proving.worker_protocol import (
    Failed,
    Inspect,
    Inspected,
    ModelPackaged,
    Package,
    PackageOnnx,
    Request,
    Response,
    Row,
    decode,
    encode,
)
from ..reading.recipe import Recipe
from .left_package import why_no_package

WORKER = ("-P", "-m", "headrace.migrate.worker.worker")
Progress = Callable[[float, str], None]
_Kind = TypeVar("_Kind", Inspected, ModelPackaged)
# In a process of its own, in a folder of its own: nothing of the repository is on its path.
SMOKE_TEST = """
import json, sys
from pathlib import Path
import torch, headrace
from torch.utils._pytree import tree_leaves
for name, path, row in json.loads(Path(sys.argv[1]).read_text()):
    try:
        outputs = tree_leaves(headrace.load(path)(torch.rand(1, *row)))
        why = "" if all(torch.isfinite(output).all() for output in outputs) else "an output is not finite"
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
names = evaluate(request["recipe"])
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


def inspect(recipe: Recipe, row: Row | None, sandbox: Sandbox) -> Inspected | Failed:
    """What the model is, takes and gives; `row` is the input to use, where one is known."""
    return _expected(Inspected, ask(Inspect(recipe=recipe, input=row), sandbox))


def package_onnx(request: PackageOnnx, sandbox: Sandbox, progress: Progress) -> ModelPackaged | Failed:
    """Package the file as `scratch/models/<name>`, which `request.out` need not say."""
    return _packaged(request, sandbox, progress)


def package(
    request: Package, recorded: Recorded | None, sandbox: Sandbox, progress: Progress, *, own_outputs: bool
) -> ModelPackaged | Failed:
    """Package the model as `scratch/models/<name>`, which `request.out` need not say.

    `recorded` gives the gate its images; `own_outputs` says that its outputs are this model's.
    """
    if recorded is not None and recorded.inputs.ndim == 4:
        images = sandbox.readable_folder() / "images.npz"
        arrays: dict[str, np.ndarray] = {"images": recorded.inputs.astype(np.float32)}
        if recorded.targets is not None:
            arrays["labels"] = recorded.targets
        if own_outputs and not request.randomize:
            arrays["outputs"] = recorded.outputs.astype(np.float32)
        np.savez(images, **arrays)  # type: ignore[arg-type]
        request = replace(request, images=str(images), made=recorded.made)
    return _packaged(request, sandbox, progress)


def _packaged(request: Package | PackageOnnx, sandbox: Sandbox, progress: Progress) -> ModelPackaged | Failed:
    writable = sandbox.writable_folder()
    (writable / "models").mkdir()
    request = replace(request, out=str(writable / "models" / request.name))
    answer = _expected(ModelPackaged, ask(request, sandbox, progress, writable=writable))
    if not isinstance(answer, ModelPackaged):
        return answer
    try:
        if (why := why_no_package(writable / "models", request.name)) is not None:
            return Failed(stage="package", error=f"what the worker left is no package of Headrace: {why}")
        kept = sandbox.models
        kept.mkdir(exist_ok=True)
        for folder in (writable / "models").iterdir():
            folder.rename(kept / folder.name)
    except OSError as error:
        return Failed(stage="package", error=f"the package cannot be read: {error}")
    return answer


def ask(request: Request, sandbox: Sandbox, progress: Progress | None = None, *, writable: Path | None = None) -> Response:
    """One request to the worker. A worker that dies or breaks a limit is an answer too."""
    writable = writable or sandbox.writable_folder()
    asked, answered = sandbox.readable_folder() / "request.json", writable / "response.json"
    asked.write_text(encode(request), encoding="utf-8")

    def on_line(line: str) -> None:
        word, _, rest = line.partition(" ")
        fraction, _, text = rest.partition(" ")
        if word == "PROGRESS" and progress is not None and re.fullmatch(r"\d(\.\d+)?", fraction):
            progress(min(1.0, float(fraction)), text)

    if sandbox.server is not None:
        why = sandbox.server(asked, answered, on_line)
    else:
        why = sandbox.run([*WORKER, str(asked), str(answered)], writable, on_line=on_line).why
    if not os.path.lexists(answered):
        more = "; headrace migrate --timeout SECONDS gives it more" if (why or "").endswith(TIME_LIMIT) else ""
        return Failed(stage="build", error=f"the worker left no answer: {why}{more}")
    try:
        answer = decode(read_left(answered).decode())
    except (SandboxError, ValueError) as error:  # the user's code can write there too
        return Failed(stage="build", error=f"the worker's answer cannot be read: {error}")
    return answer if isinstance(answer, Response) else Failed(stage="build", error="the worker's answer is no answer")


def _expected(kind: type[_Kind], answer: Response) -> _Kind | Failed:
    if isinstance(answer, kind | Failed):
        return answer
    return Failed(stage="build", error=f"the worker answered something else: {type(answer).__name__}")


def smoke_tests(artifacts: Mapping[str, tuple[Path, Row]], sandbox: Sandbox) -> dict[str, str | None]:
    """Load the packages in a fresh process that knows nothing of the repository, and run one input each: the failures by name,
    None where there is none."""
    found: dict[str, str | None] = {}

    def on_line(line: str) -> None:
        word, _, rest = line.partition(" ")
        name, _, why = rest.partition(" ")
        if word == "SMOKE" and name in artifacts:
            found[name] = why or None

    asked = sandbox.readable_folder() / "artifacts.json"
    asked.write_text(json.dumps([[name, str(path), row] for name, (path, row) in artifacts.items()]), encoding="utf-8")
    done = sandbox.run(["-P", "-c", SMOKE_TEST, str(asked)], sandbox.writable_folder(), on_line=on_line)
    if len(artifacts) == 1:
        return {name: found.get(name, done.why or "it left no answer") for name in artifacts}
    # the process itself may have died over one of them: those that it did not come to are tried alone
    return {name: found[name] if name in found else smoke_tests({name: at}, sandbox)[name] for name, at in artifacts.items()}


def class_names(recipe: Recipe, sandbox: Sandbox) -> list[str]:
    """The class names that a piece of the user's code evaluates to. Raises SandboxError when it fails."""
    writable = sandbox.writable_folder()
    asked, answered = sandbox.readable_folder() / "request.json", writable / "names.json"
    request = {"recipe": recipe.to_json(), "here": str(PROBE.parent), "out": str(answered)}
    asked.write_text(json.dumps(request), encoding="utf-8")
    done = sandbox.run(["-c", NAMES, str(asked)], writable)
    if not done.ok:
        raise SandboxError(f"the class names could not be computed: {done.why}", output=done.stderr)
    names = read_left_json(answered)
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise SandboxError("the class names that were computed are no list of texts")
    return names
