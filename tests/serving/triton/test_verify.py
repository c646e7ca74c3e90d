"""Two servers compared: what is the same is not reported, what differs is, and the documented list is the one in docs/."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from headrace.cli import app
from headrace.errors import TritonError
from headrace.runtime.artifact.artifact import load_artifact
from headrace.runtime.artifact.plan import Choice
from headrace.serving.triton.config import Settings
from headrace.serving.triton.documented import DOCUMENTED, Difference, explained
from headrace.serving.triton.exchange import Answer, HttpExchange
from headrace.serving.triton.verify import alike, compare, compare_answers, embedded
from headrace.serving.triton.write import write
from headrace.specs import BF16, FP32, INT8

ROOT = Path(__file__).parents[3]


def addresses(server):
    return {"http": server.http, "grpc": server.grpc}


def test_a_server_against_itself_and_against_another(start, repository):
    """The same server gives no difference; one whose scores are doubled gives one for every answer that holds scores, and each
    model and configuration that differs is one."""
    repository.package("tiny")
    repository.package("more")
    first = start(repository.path)
    same = compare(addresses(first), addresses(first), version="-")
    assert same.models == tuple(f"{name}{part}" for name in ("more", "tiny") for part in ("", "_classify", "_decode"))
    assert same.differences == ()
    assert same.compared > 200
    repository.package("tiny", scale=2.0)
    repository.configure("tiny", 'parameters { key: "k" value { string_value: "v" } }')
    (repository.path / "more" / "config.pbtxt").unlink()
    second = start(repository.path)
    found = compare(addresses(first), addresses(second), version="-").unexplained
    answers = [one for one in found if one.area == "answer"]
    assert {one.model for one in answers} == {"tiny", "tiny_classify"}
    assert {one.transport for one in answers} == {"http-json", "http-binary", "grpc"}
    others = {(one.area, one.model, one.what) for one in found if one.area != "answer"}
    gone = {("index", f"more{part}", "state") for part in ("", "_classify", "_decode")}
    assert others == {*gone, ("config", "tiny", "parameters.k.string_value")}
    assert ("index", "more", "READY", "UNAVAILABLE") in {(one.area, one.model, one.embedded, one.triton) for one in found}


def test_the_embedded_server_is_started_and_ended(repository, tmp_path):
    repository.package("tiny")
    with embedded(repository.path, tmp_path) as ours:
        assert HttpExchange(ours["http"]).get("/v2/models/tiny/ready")[0] == 200
    with pytest.raises(ConnectionRefusedError):
        HttpExchange(ours["http"]).get("/v2")
    with pytest.raises(TritonError, match="does not serve .*nowhere"), embedded(tmp_path / "nowhere", tmp_path):
        pass


@pytest.mark.parametrize("opened", ["", "model.int8.onnx"])
def test_like_is_compared_with_like(packaged, tmp_path, opened):
    """A plan of this machine may compute in another precision than the graph that Triton opens; then nothing would agree."""
    openvino = Choice(backend="openvino", precision=BF16, files=("model.onnx",))
    int8 = Choice(backend="onnxruntime", precision=INT8, files=("model.int8.onnx",))
    models = packaged({1: openvino, 8: int8}, extra=["model.int8.onnx"])
    if opened:
        with (models / "tiny" / "config.pbtxt").open("a") as config:
            config.write(f'default_model_filename: "{opened}"\n')
    before = (models / "tiny" / "1" / "headrace.json").read_bytes()
    plan = load_artifact(alike(models, tmp_path / "other") / "tiny").plan_here()
    expected = int8 if opened else Choice(backend="onnxruntime", precision=FP32, files=("model.onnx",))
    assert dict(plan.choices) == {1: expected, 8: expected}
    assert (models / "tiny" / "1" / "headrace.json").read_bytes() == before


SCORES = np.array([[1.0, 2.0, -4.0]], np.float32)
ANSWER = Answer(status="200", model="m", version="1", id="i", outputs={"scores": ("FP32", SCORES)})


def strings(*values):
    return replace(ANSWER, outputs={"scores": ("BYTES", np.array([[value.encode() for value in values]], dtype=object))})


def test_answers():
    assert compare_answers(ANSWER, ANSWER, 0) is None
    near = replace(ANSWER, outputs={"scores": ("FP32", SCORES + np.float32(0.003))})
    assert compare_answers(ANSWER, near, 1e-3) is None
    assert compare_answers(ANSWER, near, 1e-4) is not None
    for other in (
        replace(ANSWER, outputs={"scores": ("FP64", SCORES)}),
        replace(ANSWER, outputs={"scores": ("FP32", SCORES[0])}),
        replace(ANSWER, outputs={"other": ("FP32", SCORES)}),
        replace(ANSWER, outputs={"scores": ("FP32", np.full_like(SCORES, np.nan))}),
        replace(ANSWER, version="2"),
        replace(ANSWER, id=""),
        Answer(status="404", error="unknown model"),
    ):
        assert compare_answers(ANSWER, other, 1e-3) is not None
    assert compare_answers(Answer(status="400", error="one"), Answer(status="400", error="two"), 0) is None
    assert compare_answers(strings("0.5:2:cat"), strings("0.5000001:2:cat"), 1e-3) is None
    assert compare_answers(strings("0.5:2:cat"), strings("0.5:1:cat"), 1e-3) is not None
    assert compare_answers(strings("0.5:2:cat"), strings("0.5:2:dog"), 1e-3) is not None
    assert compare_answers(strings("0.5:2:cat"), strings("0.6:2:cat"), 1e-3) is not None


def test_only_the_documented_statuses_are_documented():
    told = Difference(area="error", model="m", what="a sequence", transport="grpc", embedded="UNIMPLEMENTED x", triton="OK")
    assert explained(told).documented == "sequences"
    assert explained(replace(told, triton="INTERNAL")).documented == ""
    assert explained(replace(told, area="answer")).documented == ""
    number = replace(told, what="priority below zero", embedded="400 x", triton="500 y", transport="http-json")
    assert explained(number).documented == "json-numbers"
    assert explained(replace(number, triton="404 y")).documented == ""
    assert explained(replace(number, embedded="INVALID_ARGUMENT x", triton="INTERNAL y", transport="grpc")).documented == ""


def test_the_page_lists_every_documented_difference():
    page = " ".join((ROOT / "docs" / "triton.md").read_text().split())
    for known in DOCUMENTED.values():
        assert f"**{known.title}.** {known.reason}" in page


@pytest.mark.parametrize("written", [False, True], ids=["as packaged", "production variant"])
def test_the_real_one_answers_alike(triton, repository, tmp_path, written):
    repository.package("tiny")
    repository.package("fragile", broken=True)
    models = repository.path
    if written:
        models = tmp_path / "production"
        write(repository.path, models, Settings(instances=2))
    folder = str(triton.path[0].parents[1])
    command = ["triton", "verify", str(models), "--installed-in", folder, "--logs", str(tmp_path / "logs"), "--format", "json"]
    answer = CliRunner().invoke(app, command)
    report = json.loads(answer.stdout)
    assert [one for one in report["differences"] if not one["documented"]] == []
    assert answer.exit_code == 0
    assert len(report["models"]) == 6
    assert report["compared"] > 500
    known = {one["documented"] for one in report["differences"]}
    assert known >= {"identity", "resolved-config", "json-numbers", "output-twice", "deadlines", "sequences"}
