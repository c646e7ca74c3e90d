"""The same requests to the embedded server and to Triton, and every point in which they answer differently."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from ...errors import BenchError, HeadraceError, TritonError
from ...runtime.artifact.artifact import load_artifact
from ...runtime.artifact.manifest import MANIFEST, read_manifest, write_manifest
from ...runtime.artifact.plan import Choice
from ...specs import FP32
from ..bench.servers import Server
from ..bench.services import headrace_service
from .cases import good_cases, unanswerable_cases
from .config import RunSettings
from .documented import Difference, explained
from .exchange import Answer, Case, HttpExchange, exchanges
from .install import Installed
from .run import TritonServer

_START_SECONDS = 300.0
_READY = "READY"


@dataclass(frozen=True, kw_only=True)
class Verification:
    """How many points were compared, and the differences, those with a documented reason among them."""

    triton: str
    models: tuple[str, ...]
    compared: int
    differences: tuple[Difference, ...]

    @property
    def unexplained(self) -> tuple[Difference, ...]:
        return tuple(one for one in self.differences if not one.documented)

    def to_json(self) -> dict[str, Any]:
        return {
            "triton": self.triton,
            "models": list(self.models),
            "compared": self.compared,
            "unexplained": len(self.unexplained),
            "differences": [difference.to_json() for difference in self.differences],
        }


def verify(
    models: Path, installed: Installed, folder: Path, *, tolerance: float = 1e-3, report: Callable[[str], None] = lambda _: None
) -> Verification:
    """Start both on free ports of the loopback and compare them. Their logs go to `folder`.

    The embedded server decodes exactly (`--decoding exact`), which is what the decoder on Triton does, and runs the graphs that
    Triton runs (`alike`). Outputs may differ by `tolerance`, relative to the largest. Raises TritonError when one of them
    cannot be started.
    """
    settings = RunSettings(http_port=0, grpc_port=0, metrics_port=0)
    report("starting the embedded server")
    scratch = Path(tempfile.mkdtemp(prefix=".verify-", dir=folder))
    with contextlib.ExitStack() as stack:
        stack.callback(shutil.rmtree, scratch)
        ours = stack.enter_context(embedded(alike(models, scratch), folder))
        report("starting Triton")
        server = stack.enter_context(TritonServer(installed, models, folder / "triton.log", settings))
        theirs = {"http": server.http, "grpc": server.grpc}
        return compare(ours, theirs, version=server.version, tolerance=tolerance, report=report)


def compare(
    ours: Mapping[str, str],
    theirs: Mapping[str, str],
    *,
    version: str,
    tolerance: float = 1e-3,
    report: Callable[[str], None] = lambda _: None,
) -> Verification:
    """Compare two servers that run and have nothing else to do. Both are addresses, HOST:PORT of "http" and "grpc"."""
    work = _Comparison(ours, theirs, tolerance)
    work.metadata()
    names = work.index()
    work.count_from_here(names)
    for name in names:
        report(f"comparing {name}")
        work.model(name)
    for name in names:  # once all have been asked: an ensemble's requests count for its steps
        work.statistics(name)
    for name in names:
        work.mistakes(name)
    return Verification(
        triton=version,
        models=tuple(names),
        compared=work.compared,
        differences=tuple(explained(one) for one in work.differences),
    )


@contextlib.contextmanager
def embedded(models: Path, folder: Path) -> Iterator[dict[str, str]]:
    """The embedded server on free ports of the loopback."""
    options = ("--decoding", "exact", "--model-control-mode", "explicit", "--load-model", "*")
    service = headrace_service(models, "", name="embedded", options=options)
    with Server(service, folder=folder, timeout_seconds=_START_SECONDS) as server:
        try:
            server.wait_ready()
        except BenchError as error:
            raise TritonError(
                f"the embedded server does not serve {models}; headrace serve says why:\n{server.tail()}"
            ) from error
        yield {name: f"127.0.0.1:{server.ready[name]}" for name in ("http", "grpc")}


def alike(models: Path, folder: Path) -> Path:
    """A copy of the models as `folder`/models for the embedded server, which computes there what Triton does: the graph that
    Triton's configuration opens, in ONNX Runtime and in no other precision. Other plans are judged where they are chosen.

    Files are linked where they can be. A model whose configuration names accelerators keeps its plan, which they were
    written from."""
    copy = folder / "models"
    shutil.copytree(models, copy, copy_function=_link)
    for manifest in copy.glob(f"*/*/{MANIFEST}"):
        try:
            artifact = load_artifact(manifest.parents[1], version=int(manifest.parent.name))
            plan, config = artifact.plan_here(), artifact.config
        except HeadraceError:  # a server says for itself why it does not serve that
            continue
        if config.backend != "onnxruntime" or "execution_accelerators" in config.message.get("optimization", {}):
            continue
        file = config.message.get("default_model_filename") or "model.onnx"
        choice = Choice(backend="onnxruntime", precision=FP32, files=(file,))
        for one in (one for known in (*artifact.plans, plan) for one in known.choices.values()):  # whichever machine's
            if one.backend == choice.backend and one.files[:1] == (file,) and not one.batch:
                choice = one
        same = replace(plan, choices=dict.fromkeys(plan.buckets, choice), measurements=(), portable=False)
        content, _ = read_manifest(manifest.parent)
        manifest.unlink()  # or a link would change the model itself
        write_manifest(manifest.parent, {**content, "plans": [same.to_json()]})
    return copy


def _link(source: str, target: str) -> None:
    try:
        os.link(source, target)
    except OSError:  # another file system
        shutil.copy2(source, target)


class _Comparison:
    """Two servers, and what was found so far."""

    def __init__(self, ours: Mapping[str, str], theirs: Mapping[str, str], tolerance: float) -> None:
        self._before: dict[tuple[str, int], dict[str, int]] = {}
        self.ours, self.theirs = HttpExchange(ours["http"]), HttpExchange(theirs["http"])
        self.ways = [
            (name, one, two)
            for (name, one), two in zip(
                exchanges(ours["http"], ours["grpc"]).items(), exchanges(theirs["http"], theirs["grpc"]).values(), strict=True
            )
        ]
        self.tolerance = tolerance
        self.compared = 0
        self.differences: list[Difference] = []
        self._metadata: dict[str, dict[str, Any]] = {}
        self._largest: dict[str, int] = {}

    def metadata(self) -> None:
        (_, one), (_, two) = self.ours.get("/v2"), self.theirs.get("/v2")
        self._fields("server", "", one, two)

    def index(self) -> list[str]:
        """The models that both serve; a model that only one serves is a difference."""
        states = []
        for server in (self.ours, self.theirs):
            _, rows = server.post("/v2/repository/index")
            found: dict[str, str] = {}
            for row in rows:
                if found.get(row["name"]) != _READY:
                    found[row["name"]] = row.get("state") or "UNAVAILABLE"
            states.append(found)
        for name in sorted({*states[0], *states[1]}):
            self._point("index", name, "state", *(found.get(name, "not listed") for found in states))
        return [name for name, state in states[0].items() if state == states[1].get(name) == _READY]

    def model(self, name: str) -> None:
        """Readiness, metadata, configuration and answers."""
        path = f"/v2/models/{name}"
        self._point("metadata", name, "ready", self.ours.get(f"{path}/ready")[0], self.theirs.get(f"{path}/ready")[0])
        (_, one), (_, two) = self.ours.get(path), self.theirs.get(path)
        self._fields("metadata", name, one, two)
        (_, own), (_, other) = self.ours.get(f"{path}/config"), self.theirs.get(f"{path}/config")
        self._fields("config", name, own, other)
        self._metadata[name], self._largest[name] = one, int(own["max_batch_size"])
        self._answers("answer", good_cases(one, self._largest[name]))

    def mistakes(self, name: str) -> None:
        """What cannot be answered: the same status."""
        self._answers("error", unanswerable_cases(self._metadata[name], self._largest[name]))
        self._counted(name, ("fail.count",))

    def statistics(self, name: str) -> None:
        """What was counted so far."""
        self._counted(name, ("inference_count", "success.count", "fail.count"))

    def _counted(self, name: str, fields: Sequence[str]) -> None:
        for field in fields:
            counts = [self._counts(name, side)[field] - self._before[name, side][field] for side in (0, 1)]
            self._point("statistics", name, field, *counts)

    def count_from_here(self, names: Sequence[str]) -> None:
        """What was counted before is none of ours: Triton counts its warm-up."""
        self._before = {(name, side): self._counts(name, side) for name in names for side in (0, 1)}

    def _counts(self, name: str, side: int) -> dict[str, int]:
        _, answer = (self.ours, self.theirs)[side].get(f"/v2/models/{name}/stats")
        stats = answer["model_stats"][0]
        kinds = {f"{kind}.count": int(value["count"]) for kind, value in stats["inference_stats"].items()}
        return {"inference_count": int(stats["inference_count"]), **kinds}

    def _answers(self, area: str, cases: Sequence[Case]) -> None:
        for case in cases:
            for transport, one, two in self.ways:
                if transport == "http-json" and any(given.datatype == "BYTES" for given in case.inputs):
                    continue  # an image is no text
                ours, theirs = one.infer(case), two.infer(case)
                self.compared += 1
                if (found := compare_answers(ours, theirs, self.tolerance)) is not None:
                    difference = Difference(
                        area=area, model=case.model, what=case.name, transport=transport, embedded=found[0], triton=found[1]
                    )
                    self.differences.append(difference)

    def _fields(self, area: str, model: str, one: Any, two: Any) -> None:
        ours, theirs = dict(_flat(one)), dict(_flat(two))
        for field in sorted({*ours, *theirs}):
            self._point(area, model, field, ours.get(field), theirs.get(field))

    def _point(self, area: str, model: str, what: str, ours: Any, theirs: Any) -> None:
        self.compared += 1
        if ours != theirs:
            self.differences.append(Difference(area=area, model=model, what=what, embedded=_shown(ours), triton=_shown(theirs)))


def compare_answers(ours: Answer, theirs: Answer, tolerance: float) -> tuple[str, str] | None:
    """What each said where they differ; None where both mean the same. The words of an error are each server's own."""
    if ours.status != theirs.status:
        return _told(ours), _told(theirs)
    if not ours.good:
        return None
    heads = [(answer.model, answer.version, answer.id, sorted(answer.outputs)) for answer in (ours, theirs)]
    if heads[0] != heads[1]:
        return str(heads[0]), str(heads[1])
    for name, (datatype, one) in ours.outputs.items():
        kind, two = theirs.outputs[name]
        if (datatype, one.shape) != (kind, two.shape):
            return f"{name} {datatype} {list(one.shape)}", f"{name} {kind} {list(two.shape)}"
        if datatype == "BYTES":
            if (found := _strings(one, two, tolerance)) is not None:
                return found
        elif not _close(one, two, tolerance):
            return f"{name} {_beginning(one)}", f"{name} {_beginning(two)}"
    return None


def _strings(one: np.ndarray, two: np.ndarray, tolerance: float) -> tuple[str, str] | None:
    """Classification strings, `value:index:label`: the same classes in the same order, and values as close as outputs are."""
    for left, right in zip(one.ravel(), two.ravel(), strict=True):
        (value, _, rest), (other, _, remainder) = left.decode().partition(":"), right.decode().partition(":")
        if rest != remainder or not _close(np.array(float(value)), np.array(float(other)), tolerance, atol=1e-5):
            return left.decode(), right.decode()
    return None


def _close(one: np.ndarray, two: np.ndarray, tolerance: float, *, atol: float = 0.0) -> bool:
    if one.dtype.kind != "f":
        return bool(np.array_equal(one, two))
    scale = float(np.abs(one).max(initial=0.0))
    return bool(np.allclose(one, two, rtol=0, atol=tolerance * scale + atol, equal_nan=True))


def _flat(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """The leaves of a JSON value by their paths. What is empty or zero is left out: absent and default mean the same."""
    if isinstance(value, Mapping):
        for key, item in value.items():
            yield from _flat(item, f"{path}.{key}" if path else str(key))
    elif isinstance(value, list) and any(isinstance(item, Mapping) for item in value):
        for index, item in enumerate(value):
            yield from _flat(item, f"{path}[{index}]")
    elif value not in (None, "", 0, False, [], "FORMAT_NONE"):
        yield path, value


def _told(answer: Answer) -> str:
    return f"{answer.status} {answer.error[:120]}".strip()


def _beginning(array: np.ndarray) -> str:
    return str(array.ravel()[:4].tolist())


def _shown(value: Any) -> str:
    return "nothing" if value is None else str(value)
