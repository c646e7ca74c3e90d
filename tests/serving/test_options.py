"""One option, once: on the command line, in a file, in the environment, in the documentation.

`python -m tests.serving.test_options` writes the documentation's table anew.
"""

import inspect
import re
from dataclasses import fields
from pathlib import Path
from typing import Literal, get_args, get_origin

import pytest
from typer.testing import CliRunner

from headrace.cli import app
from headrace.serving.cli import serve
from headrace.serving.config import GROUPS, ServeConfig
from headrace.serving.named.config import NamedModel
from headrace.serving.options import options_of
from headrace.serving.ray.config import RayConfig

DOCUMENT = Path(__file__).parents[2] / "docs" / "serve-options.md"
OPTIONS = [option for group in (*GROUPS.values(), NamedModel, RayConfig) for option in options_of(group)]


def documented() -> str:
    """The tables of docs/serve-options.md."""
    lines = []
    for group in (*GROUPS.values(), NamedModel, RayConfig):
        lines += [f"## {group.title}", "", "| option | default | meaning |", "|---|---|---|"]
        if group is RayConfig:
            lines.append("| `--ray` |  | Serve on a Ray cluster, by Ray Serve; the other options of this group are for that. |")
        for one in options_of(group):
            flag = " ".join(
                f"`{part}`" for part in (one.flag, *(get_args(one.kind) if get_origin(one.kind) is Literal else ()))
            )
            default = one.unset or ("" if one.shown is None or one.kind is bool else f"`{one.shown}`")
            rejected = f" Not with `--ray`: {one.not_with_ray}." if one.not_with_ray else ""
            lines.append(f"| {flag} | {default} | {one.help}{rejected} |")
        lines.append("")
    return "\n".join(lines)


@pytest.fixture
def run(monkeypatch):
    """What `headrace serve` would serve: run(*arguments, VARIABLE=...) is its configuration, or the message on the way."""

    def call(*arguments, **environment):
        seen = []
        monkeypatch.setattr("headrace.serving.server.serve", seen.append)
        done = CliRunner().invoke(app, ["serve", *map(str, arguments)], env={"COLUMNS": "200", **environment})
        return seen[0] if seen else " ".join(done.output.split())

    return call


def test_every_option_is_on_the_command_line_by_its_own_name():
    names = [option.parameter for option in OPTIONS]
    assert len(set(names)) == len(names)
    assert set(inspect.signature(serve).parameters) == {"context", "models", "config", "ray", *names}
    served = [field.name for group in GROUPS.values() for field in fields(group)]
    assert len(set(served)) == len(served)


def test_what_is_not_given_is_the_default(run, tmp_path):
    assert run(tmp_path) == ServeConfig(models=tmp_path)


def test_the_command_line_goes_before_the_environment_before_the_file(run, tmp_path):
    file = tmp_path / "serve.toml"
    file.write_text(
        f'models = "{tmp_path}"\nmax-queue = 7\nmax-pixels = 1000\ndrain-secs = 5\ntimeout = 2.5\nring-mib = 4\n'
        'allowed-host = ["a", "b"]\naccess-log = true\ntoken-file = "tokens.toml"\ndevices = "0,2"\ndecoding = "exact"\n'
    )
    environment = {"HEADRACE_SERVE_MAX_QUEUE": "8", "HEADRACE_SERVE_MAX_PIXELS": "2000", "HEADRACE_SERVE_CONFIG": str(file)}
    wanted = ServeConfig.of(
        models=tmp_path, max_queue=9, max_pixels=2000, drain_seconds=5.0, ring_bytes=4 << 20, default_timeout_seconds=2.5,
        allowed_hosts=("a", "b"), access_log=False, token_file=Path("tokens.toml"), devices=(0, 2), decoding="exact",
    )  # fmt: skip
    assert run("--max-queue", 9, "--no-access-log", **environment) == wanted
    assert run("--max-queue", 9, "--no-access-log", "--config", file, **environment) == wanted


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("max-que = 1", "max-que is no option of headrace serve; did you mean max-queue?"),
        ("max_queue = 1", "did you mean max-queue?"),
        ("color = 1", "options are named as on the command line"),
        ("max-queue = true", "max-queue must be a whole number, got True"),
        ("max-queue = 1.5", "max-queue must be a whole number, got 1.5"),
        ("timeout = '1'", "timeout must be a number, got '1'"),
        ("access-log = 1", "access-log must be true or false, got 1"),
        ("allowed-host = 'a'", "allowed-host must be a list of texts, got 'a'"),
        ("host = 1", "host must be a text, got 1"),
        ("host", "cannot read"),
    ],
)
def test_a_mistake_in_the_file_is_named(run, tmp_path, line, message):
    file = tmp_path / "serve.toml"
    file.write_text(line)
    assert message in run(tmp_path, "--config", file)
    assert str(file) in run(tmp_path, "--config", file)


def test_options_of_a_cluster_are_rejected_wherever_they_stand(run, tmp_path):
    assert "--min-replicas needs --ray" in run(tmp_path, HEADRACE_SERVE_MIN_REPLICAS="2")
    assert "--tls-key does not go with --ray" in run(tmp_path, HEADRACE_SERVE_RAY="1", HEADRACE_SERVE_TLS_KEY="key.pem")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"http_port": 70000}, "--http-port must be a whole number from 0 to 65535, got 70000"),
        ({"http_port": 1, "grpc_port": 1}, "--http-port, --grpc-port and --metrics-port must differ, got [1, 1, 8002]"),
        ({"max_queue": 0}, "--max-queue must be a whole number of at least 1, got 0"),
        ({"max_queue": True}, "--max-queue must be a whole number of at least 1, got True"),
        ({"max_body_bytes": 1.5}, "--max-body-bytes must be a whole number of at least 1, got 1.5"),
        ({"default_timeout_seconds": float("nan")}, "--timeout must be a number above 0, got nan"),
        ({"max_queue_delay_seconds": -1}, "--max-queue-delay-secs must be a number of at least 0, got -1"),
        ({"frontends": 65}, "--frontends must be a whole number from 0 to 64, got 65"),
        ({"log_format": "xml"}, "--log-format must be one of text, json, got 'xml'"),
        ({"shared_memory": True, "frontends": 2}, "--shared-memory needs a single process; leave out --frontends"),
    ],
)
def test_wrong_values_are_named_as_on_the_command_line(tmp_path, options, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        ServeConfig.of(models=tmp_path, **options)
    assert ServeConfig.of(models=tmp_path, grpc_port=None, max_queue_delay_seconds=0, rate_limit=None)


def test_what_is_no_option_is_an_error(tmp_path):
    with pytest.raises(TypeError, match="max_que"):
        ServeConfig.of(models=tmp_path, max_que=1)


def test_the_documentation_is_that_of_today():
    text = DOCUMENT.read_text()
    assert text[text.index("## ") :] == documented(), "python -m tests.serving.test_options writes it anew"


if __name__ == "__main__":
    before = DOCUMENT.read_text()
    DOCUMENT.write_text(before[: before.index("## ")] + documented())
