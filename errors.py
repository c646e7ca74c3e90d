"""Every error Headrace raises on purpose. Each message names the remedy.

    HeadraceError
    ├── CaptureError            a module could not become one graph; lists every obstacle
    ├── BackendError            a backend is missing, or failed to compile or run
    ├── KernelError             an operator of headrace::... got what it does not take, or its programs cannot be compiled
    ├── ParityError             two computations that must agree do not, or agreement proves nothing
    ├── ArtifactError           a model on disk cannot be read or written
    │   └── DigestError         a file is not the one that was written
    ├── PlacementError          a global tensor would have to move, and no conversion is written; names the line and the call
    ├── RankLostError           a process of a job of several was killed or left; names which
    ├── MissingExtraError       a command's libraries are not installed; names the extra that brings them
    ├── MigrateError            a repository cannot be migrated as asked
    │   ├── NothingToMigrateError   no PyTorch image classification was found
    │   ├── AmbiguousError      several candidates; names them and the flag that chooses
    │   └── SandboxError        the user's code failed or broke a limit in its subprocess
    ├── BenchError              a benchmark could not be run to its end
    ├── ClassifyError           an offline classification cannot begin, go on, or end
    ├── ClusterError            a Ray cluster cannot be reached, or cannot serve what it is to serve
    ├── TritonError             NVIDIA Triton cannot be installed, started or compared with
    ├── VerifyError             an endpoint cannot be judged: nothing answers, or what it answers cannot be read
    └── RequestError            a caller's request cannot be answered; carries the HTTP status
        ├── InputError          400: wrong name, dtype, shape, encoding or image
        ├── UnauthorizedError   401: no token, or none that is known
        ├── ForbiddenError      403: the token is for something else
        ├── NotFoundError       404: no such model or version
        ├── TooLargeError       413: over a stated limit
        ├── ExecutionError      500: the model failed on it; details stay in the server's log
        ├── UnsupportedError    501: the protocol allows it, this server does not
        └── OverloadedError     503: queue full, deadline passed, or shutting down
            └── RateLimitError  429: this client sends more than it may

This module imports nothing of the package.
"""

from __future__ import annotations

import errno
import os
import re
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

__all__ = [
    "AmbiguousError",
    "ArtifactError",
    "BackendError",
    "BenchError",
    "CaptureError",
    "ClassifyError",
    "ClusterError",
    "DigestError",
    "ExecutionError",
    "ForbiddenError",
    "HeadraceError",
    "InputError",
    "KernelError",
    "MigrateError",
    "MissingExtraError",
    "NotFoundError",
    "NothingToMigrateError",
    "Obstacle",
    "OverloadedError",
    "ParityError",
    "PlacementError",
    "RankLostError",
    "RateLimitError",
    "RequestError",
    "SandboxError",
    "TooLargeError",
    "TritonError",
    "UnauthorizedError",
    "UnsupportedError",
    "VerifyError",
]


class HeadraceError(Exception):
    """The root: catch this to catch everything Headrace raises on purpose."""


@dataclass(frozen=True)
class Obstacle:
    """One thing that stands between a module and its graph, at the user's own file and line ("" and 0 when unknown)."""

    code: str
    message: str
    path: str = ""
    line: int = 0

    def __str__(self) -> str:
        where = f"{self.path}:{self.line}: " if self.path else ""
        return f"{where}{self.code} {self.message}"


class CaptureError(HeadraceError):
    """A module could not become one graph. `obstacles` lists all that were found, not only the first."""

    def __init__(self, summary: str, obstacles: Sequence[Obstacle] = ()) -> None:
        super().__init__("\n".join([summary, *(f"  {obstacle}" for obstacle in obstacles)]))
        self.obstacles = tuple(obstacles)


class BackendError(HeadraceError):
    """A backend is not installed, or failed to compile or run a graph."""


class KernelError(HeadraceError):
    """An operator of headrace::... got tensors or numbers that it does not take, or its programs cannot be compiled here."""


class ParityError(HeadraceError):
    """Two computations that must agree do not, or their agreement proves nothing (constant outputs)."""


class ArtifactError(HeadraceError):
    """A model on disk cannot be read or written."""


class DigestError(ArtifactError):
    """A file of an artifact is not the one that was written."""


class PlacementError(HeadraceError):
    """A global tensor lies otherwise than an operator needs it, or on other ranks, and no conversion is written."""


class RankLostError(HeadraceError):
    """Another process of this job was killed, hangs or ended with an error, and nothing can be computed without it."""


class MissingExtraError(HeadraceError):
    """What was asked for needs libraries that are not installed; the message names the extra that brings them."""


class MigrateError(HeadraceError):
    """A repository cannot be migrated as asked."""


class NothingToMigrateError(MigrateError):
    """No PyTorch image classification was found where the user pointed."""


class AmbiguousError(MigrateError):
    """Several candidates fit: `message` says for what, `candidates` names them, and `flag` is the option that chooses.

    `report` is a `Report` of the migrator with what does not depend on the choice, where there is such a thing.
    """

    report: object = None

    def __init__(self, message: str, *, candidates: Sequence[str], flag: str) -> None:
        listed = "\n".join(f"  {flag} {candidate}" for candidate in candidates)
        super().__init__(f"{message}; choose one with {flag}:\n{listed}")
        self.message = message
        self.candidates = tuple(candidates)
        self.flag = flag


class SandboxError(MigrateError):
    """The user's code failed, or broke a limit, in the subprocess that ran it. `output` is the end of what it printed;
    `random_weights` says that its model has weights that no file of the user's sets."""

    def __init__(self, message: str, *, output: str = "", random_weights: bool = False) -> None:
        super().__init__(message)
        self.output = output
        self.random_weights = random_weights


class BenchError(HeadraceError):
    """A benchmark could not be run to its end."""


class ClassifyError(HeadraceError):
    """An offline classification cannot begin, go on, or end."""


class ClusterError(HeadraceError):
    """A Ray cluster cannot be reached, or cannot serve what it is to serve."""


class TritonError(HeadraceError):
    """NVIDIA Triton cannot be installed or started here, or ended by itself."""


class VerifyError(HeadraceError):
    """An endpoint cannot be judged: nothing answers there, or what it answers cannot be read."""


class RequestError(HeadraceError):
    """A caller's request cannot be answered. `status` is the HTTP status that says so."""

    status: ClassVar[int] = 400


class InputError(RequestError):
    """A tensor or an image is not what the model takes: name, dtype, shape, encoding."""

    status = 400


class UnauthorizedError(RequestError):
    """The caller gave no token, or none that is known."""

    status = 401


class ForbiddenError(RequestError):
    """The caller's token is for something else, or what it asks for is open to nobody."""

    status = 403


class NotFoundError(RequestError):
    """No model or version of that name is served."""

    status = 404


class TooLargeError(RequestError):
    """The request is over a stated limit (body bytes, pixels, rows)."""

    status = 413


class ExecutionError(RequestError):
    """The model failed on the request. What exactly went wrong is in the server's log, not in the answer."""

    status = 500


class UnsupportedError(RequestError):
    """The protocol allows the request; this server does not."""

    status = 501


class OverloadedError(RequestError):
    """The queue is full, the deadline has passed, or the server is shutting down. `retry_after` is in seconds."""

    status = 503

    def __init__(self, message: str, *, retry_after: int = 1) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class RateLimitError(OverloadedError):
    """This client sends more requests a second than one client may."""

    status = 429


class DiskFault(NamedTuple):
    """What a file operation says of the disk, and the path that it was about; empty where it named none."""

    reason: str
    place: str

    def __str__(self) -> str:
        return f"{self.reason} ({self.place})" if self.place else self.reason


# Full, over quota, over the largest size of a file, read-only, broken; and what this user may not do there.
_OF_DISKS = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.EIO)
_OF_RIGHTS = (errno.EACCES, errno.EPERM)


def disk_fault(error: OSError) -> DiskFault | None:
    """What is wrong with a disk, or with this user's rights there; None for an error of any other kind. Of what
    `shutil.copytree` gathered it is the first."""
    number, place, reason = error.errno, error.filename2 or error.filename, error.strerror
    if isinstance(error, shutil.Error) and error.args and isinstance(error.args[0], list) and error.args[0]:
        _, place, why = error.args[0][0]
        found = re.match(r"\[Errno (\d+)\]", str(why))
        number = int(found[1]) if found else None
        reason = os.strerror(number or 0)
    if isinstance(error, FileNotFoundError) and "No usable temporary directory" in str(reason):  # tempfile's, of a full disk
        return DiskFault(
            "No temporary folder can be written to", str(reason).rpartition(" in ")[2].strip("[]").replace("'", "")
        )
    if number in _OF_DISKS or (number in _OF_RIGHTS and place):
        return DiskFault(reason or os.strerror(number), str(place or ""))
    return None
