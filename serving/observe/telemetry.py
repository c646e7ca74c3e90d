"""OpenTelemetry traces: a span per request, its parts below it, sent to a collector by OTLP over HTTP.

Everything of OpenTelemetry is imported here and nowhere else, and this only where tracing is asked for. Its standard variables
hold: OTEL_SERVICE_NAME, OTEL_RESOURCE_ATTRIBUTES, OTEL_TRACES_SAMPLER, OTEL_PROPAGATORS, OTEL_EXPORTER_OTLP_HEADERS and so on.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ..._version import __version__
from ...extras import require
from ..protocol.routes import METHODS, SERVICE, Cost, find_route
from .logs import request_id
from .stages import stages

_SIGNAL_PATH = "/v1/traces"
_FLUSH_SECONDS = 3.0  # a server that stops does not wait longer for its collector
# Of gRPC's codes, those by which the semantic conventions have a server's span fail; the others are the caller's doing.
_SERVER_ERRORS = {"UNKNOWN": 2, "DEADLINE_EXCEEDED": 4, "UNIMPLEMENTED": 12, "INTERNAL": 13, "UNAVAILABLE": 14, "DATA_LOSS": 15}


class Telemetry:
    """A tracer of this process and the thread that exports its spans to `endpoint`, the collector's address. Raises
    MissingExtraError when the `telemetry` extra is not installed."""

    def __init__(self, endpoint: str) -> None:
        require("headrace serve --trace-otlp", "telemetry")
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.resources import OTELResourceDetector, Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor

        own = Resource({"service.name": "headrace", "service.version": __version__})
        self._provider = TracerProvider(resource=own.merge(OTELResourceDetector().detect()), shutdown_on_exit=False)
        url = endpoint.rstrip("/")
        exporter = OTLPSpanExporter(endpoint=url if url.endswith(_SIGNAL_PATH) else url + _SIGNAL_PATH)
        self._exporter = exporter
        self._provider.add_span_processor(BatchSpanProcessor(exporter))
        self._tracer = self._provider.get_tracer("headrace.serving", __version__)

    def close(self) -> None:
        """Send what has not been sent yet, unless the collector does not take it for some seconds."""
        flushing = threading.Thread(target=self._provider.shutdown, name="headrace-traces", daemon=True)
        flushing.start()
        flushing.join(_FLUSH_SECONDS)
        if flushing.is_alive():
            self._exporter.shutdown()  # which gives up trying again

    @contextlib.contextmanager
    def request(self, name: str, carrier: Mapping[str, str], attributes: Mapping[str, Any]) -> Iterator[Any]:
        """A server's span below the one that `carrier` names, with a child for every stage that is noted meanwhile."""
        from opentelemetry import propagate, trace

        span = self._tracer.start_span(
            name, propagate.extract(carrier), kind=trace.SpanKind.SERVER, attributes=attributes, record_exception=False
        )
        if span.is_recording():
            stages.set([])
        offset = time.time_ns() - time.monotonic_ns()
        try:
            yield span
        finally:
            below = trace.set_span_in_context(span)
            for stage in stages.get() or ():
                child = self._tracer.start_span(
                    stage.name, below, attributes=stage.attributes, start_time=offset + int(stage.begin * 1e9)
                )
                child.end(offset + int(stage.end * 1e9))
            stages.set(None)
            span.end()

    @contextlib.contextmanager
    def grpc_call(self, method: str, metadata: Any, peer: str) -> Iterator[Callable[[str, str], None]]:
        """A span of one call, or of one request of a stream. Yields what to call with its code and its model at the end."""
        if METHODS[f"/{SERVICE}/{method}"].cost is Cost.PROBE:  # which would bury the others
            yield lambda *_: None
            return
        carrier = {key: value for key, value in metadata or () if isinstance(value, str)}
        attributes = {"rpc.system": "grpc", "rpc.service": SERVICE, "rpc.method": method, "network.peer.address": peer}
        with self.request(f"{SERVICE}/{method}", carrier, attributes) as span:

            def ended(code: str, model: str) -> None:
                import grpc

                span.set_attribute("rpc.grpc.status_code", grpc.StatusCode[code].value[0])
                _describe(span, model)
                if code in _SERVER_ERRORS:
                    _fail(span, code)

            yield ended


class TracedApplication:
    """An ASGI application around another, whose requests have spans."""

    def __init__(self, app: ASGIApp, telemetry: Telemetry) -> None:
        self._app = app
        self._telemetry = telemetry

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        row = find_route(scope["path"]) if scope["type"] == "http" else None
        if scope["type"] != "http" or (row is not None and row.cost is Cost.PROBE):
            await self._app(scope, receive, send)
            return
        status = 0

        async def answer(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        carrier = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
        with self._telemetry.request(scope["method"], carrier, _http_attributes(scope, carrier)) as span:
            try:
                await self._app(scope, receive, answer)
            finally:
                if (route := scope.get("route")) is not None:
                    span.update_name(f"{scope['method']} {route.path}")
                    span.set_attribute("http.route", route.path)
                _describe(span, scope.get("path_params", {}).get("model", ""))
                if status:
                    span.set_attribute("http.response.status_code", status)
                if status >= 500 or not status:
                    _fail(span, str(status or "no answer"))


def _http_attributes(scope: Scope, headers: Mapping[str, str]) -> dict[str, Any]:
    """By the semantic conventions for HTTP servers, without what a request may hold of secrets: its query and its headers."""
    attributes = {
        "http.request.method": scope["method"],
        "url.path": scope["path"],
        "url.scheme": scope["scheme"],
        "network.protocol.version": scope["http_version"],
    }
    if scope.get("client"):
        attributes["client.address"] = scope["client"][0]
    if scope.get("server"):
        attributes |= {"server.address": scope["server"][0], "server.port": scope["server"][1]}
    if "user-agent" in headers:
        attributes["user_agent.original"] = headers["user-agent"][:500]
    return attributes


def _describe(span: Any, model: str) -> None:
    span.set_attribute("headrace.request.id", request_id.get())
    if model:
        span.set_attribute("headrace.model.name", model)


def _fail(span: Any, kind: str) -> None:
    from opentelemetry.trace import StatusCode

    span.set_attribute("error.type", kind)
    span.set_status(StatusCode.ERROR)
