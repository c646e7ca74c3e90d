"""docs/stages.json: the stages of one machine, and what its server did in the same minutes."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from headrace.errors import BenchError

from .model import Distribution, ServerSpec, Speeds

__all__ = ["FORMAT", "Recorded", "read"]

FORMAT = 1


@dataclass(frozen=True, kw_only=True)
class Recorded:
    """What `measure` wrote. `spec` is the measured server, `client` the load generator's processor seconds per request.

    `closed` and `opened` are the figures of the served runs, as in the file: under so many connections, and under Poisson
    traffic.
    """

    spec: ServerSpec
    client: float
    image_bytes: float
    closed: tuple[Mapping[str, Any], ...]
    opened: tuple[Mapping[str, Any], ...]
    data: Mapping[str, Any]

    @property
    def machine(self) -> str:
        """In words."""
        found = self.data["machine"]
        gpus = f", {', '.join(found['gpus'])}" if found["gpus"] else ""
        return f"{found['cores']} cores of {found['cpu']}{gpus}"


def read(path: Path) -> Recorded:
    """Raises BenchError for a file that is not there or not of this form."""
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
        if data["format"] != FORMAT:
            raise ValueError(f"its format is {data['format']}, expected {FORMAT}")
        return _recorded(data)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise BenchError(f"{path} holds no measured stages ({error}); `make stages` measures them") from error


def _recorded(data: Mapping[str, Any]) -> Recorded:
    stages = data["stages"]
    batch = {int(bucket): Distribution.from_json(one) for bucket, one in stages["batch"].items()}
    spec = ServerSpec(
        speeds=Speeds(
            cores=data["machine"]["cores"],
            together=tuple(stages["together"]),
            beside=tuple((thread, other) for thread, other in stages["beside"]),
        ),
        batch=batch,
        profile={int(bucket): milliseconds / 1e3 for bucket, milliseconds in stages["profile_ms"].items()},
        decode=Distribution.from_json(stages["decode"]),
        handling=stages["handling_us"] / 1e6,
        handing_over=stages["handing_over_us"] / 1e6,
        decoders=stages["decoders"],
        instances=stages["instances"],
        max_delay=stages["max_delay_ms"] / 1e3,
        max_queue=stages["max_queue"],
    )
    return Recorded(
        spec=spec,
        client=stages["client_us"] / 1e6,
        image_bytes=data["image_bytes"],
        closed=tuple(data["served"]["closed"]),
        opened=tuple(data["served"]["open"]),
        data=data,
    )
