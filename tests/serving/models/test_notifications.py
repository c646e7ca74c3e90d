"""Listeners hear of every change while they listen, and of none after."""

import threading

import pytest

from headrace.serving.models.notifications import Notifications


def test_listeners_hear_while_they_listen():
    heard = []
    notifications = Notifications(lambda: heard.append("first"))
    with notifications.listening(lambda: heard.append("second")):
        notifications.notify()
        with pytest.raises(ZeroDivisionError), notifications.listening(lambda: heard.append("third")):
            raise ZeroDivisionError
    notifications.notify()
    assert heard == ["first", "second", "first"]


def test_from_many_threads():
    notifications = Notifications()
    counts = [0] * 8

    def listen(number: int) -> None:
        def count() -> None:
            counts[number] += 1

        for _ in range(200):
            with notifications.listening(count):
                notifications.notify()

    threads = [threading.Thread(target=listen, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    before = list(counts)
    assert min(before) >= 200
    notifications.notify()
    assert counts == before
