"""Traces as a real collector receives them: OTLP over HTTP, from both transports, from one process and several."""

import gzip
import http.server
import secrets
import socket
import subprocess
import sys
import threading
import urllib.error
import urllib.request

import numpy as np
import pytest
import tritonclient.grpc as triton_grpc
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest, ExportTraceServiceResponse
from opentelemetry.proto.trace.v1.trace_pb2 import Span, Status
from tritonclient.utils import InferenceServerException

STAGES = {"decode", "queue", "compute"}


class Collector:
    """Takes what is exported to `url`, as long as the block runs."""

    def __init__(self):
        self.spans: list[Span] = []
        self.resources: list[dict] = []
        self.scopes: set[str] = set()
        self.headers: list = []
        collector = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self):
                body = self.rfile.read(int(self.headers["Content-Length"]))
                if self.headers.get("Content-Encoding") == "gzip":
                    body = gzip.decompress(body)
                collector.take(self.path, self.headers, ExportTraceServiceRequest.FromString(body))
                answer = ExportTraceServiceResponse().SerializeToString()
                self.send_response(200)
                self.send_header("Content-Type", "application/x-protobuf")
                self.send_header("Content-Length", str(len(answer)))
                self.end_headers()
                self.wfile.write(answer)

            def log_message(self, *_):
                pass

        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        self._thread = threading.Thread(target=self._server.serve_forever)

    def take(self, path, headers, request) -> None:
        assert path == "/v1/traces"
        self.headers.append(headers)
        for resource in request.resource_spans:
            self.resources.append(_attributes(resource.resource))
            for scope in resource.scope_spans:
                self.scopes.add(scope.scope.name)
                self.spans += scope.spans

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def servers(self) -> list[Span]:
        return [span for span in self.spans if span.kind == Span.SPAN_KIND_SERVER]

    def children(self, parent: Span) -> dict[str, Span]:
        below = [span for span in self.spans if span.parent_span_id == parent.span_id]
        assert {span.trace_id for span in below} <= {parent.trace_id}
        assert len({span.name for span in below}) == len(below)
        return {span.name: span for span in below}


def _attributes(holder) -> dict:
    return {pair.key: getattr(pair.value, pair.value.WhichOneof("value")) for pair in holder.attributes}


def _parent(sampled: bool = True) -> tuple[str, bytes, bytes]:
    trace, span = secrets.token_bytes(16), secrets.token_bytes(8)
    return f"00-{trace.hex()}-{span.hex()}-0{int(sampled)}", trace, span


def _classify(server, image: bytes, model: str = "tiny", **headers) -> None:
    request = urllib.request.Request(f"{server.url}/v1/classify/{model}", data=image, headers=headers)
    with urllib.request.urlopen(request, timeout=30) as answer:
        assert answer.status == 200


def _infer_image(client, image: bytes, **options):
    tensor = triton_grpc.InferInput("IMAGE", [1, 1], "BYTES")
    tensor.set_data_from_numpy(np.array([[image]], dtype=object))
    return client.infer("tiny_classify", [tensor], **options)


@pytest.mark.parametrize("frontends", [0, 2])
def test_a_request_has_its_span_and_its_stages(models, launch, make_photo, frontends):
    with Collector() as collector:
        with launch(models, frontends=frontends, trace_otlp=collector.url) as server:
            over_http, over_grpc, of_stream = _parent(), _parent(), _parent()
            _classify(server, make_photo(1), traceparent=over_http[0], **{"x-request-id": "my-own"})
            with triton_grpc.InferenceServerClient(server.grpc) as client:
                _infer_image(client, make_photo(2), headers={"traceparent": over_grpc[0]})
                images = triton_grpc.InferInput("images", [3, 3, 16, 16], "FP32")
                images.set_data_from_numpy(np.zeros((3, 3, 16, 16), np.float32))
                answered = threading.Semaphore(0)
                client.start_stream(lambda **_: answered.release(), headers={"traceparent": of_stream[0]})
                for _ in range(2):
                    client.async_stream_infer("tiny", [images])
                for _ in range(2):
                    assert answered.acquire(timeout=30)
                client.stop_stream()
            for path in ("/v2/health/ready", "/", "/console/console.js", "/v1/figures"):
                urllib.request.urlopen(server.url + path, timeout=30).close()
            urllib.request.urlopen(f"http://{server.metrics}/metrics", timeout=30).close()
            host, port = server.http.split(":")
        # What had not been sent yet was sent when the server stopped.
        spans = {span.trace_id: span for span in collector.servers()}
        assert len(collector.servers()) == 4
        assert set(spans) == {trace for _, trace, _ in (over_http, over_grpc, of_stream)}
        for _, trace, parent in (over_http, over_grpc, of_stream):
            assert spans[trace].parent_span_id == parent
            assert spans[trace].status.code == Status.STATUS_CODE_UNSET

        http_span = spans[over_http[1]]
        assert http_span.name == "POST /v1/classify/{model}"
        attributes = _attributes(http_span)
        assert attributes.pop("user_agent.original").startswith("Python-urllib")
        assert attributes == {
            "http.request.method": "POST",
            "url.path": "/v1/classify/tiny",
            "url.scheme": "http",
            "http.route": "/v1/classify/{model}",
            "http.response.status_code": 200,
            "network.protocol.version": "1.1",
            "client.address": "127.0.0.1",
            "server.address": host,
            "server.port": int(port),
            "headrace.model.name": "tiny",
            "headrace.request.id": "my-own",
        }
        grpc_span = spans[over_grpc[1]]
        assert grpc_span.name == "inference.GRPCInferenceService/ModelInfer"
        found = _attributes(grpc_span)
        assert (found["rpc.system"], found["rpc.service"], found["rpc.method"]) == ("grpc", *grpc_span.name.split("/"))
        assert (found["rpc.grpc.status_code"], found["headrace.model.name"]) == (0, "tiny_classify")
        for span in (http_span, grpc_span):
            _check_stages(collector.children(span), span, rows=1)
        for span in collector.servers():
            if span.trace_id == of_stream[1]:
                stages = collector.children(span)
                assert set(stages) == {"queue", "compute"}
                assert _attributes(stages["compute"])["headrace.request.rows"] == 3
        assert collector.scopes == {"headrace.serving"}
        assert {resource["service.name"] for resource in collector.resources} == {"headrace"}


def _check_stages(stages, span, *, rows: int) -> None:
    assert set(stages) == STAGES
    order = [stages[name] for name in ("decode", "queue", "compute")]
    for stage in order:
        assert (
            span.start_time_unix_nano
            <= stage.start_time_unix_nano
            <= stage.end_time_unix_nano
            <= span.end_time_unix_nano + 5_000_000
        )
    assert [stage.start_time_unix_nano for stage in order] == sorted(stage.start_time_unix_nano for stage in order)
    assert _attributes(stages["compute"]) == {"headrace.batch.size": rows, "headrace.request.rows": rows}


def test_what_fails(models, launch):
    huge = np.full((1, 3, 16, 16), 1e6, np.float32)
    with Collector() as collector:
        with launch(models, trace_otlp=f"{collector.url}/v1/traces") as server:
            for path, data, status in (
                ("/v1/classify/nope", b"x", 404),
                ("/v1/classify/tiny", b"no image", 400),
                ("/no/such/path", None, 404),
                ("/v2/models/fragile/infer", huge.tobytes(), 500),
            ):
                request = urllib.request.Request(server.url + path, data=data)
                if status == 500:
                    request.add_header("Inference-Header-Content-Length", "0")
                with pytest.raises(urllib.error.HTTPError, match=str(status)):
                    urllib.request.urlopen(request, timeout=30)
            with triton_grpc.InferenceServerClient(server.grpc) as client:
                tensor = triton_grpc.InferInput("images", list(huge.shape), "FP32")
                tensor.set_data_from_numpy(huge)
                for model in ("nope", "fragile"):
                    with pytest.raises(InferenceServerException):
                        client.infer(model, [tensor])
        seen = {}
        for span in collector.servers():
            attributes = _attributes(span)
            status = attributes.get("http.response.status_code", attributes.get("rpc.grpc.status_code"))
            seen[span.name, status] = (span.status.code == Status.STATUS_CODE_ERROR, attributes.get("error.type"))
        assert seen == {
            ("POST /v1/classify/{model}", 404): (False, None),
            ("POST /v1/classify/{model}", 400): (False, None),
            ("GET", 404): (False, None),
            ("POST /v2/models/{model}/infer", 500): (True, "500"),
            ("inference.GRPCInferenceService/ModelInfer", 5): (False, None),
            ("inference.GRPCInferenceService/ModelInfer", 13): (True, "INTERNAL"),
        }


def test_the_standard_variables(models, launch, make_photo, monkeypatch):
    monkeypatch.setenv("OTEL_TRACES_SAMPLER", "parentbased_always_off")
    monkeypatch.setenv("OTEL_SERVICE_NAME", "cats")
    monkeypatch.setenv("OTEL_RESOURCE_ATTRIBUTES", "deployment.environment.name=test")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", "x-tenant=mine")
    with Collector() as collector:
        with launch(models, trace_otlp=collector.url) as server:
            sampled = _parent()
            _classify(server, make_photo(1))
            _classify(server, make_photo(1), traceparent=_parent(sampled=False)[0])
            _classify(server, make_photo(1), traceparent=sampled[0])
            _classify(server, make_photo(1), traceparent="00-nonsense")
        assert [span.trace_id for span in collector.servers()] == [sampled[1]]
        assert len(collector.spans) == 4
        (resource,) = collector.resources
        assert (resource["service.name"], resource["deployment.environment.name"]) == ("cats", "test")
        assert {headers["x-tenant"] for headers in collector.headers} == {"mine"}


def test_a_collector_that_is_away_is_no_matter(models, launch, make_photo, monkeypatch):
    monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "50")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    with launch(models, trace_otlp=f"http://127.0.0.1:{port}") as server:
        for seed in range(20):
            _classify(server, make_photo(seed))


def test_nothing_of_it_is_imported_when_off():
    code = """
import sys
import headrace.serving.grpc.server, headrace.serving.http.app
import headrace.serving.processes.frontend, headrace.serving.processes.single
print([name for name in sys.modules if name.startswith(("opentelemetry.sdk", "opentelemetry.exporter", "requests"))])
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize("frontends", ["0", "2"])
def test_without_the_extra_it_says_what_to_install(warm_command, models, frontends):
    code = (
        "import sys; sys.modules['opentelemetry.sdk'] = sys.modules['opentelemetry.exporter'] = None; "
        "sys.argv = ['headrace', *sys.argv[1:]]; from headrace.cli import main; main()"
    )
    ports = [option for name in ("http", "grpc", "metrics") for option in (f"--{name}-port", "0")]
    command = ["serve", models, *ports, "--frontends", frontends, "--trace-otlp", "http://127.0.0.1:4318"]
    done = warm_command.run(["-c", code, *command])
    assert done.returncode == 2
    assert "pip install 'headrace[telemetry]'" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("address", ["localhost:4318", "ftp://x", "http://", "", "http://x?y", "http://a b"])
def test_addresses_that_are_none(tmp_path, address):
    from headrace.serving.config import ServeConfig

    with pytest.raises(ValueError, match="--trace-otlp"):
        ServeConfig.of(models=tmp_path, trace_otlp=address)
