"""How the embedded server is set up: addresses, limits, and how many of what."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from pathlib import Path

from ..runtime.base.session import default_threads
from .images.gpu_preprocessing import ALL_DECODINGS, GPU_BATCH

__all__ = ["ServeConfig"]

MIB = 1 << 20
_MAX_FRONTENDS = 64
# By default so many cores get one front end; fewer than twice as many get none, since the ring and the engine's own process
# cost more there than one event loop that shares a process with its batcher.
_CORES_PER_FRONTEND = 8
# What a client sets at one front end the others would not know.
_OF_ONE_PROCESS = ("shared_memory", "allow_settings")
_HOST = re.compile(r"[A-Za-z0-9_.-]{1,253}")
_CONTROL_MODES = ("none", "explicit", "poll")


@dataclass(frozen=True, kw_only=True)
class ServeConfig:
    """One run of `headrace serve`. Every limit is what one request may cost; a port of 0 takes a free one.

    `models` is a folder in the model-repository layout. `instances` sessions run side by side per model, each with `threads`
    CPU threads (None: as many as its plan was measured with); a model whose plan is for GPUs has so many on each of the
    `devices`, numbers of GPUs as CUDA counts those that the process sees (None: all of them). Without `instances` warm-up
    measures whether two serve more than one: alone, a request has all cores either way; under load, one batch may use the
    moments in which the other waits for its slowest thread, is collated or copied, or is handed back.
    `frontends` processes take requests, decode images and pass rows to the engine's process, each through `ring_bytes` of
    shared memory; 0 does all in one process, and None decides by the number of cores.
    `decoding` says how images become tensors: "exact" as Pillow computes it, "fast" with JPEG pixels within 2 of
    255 of that, "scaled" decoding large JPEGs at a fraction of their size, "gpu" decoding JPEGs on the first of the
    `devices`, in the one process that there is then; see docs/decoding.md.
    `max_queue` counts requests waiting per model. `default_timeout_seconds` is the deadline of a request that names none.
    `allowed_hosts` are names by which HTTP requests may call the server, besides localhost and addresses; without any, other
    names are refused on a loopback address without tokens only.
    `token_file` holds the bearer tokens that calls then need. `tls_cert` and `tls_key` are PEM files, used by all ports; with
    `tls_client_ca` clients must show a certificate of that authority. `shared_memory` and `allow_settings` (logging, tracing)
    open what lets clients reach beyond their own requests. `log_format` is "text" or "json"; `access_log` adds a line per
    request. Traces go to the OpenTelemetry collector at the address `trace_otlp`, by OTLP over HTTP.
    `model_control_mode` is Triton's: "none" serves what is there at the start; "explicit" loads `load_models` ("*" is all)
    and then what clients ask for; "poll" looks at the folder every `repository_poll_seconds` and follows it.
    `rate_limit` is how many inference requests a second one client may send; None is as many as it likes.
    `response_cache_bytes` of outputs are kept for inputs that come again; 0 keeps none.
    `ready_file` is written as JSON with the chosen ports once every model was tried. Raises ValueError naming the field.
    """

    models: Path
    host: str = "127.0.0.1"
    http_port: int = 8000
    grpc_port: int | None = 8001
    metrics_port: int | None = 8002
    ready_file: Path | None = None

    allowed_hosts: tuple[str, ...] = ()
    token_file: Path | None = None
    tls_cert: Path | None = None
    tls_key: Path | None = None
    tls_client_ca: Path | None = None
    shared_memory: bool = False
    allow_settings: bool = False
    log_format: str = "text"
    access_log: bool = False
    trace_otlp: str | None = None

    max_queue: int = 256
    max_queue_delay_seconds: float = 0.01
    default_timeout_seconds: float = 30.0
    head_timeout_seconds: float = 20.0
    body_timeout_seconds: float = 60.0
    drain_seconds: float = 30.0

    model_control_mode: str = "none"
    load_models: tuple[str, ...] = ()
    repository_poll_seconds: float = 15.0
    response_cache_bytes: int = 0
    rate_limit: float | None = None

    instances: int | None = None
    devices: tuple[int, ...] | None = None
    threads: int | None = None
    decode_threads: int | None = None
    frontends: int | None = None
    ring_bytes: int = 256 * MIB
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
            "max_header_bytes", "max_json_depth", "max_inflight_bytes", "max_pixels", "ring_bytes",
        )  # fmt: skip
        for name in positive:
            value = getattr(self, name)
            if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < 1):
                raise ValueError(f"{name} must be a positive integer, got {value!r}")
        if self.devices is not None and not (self.devices and len(set(self.devices)) == len(self.devices)):
            raise ValueError(f"devices must name GPUs, each once, got {self.devices!r}")
        if self.devices and any(isinstance(one, bool) or not isinstance(one, int) or one < 0 for one in self.devices):
            raise ValueError(f"devices must be numbers of GPUs, from 0; got {self.devices!r}")
        if self.frontends is not None and (isinstance(self.frontends, bool) or not 0 <= self.frontends <= _MAX_FRONTENDS):
            raise ValueError(f"frontends must be a number of processes from 0 to {_MAX_FRONTENDS}, got {self.frontends!r}")
        if self.frontends and (one := next((name for name in _OF_ONE_PROCESS if getattr(self, name)), None)):
            raise ValueError(f"{one} is a matter of one process, so that it needs frontends 0, got {self.frontends}")
        if self.decoding not in ALL_DECODINGS:
            raise ValueError(f"decoding must be one of {', '.join(ALL_DECODINGS)}, got {self.decoding!r}")
        if self.decoding == "gpu" and self.frontends:
            raise ValueError(f"decoding gpu gathers images in one process, so that it needs frontends 0, got {self.frontends}")
        if self.rate_limit is not None and not (math.isfinite(self.rate_limit) and self.rate_limit > 0):
            raise ValueError(f"rate_limit must be a positive number of requests a second, got {self.rate_limit!r}")
        cache = self.response_cache_bytes
        if isinstance(cache, bool) or not isinstance(cache, int) or cache < 0:
            raise ValueError(f"response_cache_bytes must be a number of bytes, 0 for no cache, got {cache!r}")
        if self.model_control_mode not in _CONTROL_MODES:
            raise ValueError(f"model_control_mode must be one of {', '.join(_CONTROL_MODES)}, got {self.model_control_mode!r}")
        if self.load_models and self.model_control_mode != "explicit":
            raise ValueError("load_models needs model_control_mode explicit; the other modes load every model")
        seconds = (
            "default_timeout_seconds", "head_timeout_seconds", "body_timeout_seconds", "drain_seconds",
            "repository_poll_seconds",
        )  # fmt: skip
        for name in seconds:
            if not (math.isfinite(getattr(self, name)) and getattr(self, name) > 0):
                raise ValueError(f"{name} must be a positive number of seconds, got {getattr(self, name)!r}")
        if wrong := [name for name in self.allowed_hosts if not _HOST.fullmatch(name)]:
            raise ValueError(f"allowed_hosts must be host names without scheme and port, got {wrong[0]!r}")
        if (self.tls_cert is None) != (self.tls_key is None):
            raise ValueError("tls_cert and tls_key go together; give both or neither")
        if self.tls_client_ca is not None and self.tls_cert is None:
            raise ValueError("tls_client_ca needs tls_cert and tls_key")
        if self.trace_otlp is not None and not re.fullmatch(r"https?://[^\s/?#]+[^\s?#]*", self.trace_otlp):
            raise ValueError(f"trace_otlp must be a collector's address such as http://localhost:4318, got {self.trace_otlp!r}")
        if self.log_format not in ("text", "json"):
            raise ValueError(f"log_format must be text or json, got {self.log_format!r}")
        if not (math.isfinite(self.max_queue_delay_seconds) and self.max_queue_delay_seconds >= 0):
            raise ValueError(f"max_queue_delay_seconds must be a number of seconds >= 0, got {self.max_queue_delay_seconds!r}")

    @property
    def decoders(self) -> int:
        """Threads that decode images: one per core, as decoding and the session alternate on small machines.

        Where a GPU decodes they only wait for it: as many as two of its batches, one under way and one that gathers.
        """
        if self.decode_threads:
            return self.decode_threads
        return 2 * GPU_BATCH if self.decoding == "gpu" else max(2, min(32, default_threads()))

    @property
    def decoding_gpu(self) -> int | None:
        """The number of the GPU that decodes, where one does; None is torch's current one."""
        return self.devices[0] if self.devices else None

    @property
    def front_ends(self) -> int:
        """Processes that take requests beside the engine's; 0 is everything in one process."""
        if self.frontends is not None:
            return self.frontends
        if self.decoding == "gpu" or any(getattr(self, name) for name in _OF_ONE_PROCESS):
            return 0
        cores = default_threads()
        return 0 if cores < 2 * _CORES_PER_FRONTEND else min(_MAX_FRONTENDS, cores // _CORES_PER_FRONTEND)
