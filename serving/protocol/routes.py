"""Every HTTP route and gRPC method of the server, each in one row: whom it is open to, what it costs, what its bodies hold.

The router, the direct way of inference, access control, tracing, the OpenAPI document and the cluster's ingress all read these
rows. What has none does not exist: a path in another spelling has none, since whole paths are compared.
"""

from __future__ import annotations

import enum
import re
from dataclasses import dataclass
from functools import cached_property

from . import schemas as of
from .schemas import Schema

# Categories of tokens. A row names those that open it; without any it is open to all.
INFER, ADMIN, METRICS = "infer", "admin", "metrics"
_OPEN: frozenset[str] = frozenset()
_INFER, _ADMIN, _METRICS = (frozenset({category}) for category in (INFER, ADMIN, METRICS))
_READ = _INFER | _ADMIN

SERVICE = "inference.GRPCInferenceService"


class Cost(enum.Enum):
    """What a request asks of the server."""

    PROBE = enum.auto()  # next to nothing; machines and the console send it every few seconds, so that it is not traced
    READ = enum.auto()
    CONTROL = enum.auto()  # a change of what serves or of how the server is set up, or a look at the latter
    INFERENCE = enum.auto()  # a run of a model: counted against the client's rate, and taken past the router


@dataclass(frozen=True, eq=False)
class Route:
    """One HTTP route; its `template` may hold one optional part in brackets.

    `handler` names the method of `http.handlers.Handlers` that answers; without one the metrics port does. A route without a
    `tag` is not in the OpenAPI document, where `body` and `answer` stand; it is called `name` there, or as its handler. One
    with an `api` is another platform's or a migrated application's, there only where that was asked for, and answered by
    `InstanceHandlers` or `KeptHandlers`.
    """

    methods: str
    template: str
    handler: str
    rights: frozenset[str]
    cost: Cost = Cost.READ
    tag: str = ""
    body: Schema | None = None
    answer: Schema | None = None
    name: str = ""
    api: str = ""

    @property
    def paths(self) -> list[str]:
        """The paths with their parameters in braces, that with the optional part first."""
        return list(dict.fromkeys((re.sub(r"[][]", "", self.template), re.sub(r"\[.*]", "", self.template))))

    @cached_property
    def pattern(self) -> re.Pattern[str]:
        """For whole paths, percent-decoded; with a group for each parameter."""
        escaped = re.sub(r"\[(.*)]", r"(?:\1)?", self.template.replace(".", r"\."))
        return re.compile(re.sub(r"{(\w+)}", r"(?P<\1>[^/]+)", escaped))

    def parameters(self, path: str) -> dict[str, str]:
        """The parameters that a path of this route has."""
        match = self.pattern.fullmatch(path)
        return {name: value for name, value in match.groupdict().items() if value is not None} if match else {}


_MODEL = "/v2/models/{model}[/versions/{version}]"
_CONTROLLED = "/v2/repository/models/{model}"
_SYSTEM_MEMORY, _CUDA_MEMORY = (f"/v2/{kind}sharedmemory[/region/{{region}}]" for kind in ("system", "cuda"))
_TRACE = "/v2[/models/{model}]/trace/setting"
_REGISTER = "/v2/systemsharedmemory/region/{region}/register"
_MEMORY = "shared memory"

# The `api` of the routes of applications that models were migrated from; --keep-routes asks for it.
KEPT = "kept"

# The first row that fits a path is its route.
ROUTES = (
    Route("GET", "/v2", "server_metadata", _READ, Cost.READ, "server", answer=of.SERVER),
    Route("GET", "/v2/health/live", "live", _OPEN, Cost.PROBE, "server", answer=of.LIVE),
    Route("GET", "/v2/health/ready", "ready", _OPEN, Cost.PROBE, "server", answer=of.READY),
    Route("POST", "/v2/repository/index", "index", _READ, Cost.READ, "repository", of.INDEX_BODY, of.INDEX),
    Route("POST", f"{_CONTROLLED}/load", "load", _ADMIN, Cost.CONTROL, "repository", of.LOAD_BODY, of.DONE),
    Route("POST", f"{_CONTROLLED}/unload", "unload", _ADMIN, Cost.CONTROL, "repository", of.UNLOAD_BODY, of.DONE),
    Route("GET", "/v2/models/stats", "all_statistics", _READ, Cost.READ, "models", answer=of.STATISTICS),
    Route("GET", _MODEL, "model_metadata", _READ, Cost.READ, "models", answer=of.METADATA),
    Route("GET", f"{_MODEL}/ready", "model_ready", _READ, Cost.READ, "models", answer=of.MODEL_READY),
    Route("GET", f"{_MODEL}/config", "model_config", _READ, Cost.READ, "models", answer=of.CONFIG),
    Route("GET", f"{_MODEL}/stats", "model_statistics", _READ, Cost.READ, "models", answer=of.STATISTICS),
    Route("POST", f"{_MODEL}/infer", "infer", _INFER, Cost.INFERENCE, "inference", of.INFERENCE_BODY, of.INFERENCE),
    Route("POST", "/v1/classify/{model}", "classify", _INFER, Cost.INFERENCE, "inference", of.IMAGE_BODY, of.PREDICTIONS),
    Route("POST", "/v1/embed/{model}", "embed", _INFER, Cost.INFERENCE, "inference", of.IMAGE_BODY, of.EMBEDDING),
    Route("GET", f"{_SYSTEM_MEMORY}/status", "status", _ADMIN, Cost.CONTROL, _MEMORY, answer=of.REGIONS),
    Route("POST", _REGISTER, "register", _ADMIN, Cost.CONTROL, _MEMORY, of.REGISTER_BODY, of.DONE),
    Route("POST", f"{_SYSTEM_MEMORY}/unregister", "unregister", _ADMIN, Cost.CONTROL, _MEMORY, answer=of.DONE),
    Route("GET", f"{_CUDA_MEMORY}/status", "cuda_status", _ADMIN, Cost.CONTROL),
    Route("POST", "/v2/cudasharedmemory/region/{region}/register", "cuda_register", _ADMIN, Cost.CONTROL),
    Route("POST", f"{_CUDA_MEMORY}/unregister", "cuda_unregister", _ADMIN, Cost.CONTROL),
    Route("GET", "/v2/logging", "log_settings", _ADMIN, Cost.CONTROL, "settings", answer=of.LOG_SETTINGS),
    Route(
        "POST", "/v2/logging", "change_log_settings", _ADMIN, Cost.CONTROL, "settings", of.LOG_SETTINGS_BODY, of.LOG_SETTINGS
    ),
    Route("GET", _TRACE, "trace_settings", _ADMIN, Cost.CONTROL, "settings", answer=of.TRACE_SETTINGS),
    Route("POST", _TRACE, "change_trace_settings", _ADMIN, Cost.CONTROL, "settings", of.TRACE_SETTINGS_BODY, of.TRACE_SETTINGS),
    # The first: a model's path would fit it as well.
    Route("POST", "/v1/models/{model}:predict", "v1_predict", _INFER, Cost.INFERENCE, api="kserve-v1"),
    Route("GET", "/v1/models", "v1_models", _READ, api="kserve-v1"),
    Route("GET", "/v1/models/{model}", "v1_model", _READ, api="kserve-v1"),
    Route("GET", "/ping", "platform_health", _OPEN, Cost.PROBE, api="sagemaker"),
    Route("POST", "/invocations", "invocations", _INFER, Cost.INFERENCE, api="sagemaker"),
    Route("GET", "/vertex/health", "platform_health", _OPEN, Cost.PROBE, api="vertex", name="vertex_health"),
    Route("POST", "/vertex/predict", "vertex_predict", _INFER, Cost.INFERENCE, api="vertex"),
    # What a path that is kept of a migrated application stands for: `http/kept_paths.py`.
    Route("POST", "/v1/kept/{model}/{number}", "kept", _INFER, Cost.INFERENCE, api=KEPT),
    # The console is a page without data; what it draws is read as whoever looks at it.
    Route("GET HEAD", "/", "page", _OPEN, Cost.PROBE),
    Route("GET HEAD", "/console/{name}", "page_file", _OPEN, Cost.PROBE),
    Route("GET", "/v1/figures", "live_stats", _READ | _METRICS, Cost.PROBE, "server", name="figures"),
    Route("GET", "/v1/history", "history", _READ | _METRICS, Cost.READ, "server"),
    Route("GET", "/v1/plan/{model}", "model_plan", _READ, Cost.READ, "models"),
    Route("POST", "/v1/preprocess/{model}", "preprocess", _INFER, Cost.READ, "inference", of.IMAGE_BODY),
    Route("GET HEAD", "/docs", "docs", _READ),
    Route("GET HEAD", "/openapi.json", "openapi", _READ),
    Route("GET HEAD", "/metrics", "", _METRICS, Cost.PROBE),
)

# All rows at once, each a group of its own, since most requests are looked up several times.
_ANY = re.compile("|".join("({})".format(re.sub(r"\?P<\w+>", "?:", route.pattern.pattern)) for route in ROUTES))


def find_route(path: str) -> Route | None:
    """The first route of a percent-decoded path, whatever its methods; None where there is none."""
    match = _ANY.fullmatch(path)
    return ROUTES[match.lastindex - 1] if match and match.lastindex else None


@dataclass(frozen=True)
class Method:
    """One gRPC method."""

    rights: frozenset[str]
    cost: Cost = Cost.READ


_HEALTH, _REFLECTION = "grpc.health.v1.Health", "grpc.reflection.v1alpha.ServerReflection"
# By full name.
METHODS: dict[str, Method] = {
    f"/{service}/{name}": Method(rights, cost)
    for service, names, rights, cost in (
        (_HEALTH, "Check Watch List", _OPEN, Cost.PROBE),
        (_REFLECTION, "ServerReflectionInfo", _READ, Cost.READ),
        (SERVICE, "ServerLive ServerReady", _OPEN, Cost.PROBE),
        (SERVICE, "ServerMetadata RepositoryIndex", _READ, Cost.READ),
        (SERVICE, "ModelReady ModelMetadata ModelConfig ModelStatistics", _READ, Cost.READ),
        (SERVICE, "RepositoryModelLoad RepositoryModelUnload", _ADMIN, Cost.CONTROL),
        (SERVICE, "SystemSharedMemoryStatus SystemSharedMemoryRegister SystemSharedMemoryUnregister", _ADMIN, Cost.CONTROL),
        (SERVICE, "CudaSharedMemoryStatus CudaSharedMemoryRegister CudaSharedMemoryUnregister", _ADMIN, Cost.CONTROL),
        (SERVICE, "LogSettings TraceSetting", _ADMIN, Cost.CONTROL),
        (SERVICE, "ModelInfer ModelStreamInfer", _INFER, Cost.INFERENCE),
    )
    for name in names.split()
}
