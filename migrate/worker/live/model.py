"""A user's models, taken live: the script runs as its user would run it, and its models are seen as it calls them with images.

It executes the user's code: only ever in a subprocess.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import math
import os
import random
import re
import select
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from ....errors import SandboxError
from ....runtime.capture.state_guard import state_guard
from ...proving.rehearsal_protocol import kept_in
from ...proving.worker_protocol import Rehearsed, SeenModel
from ...reading.recipe import Digests, LiveModel, Place, Recipe
from ...reading.source import STORED, walk
from .. import recipe as construction
from ..checkpoint import fits, load_weights, outputs_of, take_state
from ..inspection import defined_at
from ..rehearsal import Rehearsal, RehearsalReport, Taken
from ..rehearsal.places import made_since, user_place
from ..rehearsal.rehearse import ATTEMPTS, rehearse
from ..rehearsal.scripted import name_of, unscripted
from ..stored_weights import stored_weights_read
from .beside import left_out, numbers_beside, said_of_beside
from .calls import ModuleCalls, is_users, weights_of
from .earlier_calls import drop_histories, refuse_kept
from .hooks import without_observers
from .labels import class_names, names_called
from .modes import draws, told_apart
from .pretrained_names import names_of
from .rows import keep_rows
from .scores import adapted
from .seen import Call, Seen, tensors_in
from .shortcuts import shortcuts
from .task import JUDGING, chosen_place, classifies, is_column, said_otherwise, told, width_of

_HALVES = (torch.float16, torch.bfloat16)
_PATIENCE = 3.0
"""Seconds that a script's end waits for the model that reading its sources would build."""
_SECONDS, _MOST_SECONDS = 75.0, 120.0
"""After so long an attempt has shown what it shows, and all of them together: the worker answers before it is ended."""
_ENOUGH_CALLS, _ENOUGH_SECONDS = 4, 8.0
"""So many calls of a model whose outputs the script judges tell what it is, unless the script is quickly done anyway."""
_QUICK_SECONDS = 3.0
"""The same of a preview, which takes one such call for enough."""


def see_models(recipe: Recipe, read: Recipe | None = None, patience: float = 1.0, *, quick: bool = False) -> Rehearsed:
    """Run the script of the recipe and say which models it called with images, in the order of their first calls.

    `read` is how reading the sources would build its model, which is compared with each. No attempt, and not all of them
    together, takes more than `patience` times as long as one may where the machine does nothing else. With `quick`, for a
    preview, batches are fewer and smaller, `shortcuts` are taken, weights have no digests, and the script is run no further
    than to where it has evaluated a model.
    """
    beside = time.time() if read is not None else None
    built = _built_aside(read) if read is not None else None
    started = time.monotonic()
    weights: dict[int, Digests] = {}

    saves = any(walk(Path(recipe.root), STORED))  # files in which a script that trains may save its model, at its very end

    def hear(seen: Seen, call: Call) -> None:
        if not quick and (seen.settled is call or seen.ordinal not in weights):
            weights[seen.ordinal] = digests(calls.own_weights(seen))
        judged = any(JUDGING & set(names) for names in seen.reads.values())
        often = call.evaluating and seen.sites[call.site, True] > _ENOUGH_CALLS
        if judged and often and not (saves and False in seen.first) and time.monotonic() - started > _ENOUGH_SECONDS:
            raise Taken

    def pause() -> None:
        for seen in calls.seen.values() if quick and time.monotonic() - started > _QUICK_SECONDS else ():
            judged = any(JUDGING & set(names) for names in seen.evaluated.values())
            if judged and True not in seen.learned and not (saves and False in seen.first):
                raise Taken

    calls = ModuleCalls(Path(recipe.root), hear, pause)
    began = time.time()
    late: list[str | None] = []
    with stored_weights_read() as files, shortcuts() if quick else contextlib.nullcontext():
        until = started + patience * _MOST_SECONDS
        ended = run_script(recipe, calls, seed=0, until=until, late=late, patience=patience, quick=quick, beside=beside)
    as_read = built() if built is not None else None
    found = [
        _described(seen, recipe, weights.get(seen.ordinal, ()), as_read, own_data=ended.user_data)
        for seen in calls.seen.values()
        if seen.latest is not None or not late  # a call that was ended in its midst tells nothing
    ]
    none = "; ".join(filter(None, ("it came to its end and called no model with images", ended.remedy)))
    if late:
        none = f"it was still running after {time.monotonic() - started:.0f} s; --entry takes another script"
    return Rehearsed(
        models=tuple(found),
        why=_why(ended) if ended.why else None if found else none,
        where=ended.where or (late[0] if late else None),
        standins=tuple(dict.fromkeys(f"{item.edge}: {item.what}" for item in ended.standins)),
        edges=tuple(sorted({item.edge for item in ended.standins})),
        weights_from=tuple(str(path) for path in files if is_users(path, began)),
        saved_over=ended.saved_over,
        absent=tuple(json.loads(ended.learned or "{}").get("absent", ())),
    )


def _built_aside(recipe: Recipe) -> Callable[[], str | None]:
    """Build a recipe's model in a fork meanwhile; what is returned waits for its structure, None where it does not build."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        silent = os.open(os.devnull, os.O_WRONLY)
        os.dup2(silent, 1)
        os.dup2(silent, 2)
        os.mkdir = _beside(os.mkdir, time.time())
        try:
            os.write(writing, _structure(construction.build_model(recipe)).encode())
        finally:
            os._exit(0)
    os.close(writing)

    def structure() -> str | None:
        ready = select.select([reading], [], [], _PATIENCE)[0]
        text = os.read(reading, 1 << 16).decode() if ready else ""
        os.close(reading)
        with contextlib.suppress(ProcessLookupError):
            os.kill(child, signal.SIGKILL)
        return text or None

    return structure


def _beside(make: Callable[..., None], began: float) -> Callable[..., None]:
    """Make folders as usual, but for those that the run beside this process made first."""

    def mkdir(path: Any, *args: Any, **named: Any) -> None:
        try:
            make(path, *args, **named)
        except FileExistsError:
            if not made_since(path, began):
                raise

    return mkdir


def _structure(module: nn.Module) -> str:
    """The class of a model, and a digest of the names and shapes of its weights."""
    shapes = [(name, tuple(value.shape)) for name, value in weights_of(module).items()]
    return f"{type(module).__name__} {hashlib.sha256(repr(shapes).encode()).hexdigest()}"


def take_model(recipe: Recipe, notes: list[str] | None = None) -> nn.Module:
    """The model that `recipe.live` means, with the weights that it had at that call, in evaluation mode; `notes` gets a
    sentence where it is taken otherwise than it was called.

    Raises SandboxError where the script no longer comes to that call, and, unless `live.random`, where the weights depend on
    random numbers and so are nobody's; ArtifactError where `recipe.checkpoint` does not fit.
    """
    live = recipe.live
    assert live is not None
    taken: list[tuple[Seen, Call]] = []

    def hear(seen: Seen, call: Call) -> None:
        later = live.settled and call.training  # until then it may fit its statistics to images, say
        if seen.ordinal == live.ordinal and call.evaluating == live.evaluating and not later:
            taken[:] = [(seen, call)]
            raise Taken

    calls = ModuleCalls(Path(recipe.root), hear)
    ended = run_script(recipe, calls, seed=1)
    if not taken:
        why = _why(ended) or "it ended without calling the model"
        raise SandboxError(f"{recipe.script} does not come to its model's call again: {why}")
    seen, call = taken[0]
    model = seen.module
    if name_of(model) != live.class_name:
        raise SandboxError(f"{recipe.script} calls a {name_of(model)} where it called a {live.class_name} before")
    if recipe.checkpoint is not None:
        load_weights(model, recipe.checkpoint)
    else:
        _take_weights(calls.own_weights(seen), seen, live)
    if isinstance(model, torch.jit.ScriptModule):
        model = unscripted(model.eval(), call.images)
    if call.images.dtype in _HALVES:
        model = model.float()
        if notes is not None:
            dtype = str(call.images.dtype).removeprefix("torch.")
            notes.append(
                f"its script gives it images in {dtype}; the package takes float32, and its plan chooses the precision"
            )
    if not torch.cuda.is_available() and _told_cpu(model) and notes is not None:
        notes.append("its modules name CUDA as the device that they move values to; here they have been told the CPU")
    drop_histories(model)
    images = call.images.float() if call.images.dtype in _HALVES else call.images
    alone, model = model.eval(), adapted(model, call, live).eval()
    if (left := left_out(alone, model, replace(call, images=images), live.output)) and notes is not None:
        notes.append(left)
    refuse_kept(model, images)
    if (silent := without_observers(model, images)) and notes is not None:
        notes.append(f"what a hook notes of its layers is no output and not packaged ({', '.join(silent)})")
    if keep_rows(model, images) and notes is not None:
        notes.append("of one image alone it gives a row without the dimension of the batch; the package gives it as of several")
    return model


def _told_cpu(model: nn.Module) -> bool:
    """Name the CPU where modules keep CUDA as their device, which stood in while the script ran; whether any did."""
    told = False
    for part in model.modules():
        for name, value in list(vars(part).items()):
            kept = value.type if isinstance(value, torch.device) else value if isinstance(value, str) else ""
            if re.fullmatch(r"cuda(:\d+)?", kept):
                part.__dict__[name] = type(value)("cpu")
                told = True
    return told


def run_script(
    recipe: Recipe,
    calls: ModuleCalls,
    *,
    seed: int,
    until: float = math.inf,
    late: list[str | None] | None = None,
    patience: float = 1.0,
    quick: bool = False,
    beside: float | None = None,
) -> RehearsalReport:
    """Rehearse the script, with `calls` watching. Random numbers start from `seed`, whatever the script sets. What one run
    learned from its failures, the next ones of the same migration know.

    No attempt goes on for long, times `patience`, or past the moment `until` of the monotonic clock; `late` is told the user's
    line at which one was ended so.

    `beside` is when what reading the sources led to began to be built, in another process. The caller may go on in another
    process than it was in: see `rehearse`.
    """
    request = replace(rehearsal_of(recipe, seed=seed), beside=beside)
    if quick:
        request = replace(request, batches=1, batch_size=2)

    @contextmanager
    def watch() -> Iterator[None]:
        with _alarm(min(patience * _SECONDS, max(1.0, until - time.monotonic())), request.root, late), _seeded(seed), calls:
            yield

    return rehearse(request, watch=watch, attempts=ATTEMPTS, seen=calls.count)


def rehearsal_of(recipe: Recipe, *, seed: int) -> Rehearsal:
    """What is asked of a rehearsal of the recipe's script."""
    return Rehearsal(
        root=str(Path(recipe.root).resolve()),
        script=recipe.script,
        made=str(kept_in(Path(os.environ.get("HEADRACE_CACHE", Path.cwd())), recipe.script, recipe.argv)),
        argv=recipe.argv,
        directory=str((Path(recipe.root) / recipe.directory).resolve()),
        seed=seed,
        classes=outputs_of(recipe.checkpoint) if recipe.checkpoint is not None else None,
        checkpoint=recipe.checkpoint,
        caches=tuple(os.environ[name] for name in ("TORCH_HOME", "HF_HUB_CACHE") if name in os.environ),
    )


def _why(ended: RehearsalReport) -> str | None:
    return "; ".join(filter(None, (ended.why, ended.remedy))) or None


@contextmanager
def _alarm(seconds: float, root: str, late: list[str | None] | None) -> Iterator[None]:
    def stop(*_: object) -> None:
        if late is not None:
            late.append(user_place(root))
        raise Taken

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


@contextmanager
def _seeded(seed: int) -> Iterator[None]:
    """Two runs with two seeds have no random weights in common, also where the script sets a seed of its own."""
    plain = torch.manual_seed, np.random.seed, random.seed

    def otherwise(set_seed: Callable[..., Any]) -> Callable[..., Any]:
        def set_another(value: Any = None, *rest: Any, **named: Any) -> Any:
            given = named.pop("seed", value)
            return set_seed((int(given) + seed) % 2**32 if isinstance(given, int | np.integer) else given, *rest, **named)

        return set_another

    if seed:
        torch.manual_seed, np.random.seed, random.seed = map(otherwise, plain)
        torch.random.manual_seed = torch.manual_seed
    plain[0](seed)
    plain[1](seed)
    plain[2](seed)
    try:
        yield
    finally:
        torch.manual_seed, np.random.seed, random.seed = plain
        torch.random.manual_seed = plain[0]


# -- weights


def digests(weights: Mapping[str, torch.Tensor]) -> Digests:
    """A digest of every parameter and buffer, by name."""
    found = []
    for name, value in weights.items():
        data = value.detach().cpu().contiguous().reshape(-1)
        data = data.dequantize() if data.is_quantized else data
        found.append((name, hashlib.blake2b(data.view(torch.uint8).numpy().tobytes(), digest_size=8).hexdigest()))
    return tuple(found)


def _take_weights(own: Mapping[str, torch.Tensor], seen: Seen, live: LiveModel) -> None:
    """Give the model its own weights, which must be those that it had in the other run too."""
    found, other = dict(digests(own)), dict(live.weights)
    fresh = [name for name, digest in found.items() if other.get(name) != digest]
    if fresh and not live.random:
        listed = f"{', '.join(fresh[:4])}{', ...' if len(fresh) > 4 else ''}"
        raise SandboxError(
            f"{len(fresh)} of its weights are random numbers ({listed}; {len(found)} in all), which no file of yours sets; "
            "give the trained ones with --checkpoint FILE, or take random ones with --random-weights",
            random_weights=True,
        )
    if own is seen.initial:
        take_state(seen.module, own)


# -- what is said of each


def _described(seen: Seen, recipe: Recipe, weights: Digests, as_read: str | None, *, own_data: bool) -> SeenModel:
    evaluating = True in seen.first
    call = seen.first.get(True) or seen.first[False]
    if call.training:
        call = replace(call, output=_given_in_evaluation(seen.module, call))
    leaves = dict(tensors_in(call.output))
    output = chosen_place(seen, call, leaves)
    parts = leaves if output is None else {output: leaves[output]}
    tasks = tuple(told(seen, call, place, value) for place, value in parts.items())
    column = len(parts) == 1 and all(is_column(seen, call, place, value) for place, value in parts.items())
    widths = (1,) if column else tuple(width_of(value, len(call.images)) for value in parts.values())
    images = torch.nan_to_num(call.images.detach().float())
    live = LiveModel(
        class_name=name_of(seen.module),
        ordinal=seen.ordinal,
        evaluating=evaluating,
        row=call.row,
        slot=call.slot,
        flat=call.flat,
        output=output,
        column=column,
        weights=weights,
        settled=call.training and seen.settled is not None,
        drawing=not call.training and draws(seen.module),
    )
    return SeenModel(
        live=live,
        factory=defined_at(type(seen.module), Path(recipe.root)),
        parameters=sum(parameter.numel() for parameter in seen.module.parameters()),
        site=(seen.settled or call).site,
        calls=sum(count for (_, how), count in seen.sites.items() if how == evaluating),
        dtype=str(call.images.dtype).removeprefix("torch."),
        low=float(images.min()),
        high=float(images.max()),
        output=_shapes(leaves),
        tasks=tasks,
        widths=widths,
        as_read=None if as_read is None else as_read == _structure(seen.module),
        fits=fits(seen.module, recipe.checkpoint) if recipe.checkpoint is not None else None,
        trained=False in seen.first or bool(seen.learned),
        evaluates=evaluating not in seen.learned,
        in_training=told_apart(seen.module) if call.training and seen.settled is None else (),
        feeds=tuple(sorted({name for name, how in seen.feeds if how == evaluating})),
        labels=tuple(
            _labels(seen, call, str(place[-1]).strip(".") if place else "", task, width, widths, own_data=own_data)
            for place, task, width in zip(parts, tasks, widths, strict=True)
        ),
        dataset=type(call.dataset).__name__ if call.dataset is not None else None,
        together=_batches_in(call),
        beside=numbers_beside(seen, call),
        otherwise=(*said_of_beside(seen, call), *said_otherwise(seen, dict(zip(parts, tasks, strict=True)))),
    )


def _batches_in(call: Call) -> int:
    """How many of the tensors that a model is called with are batches of images of one shape."""
    given = [value for _, value in tensors_in((call.args, call.kwargs)) if value.shape == call.images.shape]
    return max(1, sum(value.dtype == call.images.dtype for value in given)) if call.images.dim() == 4 else 1


def _labels(
    seen: Seen, call: Call, output: str, task: str, width: int | None, widths: Sequence[int | None], *, own_data: bool
) -> tuple[str, ...] | None:
    """The names of an output's entries; that of a single one is the second of two, which it is the probability of. Of several
    outputs with as many entries, each has the names that are called like it."""
    if width is None or (task and not classifies(task)):
        return None
    if (called := names_called(call, output, width, own_data=own_data)) is not None or widths.count(width) > 1:
        return called
    names = class_names(seen.module, call, max(2, width), own_data=own_data)
    if names is None and not seen.learned:  # what a script trains may tell other classes apart
        names = names_of(seen.module, width)
    return names[-width:] if names is not None else None


def _given_in_evaluation(module: nn.Module, call: Call) -> Any:
    """What the model gives in evaluation mode where it was called in training mode, in which some give more: the scores of an
    auxiliary head, or those that a teacher judges."""
    try:
        with state_guard(module), torch.no_grad():
            return module(*call.args, **call.kwargs)
    except Exception:  # noqa: BLE001 - whatever the user's model raises; then what it gave is all that is known
        return call.output


def _shapes(leaves: Mapping[Place, torch.Tensor]) -> str:
    parts = [f"{'.'.join(str(step).strip('.') for step in place)}{list(value.shape)}" for place, value in leaves.items()]
    return ", ".join(parts[:6])
