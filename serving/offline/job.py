"""What a job keeps in its output folder, so that the same command goes on where it was killed.

OUT/part-000000.parquet ...   the shards that are done; nothing else says so
OUT/_summary.json             there when all are
OUT/.headrace/job.json        what the job is: source, model, options
OUT/.headrace/plan/           the shards
OUT/.headrace/aside-...       output files that are being written
OUT/.headrace/lock            held while somebody works on the job; the kernel lets go of it
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from ...errors import ClassifyError
from ...runtime.base.atomic import flush_folder, write_aside
from .classifier import ModelIdentity
from .config import ClassifyConfig
from .locations import is_remote
from .output import Finished, ShardWriter, finished
from .plan import Plan, Shard, read_plan, write_plan

SUMMARY = "_summary.json"
_STATE, _JOB, _PLAN, _NEW_PLAN, _LOCK, _ASIDE = ".headrace", "job.json", "plan", "plan-new", "lock", "aside-"
_FORMAT = 1
_OUTPUT = re.compile(r"part-\d{6,}\.parquet")


class Job:
    """An output folder and what goes there. `digest` tells the job from any other."""

    def __init__(self, out: Path, plan: Plan, digest: str) -> None:
        self.out, self.plan, self.digest = out, plan, digest

    def finished(self) -> dict[int, Finished]:
        """The shards that are done, by number. Raises ClassifyError for a file that is not this job's."""
        found = {
            shard.number: finished(self.out / shard.output, job=self.digest, shard=shard.digest) for shard in self.plan.shards
        }
        return {number: done for number, done in found.items() if done is not None}

    def writer(self, shard: Shard) -> ShardWriter:
        """What writes a shard's file. Two of one shard, as after a node was lost, do not meet before they rename."""
        aside = self.out / _STATE / f"{_ASIDE}{shard.number:06d}-{os.getpid()}-{os.urandom(4).hex()}"
        return ShardWriter(self.out / shard.output, aside, job=self.digest, shard=shard.digest)

    def write_summary(self, summary: dict[str, Any]) -> None:
        """Say that all is done."""
        write_aside(self.out / SUMMARY, json.dumps(summary, indent=2).encode())


@contextlib.contextmanager
def open_job(
    config: ClassifyConfig, model: ModelIdentity, *, report: Callable[[int], None] = lambda found: None
) -> Iterator[Job]:
    """Begin a job, or go on with it; nobody else can meanwhile.

    Raises ClassifyError when somebody does, when the folder holds anything else, or when the source, the model or an option is
    not what the job began with.
    """
    state = config.out / _STATE
    with contextlib.ExitStack() as held:
        try:
            _check_folder(config)
            state.mkdir(parents=True, exist_ok=True)
            held.enter_context(_alone(state, config.out))
            if config.restart:
                _clear(config.out)
            for left in state.glob(f"{_ASIDE}*"):  # a killed run's
                left.unlink()
            (config.out / SUMMARY).unlink(missing_ok=True)
            job = _begin(config, model, report)
        except OSError as error:
            reason = error.strerror or str(error)
            raise ClassifyError(
                f"cannot use {config.out}: {reason}; free space there, or name another folder with --out"
            ) from error
        yield job


def _begin(config: ClassifyConfig, model: ModelIdentity, report: Callable[[int], None]) -> Job:
    state = config.out / _STATE
    shutil.rmtree(state / _NEW_PLAN, ignore_errors=True)
    (state / _NEW_PLAN).mkdir()
    plan = write_plan(config, state / _NEW_PLAN, report=report)
    source = config.source if is_remote(config.source) else str(Path(config.source).resolve())
    identity = {
        "format": _FORMAT, "source": source, "plan": plan.digest, "model": model.to_json(), "options": config.identity(),
    }  # fmt: skip
    before = _read_job(state)
    if before is not None:
        old = read_plan(state / _PLAN, plan.base, plan.left_out)
        if (change := _change(before, identity, old, plan)) is not None:
            raise ClassifyError(
                f"{config.out} holds a job that was begun with something else: {change}; put that back to go on with it, "
                "give --restart to throw its files away and begin anew, or name another folder with --out"
            )
        shutil.rmtree(state / _NEW_PLAN)
    else:  # the record comes last: where it is, the plan is
        shutil.rmtree(state / _PLAN, ignore_errors=True)
        (state / _NEW_PLAN).rename(state / _PLAN)
        flush_folder(state)
        write_aside(state / _JOB, json.dumps(identity, indent=2).encode())
    digest = hashlib.sha256(json.dumps(identity, sort_keys=True).encode()).hexdigest()
    placed = Plan(folder=state / _PLAN, shards=plan.shards, base=plan.base, left_out=plan.left_out)
    return Job(config.out, placed, digest)


def _change(before: dict[str, Any], now: dict[str, Any], old: Plan, new: Plan) -> str | None:
    """What is not as it was, in words."""
    if before.get("format") != now["format"]:
        return "another version of Headrace, which keeps its jobs in another form"
    if before["source"] != now["source"]:
        return f"the source was {before['source']}"
    if before["model"] != now["model"]:
        was = before["model"]
        return f"the model was {was['name']} version {was['version']}, or has been packaged or tuned again since"
    for name, value in now["options"].items():
        if before["options"].get(name) != value:
            return f"{name} was {before['options'].get(name)} and is {value}"
    return None if before["plan"] == now["plan"] else f"the source has changed, {old.difference(new)}"


def _check_folder(config: ClassifyConfig) -> None:
    """Nothing but a job is ever touched."""
    if not config.out.exists():
        return
    if not config.out.is_dir():
        raise ClassifyError(f"{config.out} is a file; name a folder with --out")
    if not (config.out / _STATE).is_dir() and any(config.out.iterdir()):
        raise ClassifyError(f"{config.out} is not empty and holds no job; name a new folder with --out")


def _clear(out: Path) -> None:
    """Throw a job away. Its record goes last: as long as there are files of it, they are known to be a job's."""
    if (out / _STATE / _JOB).is_file():
        for entry in sorted(out.iterdir()):
            if _OUTPUT.fullmatch(entry.name):
                entry.unlink()
        flush_folder(out)
        (out / _STATE / _JOB).unlink()


def _read_job(state: Path) -> dict[str, Any] | None:
    try:
        content: dict[str, Any] = json.loads((state / _JOB).read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except ValueError as error:
        raise ClassifyError(f"{state / _JOB} is damaged; give --restart to begin anew, or name another folder") from error
    return content


@contextlib.contextmanager
def _alone(state: Path, out: Path) -> Iterator[None]:
    handle = os.open(state / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ClassifyError(f"another headrace classify is at work on {out}; wait for it, or name another --out") from None
        yield
    finally:
        os.close(handle)
