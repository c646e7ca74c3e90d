"""What is said of an endpoint: findings with a stable name each, and how many images of each group are answered the same."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

SAME, DIFFERS = "same", "differs"

FAULTS: Mapping[str, str] = {
    "channel-order": "red and blue exchanged",
    "grayscale": "colors and gray taken for each other",
    "inverted": "dark and bright exchanged",
    "scale": "pixels of another range",
    "normalization": "another mean or standard deviation",
    "resize-filter": "another filter of the resize",
    "antialias": "a resize with antialias, or without",
    "resize-shape": "another size, order or aspect of resize, crop and padding",
    "crop-offset": "the crop at another place",
    "layout": "height, width and channels arranged otherwise",
    "exif": "the EXIF orientation",
    "alpha": "transparency",
    "palette": "palette images",
    "16-bit": "16-bit images",
    "cmyk": "CMYK images",
    "jpeg-decoding": "JPEG decoded otherwise",
    "softmax": "softmax missing, too often or of something else",
    "label-order": "classes under each other's names",
    "labels": "labels that the package does not have",
    "model": "another model or version",
    "precision": "a lower precision",
    "interface": "other inputs or outputs",
    "output": "another output than the first",
    "refused": "images that it does not answer",
    "constant": "the same answer to everything",
    "nondeterministic": "other answers to the same request",
    "exchanged-rows": "one request's answer given to another",
    "load": "other answers while other requests run",
    "batch": "other answers in batches",
    "unexplained": "a difference that nothing tried explains",
}


@dataclass(frozen=True, kw_only=True)
class Finding:
    """One thing that differs. `explains` is the share of the error that goes away if it is taken to be so, where that was
    measured; `alternatives` explain as much; `images` are those concerned, where they are few."""

    fault: str
    text: str
    explains: float | None = None
    alternatives: tuple[str, ...] = ()
    images: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        assert self.fault in FAULTS, self.fault

    def to_json(self) -> dict[str, Any]:
        return {
            "fault": self.fault,
            "text": self.text,
            "explains": None if self.explains is None else round(self.explains, 4),
            "alternatives": list(self.alternatives),
            "images": list(self.images),
        }


@dataclass(frozen=True, kw_only=True)
class Judgement:
    """One endpoint, judged. `groups` has (same, asked) by the kind of image; `largest` is the largest error of an answer."""

    endpoint: str
    findings: tuple[Finding, ...]
    groups: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    requests: int = 0
    largest: float = 0.0

    @property
    def verdict(self) -> str:
        return DIFFERS if self.findings else SAME

    def to_json(self) -> dict[str, Any]:
        return {
            "endpoint": self.endpoint,
            "verdict": self.verdict,
            "findings": [finding.to_json() for finding in self.findings],
            "groups": {name: {"same": same, "asked": asked} for name, (same, asked) in self.groups.items()},
            "largest_error": round(self.largest, 6),
            "requests": self.requests,
            "notes": list(self.notes),
        }


@dataclass(frozen=True, kw_only=True)
class Verification:
    """What is found at an address."""

    url: str
    model: str
    version: int
    judgements: tuple[Judgement, ...]

    @property
    def same(self) -> bool:
        return all(judgement.verdict == SAME for judgement in self.judgements)

    def to_json(self) -> dict[str, Any]:
        return {
            "url": self.url,
            "model": self.model,
            "version": self.version,
            "verdict": SAME if self.same else DIFFERS,
            "endpoints": [judgement.to_json() for judgement in self.judgements],
        }
