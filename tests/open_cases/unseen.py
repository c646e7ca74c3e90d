"""Public repositories that nobody here had seen, through `headrace migrate REPO --out OUT` without any other option.

    python tests/open_cases/unseen.py --cases DIR [CASE ...] [--again] [--out docs/unseen]

`unseen.json` says by which rule they were chosen, before anybody looked into one, and at which commits; DIR holds a checkout of
each in a folder named owner+name. Every run is a process of its own with a time limit. Cases that stand in the results are left
out, so a run that was stopped goes on; `--again` runs them anew.

Hardly any copy has its weights, so where `by_hand.json` says how a person builds the model, `by_hand.py` does so first,
OUTSIDE of the sandbox, and leaves weights: they are given with `--checkpoint`, in place of any `--random-weights`, and the
package is compared with that model. A package whose outputs differ is a false claim: it is shouted, and the status is 1.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from by_hand import alternatives, why_none

HERE = Path(__file__).parent
SECONDS = 900
RANDOM = "--random-weights"
COLUMNS = ("repository", "models", "weights", "executed", "on", "parity", "by hand", "served", "seconds", "what it says")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("names", nargs="*", metavar="CASE")
    parser.add_argument("--cases", type=Path, default=Path("build/unseen"), help="folder with the checked-out repositories")
    parser.add_argument("--out", type=Path, default=HERE.parents[1] / "docs" / "unseen", help="without a suffix")
    parser.add_argument("--again", action="store_true", help="run those too that stand in the results")
    parser.add_argument("--page", action="store_true", help="write the page anew also where nothing was run")
    parser.add_argument("--seconds", type=int, default=SECONDS, help="for one run; more on a machine that does other work")
    parser.add_argument("--options", default="", help="more options for headrace migrate, in one string; the results say so")
    arguments = parser.parse_args()
    chosen = json.loads((HERE / "unseen.json").read_text(encoding="utf-8"))
    kept = arguments.out.with_suffix(".json")
    results: dict[str, Any] = json.loads(kept.read_text(encoding="utf-8")) if kept.exists() else {}
    for case in chosen["repositories"]:
        name = case["repository"]
        root = arguments.cases / name.replace("/", "+")
        if (arguments.names and name not in arguments.names) or not root.is_dir() or (name in results and not arguments.again):
            continue
        results[name] = by_hand(name, root, arguments.options.split(), arguments.seconds)
        print(f"{name}: {json.dumps(results[name])}", flush=True)
        kept.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
        arguments.out.with_suffix(".md").write_text(page(chosen, results), encoding="utf-8")
    if arguments.page:
        arguments.out.with_suffix(".md").write_text(page(chosen, results), encoding="utf-8")
    if false := [name for name, found in results.items() if _outputs(found).startswith("differs")]:
        sys.exit(f"FALSE CLAIM: what is packaged is not the model that a person builds: {', '.join(false)}")


def by_hand(name: str, root: Path, options: list[str], seconds: int) -> dict[str, Any]:
    """One repository with the weights of a model built by hand; of several right ones, that which is packaged.

    One that differs may be another that the same weights fit, so the others are tried too.
    """
    tried, reason = [], why_none(name)
    for which, entry in enumerate(alternatives(name)):
        with tempfile.TemporaryDirectory(prefix="headrace-hand-", ignore_cleanup_errors=True) as folder:
            made = _by_hand("make", str(root.absolute()), name, folder, "--which", str(which))
            if made.returncode:
                reason = _last(made.stderr)
                continue
            weights = [] if entry.get("own") else ["--checkpoint", f"{folder}/weights.pth"]
            tried.append(run(root, [*(option for option in options if option != RANDOM), *weights], seconds, folder))
        if _outputs(tried[-1]).startswith("same"):
            break
    if not tried:
        return {**run(root, options, seconds), "hand": {"outputs": f"not checked: {reason}"}}
    return min(tried, key=lambda found: ("same", "diff", "not ").index(_outputs(found)[:4]))


def _by_hand(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(HERE / "by_hand.py"), *arguments]
    try:
        return subprocess.run(command, check=False, capture_output=True, text=True, timeout=SECONDS, stdin=subprocess.DEVNULL)
    except subprocess.TimeoutExpired:
        return subprocess.CompletedProcess(command, 1, "", f"by_hand.py {arguments[0]} stopped after {SECONDS} s")


def _checked(packages: list[str], folder: str) -> dict[str, str]:
    """How the packages agree with the model built by hand: the one that does, else the first."""
    if not packages:
        return {"outputs": "not checked: nothing is packaged"}
    answers = []
    for package in packages:
        done = _by_hand("check", package, folder)
        answers.append({"outputs": f"not checked: {_last(done.stderr)}"} if done.returncode else json.loads(done.stdout))
    return next((answer for answer in answers if answer["outputs"].startswith("same")), answers[0])


def _outputs(found: dict[str, Any]) -> str:
    return str(found.get("hand", {}).get("outputs", "not checked: a run from before there was a check"))


def _last(text: str) -> str:
    return next((line.strip()[:200] for line in reversed(text.splitlines()) if line.strip()), "no word")


def run(root: Path, options: list[str], seconds: int, hand: str | None = None) -> dict[str, Any]:
    """What became of one repository: the report's own words, the command's status and its seconds.

    `hand` is the folder of the model that a person builds, with which packages are compared.
    """
    started = time.monotonic()
    found: dict[str, Any] = {"status": None, "seconds": seconds, "options": [item.replace(f"{hand}/", "") for item in options]}
    found["hand"] = {"outputs": "not checked: nothing is packaged"}
    with tempfile.TemporaryDirectory(prefix="headrace-unseen-", ignore_cleanup_errors=True) as scratch:
        command = [
            sys.executable,
            "-m",
            "headrace",
            "migrate",
            str(root),
            "--out",
            f"{scratch}/out",
            "--format",
            "json",
            *options,
        ]
        try:
            done = subprocess.run(
                command, check=False, capture_output=True, text=True, timeout=seconds, stdin=subprocess.DEVNULL
            )
        except subprocess.TimeoutExpired:
            return {**found, "error": f"stopped after {seconds} s"}
        found |= {"status": done.returncode, "seconds": round(time.monotonic() - started)}
        try:
            report = json.loads(done.stdout.replace(f"{hand}/", "") if hand else done.stdout)
        except ValueError:
            lines = [line.strip() for line in done.stderr.splitlines() if line.strip()]
            return {**found, "error": " ".join(lines[-3:]).replace(str(root), ".")[:400]}
        if hand:
            found["hand"] = _checked(
                [f"{scratch}/out/{model['artifact']}" for model in report["models"] if model["artifact"]], hand
            )
    models = [model for model in report["models"] if model["built"] or model["artifact"]]
    why = [f"{script['path']}: {script['why']}" for script in report["scripts"] if script["why"]]
    # Of scripts that no rule touched, and where there are none.
    unseen = [item["message"] for item in report["findings"] if item["code"] in ("PS408", "PS516")]
    checkpoints = report["checkpoints"]
    return {
        **found,
        "models": [model["name"] for model in models],
        "weights": any(item["loaded"] for item in checkpoints) if checkpoints else None,
        "executed": [item["path"] for item in report["scripts"] if item["executed"] == "passed" and not item.get("up_to")],
        "partly": [item["up_to"] for item in report["scripts"] if item["executed"] == "passed" and item.get("up_to")],
        "failed": [script["path"] for script in report["scripts"] if script["executed"] == "failed"],
        "on": next((script["executed_on"] for script in report["scripts"] if script.get("executed_on")), None),
        "parity": [model["parity"]["status"] for model in models],
        "served": sum(bool(model["served"]) for model in models),
        "why": (why or unseen)[:4],
        "errors": [f"{item['code']} {item['message']}"[:300] for item in report["findings"] if item["severity"] == "error"][:4],
    }


def page(chosen: dict[str, Any], results: dict[str, Any]) -> str:
    """The rounds in which the repositories were chosen, and the table."""
    lines = ["# Repositories that nobody had seen", ""]
    lines += ["    python tests/open_cases/unseen.py --cases DIR", "", "Chosen in rounds:", ""]
    for number, one in enumerate(chosen["rounds"], start=1):
        lines += [f"{number}. **{one['date']}, {one['repositories']} repositories**, {one['committed']}."]
        parts = (("Rule", "rule"), ("Left out", "left_out"), ("Outcome", "outcome"))
        lines += [f"    - *{name}*: {one[key]}" for name, key in parts]
    lines += [
        "",
        "By hand: whether the package agrees with the model that a person builds from the sources, given the same weights.",
        "",
    ]
    lines += [f"| {' | '.join(COLUMNS)} |", f"|{'---|' * len(COLUMNS)}"]
    for case in chosen["repositories"]:
        if case["repository"] in results:
            lines.append(f"| {' | '.join(_cells(case['repository'], results[case['repository']]))} |")
    return "\n".join(lines) + "\n"


def _cells(name: str, found: dict[str, Any]) -> list[str]:
    hand = "; ".join(f"{part} {text}" for part, text in found.get("hand", {}).items())
    said = found.get("error") or "; ".join([*found.get("errors", []), *found.get("why", [])][:2])
    executed = f"{len(found.get('executed', []))} passed, {len(found.get('failed', []))} failed"
    executed += f", {len(found['partly'])} up to an error" if found.get("partly") else ""
    weights = {True: "loaded", False: "not here", None: "-"}[found.get("weights")]
    return [
        name, ", ".join(found.get("models", [])) or "-", weights, executed, found.get("on") or "-",
        ", ".join(found.get("parity", [])) or "-", hand or "-", str(found.get("served", 0)), str(found["seconds"]),
        said.replace("|", "\\|").replace("\n", " ")[:160] or "-",
    ]  # fmt: skip


if __name__ == "__main__":
    main()
