"""The compose files against what they start; `make lint-docker` has their schema."""

import re
from pathlib import Path

import pytest
import yaml

from headrace.serving.config import ServeConfig

FILES = {"compose.yaml": "headrace", "compose.triton.yaml": "triton"}
TARGETS = {"/models", "/var/cache/headrace", "/prometheus", "/var/lib/grafana"}  # not from this folder


@pytest.fixture(params=FILES)
def name(request):
    return request.param


@pytest.fixture
def services(docker, name):
    return yaml.safe_load((docker / name).read_text())["services"]


def seconds(text):
    return float(re.fullmatch(r"(\d+)s", text)[1])


def test_images_and_secrets_are_given_from_outside(services):
    for service in services.values():
        assert re.fullmatch(r"\$\{[A-Z_]+:-[\w./-]+:[\w.-]+\}", service["image"])
        assert not service["image"].endswith(":latest}")
    assert services["grafana"]["environment"]["GF_SECURITY_ADMIN_PASSWORD"].startswith("${GRAFANA_PASSWORD:?")


def test_ports_are_published_on_loopback_only(services):
    for service in services.values():
        assert all(port.startswith("127.0.0.1:") for port in service["ports"])


def test_nothing_runs_with_more_than_it_needs(services, name):
    for service in services.values():
        assert service["cap_drop"] == ["ALL"]
        assert "no-new-privileges:true" in service["security_opt"]
        assert "privileged" not in service
    server = services[FILES[name]]
    assert server["read_only"] is True
    assert server["tmpfs"][0].startswith("/tmp:")
    assert next(volume for volume in server["volumes"] if volume["target"] == "/models")["read_only"] is True


def test_the_server_is_given_the_time_that_draining_takes(services, name, stages):
    drain = ServeConfig(models=Path()).processes.drain_seconds
    if name == "compose.triton.yaml":
        command = stages("triton.Dockerfile")["triton"][-1][1]
        drain = float(re.search(r"--exit-timeout-secs=(\d+)", command)[1])
    assert seconds(services[FILES[name]]["stop_grace_period"]) > drain + 5


def test_the_command_is_one_that_the_command_line_takes(docker, parse_serve):
    services = yaml.safe_load((docker / "compose.yaml").read_text())["services"]
    settings = parse_serve(services["headrace"]["command"])
    (models,) = [volume["target"] for volume in services["headrace"]["volumes"] if volume["type"] == "bind"]
    assert (str(settings["models"]), settings["host"]) == (models, "0.0.0.0")


def test_what_is_mounted_from_here_is_here(docker, services):
    for service in services.values():
        for volume in service["volumes"]:
            source, target = volume.split(":")[:2] if isinstance(volume, str) else (volume["source"], volume["target"])
            assert (docker / source).is_dir() if source.startswith("./") else target in TARGETS, volume
        if "build" in service:
            build = service["build"]
            assert (docker / build["context"] / build["dockerfile"]).is_file()


def test_prometheus_and_grafana_find_each_other(docker, services, name):
    server = FILES[name]
    command = " ".join(services["prometheus"]["command"])
    config = re.search(r"--config.file=/etc/prometheus/(\S+)", command)[1]
    (job,) = yaml.safe_load((docker / "prometheus" / config).read_text())["scrape_configs"]
    assert job["static_configs"] == [{"targets": [f"{server}:8002"]}]
    (source,) = yaml.safe_load((docker / "grafana/provisioning/datasources/prometheus.yaml").read_text())["datasources"]
    assert source["url"] == "http://prometheus:9090"
    (provider,) = yaml.safe_load((docker / "grafana/provisioning/dashboards/files.yaml").read_text())["providers"]
    dashboards = provider["options"]["path"]
    assert f"./grafana/dashboards:{dashboards}:ro" in services["grafana"]["volumes"]
    home = Path(services["grafana"]["environment"]["GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH"])
    assert str(home.parent) == dashboards
    assert (docker / "grafana" / "dashboards" / home.name).is_file()
