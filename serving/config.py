"""How the embedded server is set up: addresses, limits, and how many of what."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path

from ..runtime.session import default_threads
from .fast_preprocessing import DECODINGS

__all__ = ["ServeConfig"]

MIB = 1 << 20


@dataclass(frozen=True, kw_only=True)
class ServeConfig:
    """One run of `penstock serve`. Every limit is what one request may cost; a port of 0 takes a free one.

    `models` is a folder in the model-repository layout. `instances` sessions run side by side per model, each with `threads`
    CPU threads (None: as many as its plan was measured with). None lets warm-up measure whether two serve more than one: alone,
    a request has all cores either way; under load, one batch may use the moments in which the other waits for its slowest
    thread, is collated, or is handed back.
    `decoding` says how images become tensors: "exact" as Pillow computes it, "fast" with JPEG pixels within 2 of
    255 of that, "scaled" decoding large JPEGs at a fraction of their size; see docs/decoding.md.
    `max_queue` counts requests waiting per model. `default_timeout_seconds` is the deadline of a request that names none.
    `ready_file` is written as JSON with the chosen ports once every model was tried. Raises ValueError naming the field.
    """

    models: Path
    host: str = "127.0.0.1"
    http_port: int = 8000
    grpc_port: int | None = 8001
    metrics_port: int | None = 8002
    ready_file: Path | None = None

    max_queue: int = 256
    max_queue_delay_seconds: float = 0.01
    default_timeout_seconds: float = 30.0
    body_timeout_seconds: float = 60.0
    drain_seconds: float = 30.0

    instances: int | None = None
    threads: int | None = None
    decode_threads: int | None = None
    decoding: str = "fast"

    max_body_bytes: int = 64 * MIB
    max_decompressed_bytes: int = 128 * MIB
    max_header_bytes: int = 64 * 1024
    max_json_depth: int = 32
    max_inflight_bytes: int = 512 * MIB
    max_pixels: int = 50_000_000

    def __post_init__(self) -> None:
        for name in ("http_port", "grpc_port", "metrics_port"):
            port = getattr(self, name)
            if port is not None and not 0 <= port <= 65535:
                raise ValueError(f"{name} must be a port from 0 (any free one) to 65535, got {port}")
        fixed = [port for port in (self.http_port, self.grpc_port, self.metrics_port) if port]
        if len(set(fixed)) != len(fixed):
            raise ValueError(f"http_port, grpc_port and metrics_port must differ, got {fixed}")
        positive = (
            "max_queue", "instances", "threads", "decode_threads", "max_body_bytes", "max_decompressed_bytes",
            "max_header_bytes", "max_json_depth", "max_inflight_bytes", "max_pixels",
        )  # fmt: skip
        for name in positive:
            value = getattr(self, name)
            if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < 1):
                raise ValueError(f"{name} must be a positive integer, got {value!r}")
        if self.decoding not in DECODINGS:
            raise ValueError(f"decoding must be one of {', '.join(DECODINGS)}, got {self.decoding!r}")
        for name in ("default_timeout_seconds", "body_timeout_seconds", "drain_seconds"):
            if not (math.isfinite(getattr(self, name)) and getattr(self, name) > 0):
                raise ValueError(f"{name} must be a positive number of seconds, got {getattr(self, name)!r}")
        if not (math.isfinite(self.max_queue_delay_seconds) and self.max_queue_delay_seconds >= 0):
            raise ValueError(f"max_queue_delay_seconds must be a number of seconds >= 0, got {self.max_queue_delay_seconds!r}")

    @property
    def decoders(self) -> int:
        """Threads that decode images: one per core, as decoding and the session alternate on small machines."""
        return self.decode_threads or max(2, min(32, default_threads()))
