"""A model version is closed when its last request is answered, and nobody comes in after that."""

import threading

from headrace.serving.models.leases import Uses


def test_retiring_waits_for_the_last_one_and_lets_nobody_in():
    uses, retired = Uses(), []
    assert uses.enter()
    assert uses.enter()
    thread = threading.Thread(target=lambda: retired.append(uses.retire(30)))
    thread.start()
    while uses.enter():  # until the thread has retired it
        uses.leave()
    uses.leave()
    assert not retired
    uses.leave()
    thread.join()
    assert retired == [True]
    assert not uses.enter()


def test_retiring_gives_up_waiting():
    uses = Uses()
    assert uses.enter()
    assert not uses.retire(0.01)
    uses.leave()
    assert uses.retire(0.01)


def test_many_threads():
    uses, inside, seen = Uses(), [], []

    def work() -> None:
        while uses.enter():
            inside.append(1)
            inside.pop()
            uses.leave()

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    seen.append(uses.retire(30))
    assert not inside
    for thread in threads:
        thread.join()
    assert seen == [True]
