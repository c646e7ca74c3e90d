"""Requests that a page of another site has a browser send (CSRF): a server on the same machine is no use to it."""

import pytest


@pytest.mark.parametrize(
    "path", ["/v2/repository/models/tiny/unload", "/v1/classify/tiny", "/v2/models/tiny/infer", "/v2/logging"]
)
def test_other_sites_change_and_run_nothing(target, request_to, make_photo, path):
    for said in ({"Sec-Fetch-Site": "cross-site"}, {"sec-fetch-site": "cross-site", "Origin": "https://example.com"}):
        status, body = request_to(target.http, "POST", path, make_photo(0), said)
        assert status == 403, body
        assert b"another site" in body


@pytest.mark.parametrize("site", ["same-origin", "same-site", "none", None])
def test_own_pages_and_other_clients_are_answered(target, request_to, make_photo, site):
    said = {} if site is None else {"Sec-Fetch-Site": site}
    assert request_to(target.http, "POST", "/v1/classify/tiny", make_photo(0), said)[0] == 200
    assert request_to(target.http, "GET", "/v2", None, {"Sec-Fetch-Site": "cross-site"})[0] == 200  # a link to it works
