"""Where the embedded server and Triton differ on purpose, and why; docs/triton.md has this list."""

from __future__ import annotations

import fnmatch
from dataclasses import dataclass, replace
from typing import Any

_CODES = {
    "OK": "200", "INVALID_ARGUMENT": "400", "NOT_FOUND": "404", "UNIMPLEMENTED": "501", "UNAVAILABLE": "503"
}  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Documented:
    """One known difference. `matches` are patterns of "area/what" that it covers (fnmatch).

    Of answers it covers only those with one of these pairs of HTTP statuses, the embedded server's first.
    """

    title: str
    reason: str
    matches: tuple[str, ...]
    statuses: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, kw_only=True)
class Difference:
    """One point where the two answered differently. `documented` is the key of the reason, empty where there is none.

    `what` is a field or a case; `transport` is empty for what was asked over HTTP alone.
    """

    area: str
    model: str
    what: str
    embedded: str
    triton: str
    transport: str = ""
    documented: str = ""

    def to_json(self) -> dict[str, Any]:
        return dict(vars(self))


DOCUMENTED: dict[str, Documented] = {
    "identity": Documented(
        title="Name, version and extensions of the server",
        reason="Each says who it is. Triton lists extensions that are always on there and are off until asked for here.",
        matches=("server/name", "server/version", "server/extensions"),
    ),
    "resolved-config": Documented(
        title="What a configuration becomes when it is loaded",
        reason="Triton answers with what it made of config.pbtxt: its platform and runtime file, named instances of a resolved "
        "kind, default preferred sizes, switches of pinned memory. The embedded server answers with what the file says.",
        matches=(
            "config/platform",
            "config/runtime",
            "config/version_policy*",
            "config/optimization*",
            "config/instance_group*",
            "config/dynamic_batching.preferred_batch_size*",
            "config/default_model_filename",
        ),
    ),
    "output-twice": Documented(
        title="An output that is asked for twice",
        reason="Triton answers with it once; the embedded server refuses what is probably a mistake.",
        matches=("error/an output twice",),
        statuses=(("400", "200"),),
    ),
    "class-count": Documented(
        title="A class count beyond 32 bits",
        reason="Triton takes its lowest 32 bits, so that 2^40 classes are none; the embedded server gives all there are.",
        matches=("answer/2^40 classes",),
    ),
    "deadlines": Documented(
        title="Deadlines",
        reason="A request's timeout counts in Triton while it waits in the queue, and only where the queue policy lets "
        "requests override it, as `headrace triton write` does. In the embedded server that is so under a queue policy, too; "
        "without one it covers the whole way to the answer, and what cannot be in time is rejected at once; but its decoder "
        "alone, which has no queue, has no deadline.",
        matches=("error/no time",),
        statuses=(("503", "200"), ("200", "503")),
    ),
    "sequences": Documented(
        title="Sequences",
        reason="Triton passes over a sequence_id that a model has no use for; the embedded server has none and says so (501).",
        matches=("error/a sequence",),
        statuses=(("501", "200"),),
    ),
    "shared-memory": Documented(
        title="Shared memory",
        reason="Triton always has it, so a region that nobody registered is unknown (404; and 400 over HTTP where binary data "
        "are asked for as well). The embedded server has it when started with --shared-memory, says 501 otherwise, and "
        "checks the request's own numbers first (400).",
        matches=("error/shared memory*",),
        statuses=(("501", "404"), ("400", "404"), ("501", "400")),
    ),
    "digests": Documented(
        title="Damaged files",
        reason="The embedded server refuses a version whose files are not those that were written, by their digests. Triton "
        "does not compare them: a graph with a flipped bit loads where it can still be read, and answers.",
        matches=(),
    ),
    "counted-failures": Documented(
        title="Which rejected requests are counted as failed",
        reason="The embedded server counts every request that names a model and is rejected for its tensors. Triton counts "
        "those that came as far as its scheduler, and those that a front end refuses not at all.",
        matches=("statistics/fail.count",),
    ),
    # The widest comes last.
    "json-numbers": Documented(
        title="A number of the wrong kind in JSON",
        reason="Triton answers 500 where its JSON reader meets a negative number, a fraction, text or a truth value for a "
        "non-negative whole number. That is the caller's mistake, so the embedded server answers 400, as both do over gRPC.",
        matches=("error/*",),
        statuses=(("400", "500"),),
    ),
}


def explained(difference: Difference) -> Difference:
    """The difference with the key of its reason, where it is a known one."""
    name = f"{difference.area}/{difference.what}"
    for key, known in DOCUMENTED.items():
        if not any(fnmatch.fnmatchcase(name, pattern) for pattern in known.matches):
            continue
        if not known.statuses or (_status(difference.embedded), _status(difference.triton)) in known.statuses:
            return replace(difference, documented=key)
    return difference


def _status(told: str) -> str:
    """The HTTP status of what a server said, or what stands for it."""
    first = told.partition(" ")[0]
    return _CODES.get(first, first)
