"""Bodies and names for what is no inference: repository, shared memory, log and trace settings, metadata."""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import quote

from case import HttpCase, request
from drawing import Draw
from grammars.json_bodies import Raw, dump, value
from world import SHARED_BYTES, World

WEIGHT = 10

_READ = (
    "",
    "/ready",
    "/config",
    "/stats",
    "/versions/1",
    "/versions/1/ready",
    "/versions/1/config",
    "/versions/1/stats",
    "/versions/x",
    "/trace/setting",
    "/infer",
    "/what",
)


def case(draw: Draw, world: World) -> HttpCase:
    """One request to a route of control or metadata."""
    kind = draw.between(0, 9)
    if kind <= 1:
        path = draw.pick(
            (
                "/v2",
                "/v2/health/ready",
                "/v2/health/live",
                "/v2/models/stats",
                "/openapi.json",
                "/docs",
                f"/v2/models/{_name(draw)}{draw.pick(_READ)}",
            )
        )
        return _asked(draw, draw.weighted({"GET": 12, "POST": 1, "DELETE": 1}), path, b"")
    if kind <= 4:
        return _repository(draw)
    if kind <= 6:
        return _memory(draw, world)
    path, body = _settings(draw)
    return _asked(draw, "POST", path, _text(draw, body))


def _asked(draw: Draw, method: str, path: str, body: bytes) -> HttpCase:
    return HttpCase(pieces=draw.pieces(request(method, path, body), 2))


def _text(draw: Draw, body: Any) -> bytes:
    text = dump(body, draw).encode("utf-8", "surrogatepass")
    return draw.damage(text, (b"{", b"}", b"null", b'"', b"\xff", b"1e999")) if draw.chance(0.2) else text


def _name(draw: Draw) -> str:
    return quote(
        draw.pick(("tiny", "spare", "tiny_classify", "tiny_decode", "nope", draw.text(), draw.text())),
        safe="",
        errors="surrogatepass",
    )


def _repository(draw: Draw) -> HttpCase:
    if draw.chance(0.3):
        body = draw.pick(({}, {"ready": True}, {"ready": value(draw)}, value(draw), Raw("")))
        return _asked(draw, "POST", "/v2/repository/index", _text(draw, body))
    action = draw.pick(("load", "unload"))
    if draw.chance(0.05):  # `spare` really comes and goes; `tiny` is what everything else asks about
        given: Any = (
            {"parameters": {"unload_dependents": draw.pick((True, False))}}
            if action == "unload"
            else draw.pick(({}, {"parameters": {}}))
        )
        return _asked(draw, "POST", f"/v2/repository/models/spare/{action}", dump(given, draw).encode())
    parameters: Any = {
        draw.pick(("config", "unload_dependents", "file:1/model.onnx", "file:../../x", "", draw.text())): draw.pick(
            (
                value(draw),
                json.dumps({"backend": "onnxruntime"}),
                "{",
                "[]",
                "{}",
                json.dumps({"name": "spare", "max_batch_size": draw.number()}),
                True,
            )
        )
        for _ in range(draw.between(1, 3))
    }
    body = {"parameters": parameters} if draw.chance(0.8) else value(draw)
    names = ("spare", "nope", "..", "spare/1", draw.text())
    if _harmless(body, action):
        names = names[1:]
    name = quote(draw.pick(names), safe="", errors="surrogatepass")
    text = dump(body, draw).encode("utf-8", "surrogatepass")
    return _asked(draw, "POST", f"/v2/repository/models/{name if name != 'tiny' else 'nope'}/{action}", text)


def _harmless(body: Any, action: str) -> bool:
    """Whether this may be an order that is carried out, of which there shall not be too many: they take long."""
    given = body.get("parameters") if isinstance(body, dict) else None
    return action == "unload" or not isinstance(given, dict) or not set(given) - {"config"}


def _memory(draw: Draw, world: World) -> HttpCase:
    region = draw.pick(("r0", "r1", "r2", "r3", quote(draw.text(), safe="", errors="surrogatepass") or "r"))
    kind = draw.between(0, 5)
    system = draw.weighted({"system": 8, "cuda": 1})
    if kind <= 1:
        path = draw.pick((f"/v2/{system}sharedmemory/region/{region}/unregister", f"/v2/{system}sharedmemory/unregister"))
        return _asked(draw, "POST", path, b"")
    if kind == 2:
        return _asked(
            draw,
            "GET",
            draw.pick((f"/v2/{system}sharedmemory/status", f"/v2/{system}sharedmemory/region/{region}/status")),
            b"",
        )
    key = draw.pick(
        (
            world.key,
            world.key,
            f"/{world.key}",
            "sem.x",
            "headrace",
            "torch_1",
            "../../etc/passwd",
            "/etc/passwd",
            "",
            value(draw),
        )
    )
    body: Any = {
        "key": key,
        "offset": draw.pick((0, 0, 0, 4096, -1, draw.number(), value(draw))),
        "byte_size": draw.pick((3072, 3072, SHARED_BYTES, SHARED_BYTES + 1, 0, draw.number(), value(draw))),
    }
    if draw.chance(0.2):
        body = draw.pick(({name: inner for name, inner in body.items() if draw.chance(0.6)}, value(draw), [body]))
    return _asked(draw, "POST", f"/v2/{system}sharedmemory/region/{region}/register", _text(draw, body))


def _settings(draw: Draw) -> tuple[str, Any]:
    """Errors stay logged: they are what the fuzzer looks for."""
    if draw.chance(0.5):
        changes = {
            draw.pick(("log_info", "log_warning", "log_verbose_level", "log_format", "log_file", draw.text())): draw.pick(
                (True, False, 0, 1, "default", "ISO8601", "/x", value(draw))
            )
            for _ in range(draw.between(0, 3))
        }
        return "/v2/logging", changes if draw.chance(0.85) else value(draw)
    changes = {
        draw.pick(
            ("trace_level", "trace_rate", "trace_count", "trace_file", "log_frequency", "trace_mode", draw.text())
        ): draw.pick((["OFF"], ["TIMESTAMPS"], "1000", "-1", None, "", "/x", value(draw)))
        for _ in range(draw.between(0, 3))
    }
    path = draw.pick(("/v2/trace/setting", "/v2/models/tiny/trace/setting", f"/v2/models/{_name(draw)}/trace/setting"))
    return path, changes if draw.chance(0.85) else value(draw)
