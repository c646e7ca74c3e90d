"""Which names a server answers to."""

import pytest

from headrace.errors import ForbiddenError
from headrace.serving.config import ServeConfig
from headrace.serving.guard.hosts import Hosts, is_loopback


@pytest.mark.parametrize(
    "host",
    [
        b"localhost", b"LocalHost:8000", b"localhost.", b"app.localhost:1", b"127.0.0.1", b"127.0.0.1:8000", b"10.1.2.3:80",
        b"[::1]", b"[::1", b"", b"[::1]:8000", b"[fe80::1%eth0]:80", b"photos.example", b"Photos.Example.:8000",
    ],
)  # fmt: skip
def test_addresses_localhost_and_given_names_are_known(host):
    Hosts(["photos.example"]).check([host])


@pytest.mark.parametrize(
    "host",
    [
        b"evil.example", b"evil.example:8000", b"localhost.evil.example", b"127.0.0.1.evil.example", b"notlocalhost",
        b"127.0.0.1@evil.example", b"[evil.example]", b"sub.photos.example", b"0x7f000001", b"\xff\xfe",
    ],
)  # fmt: skip
def test_other_names_are_refused_with_the_remedy(host):
    with pytest.raises(ForbiddenError, match="--allowed-host"):
        Hosts(["photos.example"]).check([host])


def test_a_second_host_header_hides_nothing_and_none_is_no_browsers():
    with pytest.raises(ForbiddenError):
        Hosts().check([b"localhost", b"evil.example"])
    Hosts().check([])


def test_a_long_name_is_not_repeated_whole():
    with pytest.raises(ForbiddenError) as caught:
        Hosts().check([b"x" * 5000])
    assert len(str(caught.value)) < 400


@pytest.mark.parametrize(
    ("host", "only_here"),
    [
        ("127.0.0.1", True),
        ("127.9.9.9", True),
        ("::1", True),
        ("localhost", True),
        ("0.0.0.0", False),
        ("::", False),
        ("10.0.0.1", False),
        ("photos.example", False),
    ],
)
def test_loopback_addresses(host, only_here):
    assert is_loopback(host) == only_here


@pytest.mark.parametrize("name", ["http://photos.example", "photos.example:80", "", "a b"])
def test_a_name_is_a_name(tmp_path, name):
    with pytest.raises(ValueError, match="--allowed-host"):
        ServeConfig.of(models=tmp_path, allowed_hosts=(name,))
