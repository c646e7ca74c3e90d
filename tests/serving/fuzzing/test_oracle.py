"""What the fuzzer must notice: answers of servers that are broken in one way each."""

import asyncio

import http2_client
import http_client
import oracle
import pytest
from campaign import SLACK, Campaign
from case import Answer, Http2Case, HttpCase
from health import Held
from world import World

FINE = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\nx-request-id: a\r\ncontent-type: application/json\r\n\r\n{}"


def error(status: bytes, body: bytes, extra: bytes = b"x-request-id: a\r\ncontent-type: application/json\r\n") -> bytes:
    return b"HTTP/1.1 %s\r\ncontent-length: %d\r\n%s\r\n%s" % (status, len(body), extra, body)


def exchange(answer: bytes, case, client=http_client, *, close: bool = True):
    """How the case ends with a server that says just that."""

    async def run():
        async def serve(reader, writer):
            await reader.read(10)
            writer.write(answer)
            if close:
                writer.close()
            else:
                await asyncio.sleep(30)

        async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
            outcome = await client.run(case, server.sockets[0].getsockname())
            server.close()
            return outcome

    return asyncio.run(run())


CASE = HttpCase(pieces=(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",))


def test_a_right_answer_is_right():
    outcome = exchange(FINE, CASE)
    assert outcome.problems == []
    assert outcome.statuses == ["200"]
    assert exchange(FINE + error(b"400 Bad Request", b'{"error": "x"}'), HttpCase(pieces=(b"x",), answers=2)).problems == []
    assert exchange(b"", HttpCase(pieces=(b"x",), answers=None, ending="half")).problems == []


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        (b"", "0 answers instead of 1"),
        (b"hello", "no HTTP answer"),
        (FINE[:-1], "no HTTP answer"),
        (FINE.replace(b"x-request-id: a\r\n", b""), "X-Request-Id"),
        (FINE.replace(b"id: a", b"id: a b"), "X-Request-Id"),
        (FINE.replace(b"content-length: 2", b"content-length: 2\r\ncontent-length: 3"), "no HTTP answer"),
        (error(b"500 Internal Server Error", b'{"error": "x"}'), "status 500"),
        (error(b"418 Teapot", b'{"error": "x"}'), "status 418"),
        (error(b"400 Bad Request", b'{"detail": "x"}'), "an error that is not"),
        (error(b"400 Bad Request", b'{"error": ""}'), "an error that is not"),
        (error(b"400 Bad Request", b'{"error": NaN}'), "no JSON"),
        (error(b"400 Bad Request", b'{"error": "%s"}' % (b"x" * 9000)), "at length"),
        (error(b"400 Bad Request", b'{"error": "in /tmp/x.py"}'), "inside"),
        (error(b"400 Bad Request", b"x", b"x-request-id: a\r\ncontent-type: text/html\r\n"), "text/html"),
        (error(b"503 Service Unavailable", b'{"error": "x"}'), "Retry-After"),
    ],
)
def test_what_is_wrong_is_said(answer, says):
    problems = exchange(answer, CASE).problems
    assert any(says in problem for problem in problems), problems


def test_a_check_sees_the_answer():
    case = HttpCase(pieces=CASE.pieces, checks=(lambda answer: f"saw {answer.body!r}",))
    assert exchange(FINE, case).problems == ["saw b'{}'"]


@pytest.mark.parametrize("client", [http_client, http2_client])
def test_a_server_that_hangs_is_noticed(client, monkeypatch):
    monkeypatch.setattr(client, "PATIENCE", 0.5)
    case = CASE if client is http_client else Http2Case(pieces=(b"x" * 10,))
    (problem,) = exchange(b"", case, client, close=False).problems
    assert "no end" in problem


def test_frames():
    assert exchange(b"\0\0\0\4\0\0\0\0\0", Http2Case(pieces=(b"x" * 10,)), http2_client).problems == []
    for answer in (b"\0\0\x09\4\0\0\0\0\0", b"\0\0\0\x63\0\0\0\0\0", b"\0\0"):
        (problem,) = exchange(answer, Http2Case(pieces=(b"x" * 10,)), http2_client).problems
        assert "no HTTP/2" in problem
    (problem,) = exchange(b"\0\0\0\4\0\0\0\0\0", Http2Case(pieces=(b"x" * 10,), contains=b"live"), http2_client).problems
    assert "did not come" in problem


def test_details_of_grpc_errors():
    assert oracle.problems_of_details("input 'x' is wrong") == []
    assert oracle.problems_of_details("Traceback (most recent call last)") != []
    assert oracle.problems_of_details("") != []
    assert oracle.problems_of(Answer(404, {"content-type": "application/json", "x-request-id": "a"}, b'{"error": "x"}')) == []


class Address:
    """A server that there is none of; growth is judged without one."""

    http = metrics = grpc = "127.0.0.1:1"


@pytest.mark.parametrize(
    ("field", "values", "noticed"),
    [
        ("rss_bytes", [100, 200, 200, 200, 200, 200, 201, 200], False),
        ("rss_bytes", [200, 200, 200, 210, 220, 230, 240, 250], True),
        ("files", [40, 40, 40, 40, 40, 40, 40, 41], False),
        ("files", [40, 40, 41, 42, 44, 46, 48, 43 + SLACK], True),
        ("threads", [9, 30, 30, 30, 30, 30, 30, 31 + SLACK], True),
    ],
)
def test_what_grows_is_noticed(field, values, noticed):
    campaign = Campaign(Address(), World(), seed=0)
    scale = 1 << 20 if field == "rss_bytes" else 1
    held = {"rss_bytes": 1, "files": 1, "threads": 1}
    campaign.result.held = [Held(cases=number, **(held | {field: value * scale})) for number, value in enumerate(values)]
    campaign._judge_what_is_held(complete=True)
    assert bool(campaign.result.problems) == noticed


def test_what_was_sent_may_come_back():
    headers = {"content-type": "application/json", "x-request-id": "a"}
    answer = Answer(404, headers, b'{"error": "no model x.py in /tmp/"}')
    assert oracle.problems_of(answer, sent=b"GET /v2/models/x.py") == ["the answer tells of the inside: b'/tmp/'"]
    assert oracle.problems_of(answer, sent=b"GET /v2/models/x.py?in=/tmp/") == []
