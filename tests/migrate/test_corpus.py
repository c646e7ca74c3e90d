"""Forty small repositories, one way of writing each: what is found in them, the exact diff, and the model that gets built."""

from __future__ import annotations

import ast
import importlib.util
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from headrace.errors import AmbiguousError, MigrateError
from headrace.migrate.reading.facts import Survey
from headrace.migrate.resolving.resolve import resolve
from headrace.migrate.resolving.resolved import Resolved
from headrace.migrate.rewriting.rewrite import rewrite, unified_diff
from headrace.migrate.rewriting.rule import all_rules
from headrace.migrate.survey.survey import survey
from tests.warm_python import WarmPython

CORPUS = Path(__file__).parent / "corpus"
CASES = sorted(path.parent.name for path in CORPUS.glob("*/case.json"))
BUILDER = Path(__file__).parent / "build_corpus.py"


@pytest.fixture(params=CASES)
def case(request: pytest.FixtureRequest) -> str:
    return request.param


def case_of(name: str) -> dict[str, Any]:
    return json.loads((CORPUS / name / "case.json").read_text())


def expected(name: str) -> dict[str, Any]:
    return json.loads((CORPUS / name / "expected.json").read_text())


def resolved_of(name: str, surveyed: Survey) -> Resolved | MigrateError:
    try:
        return resolve(surveyed, **case_of(name).get("arguments", {}))
    except MigrateError as error:
        return error


def found_in(surveyed: Survey, rules: list[str], outcome: Resolved | MigrateError) -> dict[str, Any]:
    """What the migrator states about one repository, in the form of expected.json."""
    remarks = [finding for change in rewrite(surveyed, select=rules) for finding in change.findings]
    if isinstance(outcome, Resolved):
        model: dict[str, Any] = {
            "name": outcome.name,
            "factory": outcome.factory,
            "argv": list(outcome.recipe.argv),
            "checkpoints": [site.path for site in outcome.checkpoints],
            "transform": outcome.transform_recipe.source_at if outcome.transform_recipe else None,
            "class_names": list(outcome.class_names) if outcome.class_names else None,
        }
    else:
        model = {"error": type(outcome).__name__}
        if isinstance(outcome, AmbiguousError):
            model |= {"flag": outcome.flag, "candidates": list(outcome.candidates)}
    return {
        "rules": rules,
        "factories": [f"{item.path}:{item.line} {item.kind} {item.name}" for item in surveyed.factories],
        "scripts": [f"{item.path} {'+'.join(item.roles)}" for item in surveyed.scripts],
        "calls": [
            f"{item.path}:{item.call_line} {item.kind} {item.outputs} = {item.model}({item.inputs}), targets {item.targets}"
            for item in surveyed.loops
        ],
        "checkpoints": [
            f"{item.path}:{item.line} {item.expression} key={item.key} strip={item.strip}" for item in surveyed.checkpoints
        ],
        "unreadable": [f"{item.path}:{item.line} {item.code}" for item in surveyed.errors],
        "remarks": [f"{item.path}:{item.line}:{item.column} {item.code} {item.fix}" for item in sorted(remarks)],
        "model": model,
    }


def test_says_what_is_expected(case: str, request: pytest.FixtureRequest) -> None:
    folder = CORPUS / case
    surveyed = survey(folder / "repository")
    update = request.config.getoption("--update-goldens")
    rules = [rule.code for rule in all_rules()] if update else expected(case)["rules"]
    outcome = resolved_of(case, surveyed)
    found, diff = found_in(surveyed, rules, outcome), unified_diff(rewrite(surveyed, select=rules))
    if update:
        (folder / "expected.json").write_text(json.dumps(found, indent=1, ensure_ascii=False) + "\n")
        (folder / "expected.diff").write_text(diff, newline="")
    assert found == expected(case)
    assert diff == (folder / "expected.diff").read_bytes().decode()


@pytest.mark.parametrize("unsafe", [False, True])
def test_every_rule_keeps_the_laws(case: str, unsafe: bool, tmp_path: Path) -> None:
    """All rules there are: what they write parses, is what the diff says, and a second run changes nothing."""
    root = shutil.copytree(CORPUS / case / "repository", tmp_path / "repository")
    changes = [change for change in rewrite(survey(root), unsafe=unsafe) if change.changed]
    for change in changes:
        assert change.before == (root / change.path).read_bytes()
        ast.parse(change.after)
        (root / change.path).write_bytes(change.after)
    assert unified_diff(rewrite(survey(root), unsafe=unsafe)) == ""


@pytest.fixture(scope="module")
def built(once: Callable[..., Any], warm_torch: WarmPython) -> dict[str, dict[str, Any]]:
    """Every recipe built, each in a process of its own that starts with torch imported."""
    return once("corpus-built", lambda folder: _built(folder, warm_torch))


def _built(folder: Path, warm_torch: WarmPython) -> dict[str, dict[str, Any]]:
    work: list[dict[str, Any]] = []
    for name in CASES:
        needed = case_of(name)
        outcome = resolved_of(name, survey(CORPUS / name / "repository"))
        if isinstance(outcome, Resolved) and all(importlib.util.find_spec(item) for item in needed.get("needs", [])):
            recipe = outcome.fallback_recipe or outcome.recipe
            work.append({"name": name, "recipe": recipe.to_json(), "input": needed.get("input", [3, 32, 32])})
    done = warm_torch.python([BUILDER], cwd=folder, stdin=json.dumps(work))
    assert done.returncode == 0, done.stderr
    return {answer["name"]: answer for answer in map(json.loads, done.stdout.splitlines())}


def test_the_model_is_built(case: str, built: dict[str, dict[str, Any]], request: pytest.FixtureRequest) -> None:
    needed = case_of(case)
    if "wrong" in needed:
        request.applymarker(pytest.mark.xfail(strict=True, reason=needed["wrong"]))
    missing = [name for name in needed.get("needs", []) if importlib.util.find_spec(name) is None]
    if missing:
        pytest.skip(f"needs {', '.join(missing)}, which is not installed")
    if needed.get("classes") is None:
        assert "error" in expected(case)["model"], "a model that is resolved is built: case.json says how many classes it has"
        return
    assert built[case].get("error") is None
    assert built[case]["classes"] == needed["classes"]
