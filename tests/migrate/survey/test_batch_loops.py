"""The loop around a model's call, and the labels that come with its images."""

import ast
import textwrap

import pytest

from headrace.migrate.reading.scopes import Repository
from headrace.migrate.reading.source import parse_source
from headrace.migrate.survey.batch_loops import enclosing_loop, purpose


def read(source):
    """The purpose of the one call of `model` in a file, and the line of the loop around it."""
    text = textwrap.dedent(source)
    module = Repository([parse_source("main.py", text.encode())]).modules["main.py"]
    (call,) = [call for call in module.calls if ast.unparse(call.func) == "model"]
    function = module.function_of(call)
    loop = enclosing_loop(module, call, function)
    return purpose(module, call, function, loop), None if loop is None else loop.lineno


@pytest.mark.parametrize(
    ("loop", "line"),
    [
        ("for images, labels in loader:\n    out = model(images)", 1),
        ("for epoch in range(3):\n    for images, labels in loader:\n        out = model(images)", 2),
        ("for images, labels in loader:\n    for crop in range(3):\n        out = model(images)", 1),
        ("for batch in loader:\n    images = batch[0]\n    x = images.to(0)\n    out = model(x)", 1),
        ("for epoch in range(3):\n    out = model(images)", None),
        ("while True:\n    out = model(images)", None),
    ],
)
def test_the_loop_is_the_innermost_whose_variable_leads_to_what_is_given(loop, line):
    assert read(loop)[1] == line


def test_a_loop_outside_the_function_of_a_call_is_not_around_it():
    assert read("for images in loader:\n    def run():\n        return model(images)\n")[1] is None


@pytest.mark.parametrize(
    ("batch", "body", "labels"),
    [
        ("images, labels", "out = model(images)", "labels"),
        ("images, _", "out = model(images)", None),
        ("images, paths", "out = model(images)", None),
        ("images, paths, y", "out = model(images)", "y"),
        ("batch", "images, y = batch\n    out = model(images)", "y"),
        ("batch", "out = model(batch['image'])\n    hits = out == batch['label']", "batch['label']"),
        ("batch", "out = model(batch)", None),
        ("images, y", "images, y = images.cuda(), y.cuda()\n    out = model(images)", "y"),
    ],
)
def test_labels_are_what_else_the_batch_holds(batch, body, labels):
    (kind, found, _), _ = read(f"for {batch} in loader:\n    {body}\n")
    assert (kind, found) == ("evaluate" if labels else "predict", labels)


def test_enumerated_batches_have_their_labels_behind_the_number():
    assert read("for i, (images, y) in enumerate(loader):\n    out = model(images)\n")[0] == ("evaluate", "y", False)


STEP = "for images, y in loader:\n    loss = criterion(model(images), y)\n    loss.backward()\n    optimizer.step()\n"


def test_what_learns_in_its_loop_trains():
    assert read(STEP)[0] == ("train", "y", True)
    assert read("with torch.no_grad():\n" + textwrap.indent(STEP, "    "))[0][0] == "evaluate"
    assert read("out = model(images)\n")[0] == ("predict", None, False)
