"""The SARIF form is valid, points at the right characters, and its fixes make of a file what the migration makes of it."""

from __future__ import annotations

import json
from pathlib import Path
from urllib.parse import unquote

import jsonschema
import pytest

import headrace
from headrace.migrate.reading.finding import Finding
from headrace.migrate.reporting.report import Report
from headrace.migrate.reporting.sarif import to_sarif

# The part of the SARIF 2.1.0 schema that the report uses, with the standard's section numbers. Closed objects: what is not
# listed here must not appear.
LINE = {"type": "integer", "minimum": 1}


def closed(required: list[str], **properties: object) -> dict[str, object]:
    return {"type": "object", "required": required, "properties": properties, "additionalProperties": False}


def several(item: object, **more: object) -> dict[str, object]:
    return {"type": "array", "items": item, **more}


TEXT = closed(["text"], text={"type": "string", "minLength": 1}, markdown={"type": "string"})  # 3.11, 3.12
REGION = closed(["startLine"], startLine=LINE, startColumn=LINE, endLine=LINE, endColumn=LINE)  # 3.30
ARTIFACT = closed(  # 3.4
    ["uri", "uriBaseId"], uri={"type": "string", "pattern": r"^[A-Za-z0-9%/._~-]+$"}, uriBaseId={"const": "REPOSITORY"}
)
FIX = closed(  # 3.55 to 3.57
    ["artifactChanges"],
    description=TEXT,
    artifactChanges=several(
        closed(
            ["artifactLocation", "replacements"],
            artifactLocation=ARTIFACT,
            replacements=several(
                closed(["deletedRegion"], deletedRegion=REGION, insertedContent=closed([], text={"type": "string"})), minItems=1
            ),
        ),
        minItems=1,
    ),
)
RESULT = closed(  # 3.27
    ["message", "ruleId"],
    ruleId={"type": "string"},
    ruleIndex={"type": "integer", "minimum": 0},
    level={"enum": ["none", "note", "warning", "error"]},
    message=TEXT,
    locations=several(
        closed(["physicalLocation"], physicalLocation=closed(["artifactLocation"], artifactLocation=ARTIFACT, region=REGION))
    ),
    fixes=several(FIX, uniqueItems=True),
    properties={"type": "object"},
)
RULE = closed(  # 3.49
    ["id"],
    id={"type": "string"},
    name={"type": "string"},
    shortDescription=TEXT,
    fullDescription=TEXT,
    help=TEXT,
    properties={"type": "object"},
)
RUN = closed(  # 3.14
    ["tool", "results"],
    tool=closed(
        ["driver"], driver=closed(["name"], name={"const": "headrace"}, version={"type": "string"}, rules=several(RULE))
    ),
    columnKind={"enum": ["utf16CodeUnits", "unicodeCodePoints"]},
    originalUriBaseIds={
        "type": "object",
        "additionalProperties": closed([], uri={"type": "string", "pattern": "^file:///.*/$"}),
    },
    invocations=several(closed(["executionSuccessful"], executionSuccessful={"type": "boolean"}, exitCode={"type": "integer"})),
    results=several(RESULT),
    properties={"type": "object"},
)
SCHEMA = closed(["version", "runs"], **{"$schema": {"type": "string"}, "version": {"const": "2.1.0"}, "runs": several(RUN)})

SOURCE = """\
import torch
from net import Net

model = Net()
model.eval()
loader = [(torch.rand(2, 3, 4, 4), torch.zeros(2))]
for images, labels in loader:
    names = "é中𝒳"; outputs = model(images)
"""
NET = """\
from torch import nn


class Net(nn.Module):
    def __init__(self, num_classes=5):
        super().__init__()
        self.fc = nn.Linear(3, num_classes)

    def forward(self, x):
        return self.fc(x.mean((2, 3)))
"""


@pytest.fixture
def report(tmp_path: Path) -> Report:
    root = tmp_path / "a repository #1"
    root.mkdir()
    (root / "é valuate.py").write_text(SOURCE, encoding="utf-8")
    (root / "net.py").write_text(NET)
    (root / "broken.py").write_text("def f(:\n")
    return headrace.migrate(root, check=True)


def valid(report: Report) -> dict:
    document = json.loads(json.dumps(to_sarif(report)))
    jsonschema.Draft202012Validator(SCHEMA).validate(document)
    (run,) = document["runs"]
    for result in run["results"]:
        assert run["tool"]["driver"]["rules"][result["ruleIndex"]]["id"] == result["ruleId"]
    return run


def test_it_is_valid_with_a_place_a_level_and_help_for_every_finding(report: Report) -> None:
    run = valid(report)
    assert len(run["results"]) == len(report.findings)
    by_code = {result["ruleId"]: result for result in run["results"]}
    assert by_code["PS001"]["level"] == "error"
    assert not run["invocations"][0]["executionSuccessful"]
    assert {rule["id"]: rule["help"]["text"] for rule in run["tool"]["driver"]["rules"]}["PS201"].startswith("What it does: ")
    (location,) = by_code["PS201"]["locations"]
    assert location["physicalLocation"]["artifactLocation"]["uri"] == "%C3%A9%20valuate.py"
    region = location["physicalLocation"]["region"]
    line = SOURCE.splitlines()[region["startLine"] - 1]
    assert line[region["startColumn"] - 1 :].startswith("model(images)"), "columns are code points, counted from 1"
    assert run["originalUriBaseIds"]["REPOSITORY"]["uri"].endswith("/a%20repository%20%231/")


def test_columns_are_characters_whichever_stage_found_them(tmp_path: Path) -> None:
    """A rewrite, a repair of a file that parses, and a repair of one that does not; in JSON from 0, in SARIF from 1."""
    repaired = SOURCE + 'é = "中𝒳"; total = xrange(3)\n'
    python_2 = 'import torch\nif True: é = "中𝒳"; print é\n'
    for name, text in {"a.py": repaired, "b.py": python_2, "net.py": NET}.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    report = headrace.migrate(tmp_path, check=True)
    for code, text, start in (
        ("PS201", repaired, "model(images)"), ("PS109", repaired, "xrange"), ("PS102", python_2, "print é")
    ):  # fmt: skip
        (stated,) = [item for item in report.to_json()["findings"] if item["code"] == code]
        assert text.splitlines()[stated["line"] - 1][stated["column"] :].startswith(start), code
        (result,) = [item for item in valid(report)["results"] if item["ruleId"] == code]
        region = result["locations"][0]["physicalLocation"]["region"]
        assert (region["startLine"], region["startColumn"]) == (stated["line"], stated["column"] + 1), code


def test_its_fixes_make_the_migrated_file(report: Report) -> None:
    (result,) = [result for result in valid(report)["results"] if result["ruleId"] == "PS201"]
    ((change,),) = [fix["artifactChanges"] for fix in result["fixes"]]
    assert unquote(change["artifactLocation"]["uri"]) == "é valuate.py"
    lines = SOURCE.splitlines(keepends=True)
    starts = [sum(map(len, lines[:number])) for number in range(len(lines) + 1)]
    text = SOURCE
    spans = []
    for replacement in change["replacements"]:
        region = replacement["deletedRegion"]
        span = [starts[region[f"{side}Line"] - 1] + region[f"{side}Column"] - 1 for side in ("start", "end")]
        spans.append((*span, replacement["insertedContent"]["text"]))
    for start, end, inserted in sorted(spans, reverse=True):
        text = text[:start] + inserted + text[end:]
    (changed,) = [change for change in report.changes if change.changed]
    assert text == changed.after.decode()


def test_findings_of_other_stages_and_strange_paths_are_valid_too() -> None:
    report = Report(repository="/r")
    report.findings = [
        Finding("", 1, 0, "PS507", "of the repository as a whole", "note"),
        Finding("a b/\udce9.py", 0, -1, "XX999", "", "warning"),
        Finding("new\nline<script>.py", 3, 4, "PG120", "an obstacle", "error"),
    ]
    run = valid(report)
    assert "locations" not in next(result for result in run["results"] if result["ruleId"] == "PS507")
