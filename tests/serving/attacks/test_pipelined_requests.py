"""Requests one behind another on a connection: what came whole before an error is answered, and no body becomes a request."""

import re

import pytest

ASKED = b"GET /v2/models/tiny HTTP/1.1\r\nHost: localhost\r\n\r\n"
LAST = ASKED.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n")
CHUNKED = b"POST /v1/classify/tiny HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"
UPGRADES = (
    b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAEAAEAAAAIAAAAB\r\n",
    b"Upgrade: websocket\r\nConnection: upgrade\r\nSec-WebSocket-Key: eA==\r\nSec-WebSocket-Version: 13\r\n",
)


def statuses(answer: bytes) -> list[int]:
    """Of all answers; none of the bodies that are asked for here has such a line."""
    return [int(status) for status in re.findall(rb"HTTP/1\.1 (\d{3}) ", answer)]


@pytest.mark.parametrize(
    "malformed",
    [
        b"GET /v2 HTTP/9.9\r\n\r\n",
        b"GET /v2 HTTP/1.1\r\n\r\n",
        b"\0\0\0\0",
        b"POST /v1/classify/tiny HTTP/1.1\r\nHost: localhost\r\nContent-Length: -1\r\n\r\n",
        b"GET http://[::1 HTTP/1.1\r\nHost: localhost\r\n\r\n",
        CHUNKED + b"x\r\n",
        CHUNKED + b"5\r\nhelloo\r\n",
    ],
)
@pytest.mark.parametrize("before", [1, 3])
def test_whole_requests_before_a_malformed_one_are_answered(target, raw_to, before, malformed):
    answer = raw_to(target.http, ASKED * before + malformed + ASKED)
    assert statuses(answer) == [200] * before + [400], answer


def test_a_slow_answer_comes_before_the_error(target, raw_to, make_photo):
    image = make_photo(0, (1500, 1500))
    head = b"POST /v1/classify/tiny HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n" % len(image)
    answer = raw_to(target.http, head + image + ASKED + b"\0")
    assert statuses(answer) == [200, 200, 400], answer
    assert b'"predictions"' in answer


def test_more_than_may_wait_are_refused_behind_those_that_may(target, raw_to):
    assert statuses(raw_to(target.http, ASKED * 200)) == [200] * 64 + [400]


def test_an_error_behind_a_request_that_closes_is_not_told(target, raw_to):
    assert statuses(raw_to(target.http, LAST + b"\0")) == [200]


@pytest.mark.parametrize("upgrade", UPGRADES)
@pytest.mark.parametrize("chunked", [False, True])
@pytest.mark.parametrize("packets", [1, 2])
def test_a_body_with_a_wish_for_another_protocol_is_read(target, raw_to, make_photo, upgrade, chunked, packets):
    """As Java's HttpClient sends every first request. Read as the next request, a body could smuggle one past a proxy."""
    image = make_photo(1)
    body = b"%x\r\n%b\r\n0\r\n\r\n" % (len(image), image) if chunked else image
    length = b"Transfer-Encoding: chunked\r\n" if chunked else b"Content-Length: %d\r\n" % len(image)
    head = b"POST /v1/classify/tiny HTTP/1.1\r\nHost: localhost\r\n" + upgrade + length + b"\r\n"
    parts = [head + body] if packets == 1 else [head, body]
    answer = raw_to(target.http, *parts, ASKED.replace(b"\r\n\r\n", b"\r\n" + upgrade + b"\r\n") * 3 + LAST)
    assert statuses(answer) == [200] * 5, answer
    assert answer.count(b'"predictions"') == 1


def test_no_tunnel_is_opened(target, raw_to):
    answer = raw_to(target.http, b"CONNECT localhost:80 HTTP/1.1\r\nHost: localhost\r\n\r\n" + ASKED)
    assert statuses(answer) == [400], answer


def test_a_trailer_is_no_header(target, raw_to, make_photo):
    """A proxy checks heads, and may pass on trailers that say something else (RFC 9110, 6.5.1)."""
    image = make_photo(2)
    trailers = b"Content-Encoding: br\r\nContent-Type: multipart/form-data\r\nOrigin: http://elsewhere.example\r\n"
    answer = raw_to(target.http, CHUNKED + b"%x\r\n%b\r\n0\r\n%b\r\n" % (len(image), image, trailers) + LAST)
    assert statuses(answer) == [200, 200], answer
