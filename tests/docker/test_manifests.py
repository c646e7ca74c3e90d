"""The Kubernetes manifests against the server and each other; `make lint-docker` has Kubernetes' own schemas."""

import re
import shutil
import subprocess
import urllib.request
from pathlib import Path

import pytest
import yaml

from headrace.serving.config import ServeConfig

USERS = {"cpu": "Dockerfile", "gpu": "Dockerfile", "triton": "triton.Dockerfile"}
STAGES = {"cpu": "cpu", "gpu": "cuda", "triton": "triton"}


@pytest.fixture(scope="module", params=["base", *USERS])
def objects(request, docker):
    """{kind: [object, ...]} of the base as it stands, or of an overlay as kustomize makes it."""
    folder = docker / "kubernetes"
    if request.param == "base":
        files = [path for path in (folder / "base").glob("*.yaml") if path.name != "kustomization.yaml"]
        listed = yaml.safe_load((folder / "base" / "kustomization.yaml").read_text())["resources"]
        assert sorted(listed) == sorted(path.name for path in files)
        text = "\n---\n".join(path.read_text() for path in files)
    else:
        if not shutil.which("kubectl"):
            pytest.skip("overlays are rendered by kubectl: apt install kubernetes-client, or put a kubectl on PATH")
        command = ["kubectl", "kustomize", str(folder / "overlays" / request.param)]
        text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    found = {"overlay": request.param}
    for item in yaml.safe_load_all(text):
        found.setdefault(item["kind"], []).append(item)
    return found


@pytest.fixture
def pod(objects):
    return objects["Deployment"][0]["spec"]["template"]["spec"]


@pytest.fixture
def container(pod):
    (only,) = pod["containers"]
    return only


def test_everything_means_the_same_pods(objects):
    (deployment,) = objects["Deployment"]
    labels = deployment["spec"]["template"]["metadata"]["labels"]
    assert deployment["spec"]["selector"]["matchLabels"] == labels
    for service in objects["Service"]:
        assert service["spec"]["selector"] == labels
    assert objects["PodDisruptionBudget"][0]["spec"]["selector"]["matchLabels"] == labels
    assert objects["NetworkPolicy"][0]["spec"]["podSelector"]["matchLabels"] == labels
    (scaler,) = objects["HorizontalPodAutoscaler"]
    assert scaler["spec"]["scaleTargetRef"]["name"] == deployment["metadata"]["name"]
    assert "replicas" not in deployment["spec"], "applied again, it would undo what the autoscaler did"
    (spread,) = deployment["spec"]["template"]["spec"]["topologySpreadConstraints"]
    assert spread["labelSelector"]["matchLabels"] == labels


def test_the_monitor_finds_the_metrics(objects, docker):
    monitor = yaml.safe_load((docker / "kubernetes/monitoring/servicemonitor.yaml").read_text())
    wanted = monitor["spec"]["selector"]["matchLabels"]
    (service,) = [each for each in objects["Service"] if wanted.items() <= each["metadata"].get("labels", {}).items()]
    ports = {port["name"]: port["targetPort"] for port in service["spec"]["ports"]}
    assert ports[monitor["spec"]["endpoints"][0]["port"]] == "metrics"


def test_ports_are_the_servers(objects, container):
    config = ServeConfig(models=Path())
    ports = {port["name"]: port["containerPort"] for port in container["ports"]}
    assert ports == {
        "http": config.addresses.http_port,
        "grpc": config.addresses.grpc_port,
        "metrics": config.addresses.metrics_port,
    }
    named = [port["targetPort"] for service in objects["Service"] for port in service["spec"]["ports"]]
    named += [port["port"] for rule in objects["NetworkPolicy"][0]["spec"]["ingress"] for port in rule["ports"]]
    assert set(named) == set(ports)


def test_probes_ask_what_the_server_answers(container, server):
    for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
        asked = container[probe]["httpGet"]
        assert asked["port"] == "http"
        with urllib.request.urlopen(f"http://{server.http}{asked['path']}", timeout=30) as answer:
            assert answer.status == 200
    # A server that loads or drains is alive, and must not be killed for it.
    assert container["livenessProbe"]["httpGet"]["path"].endswith("/live")
    assert container["readinessProbe"]["httpGet"]["path"].endswith("/ready")


def test_the_time_to_end_is_longer_than_draining(pod, container):
    drain = ServeConfig(models=Path()).processes.drain_seconds
    arguments = " ".join(container["args"])
    if found := re.search(r"--exit-timeout-secs=(\d+)", arguments):
        drain = float(found[1])
    before = container["lifecycle"]["preStop"]["sleep"]["seconds"]
    assert pod["terminationGracePeriodSeconds"] >= before + drain + 10


def test_arguments_are_those_of_the_image(objects, container, parse_serve, stages):
    if objects["overlay"] == "triton":
        (command,) = [value for instruction, value in stages("triton.Dockerfile")["triton"] if instruction == "CMD"]
        assert container["args"] == yaml.safe_load(command)
    else:
        settings = parse_serve(container["args"])
        assert (settings["models"], settings["host"]) == ("/models", "0.0.0.0")


def test_pods_may_do_nothing_but_serve(objects, pod, container, stages):
    assert pod["automountServiceAccountToken"] is False
    security = pod["securityContext"]
    assert security["runAsNonRoot"] is True
    assert security["seccompProfile"] == {"type": "RuntimeDefault"}
    overlay = "cpu" if objects["overlay"] == "base" else objects["overlay"]
    (user,) = [value for instruction, value in stages(USERS[overlay])[STAGES[overlay]] if instruction == "USER"]
    assert f"{security['runAsUser']}:{security['runAsGroup']}" == user
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    mounts = {mount["mountPath"]: mount for mount in container["volumeMounts"]}
    assert mounts["/models"]["readOnly"] is True
    extra = {"/dev/shm"} if objects["overlay"] == "triton" else set()
    assert set(mounts) == {"/models", "/tmp", "/var/cache/headrace"} | extra
    volumes = {volume["name"]: volume for volume in pod["volumes"]}
    assert {mount["name"] for mount in container["volumeMounts"]} == set(volumes)
    assert all("sizeLimit" in volume["emptyDir"] for volume in volumes.values() if "emptyDir" in volume)
    (claim,) = objects["PersistentVolumeClaim"]
    assert volumes["models"]["persistentVolumeClaim"]["claimName"] == claim["metadata"]["name"]


def test_overlays_say_what_they_need(objects, container):
    if objects["overlay"] == "base":
        assert "resources" not in container, "an overlay says them"
        return
    limits, requests = container["resources"]["limits"], container["resources"]["requests"]
    assert requests.items() <= limits.items(), "threads are counted by the limit, so that less would be granted than used"
    assert ("nvidia.com/gpu" in limits) == (objects["overlay"] != "cpu")
    assert container["image"] == f"headrace:{STAGES[objects['overlay']]}"
