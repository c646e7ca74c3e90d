"""Whether a model is there where its graph would be made."""

import ast
import textwrap

import pytest

from headrace.migrate.rewriting.model_statements import is_asked_for, may_be_none


def body(text):
    return ast.parse(textwrap.dedent(text)).body


@pytest.mark.parametrize(
    "text",
    [
        "model = build() if wanted else None",
        "model = given",
        "model = wanted and build()",
        "model = None\nif path:\n    model = load(path)",
        "try:\n    model = load()\nexcept OSError:\n    model = None",
        "try:\n    model = load()\n    model.eval()\nexcept OSError as error:\n    model = None\n    print(error)",
        "model = None\nfor path in paths:\n    model = load(path)",
        "model = build()\nif not usable(model):\n    model = None",
    ],
)
def test_a_model_that_may_be_none(text):
    assert may_be_none(body(text), "model", {"given"})


@pytest.mark.parametrize(
    "text",
    [
        "model = build()",
        "model = given or build()",
        "model = None\nmodel = build()",
        "model = None\nif large:\n    model = Large()\nelse:\n    model = Small()",
        "model = given\nif model is None:\n    model = build()",
        "model = given\nif not model:\n    raise ValueError('no model')",
        "model = None\nif path:\n    model = load(path)\nmodel.eval()",
        "try:\n    model = load()\nexcept OSError as error:\n    raise SystemExit(1) from error",
        "try:\n    model = load()\nexcept OSError:\n    model = build()",
        "model = given\nif model is not None:\n    model.eval()\nelse:\n    sys.exit(1)",
        "with open(path) as file:\n    model = load(file)",
    ],
)
def test_a_model_that_is_there(text):
    assert not may_be_none(body(text), "model", {"given"})


@pytest.mark.parametrize(
    ("text", "asked"),
    [
        ("if self.net is None:\n    pass", True),
        ("x = 1 if self.net else 2", True),
        ("assert self.net is not None", True),
        ("if self.net.training:\n    pass", False),
        ("if self.net == other:\n    pass", False),
    ],
)
def test_whether_code_asks_for_it(text, asked):
    assert is_asked_for(ast.parse(text), "self.net") is asked
