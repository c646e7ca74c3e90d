"""A few thousand cases of fixed seeds and of a new one; `make fuzz` runs many more. docs/fuzzing.md has the rules."""

import asyncio
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
import requests
from campaign import Campaign, grammars, make, sent
from schema import explore
from world import World, serving

FOLDER = Path(__file__).parent


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    with serving(tmp_path_factory.mktemp("fuzzing")) as opened:
        yield opened


def found(result) -> str:
    return "\n".join(f"{one.case} {one.grammar}: {one.what}\n  sent: {one.sent}" for one in result.problems)


@pytest.mark.parametrize(("seed", "cases"), [(1, 500), *(pytest.param(seed, 1500, marks=pytest.mark.slow) for seed in (1, 2))])
def test_cases_of_a_fixed_seed(served, seed, cases):
    server, world = served
    result = asyncio.run(Campaign(server, world, seed=seed).run(cases, cases // 2))
    assert result.cases == cases
    assert result.problems == [], found(result)
    assert set(result.counts) == set(grammars())
    answered = sum(counts["200"] + counts["OK"] for counts in result.counts.values())
    assert answered > 0.2 * result.cases, "a server that refuses everything passes nothing"


@pytest.mark.slow  # cases of fixed seeds: above
def test_cases_of_a_new_seed_by_the_command(tmp_path):
    out = tmp_path / "found.json"
    command = [sys.executable, str(FOLDER), "--cases", "600", "--stretch", "300", "--out", str(out)]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=240, check=False)
    print(ended.stderr)  # names the seed
    assert ended.returncode == 0, ended.stderr
    report = json.loads(out.read_text())["frontends 0"]
    assert report["cases"] == 600
    assert set(report["grammars"]) == set(grammars())
    assert re.search(rf"600 cases of seed {report['seed']}\b", ended.stderr)


@pytest.mark.slow
def test_cases_for_several_processes(tmp_path):
    with serving(tmp_path, frontends=2) as (server, world):
        result = asyncio.run(Campaign(server, world, seed=3).run(800, 400))
    assert result.problems == [], found(result)


@pytest.mark.parametrize(
    "name",
    # Large ones; drawn by the same generator as all others.
    [pytest.param(name, marks=pytest.mark.slow) if name == "json_bodies" else name for name in sorted(grammars())],
)
def test_a_number_is_always_the_same_case(name):
    known = {name: grammars()[name]}
    for number in range(200):
        (_, first), (_, again) = (make(5, number, World(key="k", settings=True), known) for _ in range(2))
        assert sent(first) == sent(again)
    assert len({sent(make(5, number, World(), known)[1]) for number in range(200)}) > 100


@pytest.mark.parametrize("examples", [80, pytest.param(200, marks=pytest.mark.slow)])
def test_the_openapi_document_is_what_the_server_does(served, examples):
    server, _ = served
    counts, problems = explore(server.url, examples, number=1)
    assert problems == [], "\n".join(problems)
    assert counts.total() > examples / 2
    assert counts["200"] > examples / 6


def test_a_document_that_lies_is_found_out(served):
    server, _ = served
    document = requests.get(f"{server.url}/openapi.json", timeout=60).json()
    document["paths"] = {path: document["paths"][path] for path in ("/v2", "/v2/models/{model}")}
    del document["paths"]["/v2/models/{model}"]["get"]["responses"]["404"]
    document["components"]["schemas"]["ServerMetadata"]["properties"]["version"] = {"type": "integer"}
    _, problems = explore(server.url, 40, number=1, document=document)
    assert any("404" in problem for problem in problems)
    assert any("integer" in problem for problem in problems)
