"""Listeners hear of every change while they listen, and of none after."""

import threading

import pytest

from headrace.serving.models.notifications import Changes


def test_listeners_hear_while_they_listen():
    heard = []
    changes = Changes(lambda: heard.append("first"))
    with changes.listening(lambda: heard.append("second")):
        changes.tell()
        with pytest.raises(ZeroDivisionError), changes.listening(lambda: heard.append("third")):
            raise ZeroDivisionError
    changes.tell()
    assert heard == ["first", "second", "first"]


def test_from_many_threads():
    changes = Changes()
    counts = [0] * 8

    def listen(number: int) -> None:
        def count() -> None:
            counts[number] += 1

        for _ in range(200):
            with changes.listening(count):
                changes.tell()

    threads = [threading.Thread(target=listen, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    before = list(counts)
    assert min(before) >= 200
    changes.tell()
    assert counts == before
