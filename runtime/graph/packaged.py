"""A packaged model with a module's very weights, where one lies near the script: a graph that need not be tuned again."""

from __future__ import annotations

import hashlib
import itertools
import json
import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from ...errors import HeadraceError, InputError
from ..artifact.agreement import Array
from ..artifact.artifact import load_artifact
from ..artifact.manifest import MANIFEST
from ..artifact.parity import Gate, beyond, largest_changes, tolerances
from ..base.structure import Structure, flatten
from ..inspect.journal import Journal
from ..tuning.rare_rows import rare_rows
from .loaded import LoadedGraph
from .program_digest import program_digest

MODELS = "HEADRACE_MODELS"
_FOLDERS = ("models", "model_repository", ".headrace/models")  # where migrate puts them, and with --write
_ABOVE = 3  # folders above the script's that may hold them
_MOST = 256  # entries of a folder that are looked at
_LARGEST_RECORD = 16 << 20
RARE_ROWS = 16  # what a script's batch has, about
Run = Callable[..., Any]


def weights_digest(modules: Sequence[nn.Module]) -> str | None:
    """Of the parameters and buffers of modules, in their order: dtype, shape and values. Names are left out, since wrappers
    change them. None where a module has no values yet, or none that are plain tensors."""
    total = hashlib.sha256()
    for module in itertools.chain.from_iterable(each.modules() for each in modules):
        for value in (*module._parameters.values(), *module._buffers.values()):
            if value is None:
                continue
            if nn.parameter.is_lazy(value) or value.layout != torch.strided or value.is_quantized or value.is_meta:
                return None
            plain = value.detach().cpu().resolve_conj().resolve_neg().contiguous()
            total.update(f"{plain.dtype} {tuple(plain.shape)} ".encode())
            total.update(plain.reshape(-1).view(torch.uint8).numpy())
    return f"sha256:{total.hexdigest()}"


@dataclass(frozen=True)
class Package:
    """A folder that holds a model with a module's weights, and whether its program is known to be the module's, too."""

    folder: Path
    same_program: bool


def packages_of(model: nn.Module) -> list[Package]:
    """Those with the model's weights in the folders of $HEADRACE_MODELS, else in models/ beside the script and above."""
    records = [(folder, digests) for folder in _folders() if (digests := _digests(folder)) is not None]
    if not records:
        return []
    weights = weights_digest([model])
    found = [(folder, digests[1]) for folder, digests in records if digests[0] == weights]
    program = program_digest(model) if any(of_package for _, of_package in found) else None
    return [Package(folder, program is not None and program == of_package) for folder, of_package in found]


def find_packaged(
    packages: Sequence[Package], inputs: Sequence[torch.Tensor], run: Run, again: Run, journal: Journal
) -> tuple[LoadedGraph, Any] | None:
    """The first of the packages that computes in fp32 what the model computes for `inputs`, and the model's own outputs for
    these; None where none does. One whose program is not known to be the model's must do so for rows that few inputs are, too.
    In batches of other sizes each of them must answer alike.

    `run` gives the model's own outputs in fp32, and `again` those of another way to compute them, which tells how far equal
    ones may differ.
    """
    for package in packages:
        try:
            artifact = load_artifact(package.folder)
            plan = artifact.lossless_plan()
            if plan.device != inputs[0].device.type:
                continue
            answered = run(*inputs)
            structure = _leaves(answered)[1]
            graph = LoadedGraph(artifact, plan=plan, structure=structure)
            why = otherwise(answered, graph(*inputs), lambda: again(*inputs))
            why = why or _alone_otherwise(graph, inputs, answered, again)
            why = why or (None if package.same_program else _rarely_otherwise(graph, inputs, run, again))
        except HeadraceError as error:
            why = str(error)
        if why is None:
            return graph, answered
        journal.warn(f"{package.folder} holds a model with these weights, and is not used: {why}")
    return None


def otherwise(wanted: Any, given: Any, again: Callable[[], Any]) -> str | None:
    """How a graph's outputs differ from the model's own by more than rounding does, which `again` tells where it is needed."""
    return _off(_leaves(wanted)[0], _leaves(given)[0], again)


def _off(expected: list[Array], found: list[Array], again: Callable[[], Any]) -> str | None:
    if beyond(expected, found, tolerances(expected, Gate())) is None:
        return None
    return beyond(expected, found, tolerances(expected, Gate(noise=largest_changes(expected, [_leaves(again())[0]]))))


def _alone_otherwise(graph: LoadedGraph, inputs: Sequence[torch.Tensor], answered: Any, again: Run) -> str | None:
    """The same of the first row alone, which the model need not run once more for."""
    if len(inputs[0]) == 1:
        return None

    def first(outputs: Any) -> list[torch.Tensor]:
        return [torch.from_numpy(value[:1]) for value in _leaves(outputs)[0]]

    why = otherwise(first(answered), first(graph(*(value[:1] for value in inputs))), lambda: first(again(*inputs)))
    return why and f"for one row alone {why}"


def _rarely_otherwise(graph: LoadedGraph, inputs: Sequence[torch.Tensor], run: Run, again: Run) -> str | None:
    """The same of rows that few inputs are, the first alone: weights say nothing of what a program does with them. None where
    the model itself does not take such rows."""
    rare = rare_rows([value[:RARE_ROWS].numpy(force=True) for value in inputs], RARE_ROWS)
    rows = [torch.from_numpy(value).to(like) for value, like in zip(rare, inputs, strict=True)]
    try:
        wanted = run(*rows)
    except Exception:  # noqa: BLE001 - a model may check its inputs, and raise what it likes
        return None
    parts = [_leaves(graph(*(value[chosen] for value in rows)))[0] for chosen in (slice(1), slice(1, None))]
    why = _off(_leaves(wanted)[0], [np.concatenate(values) for values in zip(*parts, strict=True)], lambda: again(*rows))
    return why and f"on inputs that are rare {why}"


def _folders() -> list[Path]:
    """The model folders that may be meant, each once."""
    if named := os.environ.get(MODELS):
        places = [Path(name) for name in named.split(os.pathsep) if name]
    else:
        main = getattr(sys.modules.get("__main__"), "__file__", None)
        starts = [*([Path(main).resolve().parent] if main else []), Path.cwd()]
        near = [folder for start in starts for folder in (start, *itertools.islice(start.parents, _ABOVE))]
        places = [folder / name for folder in near for name in _FOLDERS]
    found = []
    for place in dict.fromkeys(places):
        try:
            with os.scandir(place) as entries:
                found += sorted(Path(entry.path) for entry in itertools.islice(entries, _MOST) if entry.is_dir())
        except OSError:
            continue
    return found


def _digests(folder: Path) -> tuple[str, str | None] | None:
    """Those of weights and program that the record of a model's newest version names; what else it says is verified where it is
    loaded."""
    try:
        numbers = [int(name) for name in itertools.islice(os.listdir(folder), _MOST) if name.isascii() and name.isdigit()]
        with (folder / str(max(numbers, default=0)) / MANIFEST).open("rb") as file:
            provenance = json.loads(file.read(_LARGEST_RECORD))["provenance"]
        return str(provenance["weights"]), provenance.get("program")
    except (OSError, ValueError, RecursionError, KeyError, TypeError):
        return None


def _leaves(outputs: Any) -> tuple[list[Array], Structure]:
    values, structure = flatten(outputs, lambda value: isinstance(value, torch.Tensor), _reject)
    floats = [value.detach().float() if value.is_floating_point() else value for value in values]
    return [value.numpy(force=True) for value in floats], structure


def _reject(where: str, value: Any) -> None:
    raise InputError(f"{where} is a {type(value).__name__}, and a graph gives tensors")
