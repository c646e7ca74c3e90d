"""Heads that overflow, and heads that two servers would read differently (request smuggling)."""

import grpc
import pytest
from tritonclient.grpc import service_pb2 as pb
from tritonclient.grpc import service_pb2_grpc


@pytest.mark.parametrize(
    "head",
    [
        b"GET /v2 HTTP/1.1\r\nHost: localhost\r\n" + b"X: " + b"a" * 70_000 + b"\r\n\r\n",
        b"GET /v2 HTTP/1.1\r\nHost: localhost\r\n" + b"X: a\r\n" * 15_000 + b"\r\n",
        b"GET /v2?" + b"a" * 70_000 + b" HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"GET /v2 HTTP/1.1\r\nHost: localhost\r\n" + b"a" * 70_000 + b": b\r\n\r\n",
        b"G" * 70_000,
    ],
    ids=["one header", "many headers", "the path", "a name", "the method"],
)
def test_overflow(target, raw_to, head):
    answer = raw_to(target.http, head)
    assert answer == b"" or answer.startswith((b"HTTP/1.1 431 ", b"HTTP/1.1 400 ")), answer[:100]


@pytest.mark.parametrize("url", [b"http://", b"http://:80", b"http://[::1", b"http://a:b/", b"/\xc3\xa9", b"a:b"])
def test_malformed_urls_are_answered(target, raw_to, url):
    assert raw_to(target.http, b"GET " + url + b" HTTP/1.1\r\nHost: localhost\r\n\r\n").startswith(b"HTTP/1.1 400 ")


SMUGGLED = b"GET /v2/health/live HTTP/1.1\r\nHost: localhost\r\n\r\n"


@pytest.mark.parametrize(
    "headers",
    [
        b"Content-Length: 4\r\nTransfer-Encoding: chunked\r\n",
        b"Transfer-Encoding: chunked\r\nContent-Length: 4\r\n",
        b"Content-Length: 4\r\nContent-Length: 5\r\n",
        b"Content-Length: +4\r\n",
        b"Content-Length: 4, 4\r\n",
        b"Content-Length: 0x4\r\n",
        b"Content-Length: -1\r\n",
        b"Content-Length: 99999999999999999999\r\n",
        b"Transfer-Encoding: chunked, identity\r\n",
        b"Transfer-Encoding: x\r\n",
        b"Transfer-Encoding: gzip, chunked\r\n",
        b"Transfer-Encoding: gzip\r\nTransfer-Encoding: chunked\r\n",
        b"Transfer-Encoding : chunked\r\n",
        b"Transfer-Encoding: chunked\n\r\n",
        b" Content-Length: 4\r\n",
        b"Header\0: x\r\n",
        b"Header: a\0b\r\n",
    ],
)
def test_bodies_of_two_lengths_are_refused(target, raw_to, headers):
    answer = raw_to(
        target.http, b"POST /v1/classify/tiny HTTP/1.1\r\nHost: localhost\r\n" + headers + b"\r\n0\r\n\r\n" + SMUGGLED
    )
    assert answer.startswith(b"HTTP/1.1 400 "), answer
    assert answer.count(b"HTTP/1.1") == 1, answer


@pytest.mark.parametrize("hosts", [b"", b"Host: localhost\r\nHost: localhost\r\n"], ids=["none", "two"])
def test_one_host_is_named(target, raw_to, hosts):
    answer = raw_to(target.http, b"GET /v2 HTTP/1.1\r\n" + hosts + b"\r\n" + SMUGGLED)
    assert answer.startswith(b"HTTP/1.1 400 "), answer
    assert answer.count(b"HTTP/1.1") == 1, answer
    if not hosts:
        assert raw_to(target.http, b"GET /v2 HTTP/1.0\r\n\r\n").startswith(b"HTTP/1.1 200 ")


def test_grpc_metadata(target):
    with grpc.insecure_channel(target.grpc, options=[("grpc.max_metadata_size", 1 << 22)]) as channel:
        stub = service_pb2_grpc.GRPCInferenceServiceStub(channel)
        for metadata in ((("x", "a" * 100_000),), tuple((f"x{number}", "a" * 100) for number in range(1000))):
            with pytest.raises(grpc.RpcError) as caught:
                stub.ServerLive(pb.ServerLiveRequest(), metadata=metadata, timeout=20)
            assert caught.value.code() == grpc.StatusCode.RESOURCE_EXHAUSTED


def test_a_request_id_cannot_add_headers_or_lines(target, raw_to):
    for given in (b"a b", b"a\tb", b"\xff\xfe", b'"}\\', b"x" * 200):
        answer = raw_to(
            target.http, b"GET /v2 HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nX-Request-Id: " + given + b"\r\n\r\n"
        )
        assert answer.startswith(b"HTTP/1.1 200 ")
        assert given not in answer
