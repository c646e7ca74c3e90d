"""Copies that call something else: what they become, and that what they were copied from stays."""

import ast

from headrace.migrate.reading.nodes import inside
from headrace.migrate.slicing.classes import ClassReduction
from headrace.migrate.slicing.liveness import Options
from headrace.migrate.slicing.node_rewrites import NarrowedCalls, RenamedCalls, RenamedClasses


def reduced(source: str, *kept: str) -> ClassReduction:
    """A class whose reduced `__init__` takes the `kept` parameters alone."""
    (owner,) = ast.parse(source).body
    assert isinstance(owner, ast.ClassDef)
    return ClassReduction(None, owner, Options(), parameters=list(kept), built=owner)  # type: ignore[arg-type]


def test_a_reduced_class_is_handed_what_it_still_takes_however_that_was_written():
    narrowed = NarrowedCalls(
        {"Net": reduced("class Net:\n    def __init__(self, width, rate=0.1, depth=2): pass", "width", "depth")}
    )
    for written, become in [
        ("net = models.Net(64, 0.5, 3).cuda()", "net = models.Net(width=64, depth=3).cuda()"),
        ("net = Net(rate=0.5, width=w)", "net = Net(width=w)"),
        ("both = [Net(1), Net(2)]", "both = [Net(width=1), Net(width=2)]"),
        ("for n in range(2):\n    nets.append(Net(n))", "for n in range(2):\n    nets.append(Net(width=n))"),
    ]:
        (statement,) = ast.parse(written).body
        assert ast.unparse(narrowed(statement)) == become
        assert ast.unparse(statement) == written


def test_statements_that_call_no_reduced_class_stay_the_same_object():
    whole = reduced("class Net:\n    def __init__(self, width): pass", "width")
    whole.built = None  # not reduced yet
    narrowed = NarrowedCalls({"Net": whole})
    for text in ("net = Net(3)", "net = Other(3)", "pass"):
        (statement,) = ast.parse(text).body
        assert narrowed(statement) is statement


def test_renamed_classes_leave_the_imports_that_brought_them():
    renamed = RenamedClasses({"Net": "sliced_Net"})
    program = ast.parse("from nets import Net, load\nfrom more import deep as Net\nnet: Net = load(Net)\nother.Net = 1")
    assert ast.unparse(renamed.visit(program)) == "from nets import load\nnet: sliced_Net = load(sliced_Net)\nother.Net = 1"


def test_a_block_whose_only_import_was_theirs_stays_a_block():
    renamed = RenamedClasses({"Net": "sliced_Net"})
    program = ast.parse("try:\n    from nets import Net\nexcept ImportError:\n    from old import Net\nnet = Net()")
    assert ast.unparse(renamed.visit(program)) == "try:\n    pass\nexcept ImportError:\n    pass\nnet = sliced_Net()"


def test_only_the_given_calls_are_renamed_and_only_in_the_copy():
    (statement,) = ast.parse("net = load(make(load(path)))").body
    inner = next(call for call in inside(statement, ast.Call) if ast.unparse(call) == "load(path)")
    assert ast.unparse(RenamedCalls({inner: "sliced_load"}).copied(statement)) == "net = load(make(sliced_load(path)))"
    assert ast.unparse(statement) == "net = load(make(load(path)))"
    assert RenamedCalls({}).copied(statement) is statement
