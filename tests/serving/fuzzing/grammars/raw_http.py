"""HTTP/1.1 below what clients can say: request lines, headers, lengths against encodings, chunks, pipelines, and ends at any
byte."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from case import ANY, Answer, Check, HttpCase
from drawing import Draw
from oracle import strict_json
from world import World, images, wrong_predictions

WEIGHT = 16

_PNG = images()[6]
_METHODS = (
    "GET",
    "POST",
    "HEAD",
    "PUT",
    "DELETE",
    "OPTIONS",
    "PATCH",
    "TRACE",
    "CONNECT",
    "PRI",
    "get",
    "G",
    "",
    "GET ",
    "\0",
    "GÉT",
    "A" * 40,
)
_PATHS = (
    "/v2", "/v2/health/live", "/v2/health/ready", "/v2/models/tiny", "/v2/models/tiny/infer", "/v1/classify/tiny",
    "/v2/models/stats", "/metrics",
    "/v2/repository/index", "/v2/logging", "/openapi.json", "/", "*", "", "//", "/v2/", "/v2//models", "/v2/models/tiny/",
    "/V2", "/v2/../v2",
    "/v2/%6dodels/tiny", "/v2/models/%2e%2e%2f%2e%2e%2fetc%2fpasswd", "/v2/models/%00", "/v2/models/%ff", "/v2/models/%zz",
    "/v2?", "/v2?a=%", "/v2#x",
    "http://x/v2", "http://x:y/v2", "https://[::1/v2", "x:80", "/v2 /v2", "/v2\t", "/v2/models/" + "a" * 300, "/\u00e9",
    "/v2;x=y", "\\v2", "?", "/v2\0",
)  # fmt: skip
_VERSIONS = (
    "HTTP/1.1",
    "HTTP/1.1",
    "HTTP/1.1",
    "HTTP/1.1",
    "HTTP/1.0",
    "HTTP/0.9",
    "HTTP/2.0",
    "HTTP/1.2",
    "HTTP/1.10",
    "HTTP/1",
    "http/1.1",
    "HTTPS/1.1",
    "",
    "X",
)
_ENDS = ("\r\n", "\r\n", "\r\n", "\r\n", "\r\n", "\n", "\r", "\r\r\n", "\0\r\n", " \r\n")
_HEADERS = (
    "Host: localhost", "Host: localhost", "Host:", "Host: localhost\r\nHost: y",
    "Host: a b", "Host: [::1", "Host: " + "x" * 300,
    "Content-Length: 0", "Content-Length: 5", "Content-Length: 5", "Content-Length: 5\r\nContent-Length: 5",
    "Content-Length: 5\r\nContent-Length: 6",
    "Content-Length: 05", "Content-Length: +5", "Content-Length: -5", "Content-Length: 5, 5", "Content-Length: 0x5",
    "Content-Length: 5 5",
    "Content-Length: 99999999999999999999", "Content-Length: 1048577", "Content-Length:", "Content-Length: \u0665",
    "Content-Length : 5",
    "Transfer-Encoding: chunked", "Transfer-Encoding: chunked", "Transfer-Encoding: Chunked", "Transfer-Encoding: identity",
    "Transfer-Encoding: gzip, chunked",
    "Transfer-Encoding: chunked, chunked", "Transfer-Encoding: chunked\r\nTransfer-Encoding: identity", "Transfer-Encoding:",
    "Transfer-Encoding: x",
    "Transfer-Encoding : chunked", "Transfer-Encoding:\tchunked", "Transfer-Encoding: chunked ;x",
    "Transfer_Encoding: chunked", "TE: trailers, chunked",
    "Expect: 100-continue", "Expect: 100-Continue", "Expect: x", "Connection: close", "Connection: keep-alive",
    "Connection: Upgrade\r\nUpgrade: websocket",
    "Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQCAAAAAAIAAAAA",
    "Connection: x, close", "Connection: keep-alive, close",
    "Upgrade: x", "Sec-WebSocket-Key: eA==\r\nSec-WebSocket-Version: 13", "Content-Encoding: gzip", "Content-Encoding: br",
    "Content-Type: multipart/form-data; boundary=B",
    "Content-Type: \xff", "Accept-Encoding: gzip;q=1, deflate", "Accept-Encoding: *", "Inference-Header-Content-Length: 5",
    "Inference-Header-Content-Length: x",
    "X-Request-Id: abc", "X-Request-Id: a b", "X-Request-Id: \x7f\xff", "Authorization: Bearer x",
    "X-Forwarded-For: 1.2.3.4", "X: " + "a" * 3000, "X: " + "a" * 66000,
    "X", "X:", ": x", " X: y", "X: y\r\n z", "X\0: y", "X: \0", "X: y\rZ: a", "X: y\nZ: a", "\x80: x", "(x): y",
    "X: " + "\t" * 50, "Trailer: X", "A: b\r\n" * 300,
)  # fmt: skip


def case(draw: Draw, world: World) -> HttpCase:
    """What one connection says."""
    if draw.chance(0.25):
        return _good(draw, world)
    if draw.chance(0.02):
        return _silent(draw)
    parts = [_request(draw) for _ in range(draw.weighted({1: 10, 2: 3, 3: 1, 5: 1, 70: 0.3}))]
    data = b"".join(parts)
    if draw.chance(0.4):
        words = (
            b"\r\n",
            b"\n",
            b"\r",
            b"\0",
            b" ",
            b":",
            b"\r\n\r\n",
            b"HTTP/1.1",
            b"0\r\n\r\n",
            b"5\r\n",
            b"\xff",
            b"Content-Length: 1\r\n",
        )
        data = draw.damage(data, words, within=draw.pick((40, 200, None)))
    if draw.chance(0.15):
        data = data[: draw.between(0, len(data))]
    if data.count(b"HEAD") > (len(parts) == 1):  # whose answers have no body, which must be known to read the next
        data = data.replace(b"HEAD", b"HEAT")
    ending: Any = draw.weighted({"half": 12, "wait": 1, "abort": 2})
    port: Any = draw.weighted({"http": 9, "metrics": 1})
    return HttpCase(
        pieces=draw.pieces(data) or (b"\r\n",), port=port, answers=None, ending=ending, heads=b"HEAD" in data, statuses=ANY
    )


def _request(draw: Draw) -> bytes:
    end: Callable[[], str] = lambda: draw.pick(_ENDS) if draw.chance(0.1) else "\r\n"  # noqa: E731
    odd = draw.chance(0.3)
    method = draw.pick(_METHODS) if odd else draw.pick(("GET", "POST", "POST"))
    line = f"{method} {draw.pick(_PATHS)} {draw.pick(_VERSIONS) if odd else 'HTTP/1.1'}"
    if draw.chance(0.05):
        line = draw.pick(
            (line.replace(" ", "  "), line.replace(" ", "\t"), f" {line}", line.partition(" ")[0], f"\r\n{line}", "")
        )
    text = line + end() + "".join(draw.pick(_HEADERS) + end() for _ in range(draw.between(0, 6))) + end()
    return text.encode("utf-8", "surrogateescape") + draw.pick(
        (b"", b"hello", _chunked(draw, draw.bytes(200)), _chunked(draw, _PNG, damaged=False))
    )


def _chunked(draw: Draw, body: bytes, *, damaged: bool = True) -> bytes:
    """The body in chunks, with what chunks may have beside their bytes, and with `damaged` what they may not."""
    parts = []
    for piece in draw.pieces(body, 5):
        size = f"{len(piece):x}"
        if draw.chance(0.3):
            size = draw.pick((size.upper(), f"0{size}", f"{size};a=b", f'{size};a="b"', f"{size};a"))
        if damaged and draw.chance(0.1):
            size = draw.pick(
                (
                    f"{len(piece) + 1:x}",
                    f"-{size}",
                    f"0x{size}",
                    f" {size}",
                    f"{size} ",
                    "",
                    "g",
                    "f" * 17,
                    "7fffffffffffffff",
                    "1_0",
                )
            )
        ending = draw.pick((b"\n", b"", b"\r", b"x\r\n")) if damaged and draw.chance(0.05) else b"\r\n"
        parts.append(size.encode() + b"\r\n" + piece + ending)
    trailers = draw.pick((b"", b"", b"X-Checksum: 1\r\n"))
    if damaged and draw.chance(0.1):
        trailers = draw.pick(
            (
                b"Content-Length: 5\r\n",
                b"Transfer-Encoding: chunked\r\n",
                b"X\r\n",
                b"X: \0\r\n",
                b"A: b\r\n" * 200,
                b"X: " + b"a" * 70000 + b"\r\n",
            )
        )
    last = draw.pick((b"", b"00", b"0;a", b"0 ")) if damaged and draw.chance(0.05) else b"0"
    return b"".join(parts) + last + b"\r\n" + trailers + b"\r\n"


def _good(draw: Draw, world: World) -> HttpCase:
    """Requests that are right, however oddly they are written, one after another before any is answered."""
    texts, checks = zip(*(_good_one(draw, world) for _ in range(draw.weighted({1: 5, 2: 2, 4: 1, 12: 0.5}))), strict=True)
    return HttpCase(
        pieces=draw.pieces(b"".join(texts), 6), answers=len(texts), statuses=frozenset({200, 404, 405}), checks=checks
    )


def _good_one(draw: Draw, world: World) -> tuple[bytes, Check]:
    name: Callable[[str], str] = lambda text: draw.pick((text, text.lower(), text.upper()))  # noqa: E731
    space = draw.pick((" ", "", "\t", "   "))
    fields = [f"{name('Host')}:{space}localhost"] + [
        f"{name('X-Other')}:{space}{draw.between(0, 9)}" for _ in range(draw.between(0, 3))
    ]
    if draw.chance(0.1):
        fields += ["Connection: Upgrade, HTTP2-Settings", "Upgrade: h2c"]
    if draw.chance(0.5):
        path, status, part = draw.pick(
            (
                ("/v2", 200, b'"headrace"'),
                ("/v2/models/tiny/ready", 200, b""),
                ("/v2/models/nope", 404, b"nope"),
                ("/v2/models/tiny/infer", 405, b"GET"),
                ("/v2/models/%74iny", 200, b'"tiny"'),
            )
        )
        if path == "/v2" and draw.chance(0.2):
            path = "http://x/v2"
        lines = [f"GET {path} HTTP/1.1", *fields, "", ""]
        return "\r\n".join(lines).encode(), lambda answer: _plain(answer, status, part)
    if draw.chance(0.2):
        fields.append(f"{name('Expect')}: 100-continue")
    if draw.chance(0.5):
        fields.append(f"{name('Transfer-Encoding')}:{space}chunked")
        body = _chunked(draw, _PNG, damaged=False)
    else:
        fields.append(f"{name('Content-Length')}:{space}{len(_PNG)}")
        body = _PNG
    draw.random.shuffle(fields)
    text = "\r\n".join(["POST /v1/classify/tiny?k=3 HTTP/1.1", *fields, "", ""]).encode() + body
    return text, lambda answer: _photo(answer, world)


def _plain(answer: Answer, status: int, part: bytes) -> str | None:
    return (
        None
        if answer.status == status and part in answer.body
        else f"{answer.status} {answer.body[:200]!r} instead of {status} with {part!r}"
    )


def _photo(answer: Answer, world: World) -> str | None:
    scores = world.of_image(_PNG)
    if answer.status != 200 or scores is None:
        return f"status {answer.status}: {answer.body[:200]!r}"
    return wrong_predictions(strict_json(answer.body), scores, 3, 1e-4)


def _silent(draw: Draw) -> HttpCase:
    """A request that never ends: the server gives it up."""
    whole = b"POST /v1/classify/tiny HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000\r\n\r\n"
    data = whole[: draw.between(1, len(whole))] + draw.pick((b"", b"x" * 999))
    return HttpCase(pieces=(data,), answers=None, ending="wait", statuses=frozenset({400, 408}))
