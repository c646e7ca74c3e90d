"""One model folder to a model that serves."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from ...errors import ArtifactError, BackendError
from ...runtime.artifact.agreement import best_classes
from ...runtime.artifact.artifact import Artifact, load_artifact
from ...runtime.artifact.known_answers import unlike
from ...runtime.artifact.model_config import ModelConfig, check_config, read_config
from ...runtime.artifact.plan import Choice, Plan
from ...runtime.base.memory import give_back_memory
from ...runtime.base.session import FixedBatchSession, Session
from ...runtime.base.task import Task
from ...runtime.images.preprocessing import Preprocessor
from ...specs import Preprocessing, Signature
from ..batching.batcher import Batcher
from ..batching.contest import WORTH_IT
from ..batching.lanes import lanes
from ..batching.latency_table import LatencyTable
from ..batching.policy import BatchPolicy, PreferredSizes
from ..batching.queue_rules import QueueRules
from ..batching.staging import Staging
from ..batching.statistics import ModelStatistics
from ..batching.ticket import Best, Instance, Runner, close
from ..config import ServeConfig
from ..images.fast_preprocessing import make_preprocessor
from ..images.gpu_preprocessing import make_gpu_preprocessor
from .devices import each_device
from .improvement import Candidate, Improvement, another, has_twin
from .memory_bound import MIB, MemoryBound
from .models import ClassifyModel, DecodeModel, Model, TensorModel
from .oversight.plan_account import account_of, changed_plan
from .oversight.shadow import Agreement, Shadow, accepted_share
from .response_cache import ResponseCache
from .self_check import check_answers, check_joining, likeness
from .warmup import lent, shrink, warm_up


def load_tensor_model(
    folder: Path,
    config: ServeConfig,
    progress: Callable[[str], None],
    *,
    version: int,
    override: ModelConfig | None = None,
    before: TensorModel | None = None,
    cache: ResponseCache | None = None,
    early: Callable[[TensorModel], None] | None = None,
    memory: MemoryBound | None = None,
    take_back: Callable[[TensorModel, Agreement], None] = lambda model, agreement: None,
    taken_back: Agreement | None = None,
    on_change: Callable[[], None] = lambda: None,
) -> TensorModel:
    """Open, warm up, try out and profile one version. Raises ArtifactError or BackendError, leaving nothing open.

    `override` is used instead of the folder's config. `before` is the model that serves meanwhile, whose place this one takes:
    its number of instances is kept, since measuring it beside live traffic would disturb both. It has a part of `cache`, unless
    its config says `response_cache { enable: false }`. `early` is given a model that answers as soon as the smallest batch has
    run; it must not be asked any more once this one is returned, or the error is raised, and closed then.

    Under `--shadow`, `take_back` is called, in a thread of its own, with how the answers agree with fp32's, once that is less
    than was accepted. `taken_back` is what was found so of this version's plan, which is not used then. `on_change` is called,
    in any thread, when the `trouble` of the model changes.

    On a CPU the model has one session for all batch sizes at first. With `memory`, which bounds that, others are tried beside
    it once there is traffic.
    """
    artifact = load_artifact(folder, version=version, trusted=config.security.trust_repository)
    if override is not None:
        check_config(override, artifact.signature, name=artifact.name, where="the given config")
        artifact = replace(artifact, config=override)
    declared = artifact.config
    rules = QueueRules.of(declared)
    plan = artifact.plan_here()
    if taken_back is not None:
        plan = artifact.exact_plan(plan)
    light = plan.device == "cpu"
    open_any = open_first if light else open_instance
    opener = partial(open_any, artifact, plan, declared.max_batch_size, config.processes.threads)
    openers = each_device(opener, plan, config.processes.devices)
    described = str(plan.first()) if light and not plan.portable else _described(plan)
    progress(f"{artifact.name}: loading version {artifact.version} ({described})")
    # A version that is loaded again goes on counting where it was: to Prometheus it is the same one.
    again = before is not None and before.version == str(artifact.version)
    statistics = before.statistics if before is not None and again else ModelStatistics()
    decoding = before.decoding if before is not None else ModelStatistics()  # the decode model's version is its own
    preprocessor = preprocessor_of(artifact.preprocessing, artifact.signature, config) if artifact.preprocessing else None

    def model_of(instances: Sequence[Instance], table: LatencyTable, *, devices: int = 1) -> TensorModel:
        side_by_side = lanes(instances)
        return TensorModel(
            name=artifact.name,
            version=str(artifact.version),
            config=declared,
            statistics=statistics,
            decoding=decoding,
            batcher=Batcher(
                side_by_side,
                table,
                name=artifact.name,
                policy=policy_of(rules, max_delay(declared, config)),
                rules=rules,
                statistics=statistics,
                max_queue=config.max_queue,
                staging=_staging(artifact, table.largest, sparing=light),
                best=best_of(artifact.task),
                devices=[number % devices for number in range(len(side_by_side))],
            ),
            signature=artifact.signature,
            preprocessing=artifact.preprocessing,
            preprocessor=preprocessor,
            task=artifact.task,
            instances=len(instances),
            instances_per_device=len(instances) // devices,
            in_flight=len(side_by_side) // len(instances),
            agreement_before=taken_back,
            account=account_of(artifact, plan),
            plan=plan,
            ranks=tuple(session.ranks for instance in instances for session in _ranked(instance)),
        )

    wanted = config.processes.instances or (before.instances_per_device if before else None)
    instances, table = warm_up(
        openers,
        artifact.signature,
        count=wanted or (1 if light else None),
        early=None if early is None else lambda instance, guess: early(model_of([instance], guess)),
    )
    try:
        for instance in instances:
            queue = partial(_queue, artifact, instance, table, max_delay(declared, config))
            alone = check_answers(artifact, plan, instance, queue)
    except BaseException:
        for instance in instances:
            close(instance)
        raise
    timings = ", ".join(f"batch {bucket} {milliseconds:.3g} ms" for bucket, milliseconds in table.to_json().items())
    progress(f"{artifact.name}: version {artifact.version} is ready, {_counted(len(instances), len(openers))}, {timings}")
    if taken_back is None and before is not None and before.plan is not None and (gained := changed_plan(plan, before.plan)):
        progress(f"{artifact.name}: {gained}")
    model = model_of(instances, table, devices=len(openers))
    if model.ranks:
        _follow(model, on_change)
    model.cache = cache.of_model() if cache is not None and _cacheable(declared) else None
    if light and memory is not None:
        assert isinstance(model.batcher, Batcher), "it was just made"
        shrink(model.batcher.sessions(), artifact.signature)
        give_back_memory()
        memory.settle()
        model.improvement = Improvement(
            artifact.name,
            model.batcher,
            memory,
            own=_own_sessions(artifact, plan, table.buckets, config.processes.threads),
            second=None
            if config.processes.instances or len(instances) > 1 or model.ranks  # which have the processor's cores already
            else partial(_second, artifact, plan, config.processes.threads),
            prove=partial(check_joining, artifact, plan, alone=alone),
            unlike=lambda wanted, given: unlike(alone or wanted, wanted, given, likeness(artifact, plan)),
            grown=model.grow,
        )
        model.improvement.start()
    if taken_back is None and (rate := config.observe.shadow):
        model.shadow = _shadow(artifact, plan, model, rate, take_back, progress)
    return model


def _shadow(
    artifact: Artifact,
    plan: Plan,
    model: TensorModel,
    rate: float,
    take_back: Callable[[TensorModel, Agreement], None],
    progress: Callable[[str], None],
) -> Shadow | None:
    """What compares the model's answers with fp32's from now on; None where nothing differs from that."""
    try:
        exact = artifact.exact_plan(plan)
    except BackendError as error:
        progress(f"{model.name}: answers cannot be compared with fp32's: {error}")
        return None
    if plan.portable:
        progress(f"{model.name}: {plan.first()} serves, with which answers would be compared; --shadow has nothing to do")
        return None
    assert isinstance(model.batcher, Batcher), "it was just made"
    shadow = Shadow(
        model.name,
        artifact.task,
        partial(artifact.open_choice, exact, exact.first(), threads=1),
        rate=rate,
        agreement=Agreement(accepted_share(plan, artifact.task)),
        take_back=partial(take_back, model),
    )
    model.batcher.watch(shadow.look)
    shadow.start()
    return shadow


def _own_sessions(artifact: Artifact, plan: Plan, buckets: Sequence[int], threads: int | None) -> dict[int, Candidate]:
    """For the buckets whose choice was measured to be so much quicker than the first, or was not measured beside that."""
    first, found = plan.first(), {}
    for bucket in buckets:
        choice = plan.choice(bucket)
        gain = None if plan.bucket(bucket) != bucket else plan.gain(bucket, first)
        if choice != first and choice.batch in (None, bucket) and (gain is None or gain > WORTH_IT):
            found[bucket] = Candidate(
                partial(_only, artifact, plan, choice, threads, bucket), expected_bytes(artifact, plan, choice)
            )
    return found


def _only(artifact: Artifact, plan: Plan, choice: Choice, threads: int | None, bucket: int) -> Instance:
    return {bucket: artifact.open_choice(plan, choice, threads=threads)}


def expected_bytes(artifact: Artifact, plan: Plan, choice: Choice) -> int:
    """The memory that a session of a choice will take: as it was measured, or its files' and that of weights made of them."""
    measured = plan.memory_mb(choice)
    return 2 * sum((artifact.path / name).stat().st_size for name in choice.files) if measured is None else int(measured * MIB)


def _second(artifact: Artifact, plan: Plan, threads: int | None, sessions: Instance) -> Candidate:
    """One more instance of sessions like these; of the same weights where the library can."""
    distinct = {id(session): session for session in sessions.values()}
    if all(has_twin(session) for session in distinct.values()):

        def twins() -> Instance:
            made = {number: another(session) for number, session in distinct.items()}
            return {bucket: made[id(session)] for bucket, session in sessions.items()}

        return Candidate(twins, 0)

    def anew() -> Instance:
        return dict.fromkeys(sessions, next(iter(open_first(artifact, plan, max(sessions), threads).values())))

    return Candidate(anew, expected_bytes(artifact, plan, plan.first()))


def best_of(task: Task) -> Best | None:
    """What takes the best classes from a model's outputs, where it gives one of several."""
    if (number := task.one_choice) is None:
        return None
    head = task.heads[number]
    return lambda outputs, count: list(best_classes(head, outputs[number].reshape(len(outputs[number]), -1), count))


def preprocessor_of(preprocessing: Preprocessing, signature: Signature, config: ServeConfig) -> Preprocessor:
    """What makes a model's rows from images; on the first of the GPUs, where they are decoded on one."""
    steps, pixels = preprocessing.to_json()["steps"], signature.takes_pixels
    if config.images.decoding == "gpu":
        return make_gpu_preprocessor(steps, ordinal=config.decoding_gpu, max_pixels=config.limits.max_pixels, pixels=pixels)
    return make_preprocessor(steps, decoding=config.images.decoding, max_pixels=config.limits.max_pixels, pixels=pixels)


def load_companion(folder: Path, targets: Mapping[str, TensorModel | None]) -> Model:
    """The decode model or the ensemble beside a tensor model, to be done natively. Raises ArtifactError for any other."""
    declared = read_config(folder)
    version = max((entry.name for entry in folder.iterdir() if entry.name.isdigit()), key=int, default="1")
    if declared.backend == "python":
        target = _target(folder.name.removesuffix("_decode"), targets, folder.name)
        _one_image_input(declared, folder.name)
        return DecodeModel(
            name=folder.name, version=version, config=declared, target=target, leases=target.leases, statistics=target.decoding
        )
    steps = declared.message["ensemble_scheduling"]["step"]
    target = _target(steps[1]["model_name"], targets, folder.name)
    _one_image_input(declared, folder.name)
    outputs = {ensemble: own for own, ensemble in steps[1].get("output_map", {}).items()}
    for tensor in declared.outputs:
        if outputs.get(tensor.name) not in target.output_names:
            raise ArtifactError(f"ensemble '{folder.name}': no output of '{target.name}' is mapped to '{tensor.name}'")
    return ClassifyModel(
        name=folder.name,
        version=version,
        config=declared,
        target=target,
        leases=target.leases,
        outputs={tensor.name: outputs[tensor.name] for tensor in declared.outputs},
    )


def policy_of(rules: QueueRules, delay: float) -> BatchPolicy:
    """How batches are formed: as the config prefers, where it names sizes, and else by the measured times."""
    return PreferredSizes(max_delay=delay, preferred=rules.preferred) if rules.preferred else BatchPolicy(max_delay=delay)


def _queue(artifact: Artifact, instance: Instance, table: LatencyTable, delay: float) -> Batcher:
    """One like the model's own, whose requests are counted nowhere, before sessions that stay open."""
    staging = _staging(artifact, table.largest)
    table = LatencyTable({bucket: table.seconds(bucket) for bucket in instance})  # what it learns is not the model's
    return Batcher([lent(instance)], table, name=artifact.name, policy=BatchPolicy(max_delay=delay), staging=staging)


def _staging(artifact: Artifact, largest: int, *, sparing: bool = False) -> Staging | None:
    """Where images are decoded to, for a model that takes them in a dtype of numpy."""
    inputs = artifact.signature.inputs
    if artifact.preprocessing is None or any(spec.dtype == "bfloat16" for spec in inputs):
        return None
    return Staging([(spec.row_shape, np.dtype(spec.dtype)) for spec in inputs], largest, sparing=sparing)


def open_instance(
    artifact: Artifact, plan: Plan, max_batch_size: int, threads: int | None, *, ordinal: int | None = None
) -> dict[int, Runner]:
    """One instance, on the GPU `ordinal` if any: the session of every bucket; buckets that chose the same way share one."""
    opened: dict[Choice, Runner] = {}
    sessions: dict[int, Runner] = {}
    try:
        for bucket in _planned(plan, max_batch_size):
            choice = plan.choice(bucket)
            if choice not in opened:
                opened[choice] = artifact.open(bucket, threads=threads, ordinal=ordinal)
            sessions[bucket] = opened[choice]
    except BaseException:
        close(sessions)
        raise
    return sessions


def _follow(model: TensorModel, on_change: Callable[[], None]) -> None:
    """Have the batcher and whoever asks for it told when a set of the model's processes is lost, and when it is whole again."""
    assert isinstance(model.batcher, Batcher), "it was just made"
    look_again = model.batcher.look_again

    def changed() -> None:
        look_again()
        on_change()

    for ranks in model.ranks:
        ranks.on_change = changed
    look_again()  # what was lost before this


def _ranked(instance: Instance) -> list[Any]:
    """The sessions of an instance that are those of a split model, each once."""
    return [
        session for session in {id(session): session for session in instance.values()}.values() if hasattr(session, "ranks")
    ]


def open_first(
    artifact: Artifact, plan: Plan, max_batch_size: int, threads: int | None, *, ordinal: int | None = None
) -> dict[int, Runner]:
    """The same, with the one session that serves every bucket to begin with."""
    session: Session = artifact.open_choice(plan, plan.first(), threads=threads, ordinal=ordinal)
    if (rows := plan.first_rows()) is not None:
        session = FixedBatchSession(session, rows)
    return dict.fromkeys(_planned(plan, max_batch_size), session)


def _planned(plan: Plan, max_batch_size: int) -> list[int]:
    # Nobody measured for a portable plan, so its buckets mean nothing; warm-up measures powers of two.
    planned = [1 << power for power in range(max_batch_size.bit_length())] if plan.portable else plan.buckets
    return [*(bucket for bucket in planned if bucket < max_batch_size), max_batch_size]


def _cacheable(declared: ModelConfig) -> bool:
    return bool(declared.message.get("response_cache", {"enable": True}).get("enable"))


def _counted(instances: int, devices: int) -> str:
    return f"{instances} instance{'s' * (instances > 1)}{f' on {devices} GPUs' if devices > 1 else ''}"


def _described(plan: Plan) -> str:
    choices = ", ".join(sorted({str(choice) for choice in plan.choices.values()}))
    return f"{choices}; {plan.reason}" if plan.portable and plan.reason else choices


def max_delay(declared: ModelConfig, config: ServeConfig) -> float:
    """The model's own max_queue_delay, at most the server's; a model without dynamic batching does not wait."""
    return min((declared.queue_delay_us or 0) / 1e6, config.batching.max_queue_delay_seconds)


def _target(name: str, targets: Mapping[str, TensorModel | None], companion: str) -> TensorModel:
    target = targets.get(name)
    if target is None:
        raise ArtifactError(f"'{companion}' needs model '{name}', which is not served")
    if target.preprocessor is None:
        raise ArtifactError(
            f"'{companion}' needs the preprocessing of '{name}', whose artifact holds none; "
            "migrate the model's repository, which records the preprocessing"
        )
    return target


def _one_image_input(declared: ModelConfig, name: str) -> None:
    if [tensor.datatype for tensor in declared.inputs] != ["BYTES"] or declared.max_batch_size < 1:
        raise ArtifactError(f"'{name}' must have one input of TYPE_STRING, the encoded image, and take batches")
