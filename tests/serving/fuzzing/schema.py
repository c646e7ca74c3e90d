"""schemathesis against the served /openapi.json: what the document says must be what the server does, for data of both
kinds."""

from __future__ import annotations

from collections import Counter
from typing import Any

import requests
import schemathesis
from case import Answer
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st
from oracle import problems_of
from schemathesis.checks import CHECKS
from world import images

# Not those that ask for what the document cannot say: whether a name is a model's, whether numbers are those of the shape, and
# that every body which is not as described is refused, when a parameter of another extension may be in it.
NAMES = (
    "status_code_conformance",
    "content_type_conformance",
    "response_headers_conformance",
    "response_schema_conformance",
    "unsupported_method",
)
_PHOTOS = images()


def explore(url: str, cases: int, *, number: int, document: Any = None) -> tuple[Counter[str], list[str]]:
    """About so many cases, divided among the operations: counts of statuses, and what is wrong, one of each kind.

    `document` stands for the one that is served.
    """
    schema = schemathesis.openapi.from_dict(document or requests.get(f"{url}/openapi.json", timeout=60).json())
    operations = [result.ok() for result in schema.get_all_operations()]
    counts: Counter[str] = Counter()
    problems: dict[str, str] = {}
    checks = CHECKS.get_by_names([*NAMES])
    with requests.Session() as session:
        for operation in operations:
            for mode in _modes(operation):
                count = max(2, cases // (2 * len(operations)))
                _explore_one(operation, mode, count, (url, session), checks, number, counts, problems)
    return counts, [f"{name}: {what}" for name, what in problems.items()]


def _modes(operation: Any) -> list[Any]:
    """Whether it is asked in wrong ways, too: there are none where all that it takes is text of its path."""
    takes = (*operation.query, *operation.headers, *operation.cookies, *operation.body)
    return [schemathesis.GenerationMode.POSITIVE, *([schemathesis.GenerationMode.NEGATIVE] if takes else [])]


def _explore_one(
    operation: Any, mode: Any, count: int, client: Any, checks: Any, number: int, counts: Any, problems: Any
) -> None:
    url, session = client

    @seed(number)
    @settings(
        max_examples=count, deadline=None, database=None, phases=[Phase.generate], suppress_health_check=list(HealthCheck)
    )
    @given(
        case=operation.as_strategy(generation_mode=mode),
        model=st.sampled_from(["tiny", "tiny_classify", None]),
        photo=st.sampled_from([*_PHOTOS, None]),
    )
    def run(case: Any, model: str | None, photo: bytes | None) -> None:
        if model is not None and "model" in (case.path_parameters or {}):
            case.path_parameters["model"] = model
        response = case.call(base_url=url, session=session, timeout=60)
        counts[str(response.status_code)] += 1
        answer = Answer(
            response.status_code, {name.lower(): values[0] for name, values in response.headers.items()}, response.content
        )
        label = f"{operation.label} {mode.name.lower()}"
        sent = case.as_curl_command().encode("utf-8", "surrogatepass")
        for what in problems_of(answer, head=operation.method.lower() == "head", sent=sent):
            problems.setdefault(f"{label} {what[:40]}", f"{what}\n  {case.as_curl_command()[:600]}")
        try:
            case.validate_response(response, checks=checks)
        except schemathesis.errors.FailureGroup as error:  # type: ignore[attr-defined]
            problems.setdefault(f"{label} {str(error)[:80]}", str(error)[:1500])

    run()
