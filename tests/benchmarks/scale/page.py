"""docs/scale.md: every number in it comes from the recorded stages, from the simulation, or from a formula of sizing.py."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from headrace.serving.bench.reporting.report import number

from .gpu import GpuFigures
from .model import Distribution
from .page_clusters import about, failures, gpus, online, table
from .predict import NODES, gpu_node
from .sizing import Demand
from .stages import Recorded
from .validate import TOLERANCE, Comparison

__all__ = ["markdown"]


def markdown(
    recorded: Recorded,
    compared: Sequence[Comparison],
    predicted: Mapping[str, Any],
    gpu: GpuFigures,
    demand: Demand,
    *,
    from_means: Sequence[Comparison],
    plot: str,
) -> str:
    """The page; `from_means` are the comparisons with every stage at its mean, `plot` is the file name of the picture."""
    parts = [
        *_question(recorded, predicted, gpu, demand),
        *_stages(recorded),
        *_validation(compared, from_means, plot),
        *online(predicted, demand),
        *gpus(recorded, predicted, gpu, demand),
        *failures(predicted),
        *_assumptions(gpu, demand),
    ]
    return "\n".join(parts)


def _question(recorded: Recorded, predicted: Mapping[str, Any], gpu: GpuFigures, demand: Demand) -> list[str]:
    size = recorded.image_bytes
    node = gpu_node(recorded, gpu)
    whole = NODES * node.rate(size)
    images, cores = number(demand.images_per_day / 1e6), recorded.data["machine"]["cores"]
    few, small = predicted["gpu"]["machines"] or "no number of", predicted["cpu"]["machines"]
    return [
        "# How many machines\n",
        f"Written by `python -m tests.benchmarks.scale docs` from [stages.json](stages.json): `{recorded.data['command']}`, "
        f"{recorded.data['date']}, {recorded.machine}. GPUs: {gpu.device}, {gpu.source}.\n",
        f"**{images} million images a day are {number(demand.mean_rate)} a second on average, {number(demand.peak_rate)} at a "
        f"peak of {demand.peak:g} times that.** 400 GPUs do not notice: {NODES} machines of eight decode and classify about "
        f"{about(whole)} images a second with this model, {about(whole / demand.peak_rate)} times the peak, and what limits "
        f"them is not the GPU but {_inside(node.bottleneck(size))}. The peak needs {few} machines of one GPU, one of them to "
        f"spare, or {small} of the machine that was measured ({cores} cores, no GPU). 400 GPUs for so many images are a matter "
        "of far heavier models or of a short deadline, not of this rate.\n",
    ]


def _stages(recorded: Recorded) -> list[str]:
    spec = recorded.spec
    rows = [["decode one image", *_times(spec.decode)]]
    rows += [[f"batch of {bucket}", *_times(one)] for bucket, one in sorted(spec.batch.items())]
    thread, batch = spec.speeds.beside[-1]
    return [
        "## What was measured\n",
        f"Model `{recorded.data['model']}`, {recorded.data['images']}, {number(recorded.image_bytes / 1e3)} kB each. Batches "
        "run alone on the machine, each after its images were decoded:\n",
        table(["stage", "mean, ms", "median, ms", "99 % within, ms"], rows),
        f"Apart from that a request takes {number(1e6 * spec.handling)} us of a core (HTTP, data plane, batcher: `hollow.py` "
        f"serves without decoding or model), {number(1e6 * spec.handing_over)} us of waiting between threads and sockets, and "
        f"{number(1e6 * recorded.client)} us of the load generator on the same cores. {len(spec.speeds.beside)} threads that "
        f"decode beside a batch do so at {thread:.0%} of their speed, and the batch runs at {batch:.0%}.\n",
    ]


def _validation(compared: Sequence[Comparison], from_means: Sequence[Comparison], plot: str) -> list[str]:
    rows = [
        [one.traffic, one.figure, number(one.measured), number(one.simulated), f"{one.error:+.0%}", _verdict(one)]
        for one in compared
    ]
    held, tails = ([one for one in compared if one.must_hold == must] for must in (True, False))
    tail_error, mean_error = (_error_of_tails(which) for which in (compared, from_means))
    means_held = sum(one.holds for one in from_means if one.must_hold)
    return [
        "## The simulation beside the machine\n",
        "`python -m tests.benchmarks.scale validate`: the same traffic through a discrete-event simulation of the load "
        "generator, the event loop, the decoders, the batcher's own policy and the engine, on cores that slow each other down "
        "as measured. Nothing is fitted to the served figures; both were measured in turn in the same minutes, on the same "
        "cores.\n",
        f"Rates, medians and goodput (answers within 500 ms) are held to {TOLERANCE:.0%} by a test: "
        f"{sum(one.holds for one in held)} of {len(held)} are within it. p99 is only shown: "
        f"{sum(one.holds for one in tails)} of {len(tails)} are within it. How stages vary matters: with each at its mean, "
        f"{means_held} of {len(held)} are within it, and p99 is {mean_error:+.0%} off (median) instead of {tail_error:+.0%}.\n",
        table(["traffic", "figure", "measured", "simulated", "error", ""], rows),
        f"![measured and simulated]({plot})\n",
    ]


def _assumptions(gpu: GpuFigures, demand: Demand) -> list[str]:
    lines = [
        f"- The peak is {demand.peak:g} times the mean: assumed (`--peak`).",
        "- Cores of the large machine are as fast as those measured, with all of them busy.",
        "- Stages vary independently. What slows a whole machine for a moment is in the measured figures only.",
        "- Every thread gets its share of the cores at every moment. Real ones get slices, a few milliseconds each.",
        "- A server that failed refuses connections at once. One that hangs, or is only slow, is not simulated.",
        "- Images arrive as JPEGs. As tensors, 150 kB of uint8 each at 224x224, nothing is decoded and the network limits.",
    ]
    if not gpu.ours:
        lines.append(
            "- The GPU's figures are published ones, in int8, of the model alone. `make bench-gpu` on a GPU writes "
            "docs/bench-gpu.json, which takes their place."
        )
    return ["## What this rests on\n", "\n".join(lines) + "\n"]


def _error_of_tails(compared: Sequence[Comparison]) -> float:
    return statistics.median(one.error for one in compared if not one.must_hold)


def _verdict(one: Comparison) -> str:
    return "within" if one.holds else "**outside**" if one.must_hold else "outside"


def _times(one: Distribution) -> list[str]:
    return [f"{1e3 * seconds:.2f}" for seconds in (one.mean, one.median, one.highest_usual)]


def _inside(stage: str) -> str:
    """A stage's name inside a sentence."""
    return stage if stage.isupper() or stage[:4] in ("GPUs", "JPEG") else f"the {stage}"
