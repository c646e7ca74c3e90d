"""Token buckets in virtual time, and who counts as one client."""

import http.client

import httpx
import numpy as np
import pytest
import tritonclient.grpc as triton
from tritonclient.utils import InferenceServerException

from headrace.errors import RateLimitError
from headrace.serving.config import ServeConfig
from headrace.serving.guard.rate_limit import RateLimiter, client_of_address, client_of_peer


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def _admitted(limiter, client) -> bool:
    try:
        limiter.admit(client)
    except RateLimitError:
        return False
    return True


@pytest.mark.parametrize("rate", [0.5, 1, 7, 100])
def test_the_rate_is_kept_in_the_long_run(rate):
    clock = Clock()
    limiter = RateLimiter(rate, clock=clock)
    admitted = 0
    for step in range(20_000):
        clock.now = step / 200
        admitted += _admitted(limiter, "a")
    assert abs(admitted - (100 * rate + max(1, rate))) <= 1


def test_a_burst_and_then_one_at_a_time():
    clock = Clock()
    limiter = RateLimiter(2, burst=5, clock=clock)
    assert [_admitted(limiter, "a") for _ in range(7)] == [True] * 5 + [False] * 2
    with pytest.raises(RateLimitError, match=r"more than 2 requests a second; send the next one in 0.5 s") as caught:
        limiter.admit("a")
    assert (caught.value.status, caught.value.retry_after) == (429, 1)
    clock.now = 0.5
    assert [_admitted(limiter, "a") for _ in range(2)] == [True, False]
    clock.now = 1000
    assert [_admitted(limiter, "a") for _ in range(7)] == [True] * 5 + [False] * 2


def test_clients_do_not_share():
    clock = Clock()
    limiter = RateLimiter(1, clock=clock)
    assert [_admitted(limiter, client) for client in "abab"] == [True, True, False, False]


def test_a_slow_rate_says_when():
    limiter = RateLimiter(0.01, clock=Clock())
    limiter.admit("a")
    with pytest.raises(RateLimitError) as caught:
        limiter.admit("a")
    assert 100 <= caught.value.retry_after <= 101


def test_memory_is_bounded_and_those_that_go_on_are_remembered():
    limiter = RateLimiter(1, clients=10, clock=Clock())
    limiter.admit("busy")
    for number in range(1000):
        limiter.admit(str(number))
        assert not _admitted(limiter, "busy")
    assert len(limiter._buckets) == 10


@pytest.mark.parametrize(
    ("address", "client"),
    [
        ("192.0.2.7", "192.0.2.7"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
        ("2001:db8:1:2:ffff::", "2001:db8:1:2::/64"),
        ("::ffff:192.0.2.7", "192.0.2.7"),
        ("fe80::1%eth0", "fe80::/64"),
        ("", ""),
        ("testclient", "testclient"),
    ],
)
def test_one_client_is_an_address_or_a_subscriber(address, client):
    assert client_of_address(address) == client


@pytest.mark.parametrize(
    ("peer", "client"),
    [
        ("ipv4:192.0.2.7:4711", "192.0.2.7"),
        ("ipv6:%5B2001:db8::1%5D:4711", "2001:db8::/64"),
        ("ipv6:[::1]:4711", "::/64"),
        ("unix:/run/socket", "unix:/run/socket"),
        ("", ""),
    ],
)
def test_peers_of_grpc(peer, client):
    assert client_of_peer(peer) == client


def test_a_client_that_sends_too_much_is_told_when_to_come_back(start, models, make_photo):
    server = start(models, rate_limit=0.2)
    url, photo = f"{server.url}/v1/classify/tiny", make_photo(0)
    assert httpx.post(url, content=photo).status_code == 200
    refused = httpx.post(f"{server.url}/v2/models/tiny/infer", content=b"not even read")
    assert refused.status_code == 429
    assert "requests a second" in refused.json()["error"]
    assert 1 <= int(refused.headers["Retry-After"]) <= 6
    tensor = triton.InferInput("images", [1, 3, 16, 16], "FP32")
    tensor.set_data_from_numpy(np.zeros((1, 3, 16, 16), np.float32))
    with triton.InferenceServerClient(server.grpc) as grpc:
        with pytest.raises(InferenceServerException, match="requests a second") as caught:  # it is the same client
            grpc.infer("tiny", [tensor])
        assert caught.value.status() == "StatusCode.RESOURCE_EXHAUSTED"
        assert grpc.is_model_ready("tiny")  # only inference counts
    assert httpx.get(f"{server.url}/v2/models/tiny").status_code == 200
    other = http.client.HTTPConnection(server.http, source_address=("127.0.0.2", 0))
    other.request("POST", "/v1/classify/tiny", photo)
    assert other.getresponse().status == 200
    other.close()


@pytest.mark.parametrize("rate", [0, -1, float("nan"), float("inf")])
def test_rates_that_are_none(models, rate):
    with pytest.raises(ValueError, match="--rate-limit"):
        ServeConfig.of(models=models, rate_limit=rate)
