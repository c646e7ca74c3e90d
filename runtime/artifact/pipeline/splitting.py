"""A packaged model cut into the package of a pipeline, whose answers are held against the whole model's."""

from __future__ import annotations

import itertools
import statistics
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from ....errors import ArtifactError, ParityError
from ....scratch import ScratchFolder
from ... import backends
from ...base.session import Target, default_threads
from ..agreement import Array
from ..manifest import digest
from ..split.whole import Whole, largest_difference, save_part
from .cutting import Chain, check_names
from .measurement import ROWS, Measured, measure
from .mesh import MAX_STAGES, PipelineMesh, Stage
from .partition import partition
from .session import PipelineSession
from .stage import Part

_BACKEND = "onnxruntime"
# Nodes were measured one by one; what a library fuses within a stage is quicker. So stages are measured, too, and cut again.
_ROUNDS = 3
_EVEN = 1.05  # times the mean: no better balance is looked for
_LEAST_RUNS, _SECONDS = 5, 0.5


@dataclass(frozen=True)
class Pipeline:
    """A pipeline that was written: its folder, the milliseconds of each stage for a batch of so many rows, and the largest
    difference of a value from the whole model's, in shares of its row's largest."""

    path: Path
    rows: int
    milliseconds: tuple[float, ...]
    difference: float


def cut_model(folder: Path, out: Path, stages: int) -> Pipeline:
    """Write the model in `folder` as a pipeline of so many stages into the models folder `out`.

    Raises ArtifactError where the model cannot be cut, ParityError where the stages answer otherwise; nothing is written then.
    """
    whole = Whole.open(folder, out)
    signature = whole.artifact.signature
    if not 2 <= stages <= MAX_STAGES:
        raise ArtifactError(f"--stages takes 2 to {MAX_STAGES}, got {stages}")
    graph = whole.graph()
    check_names(graph, [spec.name for spec in signature.inputs], [spec.name for spec in signature.outputs])
    chain = Chain.of(graph)
    threads = max(1, default_threads() // stages)
    measured = measure(chain, chain.places(stages), whole.rows, threads=threads)
    with ScratchFolder() as staging:
        tried = sorted(_rounds(whole, chain, measured, stages, staging, threads), key=lambda one: max(one.seconds))
        best, difference = _first_alike(whole, tried)
        whole.write(best.folder, best.mesh.to_json(), f"it is {best.mesh.described}")
    return Pipeline(whole.target, ROWS, tuple(1000 * one for one in best.seconds), difference)


@dataclass(frozen=True)
class _Cut:
    """Stages that were written, and the seconds that each takes."""

    folder: Path
    mesh: PipelineMesh
    seconds: list[float]


def _rounds(whole: Whole, chain: Chain, measured: Measured, stages: int, staging: Path, threads: int) -> Iterator[_Cut]:
    """Cuts that are better and better informed of what stages take."""
    places = [place for place in chain.places(stages) if all(name in measured.values for name in chain.crossing[place])]
    sizes = [sum(measured.values[name].size for name in chain.crossing[place]) for place in places]
    nodes, tried = list(measured.seconds), list[list[int]]()
    for number in range(_ROUNDS):
        cuts = partition(nodes, places, sizes, stages)
        if cuts in tried:
            return
        tried.append(cuts)
        folder = staging / str(number)
        folder.mkdir()
        mesh = _write_stages(whole, chain, measured, cuts, folder)
        seconds = _stage_seconds(folder, mesh, whole.rows, threads)
        yield _Cut(folder, mesh, seconds)
        if max(seconds) <= _EVEN * statistics.mean(seconds):
            return
        for taken, (first, end) in zip(seconds, itertools.pairwise((0, *cuts, len(nodes))), strict=True):
            known = sum(nodes[first:end])
            nodes[first:end] = [one * taken / known if known else taken / (end - first) for one in nodes[first:end]]


def _write_stages(whole: Whole, chain: Chain, measured: Measured, cuts: Sequence[int], folder: Path) -> PipelineMesh:
    stages = []
    for number, (graph, gives) in enumerate(chain.cut(cuts, measured.values)):
        file = f"stage-{number}.onnx"
        save_part(graph, folder / file, f"give {whole.artifact.name} more --stages")
        stages.append(Stage(file=file, gives=gives, digest=digest(folder / file, inside=folder)))
    return PipelineMesh(takes=tuple(spec.name for spec in whole.artifact.signature.inputs), stages=tuple(stages))


def _stage_seconds(folder: Path, mesh: PipelineMesh, rows: Sequence[Array], threads: int) -> list[float]:
    """What each stage takes for `ROWS` rows, one after the other in this process: the least of some runs, which other work on
    the machine blurs least."""
    values, seconds = [row[:ROWS] for row in rows], []
    for stage, takes in zip(mesh.stages, mesh.taken, strict=True):
        session = backends.get(_BACKEND).open(folder, Target(threads=threads), [stage.file])
        try:
            part = Part(session, stage.file, takes, stage.gives)
            given, times, end = part.run(values), list[float](), time.perf_counter() + _SECONDS
            while len(times) < _LEAST_RUNS or (time.perf_counter() < end and len(times) < 10 * _LEAST_RUNS):
                begin = time.perf_counter()
                part.run(values)
                times.append(time.perf_counter() - begin)
        finally:
            session.close()
        values = given
        seconds.append(min(times))
    return seconds


def _first_alike(whole: Whole, cuts: Sequence[_Cut]) -> tuple[_Cut, float]:
    """The first whose stages answer as the whole model does, and by how much they differ: where a cut keeps a library from
    fusing two operations, these round once more. Raises ParityError where there is none."""
    answers, target = whole.answers(), whole.plan().target(1)
    for cut in cuts:
        session = PipelineSession(cut.folder, cut.mesh, target, backend=_BACKEND)
        try:
            return cut, largest_difference(session, whole.rows, answers)
        except ParityError as error:
            if cut is cuts[-1]:
                raise ParityError(f"{error}; another number of --stages is cut elsewhere") from None
        finally:
            session.close()
    raise AssertionError("there is one at least")
