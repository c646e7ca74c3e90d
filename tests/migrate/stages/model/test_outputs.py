"""What is said of a model's outputs, and which names its classes get."""

import types
from dataclasses import replace

import numpy as np
import pytest

from headrace.migrate.proving.confined_run import Completed
from headrace.migrate.proving.verify import Recorded, ScriptRun
from headrace.migrate.reading.recipe import LiveModel
from headrace.migrate.stages.model.outputs import labels_of, remark_printed, remark_taken_for, task_of
from headrace.migrate.stages.scripts.originals import OriginalRun, Originals

TWO = np.array([[0.9, 0.1], [0.2, 0.8]])


def recorded(*names):
    return Recorded(inputs=np.zeros((2, 3, 4, 4)), outputs=np.zeros((2, 2)), classes=names)


def test_what_the_user_says_of_outputs_goes_before_what_was_found(migration_of, resolved, remarks):
    migration = migration_of(task="embedding")
    assert task_of(migration, resolved(task="multi-label"), "net", 5) == "embedding"
    assert remarks(migration) == []


@pytest.mark.parametrize("task", ["multi-label", "single-label,multi-label"])
def test_a_threshold_that_nobody_states_is_remarked(migration_of, resolved, remarks, task):
    migration = migration_of()
    assert task_of(migration, resolved(task=task), "net", 5) == task
    ((code, message),) = remarks(migration)
    assert code == "PS519"
    assert "above a probability of 0.5" in message


def test_a_stated_threshold_is_not(migration_of, resolved, remarks):
    migration = migration_of()
    assert task_of(migration, resolved(task="multi-label:0.3"), "net", 5) == "multi-label:0.3"
    assert remarks(migration) == []


@pytest.mark.parametrize(
    ("classes", "words"), [(None, None), (1, "it is given as a number"), (7, "taken for scores of classes")]
)
def test_what_outputs_are_taken_for_is_remarked_where_their_number_is_known(migration_of, resolved, remarks, classes, words):
    migration = migration_of()
    remark_taken_for(migration, resolved(), "net", classes)
    assert [words in message for _, message in remarks(migration)] == ([] if words is None else [True])


def test_the_names_of_the_data_set_that_was_fed_go_before_those_of_the_source(migration_of, resolved, remarks):
    migration = migration_of()
    stated = resolved(class_names=("a", "b"))
    assert labels_of(migration, stated, recorded("cat", "dog"), 2, "") == (("cat", "dog"),)
    assert labels_of(migration, stated, recorded("cat", "dog", "owl"), 2, "") == (("a", "b"),)
    assert labels_of(migration, stated, None, 1, "") == (("b",),)  # the probability of the second of two
    assert remarks(migration) == []


@pytest.mark.parametrize("names", [("a", "b", "c"), ("a", ""), ("a", "b\nc"), ("a", "b\rc")])
def test_names_that_cannot_be_the_classes_are_no_labels(migration_of, resolved, remarks, names):
    migration = migration_of()
    assert labels_of(migration, resolved(class_names=names), None, 2, "") == ()
    message = f"no labels are known: the model has 2 outputs; class names found: {len(names)} in the source"
    assert remarks(migration) == [("PS505", message)]


@pytest.mark.parametrize(("classes", "task"), [(None, ""), (2, "embedding")])
def test_what_has_no_classes_gets_no_labels_and_no_remark(migration_of, resolved, remarks, classes, task):
    migration = migration_of()
    assert labels_of(migration, resolved(class_names=("a", "b")), None, classes, task) == ()
    assert remarks(migration) == []


def test_of_several_outputs_each_without_names_of_its_own_is_remarked(migration_of, resolved, remarks):
    migration = migration_of()
    several = resolved(labels=(("a", "b"), None, None), widths=(2, 4, 8))
    assert labels_of(migration, several, None, 2, "single-label,multi-label:0.5,embedding") == several.labels
    assert remarks(migration) == [("PS505", "output 1 has no labels: no list of 4 names is its alone")]


@pytest.mark.parametrize("part", [None, (0,), (1,), ("aux",)])
@pytest.mark.parametrize(
    ("printed", "task", "said"),
    [
        ("a.jpg ant\nb.jpg bee\n", "single-label", None),
        ("a.jpg ant\nb.jpg ant\n", "single-label", "the script prints 'ant' where the package says 'bee', for 1 of 2 images"),
        ("a.jpg ant\nb.jpg ant\n", "", "the script prints 'ant' where the package says 'bee', for 1 of 2 images"),
        ("a.jpg ant\nb.jpg ant\n", "multi-label", None),
    ],
)
def test_what_a_script_prints_is_held_to_the_labels(migration_of, resolved, remarks, printed, task, said, part):
    migration = migration_of({"evaluate.py": "print(1)\n"})
    done = Completed(argv=(), exit=0, stdout=printed, stderr="", stopped=None, seconds=1.0, isolation={})
    originals = Originals(runs={"evaluate.py": OriginalRun(argv=(), run=ScriptRun(done=done, sites={}))})
    fed = Recorded(inputs=np.zeros((2, 3, 4, 4)), outputs=np.array([[0.9, 0.1], [0.2, 0.8]]))
    live = LiveModel(class_name="Net", ordinal=0, evaluating=True, row=(3, 4, 4), output=part)
    ours = resolved(script=types.SimpleNamespace(path="evaluate.py"), recipe=replace(resolved().recipe, live=live))
    said = said if part in (None, (0,)) else None  # of the others nothing is recorded
    remark_printed(migration, ours, originals, fed, (("ant", "bee"),), task)
    assert [(code, message[: len(said or "")]) for code, message in remarks(migration)] == ([("PS534", said)] if said else [])


@pytest.mark.parametrize(
    "written", [{}, {"out.json": '{"a.jpg": "ant", "b.jpg": "ant"}'}, {"out.csv": "a.jpg,ant\nb.jpg,ant\n"}]
)
def test_what_a_script_writes_is_held_to_the_labels_as_well(migration_of, resolved, remarks, written):
    remark = remark_of(migration_of, resolved, remarks, "done\n", (("ant", "bee"),), written)
    said = [f"the script writes into {path} 'ant' where the package says 'bee', for 1 of 2 images" for path in written]
    assert remark.split(": ")[:1] == (said or [""])


def test_scores_and_numbers_of_classes_are_held_to_the_package_as_well(migration_of, resolved, remarks):
    text = "a.jpg ant 0.99\nb.jpg bee 0.98\n"
    said = remark_of(migration_of, resolved, remarks, text, (("ant", "bee"),), {})
    assert said.startswith("the script prints 0.98 beside 'bee', which has the score 0.8 in the package, so for 2 of 2")


def test_numbers_of_classes_without_names_are_held_to_the_package_as_well(migration_of, resolved, remarks):
    text = "a.jpg 1\nb.jpg 2\nc.jpg 1\nd.jpg 2\n"
    said = remark_of(migration_of, resolved, remarks, text, (), {}, rows=2)
    assert said.startswith("the script prints 1 where the package says 0, for 4 of 4 images")


@pytest.mark.parametrize(
    ("printed", "task", "said"),
    [
        ("a.jpg bad\nb.jpg good\n", "multi-label", ""),
        ("a.jpg good\nb.jpg bad\n", "multi-label", "for 2 of 2 images the script prints 'bad' where the package does not, or"),
        ("a.jpg bad\nb.jpg bad\n", "multi-label:0.3", "for 1 of 2 images the script prints 'bad'"),
        ("a.jpg bad\nb.jpg bad\n", "multi-label:0.1", ""),
        ("a.jpg good\nb.jpg bad\n", "single-label", ""),
    ],
)
@pytest.mark.parametrize("outputs", [np.array([[1.4], [-1.4]]), np.array([1.4, -1.4]), np.array([[0.8], [0.2]])])
def test_of_two_names_that_of_the_only_output_is_held_to_the_script(
    migration_of, resolved, remarks, printed, task, said, outputs
):
    found = remark_of(migration_of, resolved, remarks, printed, (("bad",),), {}, outputs=outputs, task=task)
    assert found.startswith(said) if said else found == ""


def remark_of(
    migration_of,
    resolved,
    remarks,
    printed,
    labels,
    written,
    rows=1,
    outputs=TWO,
    task="single-label",
):
    migration = migration_of({"evaluate.py": "print(1)\n"})
    done = Completed(argv=(), exit=0, stdout=printed, stderr="", stopped=None, seconds=1.0, isolation={})
    run = ScriptRun(done=done, sites={}, written=written)
    originals = Originals(unchanged={"evaluate.py": OriginalRun(argv=(), run=run)})
    outputs = np.concatenate([outputs] * rows)
    fed = Recorded(inputs=np.zeros((2 * rows, 3, 4, 4)), outputs=outputs)
    ours = resolved(script=types.SimpleNamespace(path="evaluate.py"))
    remark_printed(migration, ours, originals, fed, labels, task)
    return "".join(message for _, message in remarks(migration))
