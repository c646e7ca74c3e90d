"""The different models that one script uses: which there are, and which of them is the one that the script is about."""

from __future__ import annotations

import ast
import re

from ..reading.calls import SliceError
from ..survey.survey import ProjectIndex
from .construction import Construction, construct, rank_sites

_COPY = re.compile(r"(^|[._])(ema|avg|averaged|shadow|swa|momentum)([._]|$)", re.I)
"""Names of running averages of another model."""
_TEACHER = re.compile(r"teacher", re.I)


def different_models(known: ProjectIndex, chosen: Construction) -> list[Construction]:
    """`chosen` and the constructions of other models that its script calls for the same purpose; it alone where they are parts,
    copies or wrapped forms of one model, or where the script trains one of them with the help of the others.

    Only what is known to differ counts: other constructors, or other literal arguments.
    """
    found = [chosen]
    kind = chosen.site.fact.kind
    sites = [site for site in rank_sites(known, chosen.script) if site.fact.kind == kind]
    fed = {site.fact.outputs for site in sites}
    for site in sites:
        if site.fact.model == chosen.site.fact.model or _mentions(site.fact.inputs, fed) or _COPY.search(site.fact.model):
            continue  # by another name only; and what takes another model's output is a part
        try:
            other = construct(known, chosen.script, site=site)
        except SliceError:
            continue
        if all(_differ(item, other) for item in found):
            found.append(other)
    if len(found) == 1 or any(_mentions(chosen.site.fact.inputs, {item.site.fact.outputs}) for item in found[1:]):
        return [chosen]
    return _trained(known, found)


def _trained(known: ProjectIndex, found: list[Construction]) -> list[Construction]:
    """The only one whose parameters an optimizer gets, or that learns from a teacher, where the script trains; else all."""
    script = found[0].script
    if "train" not in script.roles:
        return found
    paths = {script.path, *(site.fact.path for site in rank_sites(known, script))}
    text = "\n".join(known.repository.modules[path].file.text or "" for path in paths)
    optimized = [item for item in found if re.search(rf"(?<![\w.]){re.escape(item.site.fact.model)}\.parameters\(\)", text)]
    taught = [item for item in found if not _TEACHER.search(item.site.fact.model)]
    for fewer in (optimized, taught):
        if len(fewer) == 1:
            return fewer
    return found


def stated(construction: Construction) -> str:
    """How a model is made, for a message: "Net(16)"."""
    return ", ".join(ast.unparse(call) for call in construction.calls)


def _mentions(text: str, names: set[str | None]) -> bool:
    call = ast.parse(f"_({text})", mode="eval")  # an argument, which may be `*images`
    return any(ast.unparse(node) in names for node in ast.walk(call) if isinstance(node, ast.expr))


def _differ(one: Construction, other: Construction) -> bool:
    first, second = ({ast.unparse(call.func) for call in item.calls} for item in (one, other))
    if not first or not second:
        return False
    if first != second:
        return not (first <= second or second <= first)
    return any(_otherwise(a, b) for a, b in zip(one.calls, other.calls, strict=False))


def _otherwise(one: ast.Call, other: ast.Call) -> bool:
    """Whether two calls of the same constructor surely ask for different things."""
    pairs = list(zip(one.args, other.args, strict=False))
    named = {keyword.arg: keyword.value for keyword in other.keywords}
    pairs += [(keyword.value, named[keyword.arg]) for keyword in one.keywords if keyword.arg in named]
    return any(
        isinstance(a, ast.Constant) and isinstance(b, ast.Constant) and a.value != b.value and not isinstance(a.value, bool)
        for a, b in pairs  # True or False: with or without stored weights, mostly
    )
