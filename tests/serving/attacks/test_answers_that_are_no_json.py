"""Requests whose answers would hold NaN or infinity, which JSON has not and strict clients reject."""

import json

import numpy as np
import pytest


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, 3e38])
def test_outputs_that_are_no_numbers_are_sent_as_binary_data_only(target, request_to, value):
    row = np.full(768, value, np.float32).tobytes()
    entry = {"name": "images", "datatype": "FP32", "shape": [1, 3, 16, 16], "parameters": {"binary_data_size": len(row)}}
    for binary, expected in ((False, 400), (True, 200)):
        head = json.dumps({"inputs": [entry], "parameters": {"binary_data_output": binary}}).encode()
        headers = {"Inference-Header-Content-Length": str(len(head))}
        status, body = request_to(target.http, "POST", "/v2/models/tiny/infer", head + row, headers)
        assert status == expected, body
        if not binary:
            assert "NaN or infinity" in json.loads(body, parse_constant=pytest.fail)["error"]
        else:
            assert not np.isfinite(np.frombuffer(body[-28:], np.float32)).all()


@pytest.mark.parametrize("encoding", ["gzip;q=0", "gzip; q=0.000, deflate ; q=0", "identity, gzip;Q=0"])
def test_an_encoding_that_is_not_wanted_is_not_used(target, request_to, encoding):
    status, body = request_to(target.http, "GET", "/v2", None, {"Accept-Encoding": encoding})
    assert (status, json.loads(body)["name"]) == (200, "headrace")
    entry = {"name": "images", "datatype": "FP32", "shape": [8, 3, 16, 16], "data": [0.1234567] * 8 * 768}
    asked = json.dumps({"inputs": [entry], "id": "x" * 40_000}).encode()  # the id makes the answer long enough to pack
    status, body = request_to(target.http, "POST", "/v2/models/tiny/infer", asked, {"Accept-Encoding": encoding})
    assert (status, json.loads(body)["model_name"]) == (200, "tiny")


@pytest.mark.parametrize("encoding", ["gzip", "GZIP", " gzip "])
def test_a_packed_image_is_unpacked(target, request_to, make_photo, encoding):
    import gzip

    body = gzip.compress(make_photo(0))
    status, text = request_to(target.http, "POST", "/v1/classify/tiny", body, {"Content-Encoding": encoding})
    assert status == 200, text


def test_clients_behind_a_trusted_proxy_are_told_apart_and_others_cannot_pretend(models, launch, request_to, make_photo):
    def ask(server, client):
        return request_to(server.http, "POST", "/v1/classify/tiny", make_photo(0), {"X-Forwarded-For": client})[0]

    with launch(models, rate_limit=0.01, trusted_proxies=("127.0.0.0/8",)) as server:
        assert [ask(server, client) for client in ("192.0.2.1", "192.0.2.2", "192.0.2.1", "1.1.1.1, 192.0.2.2")] == [
            *(200, 200, 429, 429),
        ]
    with launch(models, rate_limit=0.01, trusted_proxies=("192.0.2.0/24",)) as server:
        assert [ask(server, client) for client in ("192.0.2.1", "192.0.2.2")] == [200, 429]
