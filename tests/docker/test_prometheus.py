"""A real Prometheus, with the files of docker/prometheus, scrapes a real server, and every query has an answer."""

import json
import math
import shutil
import socket
import subprocess
import time
import urllib.error
import urllib.parse
import urllib.request

import pytest
import yaml

pytestmark = pytest.mark.skipif(
    not shutil.which("prometheus"),
    reason="no prometheus on PATH: apt install prometheus, then pytest tests/docker/test_prometheus.py",
)
SECONDS = 60
VARIABLES = {"$__rate_interval": "10s", "$model": ".+", "$instance": ".+"}


class Prometheus:
    """A process of it, which scrapes each second."""

    def __init__(self, docker, server, folder):
        config = yaml.safe_load((docker / "prometheus" / "headrace.yml").read_text())
        config["global"] = {"scrape_interval": "1s", "evaluation_interval": "1s"}
        config["rule_files"] = [str(docker / "prometheus" / name) for name in config["rule_files"]]
        (job,) = config["scrape_configs"]
        job["static_configs"] = [{"targets": [server.metrics], "labels": {"namespace": "default", "pod": "headrace-0"}}]
        (folder / "prometheus.yml").write_text(yaml.safe_dump(config))
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.address = f"127.0.0.1:{free.getsockname()[1]}"
        self.log = folder / "log.txt"
        arguments = [f"--config.file={folder}/prometheus.yml", f"--storage.tsdb.path={folder}/data"]
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                ["prometheus", *arguments, f"--web.listen-address={self.address}"], stdout=log, stderr=subprocess.STDOUT
            )

    def get(self, path, **parameters):
        url = f"http://{self.address}/api/v1/{path}?{urllib.parse.urlencode(parameters)}"
        with urllib.request.urlopen(url, timeout=30) as answer:
            return json.loads(answer.read())["data"]

    def ask(self, query, until):
        """The answer to a query, once there is one; `until` is when not to wait any longer."""
        while True:
            try:
                result = self.get("query", query=query)["result"]
            except urllib.error.URLError as error:
                if isinstance(error, urllib.error.HTTPError) and error.code != 503:
                    raise AssertionError(f"{query}: {error.read().decode()}") from error
                result = []  # it does not listen yet, or is not ready
            if result or time.monotonic() > until:
                return result
            assert self.process.poll() is None, self.log.read_text()
            time.sleep(0.5)


@pytest.fixture(scope="module")
def prometheus(docker, server, tmp_path_factory):
    started = Prometheus(docker, server, tmp_path_factory.mktemp("prometheus"))
    try:
        until = time.monotonic() + SECONDS
        count = 0
        while not started.ask('rate(nv_inference_exec_count{model="tiny"}[10s]) > 0', 0):
            count += 1  # a rate needs two scrapes with something between them
            server.infer(count)
            server.infer(count)
            assert time.monotonic() < until, started.log.read_text()
        yield started
    finally:
        started.process.terminate()
        started.process.wait(30)


def test_every_query_of_the_dashboard_is_answered(docker, prometheus):
    content = json.loads((docker / "grafana" / "dashboards" / "headrace.json").read_text())
    until = time.monotonic() + SECONDS
    for panel in content["panels"]:
        for target in panel["targets"]:
            query = target["expr"]
            for variable, value in VARIABLES.items():
                query = query.replace(variable, value)
            series = prometheus.ask(query, until)
            assert any(math.isfinite(float(one["value"][1])) for one in series), f"{panel['title']}: {query} is {series}"


def test_the_alerts_are_evaluated_and_none_fires(prometheus):
    until = time.monotonic() + SECONDS
    while True:
        rules = [rule for group in prometheus.get("rules")["groups"] for rule in group["rules"]]
        if all(rule["health"] == "ok" for rule in rules) or time.monotonic() > until:
            break
        time.sleep(0.5)
    assert {rule["name"] for rule in rules} == {"ServerDown", "RequestsFail", "RequestsQueue"}
    assert [(rule["health"], rule["state"], rule.get("lastError")) for rule in rules] == [("ok", "inactive", None)] * 3


def test_the_autoscalers_rule_gives_one_value_per_pod(docker, prometheus):
    (rule,) = yaml.safe_load((docker / "kubernetes/monitoring/prometheus-adapter.yaml").read_text())["rules"]["custom"]
    query = rule["metricsQuery"].replace("<<.LabelMatchers>>", 'namespace="default",pod=~"headrace-0"')
    (answer,) = prometheus.ask(query.replace("<<.GroupBy>>", "pod"), time.monotonic() + SECONDS)
    assert answer["metric"] == {"pod": "headrace-0"}
    assert 0 <= float(answer["value"][1]) < 30
    (series, *_) = prometheus.get("series", **{"match[]": rule["seriesQuery"]})
    assert series["pod"] == "headrace-0"
