"""`headrace verify` as it is called: its text, its JSON, its exit status, and what it refuses."""

from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner

from headrace.cli import app
from headrace.errors import AmbiguousError, VerifyError
from tests.serving.verify.network import package
from tests.serving.verify.oip_server import oip_server
from tests.serving.verify.planted import FAULTS
from tests.serving.verify.upload_server import Service, file_of_form, reply, serving, upload_server


def headrace(*arguments, **environment):
    return CliRunner().invoke(app, ["verify", *map(str, arguments)], env=environment)


def test_the_same_is_0_and_says_so(fish):
    with upload_server(Service()) as url:
        done = headrace(url, "--against", fish)
    assert done.exit_code == 0, done.output
    assert f"{url} answers as fish version 1" in done.stdout
    assert "photo 13/13" in done.stdout


def test_a_difference_is_1_and_is_named(fish):
    with upload_server(FAULTS["BGR"].service()) as url:
        done = headrace(url, "--against", fish / "fish")
    assert done.exit_code == 1, done.output
    assert "channel-order: the channels are in BGR order (explains all of the difference)" in done.stdout
    assert "does not answer as fish" in done.stdout


def test_json_has_the_same(fish):
    with upload_server(FAULTS["softmax missing"].service()) as url:
        done = headrace(url, "--against", fish, "--format", "json")
    found = json.loads(done.stdout)
    assert (found["verdict"], found["endpoints"][0]["findings"][0]["fault"]) == ("differs", "softmax")


def test_what_cannot_be_judged_is_an_error(fish, tmp_path):
    """Which the command's main ends with 2."""
    with serving(lambda handler, body: reply(handler, b"<html>")) as url:
        assert isinstance(headrace(f"{url}/predict", "--against", fish).exception, VerifyError)
        assert isinstance(headrace(f"{url}/predict", "--against", tmp_path / "none").exception, VerifyError)
        (tmp_path / "empty").mkdir()
        found = headrace(f"{url}/predict", "--against", tmp_path / "empty", HEADRACE_CACHE=str(tmp_path / "cache")).exception
        assert isinstance(found, VerifyError)
        assert "no packaged model and is no PyTorch repository" in str(found)
        off = headrace(f"{url}/predict", "--against", tmp_path / "empty", HEADRACE_CACHE="off").exception
        assert "headrace migrate" in str(off)
        two = package(package(tmp_path / "models", tmp_path), tmp_path, "birds")
        assert isinstance(headrace(f"{url}/predict", "--against", two).exception, AmbiguousError)
        assert "no model 'cats'; it has birds, fish" in str(headrace(url, "--against", two, "--model", "cats").exception)


def test_a_token_and_headers_are_sent_and_the_token_may_stand_in_the_environment(fish):
    service, seen = Service(), []

    def handle(handler, body):
        seen.append((handler.headers.get("Authorization"), handler.headers.get("Host")))
        if handler.headers.get("Authorization") != "Bearer secret":
            reply(handler, {"error": "no token"}, 401)
            return
        reply(handler, service(file_of_form(handler.headers["Content-Type"], body, "picture")))

    with serving(handle) as url:
        arguments = (f"{url}/predict", "--against", fish, "--field", "picture", "--header", "Host: fish.example")
        assert headrace(*arguments, HEADRACE_VERIFY_TOKEN="secret").exit_code == 0
        assert "HTTP 401" in str(headrace(*arguments).exception)
    assert set(seen) == {("Bearer secret", "fish.example"), (None, "fish.example")}


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--header", "nonsense"], "--header must be like"),
        (["--header", "A: b\r\nC: d"], "--header must be like"),
        (["--token", "a\nb"], "--token must be printable"),
        (["--tolerance", "0"], "--tolerance must be"),
        (["--timeout-secs", "nan"], "--timeout-secs must be"),
        (["--format", "xml"], "text or json"),
    ],
)
def test_options_that_mean_nothing_are_refused(fish, options, says):
    done = headrace("http://127.0.0.1:9/predict", "--against", fish, *options)
    assert done.exit_code == 2
    assert says in " ".join(done.output.split())


def test_a_model_by_its_protocol(fish):
    with oip_server() as url:
        done = headrace(url, "--against", fish)
    assert done.exit_code == 0, done.output
    assert "rows 24/24" in done.stdout
    assert "note: it takes tensors" in done.stdout
