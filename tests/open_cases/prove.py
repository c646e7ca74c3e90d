"""Build models and capture them, each in a process of its own: `python prove.py REQUEST.json`, always inside the sandbox.

Request: {"jobs": [{"name", "recipes": [recipe, ...], "rows": [[C, H, W], ...]}], "seconds": per job, "out": "answers.jsonl"}.
A job's first recipe that builds and first row that runs count. Its weights and batch-norm statistics are drawn anew, and
`capture` compares the graph with the module at several batch sizes. One JSON line per job goes to "out":
{"name", "built", "captured", "input", "classes", "output", "batches", "recipe": index, "why"}. torch and what repositories
import most is loaded once; every job is a fork.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import json
import multiprocessing
import sys
from pathlib import Path
from typing import Any

import torch

from headrace.errors import HeadraceError
from headrace.migrate.worker.inspection import inspect_model
from headrace.migrate.worker.recipe import Recipe, build_model
from headrace.runtime.capture.capture import capture
from headrace.runtime.tuning.randomize import noise, settled

PRELOADED = ("torchvision", "timm", "torch._export", "torch._dynamo", "sympy")


def main() -> None:
    request = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    torch.set_num_threads(2)
    for name in PRELOADED:
        with contextlib.suppress(ImportError, RuntimeError):  # a CUDA build of torchvision beside CPU torch
            importlib.import_module(name)
    gc.freeze()
    fork = multiprocessing.get_context("fork")
    for job in request["jobs"]:
        ours, theirs = fork.Pipe(duplex=False)
        process = fork.Process(target=_child, args=(job, theirs))
        process.start()
        theirs.close()
        answer: dict[str, Any] = {"built": False, "captured": False, "why": f"no answer within {request['seconds']:.0f} s"}
        if ours.poll(request["seconds"]):
            try:
                answer = ours.recv()
            except EOFError:
                answer["why"] = "its process ended without an answer"
        process.kill()
        process.join()
        with Path(request["out"]).open("a", encoding="utf-8") as file:
            file.write(json.dumps({"name": job["name"], **answer}) + "\n")


def _child(job: dict[str, Any], pipe: Any) -> None:
    pipe.send(prove(job))
    pipe.close()


def prove(job: dict[str, Any]) -> dict[str, Any]:
    """Build, run, randomize, capture. Whatever the user's code raises is the answer's "why"."""
    why: list[str] = []
    for index, recipe in enumerate(job["recipes"]):
        for row in job["rows"] or [None]:
            answer: dict[str, Any] = {"built": False, "captured": False, "recipe": index}
            try:
                model = build_model(Recipe.from_json(recipe))
                answer |= {"built": True}
                found = inspect_model(model, Path(recipe["root"]), size=row)
                answer |= {
                    "input": found.input or found.candidates[0],
                    "classes": found.classes,
                    "output": found.output,
                }
                example = noise((2, *answer["input"]))
                captured = capture(settled(model, [example]), example)
                return {**answer, "captured": True, "batches": list(captured.batches), "why": None}
            except (Exception, SystemExit) as error:  # noqa: BLE001 - every outcome is an answer
                text = str(error).strip() or type(error).__name__
                why.append(text if isinstance(error, HeadraceError) else f"{type(error).__name__}: {text}")
                if answer.get("input"):  # it builds and runs: another recipe would not capture either
                    return {**answer, "why": why[-1]}
            if not answer["built"]:
                break
    return {**answer, "why": why[-1] if answer["built"] else why[0]}


if __name__ == "__main__":
    main()
