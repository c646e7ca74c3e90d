"""Every way to break a models folder is found, under its code, and a good folder has no findings."""

import json
import py_compile
import shutil
from pathlib import Path

import pytest
from google.protobuf import text_format
from tritonclient.grpc import model_config_pb2 as schema
from typer.testing import CliRunner

from headrace.cli import app
from headrace.errors import ArtifactError
from headrace.serving.triton.finding import CODES
from headrace.serving.triton.lint import lint, status
from tests.serving.triton.broken_models import BROKEN


@pytest.fixture
def tiny(models, tmp_path) -> Path:
    """A copy of `tiny` and its companions."""
    folder = tmp_path / "copy"
    for name in ("tiny", "tiny_decode", "tiny_classify"):
        # A real Triton that ran these models before has left bytecode in them.
        shutil.copytree(models / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    return folder


def test_what_headrace_writes_has_no_findings(tiny):
    assert lint(tiny, gpus=0) == []
    assert status([]) == 0


@pytest.mark.parametrize("name", BROKEN)
def test_broken_models(tiny, name):
    broken = BROKEN[name]
    broken.edit(tiny)
    findings = [finding for finding in lint(tiny, gpus=0) if finding.model == broken.model]
    assert broken.code in {finding.code for finding in findings}, findings
    severities = {finding.severity for finding in findings}
    assert ("error" in severities) == broken.refused, findings
    assert status(findings) == (1 if "warning" in severities else 0) + (2 if "error" in severities else 0)


def test_every_code_has_an_example():
    assert {broken.code for broken in BROKEN.values()} | {"TR007"} == set(CODES)


def test_bytecode_is_told_from_code_that_someone_wrote(tiny):
    """Triton leaves it, and would run what anybody else left there: the way out is to delete it, not to package again."""
    py_compile.compile(str(tiny / "tiny_decode" / "1" / "model.py"), doraise=True)
    (finding,) = lint(tiny, gpus=0)
    assert (finding.code, finding.model) == ("TR019", "tiny_decode")
    assert finding.where.startswith("1/__pycache__/model.")
    assert "delete it" in finding.message
    shutil.rmtree(tiny / "tiny_decode" / "1" / "__pycache__")
    assert lint(tiny, gpus=0) == []


def test_gpus_of_another_machine(tiny):
    path = tiny / "tiny" / "config.pbtxt"
    path.write_text(path.read_text().replace("count: 1", "count: 1 kind: KIND_GPU gpus: 1"))
    assert [finding.code for finding in lint(tiny, gpus=1)] == ["TR013"]
    assert lint(tiny, gpus=2) == []


def test_a_misspelt_field_is_guessed(tiny):
    BROKEN["unknown key"].edit(tiny)
    (finding,) = (finding for finding in lint(tiny, gpus=0) if finding.code == "TR001")
    assert finding.where == "config.pbtxt:2"
    assert "did you mean 'max_batch_size'?" in finding.message


def test_a_nested_misspelt_field_is_guessed(tiny):
    path = tiny / "tiny" / "config.pbtxt"
    path.write_text(path.read_text().replace("max_queue_delay_microseconds", "max_queue_delay_microsecond"))
    (finding,) = (finding for finding in lint(tiny, gpus=0) if finding.model == "tiny")
    assert "did you mean 'max_queue_delay_microseconds'?" in finding.message


def test_scalars_and_sizes_that_vary_are_fine(tiny):
    """A config may leave open what the graph fixes; `dims: 1 reshape { }` is one number per row."""
    path = tiny / "tiny" / "config.pbtxt"
    message = text_format.Parse(path.read_text(), schema.ModelConfig())
    message.input[0].dims[1] = -1
    message.output[0].label_filename = ""
    path.write_text(text_format.MessageToString(message))
    assert lint(tiny, gpus=0) == []


def test_folders_that_hold_no_models(tmp_path):
    with pytest.raises(ArtifactError, match="not a folder"):
        lint(tmp_path / "nope")
    with pytest.raises(ArtifactError, match="holds no models"):
        lint(tmp_path)


def test_command(tiny):
    run = CliRunner().invoke
    good = run(app, ["triton", "lint", str(tiny), "--gpus", "0"])
    assert good.exit_code == 0, good.output
    BROKEN["fewer labels than classes"].edit(tiny)
    assert run(app, ["triton", "lint", str(tiny), "--gpus", "0"]).exit_code == 1
    BROKEN["a dim of zero"].edit(tiny)
    answer = run(app, ["triton", "lint", str(tiny), "--gpus", "0", "--format", "json"])
    assert answer.exit_code == 3
    findings = json.loads(answer.stdout)["findings"]
    assert {"TR008", "TR012"} <= {finding["code"] for finding in findings}
    assert all(set(finding) == {"code", "title", "severity", "model", "where", "message"} for finding in findings)
    text = run(app, ["triton", "lint", str(tiny), "--gpus", "0"]).stdout
    assert "tiny: error TR008 input[0].dims: 0 is no size" in text
    assert run(app, ["triton", "lint", str(tiny), "--format", "xml"]).exit_code == 2
