"""The log: as text and as JSON, an id per request, a line per request, and settings that clients change where they may."""

import http.client
import json
import logging
import re
import time

import numpy as np
import pytest
import tritonclient.grpc as triton_grpc
import tritonclient.http as triton_http
from tritonclient.utils import InferenceServerException

from headrace.errors import InputError, UnsupportedError
from headrace.serving.observe.logs import LogSettings, log_output, log_request, request_id

MODULES = {"http": triton_http, "grpc": triton_grpc}


def _infer(client, module, model="tiny", rows=1, headers=None, value=0.0):
    images = np.full((rows, 3, 16, 16), value, np.float32)
    tensor = module.InferInput("images", list(images.shape), "FP32")
    tensor.set_data_from_numpy(images)
    return client.infer(model, [tensor], headers=headers)


def _lines(server, *, until=lambda lines: True) -> list[dict]:
    """The log, once it holds what is waited for: a line is written after its answer was sent."""
    end = time.monotonic() + 60
    while True:
        lines = [json.loads(line) for line in server.output.splitlines(keepends=True) if line[0] == "{" and line[-1] == "\n"]
        if until(lines) or time.monotonic() > end:
            return lines
        time.sleep(0.02)


def _has(*ids):
    return lambda lines: set(ids) <= {line.get("request_id") for line in lines}


@pytest.fixture(scope="module")
def logging_server(models, launch):
    with launch(models, log_format="json", access_log=True, allow_settings=True) as server:
        yield server


def test_a_line_per_request(logging_server):
    sent = 3 * 16 * 16 * 4
    for transport, module in MODULES.items():
        with module.InferenceServerClient(getattr(logging_server, transport)) as client:
            _infer(client, module, headers={"x-request-id": f"ask-{transport}"})
            with pytest.raises(InferenceServerException):
                _infer(client, module, rows=9, headers={"x-request-id": f"bad-{transport}"})
    found = _lines(logging_server, until=_has(*(f"{what}-{transport}" for what in ("ask", "bad") for transport in MODULES)))
    lines = {line["request_id"]: line for line in found if line["logger"] == "headrace.access"}
    for transport, call, ok, bad in (
        ("http", "POST /v2/models/tiny/infer", 200, 400),
        ("grpc", "ModelInfer", "OK", "INVALID_ARGUMENT"),
    ):
        line = lines[f"ask-{transport}"]
        assert (line["protocol"], line["call"], line["model"], line["status"]) == (transport, call, "tiny", ok)
        assert sent < line["bytes_in"] < sent + 1000
        assert 28 < line["bytes_out"] < 1000
        assert line["ms"] > 0
        assert line["level"] == "info"
        assert re.fullmatch(r"2\d{3}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}\+00:00", line["time"])
        assert lines[f"bad-{transport}"]["status"] == bad


def test_the_id_of_a_request_is_its_caller_s_or_new(logging_server):
    def get(**headers):
        connection = http.client.HTTPConnection(logging_server.http, timeout=20)
        connection.request("GET", "/v2", headers=headers)
        response = connection.getresponse()
        response.read()
        connection.close()
        return response.headers["X-Request-Id"]

    assert get(**{"X-Request-Id": "mine-1"}) == "mine-1"
    first, second = get(), get(**{"X-Request-Id": "not harmless"})
    assert re.fullmatch("[0-9a-f]{16}", first)
    assert re.fullmatch("[0-9a-f]{16}", second)
    assert first != second
    ids = [line["request_id"] for line in _lines(logging_server, until=_has(second)) if line.get("call") == "GET /v2"]
    assert ids == ["mine-1", first, second]


def test_grpc_returns_the_id_too(logging_server):
    import grpc
    from tritonclient.grpc import service_pb2, service_pb2_grpc

    with grpc.insecure_channel(logging_server.grpc) as channel:
        stub = service_pb2_grpc.GRPCInferenceServiceStub(channel)
        for given in ((("x-request-id", "mine-2"),), ()):
            _, call = stub.ServerLive.with_call(service_pb2.ServerLiveRequest(), metadata=given)
            returned = dict(call.trailing_metadata())["x-request-id"]
            assert returned == "mine-2" if given else re.fullmatch("[0-9a-f]{16}", returned)


@pytest.mark.parametrize("transport", MODULES)
def test_settings(logging_server, transport):
    module = MODULES[transport]

    def plain(answer) -> dict:
        if transport == "http":
            return answer
        return {name: getattr(value, value.WhichOneof("parameter_choice")) for name, value in answer.settings.items()}

    expected = {
        "log_file": "",
        "log_info": True,
        "log_warning": True,
        "log_error": True,
        "log_verbose_level": 0,
        "log_format": "json",
    }
    with module.InferenceServerClient(getattr(logging_server, transport)) as client:
        assert "logging" in (
            client.get_server_metadata()["extensions"] if transport == "http" else client.get_server_metadata().extensions
        )
        assert plain(client.get_log_settings()) == expected
        assert plain(client.update_log_settings({"log_info": False})) == {**expected, "log_info": False}
        _infer(client, module, headers={"x-request-id": f"quiet-{transport}"})
        again = {**expected, "log_verbose_level": 2}
        assert plain(client.update_log_settings({"log_info": True, "log_verbose_level": 2})) == again
        _infer(client, module, headers={"x-request-id": f"loud-{transport}"})
        lines = _lines(logging_server, until=_has(f"loud-{transport}"))
        assert not _has(f"quiet-{transport}")(lines)
        for changes, says in (
            ({"log_file": "/tmp/written"}, "log file location can not be updated through network protocol"),
            ({"log_format": "xml"}, "must be text or json"),
            ({"log_info": False, "log_format": "xml"}, "must be text or json"),
        ):
            with pytest.raises(InferenceServerException, match=says):
                client.update_log_settings(changes)
        for name in ("default", "ISO8601"):  # Triton's
            assert plain(client.update_log_settings({"log_format": name}))["log_format"] == name
        assert plain(client.update_log_settings({"log_verbose_level": 0, "log_format": "json"})) == expected


@pytest.mark.parametrize("transport", MODULES)
def test_traces_are_off_and_stay_off(logging_server, transport):
    module = MODULES[transport]
    with module.InferenceServerClient(getattr(logging_server, transport)) as client:
        for model in (None, "tiny"):
            settings = client.get_trace_settings(model_name=model)
            level = settings["trace_level"] if transport == "http" else list(settings.settings["trace_level"].value)
            assert level == ["OFF"]
            client.update_trace_settings(model_name=model, settings={"trace_level": ["OFF"], "trace_rate": None})
            with pytest.raises(InferenceServerException, match="writes no trace files"):
                client.update_trace_settings(model_name=model, settings={"trace_level": ["TIMESTAMPS"]})
            with pytest.raises(InferenceServerException, match="unknown trace setting"):
                client.update_trace_settings(model_name=model, settings={"nope": "1"})
        with pytest.raises(InferenceServerException, match="unknown model"):
            client.get_trace_settings(model_name="nope")


def test_a_failure_carries_its_request_s_id_and_stays_inside(logging_server):
    """The model's own error is in the log only."""
    client = triton_http.InferenceServerClient(logging_server.http)
    with client, pytest.raises(InferenceServerException, match="log says why"):
        _infer(client, triton_http, "fragile", value=1e9)

    def tells(line):
        return line["level"] == "error" and "Traceback" in line["exception"] and "fragile" in line["message"]

    assert any(tells(line) for line in _lines(logging_server, until=lambda lines: any(map(tells, lines))))


# Without a server.


@pytest.fixture
def settings():
    return LogSettings(logging.StreamHandler(), "text")


@pytest.mark.parametrize(
    "changes",
    [[], "x", {"nope": 1}, {"log_info": 1}, {"log_info": None}, {"log_verbose_level": -1}, {"log_verbose_level": True},
     {"log_verbose_level": 1 << 32}, {"log_format": 3}, {"log_format": "XML"}],
)  # fmt: skip
def test_settings_that_are_none(settings, changes):
    before = settings.to_json()
    with pytest.raises(InputError):
        settings.update(changes)
    assert settings.to_json() == before


def test_a_file_cannot_be_chosen(settings):
    with pytest.raises(UnsupportedError):
        settings.update({"log_info": False, "log_file": "/etc/cron.d/x"})
    assert settings.to_json()["log_info"] is True


@pytest.mark.parametrize("form", ["text", "json"])
def test_what_callers_send_cannot_begin_a_line(form, capsys):
    log = logging.getLogger("headrace.serving")
    with log_output(form):
        log_request("http", "GET /a", 200, model='m"\n2026 ERROR forged', begin=0.0, received=1, sent=2, request="r\r\nforged")
        token = request_id.set("id-1")
        try:
            log.warning("said")
        finally:
            request_id.reset(token)
        log.debug("not said")
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 2
    if form == "json":
        first, second = map(json.loads, lines)
        assert first["model"] == 'm"\n2026 ERROR forged'
        assert (second["message"], second["request_id"], second["level"]) == ("said", "id-1", "warning")
    else:
        assert " INFO headrace.access: http GET /a model=" in lines[0]
        assert lines[1].endswith('WARNING headrace.serving: said request_id="id-1"')
    log.warning("after the block")
    assert capsys.readouterr().err.count("after the block") <= 1
