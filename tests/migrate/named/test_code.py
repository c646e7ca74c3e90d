"""What recipes of models say is read, whoever's code made it."""

import pytest

from headrace.errors import MigrateError
from headrace.migrate.named.code import _chosen, _Facts, _read_facts, said
from headrace.migrate.proving.trace_transform import Traced
from headrace.migrate.proving.worker_protocol import Failed, OutputsComputed
from headrace.specs import Preprocessing, Resize


def test_facts_are_read_or_rejected():
    facts = {"input": [3, 8, 8], "labels": [["a"], None], "notes": ["b"]}
    assert _read_facts(facts) == _Facts((3, 8, 8), (("a",), None), ("b",))
    steps = Preprocessing(geometry=(Resize(size=(8, 8)),))
    stated = {**facts, "labels": None, "preprocessing": steps.to_json(), "task": "0=embedding"}
    assert _read_facts(stated) == _Facts((3, 8, 8), (), ("b",), steps, "0=embedding")
    wrong = ({"input": [3, 8]}, {"input": "abc"}, {"labels": 3}, {"labels": [3]}, {"notes": None}, {"preprocessing": [1]})
    for broken in ({}, *({**facts, **item} for item in wrong)):
        with pytest.raises(MigrateError, match="cannot be read"):
            _read_facts(broken)


def test_sentences_for_people_have_no_names_of_classes():
    assert said(Failed(stage="build", error="LookupError: timm has no model 'x'")) == "timm has no model 'x'"
    assert said(Failed(stage="build", error="no such thing", where="net.py:3")) == "net.py:3: no such thing"
    assert said(OutputsComputed()) == "the worker answered something else: OutputsComputed"


def test_the_preprocessing_is_the_one_that_ends_in_the_input():
    gray = Preprocessing(mode="L", geometry=(Resize(size=(8, 8)),), mean=(0.0,), std=(1.0,), channels="L")
    color = Preprocessing(geometry=(Resize(size=(8, 8)),))
    traced = Traced(candidates=(gray, color), notes=("it resizes tensors",))
    assert _chosen(traced, (3, 8, 8)) == (color, ["it resizes tensors"])
    made, notes = _chosen(traced, (3, 9, 9))
    assert made is None
    assert "takes tensors, not images: it gives 1x8x8, 3x8x8, the model takes 3x9x9" in notes[0]
    assert "random" in _chosen(Traced(why="it is random"), (3, 8, 8))[1][0]
