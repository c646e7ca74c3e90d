"""Which statements of a training loop are views of the model's outputs, so that the loss can be told in terms of these."""

import ast

import pytest

from headrace.migrate.reading.scopes import Module, Repository
from headrace.migrate.reading.source import parse_source
from headrace.migrate.rewriting.training_statements import changes_in_place, view_of_call, views

IMPORTS = "import torch\nimport torch.nn.functional as F\nfrom torch import squeeze\n"


def module_of(text):
    source = parse_source("train.py", (IMPORTS + text).encode())
    return Module(source, source.tree, Repository([source]))


def viewed(text):
    """What the forward statement makes of the outputs, as text."""
    module = module_of(text)
    statement = module.tree.body[-1]
    call = next(node for node in ast.walk(statement) if isinstance(node, ast.Call) and ast.unparse(node.func) == "model")
    found = view_of_call(module, statement, call, {"x", "n", "self.share"})
    return ast.unparse(found[1]) if found is not None else None


@pytest.mark.parametrize(
    ("value", "view"),
    [
        ("model(x).squeeze()", "p.squeeze()"),
        ("model(x).squeeze(-1).float()", "p.squeeze(-1).float()"),
        ("F.log_softmax(model(x), dim=1)", "F.log_softmax(p, dim=1)"),
        ("squeeze(model(x))", "squeeze(p)"),
        ("model(x)[0]", "p[0]"),
        ("model(x)[:, 1:self.classes]", "p[:, 1:self.classes]"),
        ("model(x).view(x.size(0), -1)", "p.view(x.size(0), -1)"),
        ("model(x).view(len(x), x.shape[1])", "p.view(len(x), x.shape[1])"),
        ("model(x)", None),
        ("model(x).detach()", None),
        ("model(x).data", None),
        ("model(x).clamp_(0)", None),
        ("model(x) + x", None),
        ("torch.softmax(model(x), 1, out=x)", None),
        ("torch.dropout(model(x), 0.5, True)", None),
        ("model(x).view(n, -1)", None),
        ("model(x).view(self.share, -1)", None),
        ("model(x).view(draw(), -1)", None),
        ("abs(model(x))", None),
        ("numpy.squeeze(model(x))", None),
        ("model(p).squeeze()", None),
    ],
)
def test_what_is_a_view_of_the_call(value, view):
    assert viewed(f"p = {value}") == view


def test_names_of_views_are_followed_until_something_else_changes_them():
    module = module_of("""
a = out.squeeze()
out = out.view(-1, 4)
b = F.softmax(out[:, :2], 1)
c = a
a = a * 2
""")
    known = views(module, "out", None, module.tree.body[3:], set())
    assert {name: ast.unparse(made) for name, made in known.items()} == {
        "out": "out.view(-1, 4)",
        "b": "F.softmax(out.view(-1, 4)[:, :2], 1)",
        "c": "out.squeeze()",
    }


@pytest.mark.parametrize(
    "statement", ["a.relu_()", "a.view(-1)[0] = 1", "a.view(-1).clamp_(0)", "F.relu_(a)", "torch.exp(x, out=a)", "a.data = x"]
)
def test_what_writes_into_one_writes_into_all_that_may_be_the_same_memory(statement):
    module = module_of(f"a = out.squeeze()\n{statement}\n")
    assert changes_in_place(module.tree.body[-1], "a")
    assert views(module, "out", None, module.tree.body[3:], set()) == {}
    assert not changes_in_place(module.tree.body[-1], "b")
    assert not changes_in_place(module_of("y = a.__getitem__(0)").tree.body[-1], "a")
