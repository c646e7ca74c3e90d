"""How the embedded server is set up: addresses, limits, and how many of what. The options of `headrace serve` are these."""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, Literal

from ..runtime.base.fingerprint import available_cores
from ..runtime.base.session import default_threads, visible_gpus
from .options import OptionGroup, option, options_of

MIB = 1 << 20
_MAX_FRONTENDS = 64
APIS = ("kserve-v1", "sagemaker", "vertex")  # as the table of routes names them
# By default so many cores get one front end; fewer than twice as many get none, since the arena and the engine's own process
# cost more there than one event loop that shares a process with its batcher.
_CORES_PER_FRONTEND = 8
# Where a GPU computes the cores only read and decode requests, so two of them get a front end, which decodes on two threads.
# Here logical processors count: a machine that shows two threads per core must not end up with one process for all.
_CORES_PER_FRONTEND_OF_GPU, _DECODERS_PER_FRONTEND = 2, 2
# Requests that may wait; 64 images are some 0.1 s of a decoding thread.
_LEAST_QUEUE, _QUEUE_PER_DECODER = 256, 64
_MOST_OF_GRPC = (1 << 31) - 1  # the library takes the length as an int
_HOST = re.compile(r"[A-Za-z0-9_.-]{1,253}")
_GPUS = re.compile(r"\d+(,\d+)*")

_TLS_WITH_RAY = "Ray Serve's proxies take HTTP; end TLS at the load balancer before them"
_HEADS_WITH_RAY = "Ray Serve's proxies read the heads of requests"
_LOADING_WITH_RAY = "replicas load models as they are asked for"
_FOLDER_WITH_RAY = f"{_LOADING_WITH_RAY}; start the command again after the folder changed"


@dataclass(frozen=True, kw_only=True)
class Addresses(OptionGroup):
    """Where clients reach the server, and where whoever started it learns that. A port of None is not served."""

    title = "Addresses"

    host: str = option("127.0.0.1", "The address to bind.")
    http_port: int = option(8000, "The port of HTTP; 0 takes a free one.", least=0, most=65535)
    grpc_port: int | None = option(
        8001, "The port of gRPC; 0 takes a free one.", least=0, most=65535,
        not_with_ray="gRPC is not offered there; clients speak HTTP, or to a server without --ray",
    )  # fmt: skip
    metrics_port: int | None = option(
        8002, "The port of Prometheus metrics; 0 takes a free one.", least=0, most=65535,
        not_with_ray="every node of a Ray cluster exports its own metrics; see docs/ray.md",
    )  # fmt: skip
    server_name: str = option("headrace", "What the server calls itself in its metadata, as Triton's --id.", name="id")
    ready_file: Path | None = option(None, "Written as JSON with the ports once every model was tried.")
    apis: tuple[str, ...] = option(
        (), f"Take requests in another platform's form, too: {', '.join(APIS)}. Repeatable.", name="api", metavar="FORM",
        not_with_ray="Ray Serve's proxies pass on what the other routes take",
    )  # fmt: skip
    keep_routes: bool = option(
        False, "Answer at the paths of the application that a model was migrated from, in its JSON.",
        not_with_ray="Ray Serve's proxies pass on what the other routes take",
    )  # fmt: skip

    def __post_init__(self) -> None:
        super().__post_init__()
        if unknown := [api for api in self.apis if api not in APIS]:
            raise ValueError(f"--api must be one of {', '.join(APIS)}, got {unknown[0]!r}")
        fixed = [port for port in (self.http_port, self.grpc_port, self.metrics_port) if port]
        if len(set(fixed)) != len(fixed):
            raise ValueError(f"--http-port, --grpc-port and --metrics-port must differ, got {fixed}")


@dataclass(frozen=True, kw_only=True)
class Security(OptionGroup):
    """Who may call, and what lets clients reach beyond their own requests. Without `allowed_hosts`, names other than localhost
    are rejected on a loopback address without tokens only."""

    title = "Security"

    allowed_hosts: tuple[str, ...] = option(
        (),
        "A name by which the server may be called, besides localhost and addresses. Repeatable.",
        name="allowed-host",
        metavar="NAME",
    )
    trusted_proxies: tuple[str, ...] = option(
        (), "A proxy's address or network, whose X-Forwarded-For says who the client is. Repeatable.",
        name="trusted-proxy", metavar="ADDRESS", not_with_ray="Ray Serve's proxies are those that clients reach",
    )  # fmt: skip
    token_file: Path | None = option(None, "TOML or JSON with lists of bearer tokens under infer, admin and metrics.")
    tls_cert: Path | None = option(None, "PEM certificate chain; all ports then speak TLS only.", not_with_ray=_TLS_WITH_RAY)
    tls_key: Path | None = option(None, "The PEM key of --tls-cert, unencrypted.", not_with_ray=_TLS_WITH_RAY)
    tls_client_ca: Path | None = option(None, "Clients must show a certificate of this authority.", not_with_ray=_TLS_WITH_RAY)
    trust_repository: bool = option(False, "Let models run the compiled code that their packages hold.")
    shared_memory: bool = option(
        False, "Let clients on this machine pass tensors in shared memory.",
        not_with_ray="clients and replicas are not on one machine",
    )  # fmt: skip
    allow_settings: bool = option(
        False, "Let clients change log settings over the network.", not_with_ray="a change would reach one replica of many"
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if wrong := [name for name in self.allowed_hosts if not _HOST.fullmatch(name)]:
            raise ValueError(f"--allowed-host must be a host name without scheme and port, got {wrong[0]!r}")
        for proxy in self.trusted_proxies:
            try:
                ipaddress.ip_network(proxy)
            except ValueError as error:
                raise ValueError(f"--trusted-proxy must be an address or a network, as in 10.0.0.0/8: {error}") from None
        if (self.tls_cert is None) != (self.tls_key is None):
            raise ValueError("--tls-cert and --tls-key go together; give both or neither")
        if self.tls_client_ca is not None and self.tls_cert is None:
            raise ValueError("--tls-client-ca needs --tls-cert and --tls-key")


@dataclass(frozen=True, kw_only=True)
class Observability(OptionGroup):
    """Logs, traces, and a look at the answers."""

    title = "Logs, traces and checks"

    log_format: Literal["text", "json"] = option("text", "The log goes to stderr.")
    access_log: bool = option(False, "Log a line per request.")
    trace_otlp: str | None = option(
        None, "Send OpenTelemetry traces to this OTLP/HTTP collector, as in http://localhost:4318.", metavar="URL",
        not_with_ray="spans are not sent from replicas",
    )  # fmt: skip
    shadow: float = option(
        0.0, "The share of images also computed in fp32, after their answer; a plan that agrees too seldom is taken back.",
        least=0, most=1, not_with_ray="each replica would judge a plan by its own few images",
    )  # fmt: skip

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.trace_otlp is not None and not re.fullmatch(r"https?://[^\s/?#]+[^\s?#]*", self.trace_otlp):
            raise ValueError(
                f"--trace-otlp must be a collector's address such as http://localhost:4318, got {self.trace_otlp!r}"
            )


@dataclass(frozen=True, kw_only=True)
class ModelControl(OptionGroup):
    """Which models are loaded, by Triton's modes."""

    title = "Model control"

    model_control_mode: Literal["none", "explicit", "poll"] = option(
        "none", "none: fixed at the start; explicit: clients load and unload; poll: the folder is followed.",
        not_with_ray=_FOLDER_WITH_RAY,
    )  # fmt: skip
    load_models: tuple[str, ...] = option(
        (), "A model to load at the start under explicit control; '*' is all. Repeatable.", name="load-model", metavar="NAME",
        not_with_ray=_LOADING_WITH_RAY,
    )  # fmt: skip
    repository_poll_seconds: float = option(
        15.0, "Seconds between two looks at the folder in poll mode.", above=0, not_with_ray=_FOLDER_WITH_RAY
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.load_models and self.model_control_mode != "explicit":
            raise ValueError("--load-model needs --model-control-mode explicit; the other modes load every model")


@dataclass(frozen=True, kw_only=True)
class Batching(OptionGroup):
    """How requests wait and meet."""

    title = "Batching"

    max_queue: int | None = option(
        None, "Requests that may wait, per model, before new ones are rejected.", least=1,
        unset="256, or 64 for each decoding thread of the front ends if that is more",
    )  # fmt: skip
    max_queue_delay_seconds: float = option(
        0.01, "The most seconds that a request waits for others to fill its batch.", least=0
    )
    default_timeout_seconds: float = option(30.0, "Deadline in seconds of a request that names none.", name="timeout", above=0)
    response_cache_bytes: int = option(
        0, "Memory for outputs that are given again when the same input comes again; 0 keeps none.", least=0
    )

    def queue(self, decoders: int = 0) -> int:
        """How many requests may wait where front ends have so many decoding threads together. What waits for a decoder counts,
        and with many of them 256 are a few milliseconds' work: rejecting the others costs more than having them wait."""
        return self.max_queue or max(_LEAST_QUEUE, _QUEUE_PER_DECODER * decoders)


@dataclass(frozen=True, kw_only=True)
class Limits(OptionGroup):
    """What one request, and one client, may cost."""

    title = "Limits"

    max_body_bytes: int = option(64 * MIB, "The most bytes of a request's body.", least=1)
    max_grpc_bytes: int | None = option(
        None, "The most bytes of a gRPC message, which is copied in one go while all others wait.", least=1,
        most=_MOST_OF_GRPC, unset="half of --max-body-bytes",
        not_with_ray="gRPC is not offered there",
    )  # fmt: skip
    max_decompressed_bytes: int = option(128 * MIB, "The most bytes of a compressed body once it is decompressed.", least=1)
    max_header_bytes: int = option(64 * 1024, "The most bytes of a request's head.", least=1, not_with_ray=_HEADS_WITH_RAY)
    max_json_depth: int = option(32, "The most levels of nested lists and objects in a request's JSON.", least=1)
    max_json_values: int = option(4_000_000, "The most numbers in a request's JSON; binary data has no such limit.", least=1)
    max_inflight_bytes: int = option(512 * MIB, "The most bytes of all bodies under way together.", least=1)
    max_pixels: int = option(50_000_000, "The most pixels of an image.", least=1)
    head_timeout_seconds: float = option(
        20.0, "Seconds in which a request's head must arrive.", above=0, not_with_ray=_HEADS_WITH_RAY
    )
    body_timeout_seconds: float = option(
        60.0, "Seconds in which a request's body must arrive, and in which a client must take its answer.", above=0
    )
    rate_limit: float | None = option(
        None, "Inference requests a second that one client may send.", above=0, unset="any number",
        not_with_ray="replicas do not count together; limit clients at the load balancer",
    )  # fmt: skip

    @property
    def grpc_message_bytes(self) -> int:
        """The most bytes of a gRPC message."""
        return self.max_grpc_bytes or min(_MOST_OF_GRPC, max(1, self.max_body_bytes // 2))

    @property
    def largest_bytes(self) -> int:
        """The most bytes that one request may have on any of its ways."""
        return max(self.max_body_bytes, self.grpc_message_bytes)


@dataclass(frozen=True, kw_only=True)
class Decoding(OptionGroup):
    """How images become tensors: as Pillow computes it, or faster within bounds; see docs/decoding.md."""

    title = "Decoding"

    decoding: Literal["exact", "fast", "scaled", "gpu"] = option(
        "fast", "exact: as Pillow; fast: JPEG within 2 of 255; scaled: large JPEGs decoded smaller; gpu: on a GPU."
    )
    decode_threads: int | None = option(None, "Threads that decode images.", least=1, unset="one per core")

    @property
    def decoders(self) -> int:
        """Threads that decode images: one per core, as decoding and the session alternate on small machines. Where a GPU
        decodes they only wait for it: as many as two of its batches, one under way and one that gathers."""
        if self.decode_threads:
            return self.decode_threads
        if self.decoding == "gpu":
            from .images.gpu_preprocessing import GPU_BATCH

            return 2 * GPU_BATCH
        return max(2, min(32, default_threads()))


def parse_devices(text: str) -> tuple[int, ...] | None:
    """GPUs as a command line names them: "all" is None, "0,2" is (0, 2). Raises ValueError."""
    if text == "all":
        return None
    if not _GPUS.fullmatch(text):
        raise ValueError(f"--devices must be all, or numbers of GPUs as in 0,1; got {text!r}")
    return tuple(int(number) for number in text.split(","))


@dataclass(frozen=True, kw_only=True)
class Processes(OptionGroup):
    """How many of what run side by side.

    Without `instances` it is measured whether two sessions serve more than one, at warm-up on GPUs, under the model's traffic
    on a CPU: alone, a request has all cores either way; under load, one batch may use the moments in which the other waits for
    its slowest thread, is collated or copied, or is handed back.
    """

    title = "Sessions and processes"

    instances: int | None = option(None, "Sessions side by side per model (and GPU).", least=1, unset="what is measured")
    devices: tuple[int, ...] | None = option(
        None, "GPUs for models that were planned on one, as in 0,1; all are those that the server sees.",
        metavar="all|N,N", parse=parse_devices, unset="all",
        not_with_ray="a replica uses the GPUs that Ray gives it; see --gpus-per-replica",
    )  # fmt: skip
    memory_bytes: int | None = option(
        None, "Resident memory of the process with the models, in MiB, up to which sessions are added to make them quicker.",
        name="memory", unit=MIB, least=1, unset="an eighth of the free memory more than the models take",
    )  # fmt: skip
    threads: int | None = option(None, "CPU threads of each session.", least=1, unset="as the plan measured")
    frontends: int | None = option(
        None, "Processes that take requests and decode images, where 0 is one process for all.",
        least=0, most=_MAX_FRONTENDS, unset="by the cores",
        not_with_ray="Ray Serve's proxies are the front ends, one per node",
    )  # fmt: skip
    ring_bytes: int = option(
        256 * MIB, "Shared memory of each front end for requests on their way, in MiB.", name="ring-mib", unit=MIB, least=1,
        not_with_ray="there are no front ends with shared memory; Ray carries requests",
    )  # fmt: skip
    drain_seconds: float = option(30.0, "Seconds in which accepted requests are answered when the server stops.", above=0)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.devices is not None and not (self.devices and len(set(self.devices)) == len(self.devices)):
            raise ValueError(f"--devices must name GPUs, each once, got {self.devices!r}")
        if self.devices and any(isinstance(one, bool) or not isinstance(one, int) or one < 0 for one in self.devices):
            raise ValueError(f"--devices must be numbers of GPUs, from 0; got {self.devices!r}")


@dataclass(frozen=True, kw_only=True)
class ServeConfig:
    """One run of `headrace serve` of `models`, a folder in the model-repository layout, by groups of options."""

    models: Path
    addresses: Addresses = Addresses()
    security: Security = Security()
    observe: Observability = Observability()
    control: ModelControl = ModelControl()
    batching: Batching = Batching()
    limits: Limits = Limits()
    images: Decoding = Decoding()
    processes: Processes = Processes()

    def __post_init__(self) -> None:
        if self.processes.frontends and (alone := self._of_one_process):
            raise ValueError(f"{alone} needs a single process; leave out --frontends")

    @classmethod
    def of(cls, *, models: Path, **options: Any) -> ServeConfig:
        """From options by their fields' names, whichever group each belongs to. Raises ValueError, TypeError for no option."""
        return cls(models=models).changed(**options)

    def changed(self, **options: Any) -> ServeConfig:
        """This configuration with other values of some options, by their fields' names."""
        groups = {
            name: replace(getattr(self, name), **{field: options.pop(field) for field in _fields(group) if field in options})
            for name, group in GROUPS.items()
        }
        return replace(self, **groups, **options)

    @property
    def decoding_gpu(self) -> int | None:
        """The number of the GPU that decodes, where one does; None is torch's current one."""
        return self.processes.devices[0] if self.processes.devices else None

    @property
    def front_ends(self) -> int:
        """Processes that take requests beside the engine's; 0 is everything in one process."""
        if self.processes.frontends is not None:
            return self.processes.frontends
        if self._of_one_process:
            return 0
        if visible_gpus():
            return _frontends(available_cores(), _CORES_PER_FRONTEND_OF_GPU)
        return _frontends(default_threads(), _CORES_PER_FRONTEND)

    @property
    def decoders_each(self) -> int:
        """Threads that decode images, of each process that takes requests."""
        share = self.images.decoders // max(1, self.front_ends)
        return max(1 if self.images.decode_threads else _DECODERS_PER_FRONTEND, share)

    @property
    def max_queue(self) -> int:
        """Requests that may wait, per model."""
        return self.batching.queue(self.front_ends * self.decoders_each)

    @property
    def _of_one_process(self) -> str | None:
        """The option that needs one process: what a client sets at one, others would not know; a GPU gathers images."""
        if self.security.shared_memory:
            return "--shared-memory"
        if self.security.allow_settings:
            return "--allow-settings"
        return "--decoding gpu" if self.images.decoding == "gpu" else None


def _frontends(cores: int, each: int) -> int:
    return 0 if cores < 2 * each else min(_MAX_FRONTENDS, cores // each)


GROUPS: dict[str, type[Any]] = {field.name: type(field.default) for field in fields(ServeConfig) if field.name != "models"}
"""The groups of options by the fields of ServeConfig."""


def _fields(group: type[Any]) -> list[str]:
    return [option.field for option in options_of(group)]
