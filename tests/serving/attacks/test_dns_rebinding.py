"""A page that points its own name at this machine: to the browser it is the server's own, but it calls it by that name."""

import pytest

ELSEWHERE = {"Host": "evil.example:8000", "Sec-Fetch-Site": "same-origin"}


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/v2"),
        ("GET", "/v1/figures"),
        ("GET", "/"),
        ("POST", "/v1/classify/tiny"),
        ("POST", "/v2/models/tiny/infer"),
        ("POST", "/v2/repository/index"),
        ("POST", "/v2/repository/models/tiny/unload"),
    ],
)
def test_a_name_that_points_here_opens_nothing(target, request_to, make_photo, method, path):
    status, body = request_to(target.http, method, path, make_photo(0) if method == "POST" else None, ELSEWHERE)
    assert status == 403, body
    assert b"--allowed-host" in body
    assert b"tiny" not in body


def test_nor_does_it_on_the_metrics_port(target, request_to):
    assert request_to(target.metrics, "GET", "/metrics", None, ELSEWHERE)[0] == 403
    assert request_to(target.metrics, "GET", "/metrics")[0] == 200


def test_a_name_that_was_allowed_is_answered(models, launch, request_to, make_photo):
    with launch(models, allowed_hosts=("evil.example",)) as server:
        assert request_to(server.http, "POST", "/v1/classify/tiny", make_photo(0), {"Host": "evil.example"})[0] == 200
        assert request_to(server.http, "GET", "/v2", None, {"Host": "other.example"})[0] == 403


def test_where_calls_need_a_token_a_page_has_none(models, launch, request_to, tmp_path):
    tokens = tmp_path / "tokens.toml"
    tokens.write_text('infer = ["0123456789abcdef"]\n')
    with launch(models, token_file=tokens) as server:
        own = {"Host": "photos.example", "Authorization": "Bearer 0123456789abcdef"}
        assert request_to(server.http, "GET", "/v2", None, own)[0] == 200
        assert request_to(server.http, "GET", "/v2", None, ELSEWHERE)[0] == 401
