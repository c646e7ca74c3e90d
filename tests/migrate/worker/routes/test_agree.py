"""When a template says what was said: equal, but for how numbers round."""

import numpy as np
import pytest

from headrace.migrate.worker.routes.agree import Disagreement, check, shown
from headrace.runtime.artifact.routes.answer_template import (
    Answered,
    Best,
    BestByName,
    Constant,
    Index,
    Items,
    Name,
    Object,
    Pick,
    Score,
    Text,
)

ONE = Answered(np.log(np.array([0.2, 0.69995, 0.10005])), (("cat", "dog", "owl"),))
BEST = Pick(rank=0)


def score(**changed):
    return Score(**{"pick": BEST, "source": "softmax", **changed})


SAME = [
    (score(), 0.69995001),
    (score(decimals=4), 0.7),  # 0.69995 rounds either way
    (score(decimals=4), 0.6999),
    (score(decimals=0), 1),
    (score(times=100, decimals=0, style="integer"), 70),
    (score(decimals=2, style="fixed"), "0.70"),
    (score(decimals=4, style="fixed"), "0.6999"),
    (Text(parts=(Name(pick=BEST), Constant(value=" (.*) "), score(decimals=1, style="fixed"))), "dog (.*) 0.7"),
    (Object(members=(("a", Constant(value=1)), ("b", Name(pick=BEST)))), {"b": "dog", "a": 1}),
    (Items(items=(Constant(value="x"), Index(pick=BEST))), ["x", 1]),
    (Best(count=2, item=Name(pick=Pick())), ["dog", "cat"]),
    (BestByName(count=2, value=Index(pick=Pick())), {"cat": 0, "dog": 1}),
]
OTHER = [
    (score(), 0.7001, ""),
    (score(decimals=4), 0.7001, ""),
    (score(decimals=2), "0.70", ""),
    (score(), True, ""),
    (score(times=100, decimals=0, style="integer"), 70.0, ""),
    (score(decimals=2, style="fixed"), "0.7", ""),
    (score(decimals=2, style="fixed"), 0.7, ""),
    (Constant(value=1), True, ""),
    (Constant(value=1), 1.0, ""),
    (Index(pick=BEST), "1", ""),
    (Object(members=(("a", Constant(value=1)),)), {"a": 2}, "a"),
    (Object(members=(("a", Constant(value=1)),)), {"a": 1, "b": 1}, ""),
    (Object(members=(("a", Items(items=(Constant(value=1),))),)), {"a": [2]}, "a[0]"),
    (Best(count=2, item=Name(pick=Pick())), ["cat", "dog"], "[0]"),
    (Best(count=2, item=Name(pick=Pick())), ["dog"], ""),
    (BestByName(count=2, value=Index(pick=Pick())), {"cat": 1, "dog": 1}, "cat"),
    (BestByName(count=2, value=Index(pick=Pick())), {"owl": 2, "dog": 1}, ""),
    (Text(parts=(Constant(value="a"), score(decimals=1, style="fixed"))), "b0.7", ""),
]


@pytest.mark.parametrize(("node", "said"), SAME)
def test_the_same(node, said):
    check(node, said, ONE)


@pytest.mark.parametrize(("node", "said", "place"), OTHER)
def test_something_else_is_told_with_its_place(node, said, place):
    with pytest.raises(Disagreement) as told:
        check(node, said, ONE)
    assert told.value.place == place


def test_long_values_are_shown_in_part():
    assert shown("x" * 500) == '"' + "x" * 76 + "..."
