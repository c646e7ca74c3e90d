"""Templates as JSON: what is written is read, and of what a stranger wrote nothing is that could hurt."""

import json

import pytest

from headrace.runtime.artifact.routes.answer_template import (
    Best,
    BestByName,
    Constant,
    FileName,
    Index,
    Items,
    Name,
    Object,
    Pick,
    Position,
    Score,
    Text,
)
from headrace.runtime.artifact.routes.template_json import (
    KINDS,
    MOST_CHARACTERS,
    MOST_DEPTH,
    MOST_LEAVES,
    MOST_NODES,
    template_from_json,
    template_to_json,
)

SCORE = Score(pick=Pick(rank=0), source="softmax", times=100, decimals=2, style="fixed")
WHOLE = Object(
    members=(
        ("constant", Constant(value=None)),
        ("name", Name(pick=Pick(rank=1), table=1)),
        ("index", Index(pick=Pick(index=2), text=True)),
        ("text", Text(parts=(SCORE, Constant(value="%"), FileName()))),
        ("items", Items(items=(SCORE,))),
        ("best", Best(count=2, item=Object(members=(("at", Position(first=1)), ("name", Name(pick=Pick())))))),
        ("by name", BestByName(count=3, value=Score(pick=Pick(), source="output"))),
    )
)


def read(data, classes=3, tables=1, labeled=True):
    return template_from_json(json.loads(json.dumps(data)), classes=classes, tables=tables, labeled=labeled)


def part(word, **fields):
    return {"is": word, **fields}


CONSTANT = part("constant", value=1)
NAME = part("name", pick={"rank": 0}, table=0)


def score(**changed):
    fields = {"pick": {"rank": 0}, "source": "softmax", "times": 1, "decimals": 2, "style": "number"}
    return part("score", **{**fields, **changed})


def test_what_is_written_is_read():
    assert read(template_to_json(WHOLE)) == WHOLE
    assert {type(node) for _, node in WHOLE.members} | {Position, FileName, Score, Object} == set(KINDS.values())


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (None, 'whose "is"'),
        ([], 'whose "is"'),
        ({"is": ["x"]}, 'whose "is"'),
        (part("__class__"), 'whose "is"'),
        (part("constant"), "must have value"),
        (part("constant", value=1, more=1), "must have value"),
        (part("constant", value=[1]), "a constant"),
        (part("constant", value=10**400), "a constant"),
        (part("constant", value="x" * (MOST_CHARACTERS + 1)), "characters"),
        (part("name", pick={"rank": 3}, table=0), "rank of a template must be from 0 to 2"),
        (part("name", pick={"rank": -1}, table=0), "rank"),
        (part("name", pick={"rank": True}, table=0), "rank"),
        (part("name", pick={"rank": 0, "index": 0}, table=0), "a rank or of an index"),
        (part("name", pick={}, table=0), "a rank or of an index"),
        (part("name", pick={"rank": 0}, table=2), "table"),
        (part("name", pick={"rank": 0}, table=-1), "table"),
        (part("index", pick={"index": 3}, text=False), "index of a template must be from 0 to 2"),
        (part("index", pick={"rank": 0}, text=1), "true or false"),
        (score(source="row"), "'row' of a template is none of softmax"),
        (score(source=["softmax"]), "is none of"),
        (score(style="%s"), "is none of"),
        (score(times=10), "1 or 100"),
        (score(decimals=13), "decimals"),
        (score(decimals=-1), "decimals"),
        (score(decimals=None, style="fixed"), "say how many"),
        (part("position", first=0), "in a list of the best classes only"),
        (part("best", count=4, item=NAME), "count of a template must be from 1 to 3"),
        (part("best", count=0, item=NAME), "count"),
        (part("best", count=2, item=part("best", count=2, item=NAME)), "cannot stand in another"),
        (part("best by name", count=2, table=0, value=part("best", count=2, item=NAME)), "cannot stand in another"),
        (part("text", parts=[part("object", members=[])]), "cannot hold 'object'"),
        (part("text", parts=[part("text", parts=[])]), "cannot hold 'text'"),
        (part("text", parts="abc"), "a list of a template's parts"),
        (part("object", members=[["a"]]), "pairs"),
        (part("object", members=[["a", CONSTANT], ["a", CONSTANT]]), "different names"),
        (part("object", members=[[1, CONSTANT]]), "different names"),
        (part("object", members={"a": CONSTANT}), "a list of a template's parts"),
        (part("items", items=[CONSTANT] * (MOST_NODES + 1)), f"{MOST_NODES:,}"),
        (part("items", items=[part("items", items=[CONSTANT] * 2000)] * 3), f"{MOST_NODES:,} parts"),
    ],
)
def test_what_is_wrong_is_said(data, says):
    with pytest.raises(ValueError, match=says):
        read(data)


def test_an_answer_is_bounded_however_its_lists_multiply():
    with pytest.raises(ValueError, match=f"{MOST_LEAVES:,} values"):
        read(part("best", count=900, item=part("items", items=[NAME] * 9)), classes=1000)
    deep = CONSTANT
    for _ in range(MOST_DEPTH + 1):
        deep = part("items", items=[deep])
    with pytest.raises(ValueError, match="levels"):
        read(deep)


def test_without_labels_nothing_names_a_class_by_them():
    with pytest.raises(ValueError, match="table"):
        read(NAME, labeled=False)
    assert read(part("name", pick={"rank": 0}, table=1), labeled=False) == Name(pick=Pick(rank=0), table=1)
