"""The open cases: ten public repositories through survey, rewrite, resolve, transform, capture and parity, into a table.

    python tests/open_cases/run.py --cases DIR [CASE ...] [--out docs/migration-scores]

DIR holds a checkout of each repository of `cases.json`, in a folder named by its id, at the commit stated there (`--list`
prints the git commands); absent ones are skipped, and a run of some cases keeps the others' rows. The user's code runs in the
migrator's sandbox only. Weights are drawn anew, so this proves graphs, not accuracies.
"""

from __future__ import annotations

import argparse
import ast
import json
import shutil
import tempfile
from pathlib import Path
from typing import Any

import table

from headrace.errors import HeadraceError
from headrace.migrate.proving.confined_run import GIBIBYTE, Limits
from headrace.migrate.proving.sandbox import Sandbox
from headrace.migrate.proving.trace_transform import row_shape, trace
from headrace.migrate.reading.arguments import read_options
from headrace.migrate.reading.facts import Survey
from headrace.migrate.reading.recipe import TransformRecipe
from headrace.migrate.resolving.resolve import resolve
from headrace.migrate.resolving.resolved import Resolved
from headrace.migrate.rewriting.rewrite import rewrite
from headrace.migrate.rewriting.rule import all_rules
from headrace.migrate.survey.survey import project_index, survey

HERE = Path(__file__).parent
SECONDS = 900.0
GRAPH_MODE = ("PS2", "PS3")  # rules that bring headrace's graphs into scripts


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("names", nargs="*", metavar="CASE")
    parser.add_argument("--cases", type=Path, default=Path("build/open-cases"), help="folder with the checked-out repositories")
    parser.add_argument("--out", type=Path, default=HERE.parents[1] / "docs" / "migration-scores", help="without a suffix")
    parser.add_argument("--models", type=int, default=1000, help="at most so many models per case, evenly spread")
    parser.add_argument("--static", action="store_true", help="only what needs no model built; the other columns are kept")
    parser.add_argument("--list", action="store_true", help="print how to check the repositories out")
    arguments = parser.parse_args()
    cases = json.loads((HERE / "cases.json").read_text(encoding="utf-8"))
    if arguments.list:
        for case in cases:
            print(f"git clone https://github.com/{case['repository']} {arguments.cases / case['id']}")
            print(f"git -C {arguments.cases / case['id']} checkout {case['commit']}")
        return
    unknown = set(arguments.names) - {case["id"] for case in cases}
    if unknown:
        parser.error(f"no such case: {', '.join(sorted(unknown))}; there are {', '.join(case['id'] for case in cases)}")
    kept = arguments.out.with_suffix(".json")
    results = json.loads(kept.read_text(encoding="utf-8")) if kept.exists() else {}
    for case in cases:
        root = arguments.cases / case["id"]
        if arguments.names and case["id"] not in arguments.names:
            continue
        if not root.is_dir():
            print(f"{case['id']}: {root} is not there; skipped")
            continue
        kept_columns = results.get(case["id"], {})
        judged = judge(case, root, 0 if arguments.static else arguments.models)
        if arguments.static:
            judged["scores"] = {**kept_columns.get("scores", {}), **judged["scores"]}
        results[case["id"]] = {**kept_columns, **judged}
        print(table.line(case, results[case["id"]]), flush=True)
        results = {item["id"]: results[item["id"]] for item in cases if item["id"] in results}
        kept.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
        arguments.out.with_suffix(".md").write_text(table.page(cases, results), encoding="utf-8")


def judge(case: dict[str, Any], root: Path, most: int) -> dict[str, Any]:
    """The case's scores: each a pair (achieved, of how many), with the reasons for what is missing; no models for `most` 0."""
    try:
        surveyed = survey(root)
    except HeadraceError as error:
        return {"scores": {}, "why": [str(error).replace(str(root), case["repository"])]}
    result: dict[str, Any] = {"scores": {}, "why": []}
    found = {factory.name for factory in surveyed.factories} | {f"{item.path}:{item.name}" for item in surveyed.factories}
    missing = [name for name in case["factories"] if name not in found]
    result["scores"]["recognised"] = [len(case["factories"]) - len(missing), len(case["factories"])]
    result["why"] += [f"not recognised: {name}" for name in missing]
    allowed = {*case["factories"], *case.get("may", [])}
    result["strangers"] = [f"{item.path}:{item.name}" for item in surveyed.factories
                           if not {item.name, f"{item.path}:{item.name}"} & allowed]  # fmt: skip
    result["scores"]["rewritten"] = _rewritten(case, surveyed, result["why"])
    if most == 0:
        return result
    with tempfile.TemporaryDirectory(prefix="headrace-open-", ignore_cleanup_errors=True) as scratch:
        limits = Limits(timeout=4 * 3600.0, memory_bytes=12 * GIBIBYTE)
        sandbox = Sandbox(scratch=Path(scratch), limits=limits)
        shutil.copytree(root, sandbox.tree, ignore=shutil.ignore_patterns(".git"))
        _repair(surveyed, sandbox.tree)
        _models(case, survey(sandbox.tree), sandbox, most, result)
    return result


def _rewritten(case: dict[str, Any], surveyed: Survey, why: list[str]) -> list[int]:
    """Scripts that come into graph mode, or whose functions in other files do, still parse, and take the same command line."""
    changes = {change.path: change for change in rewrite(surveyed) if change.changed}
    reached = {script.path: {script.path, *(loop.path for loop in script.loops)} for script in surveyed.scripts}
    for trainer in project_index(surveyed).trainers:
        reached.setdefault(trainer.fact.path, {trainer.fact.path}).add(trainer.owner.module.path)
    good = 0
    for path in case["scripts"]:
        graphs = {code for name in reached.get(path, {path}) if name in changes for code in changes[name].rules}
        if not any(code.startswith(GRAPH_MODE) for code in graphs):
            why.append(f"not in graph mode: {path}")
            continue
        if path not in changes:
            good += 1
            continue
        change = changes[path]
        if path.endswith(".ipynb"):
            good += 1
            continue
        before, after = (read_options(ast.walk(ast.parse(data))) if _parses(data) else None
                         for data in (change.before, change.after))  # fmt: skip
        spelled = [[option.flags for option in options or ()] for options in (before, after)]
        if after is None or (before is not None and spelled[0] != spelled[1]):
            why.append(f"{path} does not parse, or takes other options, after the rewrite")
            continue
        good += 1
    return [good, len(case["scripts"])]


def _parses(data: bytes) -> bool:
    try:
        ast.parse(data)
    except (SyntaxError, ValueError):
        return False
    return True


def _repair(surveyed: Survey, tree: Path) -> None:
    """Apply the safe repairs of rot and of models, which the migrated copy has too, and nothing of graph mode."""
    codes = [rule.code for rule in all_rules() if not rule.code.startswith(GRAPH_MODE)]
    for change in rewrite(surveyed, select=codes) if codes else ():
        (tree / change.path).write_bytes(change.after)


def _models(case: dict[str, Any], surveyed: Survey, sandbox: Sandbox, most: int, result: dict[str, Any]) -> None:
    wanted = [(build["entry"], model) for build in case["builds"] for model in build["models"]]
    every = len(wanted)
    wanted = wanted[:: max(1, -(-len(wanted) // most))]
    result["sampled"] = [len(wanted), every]
    jobs: list[dict[str, Any]] = []
    models: dict[str, dict[str, Any]] = {}
    traced: dict[TransformRecipe, dict[str, Any]] = {}
    for entry, model in wanted:
        name = " ".join(filter(None, (entry, model and f"--model {model}"))) or "default"
        try:
            resolved = resolve(surveyed, entry=entry, model=model)
        except HeadraceError as error:
            models[name] = {"built": False, "captured": False, "why": str(error).partition("\n")[0]}
            continue
        preprocessing = _preprocessing(resolved, sandbox, traced)
        rows = [resolved.input_size] if resolved.input_size else []
        rows = [tuple(row) for row in preprocessing.get("rows", [])] or rows
        recipes = [
            item.in_copy(sandbox.tree).to_json() for item in (resolved.recipe, resolved.fallback_recipe) if item is not None
        ]
        jobs.append({"name": name, "recipes": recipes, "rows": rows})
        models[name] = {"preprocessing": {key: value for key, value in preprocessing.items() if key != "rows"}}
    readable, writable = sandbox.readable_folder(), sandbox.writable_folder()
    answers = writable / "answers.jsonl"
    request = readable / "request.json"
    request.write_text(json.dumps({"jobs": jobs, "seconds": SECONDS, "out": str(answers)}), encoding="utf-8")
    done = sandbox.run([str(HERE / "prove.py"), str(request)], writable)
    for line in answers.read_text(encoding="utf-8").splitlines() if answers.exists() else ():
        answer = json.loads(line)
        models[answer.pop("name")] |= answer
    result["models"] = {name: {**item, "why": _plain(item.get("why", done.why), sandbox)} for name, item in models.items()}
    known = case.get("known", {})
    fair = {name: item for name, item in models.items() if name.partition("--model ")[2] not in known}
    captured = [item for item in fair.values() if item.get("captured")]
    result["scores"]["built"] = [sum(bool(item.get("built")) for item in fair.values()), len(fair)]
    result["scores"]["parity"] = [len(captured), sum(bool(item.get("built")) for item in fair.values())]
    steps = [item["preprocessing"] for item in models.values() if "preprocessing" in item]
    result["scores"]["preprocessing"] = [sum(not item.get("why") for item in steps), len(models)]


def _preprocessing(resolved: Resolved, sandbox: Sandbox, traced: dict[TransformRecipe, dict[str, Any]]) -> dict[str, Any]:
    """The recovered steps of one model, or why there are none; equal recipes are traced once."""
    if resolved.transform_recipe is None:
        return {"why": "no evaluation transform was found"}
    recipe = resolved.transform_recipe.in_copy(sandbox.tree)
    if recipe not in traced:
        found = trace(recipe, sandbox)
        rows = [row for candidate in found.candidates if (row := row_shape(candidate)) is not None]
        traced[recipe] = {"source": recipe.source_at, "rows": rows}
        if found.candidates:
            traced[recipe]["steps"] = found.candidates[0].to_json()["steps"]
        else:
            traced[recipe]["why"] = _plain(found.why, sandbox)
    return traced[recipe]


def _plain(text: str | None, sandbox: Sandbox) -> str | None:
    return table.without_paths(text.replace(f"{sandbox.tree}/", "").replace(str(sandbox.tree), "."))[:400] if text else None


if __name__ == "__main__":
    main()
