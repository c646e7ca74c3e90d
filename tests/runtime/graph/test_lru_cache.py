from types import SimpleNamespace

import pytest

from headrace.runtime.graph.lru_cache import LRUCache


class Item:
    """Something that can be closed, which is all that is asked of a compiled graph here."""

    def __init__(self):
        self.closed = 0

    def close(self):
        self.closed += 1


def test_the_one_longest_unused_is_dropped_and_closed():
    kept, items = LRUCache(2), {key: Item() for key in "abc"}
    for key in "abac":
        kept.use(key, items[key])
    assert (items["a"].closed, items["b"].closed, items["c"].closed) == (0, 1, 0)
    assert list(kept) == [items["a"], items["c"]]
    assert (kept.get("b"), kept.was_dropped("b"), kept.was_dropped("a")) == (None, True, False)
    kept.use("b", items["b"])
    assert not kept.was_dropped("b")


def test_a_replaced_one_is_closed_once_and_takes_no_place():
    kept, old, new = LRUCache(1), Item(), Item()
    kept.use("a", old)
    kept.use("a", new)
    kept.use("a", new)
    assert (old.closed, new.closed, len(kept)) == (1, 0, 1)
    kept.clear()
    assert (new.closed, len(kept)) == (1, 0)


@pytest.mark.parametrize(
    ("calls", "thrashing"),
    [
        ("abab" * 3, False),  # they fit
        ("abc", False),  # one new size is no pattern
        ("abcabc", True),  # each drops the one that is needed next
        ("aabbccaabbcc", True),  # hits between do not make it cheap
        ("ab" + "c" * 40 + "a" + "c" * 40 + "b" + "c" * 40, False),  # now and then
        ("abcdefgh", True),  # every input has a size of its own
    ],
)
def test_drops_in_a_row_are_thrashing(calls, thrashing):
    kept = LRUCache(2)
    for key in calls:
        kept.use(key, kept.get(key) or SimpleNamespace(close=lambda: None))
    assert kept.thrashing == thrashing
