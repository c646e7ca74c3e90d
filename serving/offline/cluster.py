"""A job on a Ray cluster: Ray Data hands out shards, workers write their files, exactly as on one machine.

Ray decides who does what, and does again what a lost node had; it never holds an image. That a shard may so be done twice is
harmless: both write the same file, each aside, and rename it. Source, model and output folder must be there on every node.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from ...errors import ClassifyError
from ...extras import require
from ..ray.cluster import Connection
from .classifier import Classifier, load
from .config import ClassifyConfig
from .job import Job
from .locations import is_remote
from .output import finished
from .pipeline import make_clock
from .plan import Shard, read_plan
from .progress import Progress
from .run import Listener, Summary, begun, classify_shards, concluded, too_many_errors
from .stages import Busy, Shares


class Worker:
    """One actor of the cluster, with the model loaded; called with {"shard": number} it classifies that shard.

    Answers {"shard", "images", "errors", "busy": {stage: share}}.
    """

    def __init__(self, config: ClassifyConfig, plan: Path, base: str, digest: str) -> None:
        self._config = config
        self._job = Job(config.out, read_plan(plan, base, 0), digest)
        self._classifier = Classifier(load(config), config)

    def __call__(self, row: dict[str, Any]) -> dict[str, Any]:
        """Raises ClassifyError when the shard's file cannot be written."""
        shard = self._job.plan.shards[int(row["shard"])]
        busy: dict[str, float] = {}
        if self._finished(shard) is None:  # a lost node may have come so far
            clock = make_clock(self._config, self._classifier)
            progress = Progress(self._job.plan, done={}, errors=0)
            classify_shards(self._job, [shard], self._config, self._classifier, clock, progress)
            busy = {name: shares.busy for name, shares in clock.shares().items()}
        done = self._finished(shard)
        assert done is not None, "it was written, or an error raised"
        return {"shard": shard.number, "images": done.images, "errors": done.errors, "busy": busy}

    def _finished(self, shard: Shard) -> Any:
        return finished(self._job.out / shard.output, job=self._job.digest, shard=shard.digest)


class _Reports(Busy):
    """What the workers say of their stages, averaged over shards by their images."""

    def __init__(self) -> None:
        super().__init__()
        self._sums: dict[str, float] = {}
        self._images = 0

    def add(self, images: int, busy: dict[str, float]) -> None:
        self._images += images
        for name, share in busy.items():
            self._sums[name] = self._sums.get(name, 0.0) + share * images

    def shares(self) -> dict[str, Shares]:
        return {name: Shares(total / max(self._images, 1)) for name, total in dict(self._sums).items()}


def classify_on_ray(
    config: ClassifyConfig, *, stopped: Callable[[], bool] = lambda: False, listen: Listener = lambda text, progress: None
) -> Summary:
    """As `run.classify`, on the cluster at RAY_ADDRESS or the one this machine belongs to.

    Once stopped, it waits for no shard that is under way. Raises ClassifyError also when there is no cluster, or when it could
    not do every shard.
    """
    source = config.source if is_remote(config.source) else str(Path(config.source).resolve())
    config = replace(config, source=source, model=config.model.resolve(), out=config.out.resolve())
    artifact = load(config)
    with begun(config, artifact, listen) as (job, waiting, progress):
        if not waiting or stopped():
            return concluded(config, artifact, job, progress)
        reports = _Reports()
        with _Cluster() as cluster:
            listen(f"{cluster.workers} workers of {cluster.cores} cores each", None)
            progress.start(reports)
            listen("", progress)
            for row in cluster.results(config, job, [shard.number for shard in waiting]):
                shard = job.plan.shards[row["shard"]]
                reports.add(row["images"], row["busy"])
                progress.finished(shard, row["images"], row["errors"])
                if too_many_errors(config, progress):
                    raise ClassifyError(
                        f"{progress.errors} images could not be classified, more than --max-errors {config.max_errors} allows; "
                        "the columns error say why. What is done stays done: a larger --max-errors goes on"
                    )
                if stopped():
                    break
        if not stopped() and (lost := len(job.plan.shards) - progress.shards_done):
            raise ClassifyError(f"the cluster did not do {lost} shards; the same command does them")
        return concluded(config, artifact, job, progress)


class _Cluster(Connection):
    """The cluster of a job: how many workers it runs, of how many cores each."""

    def __init__(self) -> None:
        require("headrace classify --ray", "ray")
        import ray.data

        super().__init__(None, ClassifyError, "in RAY_ADDRESS")
        self._data: Any = ray.data
        nodes = [node["Resources"] for node in self.ray.nodes() if node["Alive"] and node["Resources"].get("CPU")]
        if not nodes:
            raise ClassifyError("no node of the Ray cluster has a CPU to give; add one with `ray start --address=...`")
        # One worker has a node to itself, as its session takes every core; larger nodes get several.
        self.cores = int(min(node["CPU"] for node in nodes))
        self.workers = sum(int(node["CPU"]) // self.cores for node in nodes)

    def results(self, config: ClassifyConfig, job: Job, numbers: list[int]) -> Iterator[dict[str, Any]]:
        """What the workers answer, as they do. Raises ClassifyError when one failed for good."""
        data = self._data
        context = data.DataContext.get_current()
        context.enable_progress_bars = False
        dataset = data.from_items([{"shard": number} for number in numbers], override_num_blocks=len(numbers)).map(
            Worker,
            fn_constructor_args=(replace(config, max_errors=None), job.plan.folder, job.plan.base, job.digest),
            compute=data.ActorPoolStrategy(size=self.workers),
            num_cpus=self.cores,
        )
        try:
            yield from dataset.iter_rows()
        except self.ray.exceptions.RayError as error:
            reason = str(error.__cause__ or error).strip().splitlines()[-1]
            raise ClassifyError(f"a worker failed: {reason}; once that is put right, the same command goes on") from error
