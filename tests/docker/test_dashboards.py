"""Every query of the dashboards, the alerts and the autoscaler's rule names metrics and labels that a real server exposes."""

import json
import re
import urllib.request
from pathlib import Path

import promql_parser
import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

# What Prometheus adds to every series: docker/prometheus/, and on Kubernetes the operator's ServiceMonitor.
ADDED = {"job", "instance", "namespace", "pod"}
# As a real Triton wrote them, and with a GPU and a response cache, which it had not:
# https://github.com/triton-inference-server/server/blob/main/docs/user_guide/metrics.md
RECORDED = Path(__file__).with_name("triton-2.51-metrics.txt")
DOCUMENTED = {
    "nv_gpu_utilization": {"gpu_uuid"},
    "nv_gpu_memory_used_bytes": {"gpu_uuid"},
    "nv_gpu_memory_total_bytes": {"gpu_uuid"},
    "nv_cache_num_hits_per_model": {"model", "version"},
    "nv_cache_num_misses_per_model": {"model", "version"},
}
VARIABLES = {"$__rate_interval": "1m", "$model": "tiny", "$instance": ".+"}
LABEL_VALUES = re.compile(r"label_values\((\w+), (\w+)\)")


@pytest.fixture(scope="module")
def exposed(server):
    """{name of a series: its labels}, from what the server says after a request."""
    server.infer()
    with urllib.request.urlopen(f"http://{server.metrics}/metrics", timeout=30) as answer:
        return names(answer.read().decode())


def names(text):
    found = {"up": set()}  # Prometheus's own
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            found.setdefault(sample.name, set()).update(sample.labels)
    return found


def triton():
    return names(RECORDED.read_text()) | DOCUMENTED


def selectors(query):
    """The series that a query names, each with the labels asked for, and the labels that it groups by."""
    for variable, value in VARIABLES.items():
        query = query.replace(variable, value)
    named, grouped = [], set()

    def visit(node):
        if isinstance(node, promql_parser.VectorSelector):
            named.append((node.name, {matcher.name for matcher in node.matchers.matchers}))
        elif isinstance(node, promql_parser.AggregateExpr) and node.modifier:
            grouped.update(node.modifier.labels)

    promql_parser.walk(promql_parser.parse(query), visit)
    assert named, query
    return named, grouped


def check(query, known):
    named, grouped = selectors(query)
    for name, labels in named:
        assert name in known, f"{name} in {query}"
        assert labels | grouped <= known[name] | ADDED, f"{name} has not all labels of {query}"


def dashboard(docker, name):
    return json.loads((docker / "grafana" / "dashboards" / f"{name}.json").read_text())


def queries(content):
    return [target["expr"] for panel in content["panels"] for target in panel["targets"]]


@pytest.mark.parametrize("name", ["headrace", "triton"])
def test_dashboards(docker, exposed, name):
    known = triton() if name == "triton" else exposed
    content = dashboard(docker, name)
    for query in queries(content):
        check(query, known)
    for variable in content["templating"]["list"][1:]:
        metric, label = LABEL_VALUES.fullmatch(variable["query"]["query"]).groups()
        assert label in known[metric] | ADDED


def test_the_dashboard_shows_what_it_is_asked_for(docker):
    """Requests, p50 and p99, queue time, batch size, what was refused, memory, and how busy the instances are."""
    asked = " ".join(queries(dashboard(docker, "headrace")))
    latency = "sum by (le, model) (rate(headrace_request_latency_seconds_bucket"
    wanted = (
        "nv_inference_request_success", f"histogram_quantile(0.5, {latency}", f"histogram_quantile(0.99, {latency}",
        "nv_inference_request_failure", "nv_inference_queue_duration_us", "headrace_batch_size_bucket",
        "process_resident_memory_bytes", "headrace_busy_seconds_total",
    )  # fmt: skip
    assert [text for text in wanted if text not in asked] == []


def test_alerts(docker, exposed):
    groups = yaml.safe_load((docker / "prometheus" / "alerts.yml").read_text())["groups"]
    assert [group["name"] for group in groups] == ["headrace", "headrace-answers"]
    for group in groups:
        assert len(group["rules"]) >= 3
        for rule in group["rules"]:
            check(rule["expr"], exposed)
            if group["name"] == "headrace":
                check(rule["expr"], triton())


def test_the_rule_of_the_autoscaler(docker, exposed):
    (rule,) = yaml.safe_load((docker / "kubernetes/monitoring/prometheus-adapter.yaml").read_text())["rules"]["custom"]
    check(rule["seriesQuery"], exposed)
    matchers = {"<<.LabelMatchers>>": 'namespace="default",pod=~"a|b"', "<<.GroupBy>>": "pod"}
    query = rule["metricsQuery"]
    for placeholder, value in matchers.items():
        assert placeholder in query
        query = query.replace(placeholder, value)
    check(query, exposed)
    check(query, triton())
    scaler = yaml.safe_load((docker / "kubernetes/base/autoscaler.yaml").read_text())
    assert scaler["spec"]["metrics"][0]["pods"]["metric"]["name"] == rule["name"]["as"]


def test_a_name_that_nobody_exposes_is_found(exposed):
    with pytest.raises(AssertionError, match="headrace_batch_sizes"):
        check("sum by (model) (rate(headrace_batch_sizes_count[5m])) / up", exposed)
    with pytest.raises(AssertionError, match="color"):
        check("sum by (color) (up)", exposed)


@pytest.mark.parametrize("name", ["headrace", "triton"])
def test_panels_do_not_overlap_and_say_what_they_show(docker, name):
    content = dashboard(docker, name)
    panels = content["panels"]
    assert len({panel["id"] for panel in panels}) == len({panel["title"] for panel in panels}) == len(panels)
    cells = set()
    for panel in panels:
        place = panel["gridPos"]
        own = {(x, y) for x in range(place["x"], place["x"] + place["w"]) for y in range(place["y"], place["y"] + place["h"])}
        assert not own & cells, panel["title"]
        assert place["x"] + place["w"] <= 24
        cells |= own
        assert panel["datasource"]["uid"] == "${datasource}"
        assert panel["type"] == "heatmap" or panel["fieldConfig"]["defaults"]["unit"]
    (source,) = yaml.safe_load((docker / "grafana/provisioning/datasources/prometheus.yaml").read_text())["datasources"]
    assert content["templating"]["list"][0]["current"]["value"] == source["uid"]
