"""What the lint has to say, and the codes it says it under."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Literal

# Never reused.
CODES = {
    "TR001": "the configuration cannot be read",
    "TR002": "the configuration's name is not the folder's",
    "TR003": "version folders",
    "TR004": "the version policy",
    "TR005": "the model's file is missing",
    "TR006": "the backend",
    "TR007": "max_batch_size",
    "TR008": "dims and reshape",
    "TR009": "data types",
    "TR010": "names of tensors",
    "TR011": "the configuration does not fit the graph",
    "TR012": "labels",
    "TR013": "instance groups",
    "TR014": "batching and queue policy",
    "TR015": "the wiring of an ensemble",
    "TR016": "warm-up",
    "TR017": "execution accelerators",
    "TR018": "parameters of the backend",
    "TR019": "code that Triton runs",
}


@dataclass(frozen=True, kw_only=True)
class Finding:
    """One point. An "error" is what Triton does not load; a "warning" loads and then is not what one would expect.

    `where` is a file or a field of the config.pbtxt of `model`, which `lint` adds; the message says what is wrong and what
    to do.
    """

    code: str
    severity: Literal["error", "warning"]
    where: str
    message: str
    model: str = ""

    def __str__(self) -> str:
        return f"{self.model}: {self.severity} {self.code} {self.where}: {self.message}"

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "title": CODES[self.code]}


def error(code: str, where: str, message: str) -> Finding:
    """What Triton refuses."""
    return Finding(code=code, severity="error", where=where, message=message)


def warning(code: str, where: str, message: str) -> Finding:
    """What Triton loads."""
    return Finding(code=code, severity="warning", where=where, message=message)
