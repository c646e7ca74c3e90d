"""Tuned graphs of earlier processes: a script that compiles at its first call pays for tuning once, not at every start.

Entries are found by everything that a plan depends on: the graph's operations and weights, the configuration, this machine and
its versions. A cache that cannot be read or written costs time, never an answer: what went wrong is logged.
"""

from __future__ import annotations

import functools
import hashlib
import json
import logging
import os
import re
import shutil
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from ..._version import __version__
from ...errors import ArtifactError
from ...trust import check_own, own_folder
from ..artifact.manifest import FORMAT, MANIFEST, digest, read_manifest, write_manifest
from ..artifact.plan import Plan
from ..base.atomic import replacing
from ..base.cache_folder import cache_folder
from ..base.fingerprint import fingerprint
from ..base.passes import PassRecord

if TYPE_CHECKING:
    import torch

    from ..base.config import GraphConfig
    from ..capture.capture import CapturedGraph

log = logging.getLogger("headrace.cache")

_KEY = re.compile("[0-9a-f]{64}")
_MOST_ENTRIES = 32
_MOST_BYTES = 8 << 30


@dataclass(frozen=True)
class Cached:
    """What an earlier process found: its plan, and what the passes did to the graph that it planned."""

    plan: Plan
    passes: tuple[PassRecord, ...]


def cache_key(captured: CapturedGraph, config: GraphConfig) -> str:
    """A digest of all that a plan depends on, except the batch sizes: an entry collects those that calls brought.

    Programs nest: an autocast block or a branch of torch.cond is a graph module of its own.
    """
    import torch

    total = hashlib.sha256()
    program = captured.program
    settings = repr(replace(config, buckets=None, max_captures=1))
    numerics = torch.get_float32_matmul_precision(), repr(program.range_constraints), captured.disabled
    facts = [source_digest(), fingerprint(), captured.signature.to_json(), captured.device, settings, repr(numerics)]
    total.update(json.dumps(facts, sort_keys=True).encode())
    total.update(str(program.graph_signature).encode())
    tensors = {**program.state_dict, **program.constants}
    for path, module in program.graph_module.named_modules():
        total.update(f"{path} {getattr(module, 'code', type(module).__qualname__)}".encode())
        held = {name: value for name, value in vars(module).items() if isinstance(value, torch.Tensor)}
        own = {**module._parameters, **module._buffers, **held}
        tensors |= {f"{path}.{name}": value for name, value in own.items() if value is not None}
    for name, value in sorted(tensors.items()):
        total.update(name.encode())
        total.update(_content(value) if hasattr(value, "untyped_storage") else repr(value).encode())
    return total.hexdigest()


@functools.cache
def source_digest() -> str:
    """Of the code that makes and runs plans: between two releases it changes, and the version does not."""
    root = Path(__file__).parents[2]
    total = hashlib.sha256(__version__.encode())
    for path in sorted([*root.glob("runtime/**/*.py"), *root.glob("kernels/*.py"), root / "specs.py"]):
        total.update(f"{path.relative_to(root)}\n".encode() + path.read_bytes())
    return total.hexdigest()


def look_up(key: str, directory: Path) -> Cached | None:
    """The entry of that key, with its files put into `directory`; None when there is none, or it is damaged."""
    folder = _entries()
    if folder is None or not (folder / key).is_dir():
        return None
    entry = folder / key
    try:
        check_own(folder)
        check_own(entry)
    except OSError as error:  # its programs would be run
        log.warning("cached plans are not used: %s", error)
        return None
    try:
        content, _ = read_manifest(entry)
        cached = Cached(Plan.from_json(content["plan"]), tuple(PassRecord(**record) for record in content["passes"]))
        for name in content["digests"]:
            shutil.copyfile(entry / name, directory / name)
        os.utime(entry)
    except (ArtifactError, OSError, KeyError, TypeError, ValueError) as error:
        log.warning("the cached plan %s cannot be used and is removed: %s", entry, error)
        drop(key)
        return None
    return cached


def drop(key: str) -> None:
    """Remove an entry that is damaged, or whose model does not compute what it should."""
    if (folder := _entries()) is not None:
        shutil.rmtree(folder / key, ignore_errors=True)


def store(key: str, cached: Cached, directory: Path) -> None:
    """Keep the plan and the files that it opens for later processes, and drop the entries longest unused."""
    folder = _entries()
    if folder is None:
        return
    try:
        own_folder(folder)
        with replacing(folder, [key]) as (entry,):
            digests = {}
            for name in cached.plan.files:
                shutil.copyfile(directory / name, entry / name)
                digests[name] = digest(entry / name, inside=entry)
            content = {"format": FORMAT, "headrace": __version__, "digests": digests, "plan": cached.plan.to_json()}
            write_manifest(entry, {**content, "passes": [record.to_json() for record in cached.passes]})
        _prune(folder, key)
    except (ArtifactError, OSError) as error:
        log.warning("the plan is not cached: %s", error)


def _content(value: torch.Tensor) -> bytes:
    import torch

    plain = value.detach().cpu().contiguous()
    head = f"{plain.dtype} {tuple(plain.shape)}".encode()
    return head + plain.reshape(-1).view(torch.uint8).numpy().tobytes()


def _entries() -> Path | None:
    """The folder of the entries: one of our own, since $HEADRACE_CACHE may name a folder that holds others' things."""
    folder = cache_folder()
    return None if folder is None else folder / "plans"


def _prune(folder: Path, newest: str) -> None:
    """Drop the entries longest unused. What has no record of ours, or another name than a key, is not an entry."""
    found = [path for path in folder.iterdir() if _KEY.fullmatch(path.name) and (path / MANIFEST).is_file()]
    size = 0
    for index, path in enumerate(sorted(found, key=lambda path: path.stat().st_mtime, reverse=True)):
        size += sum(file.stat().st_size for file in path.iterdir())
        if path.name != newest and (index >= _MOST_ENTRIES or size > _MOST_BYTES):
            shutil.rmtree(path, ignore_errors=True)
