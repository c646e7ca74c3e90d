"""A model version is closed when its last request is answered, and nobody comes in after that."""

import threading

from headrace.serving.models.leases import Leases


def test_retiring_waits_for_the_last_one_and_lets_nobody_in():
    leases, retired = Leases(), []
    assert leases.acquire()
    assert leases.acquire()
    thread = threading.Thread(target=lambda: retired.append(leases.retire(30)))
    thread.start()
    while leases.acquire():  # until the thread has retired it
        leases.release()
    leases.release()
    assert not retired
    leases.release()
    thread.join()
    assert retired == [True]
    assert not leases.acquire()


def test_retiring_gives_up_waiting():
    leases = Leases()
    assert leases.acquire()
    assert not leases.retire(0.01)
    leases.release()
    assert leases.retire(0.01)


def test_many_threads():
    leases, inside, seen = Leases(), [], []

    def work() -> None:
        while leases.acquire():
            inside.append(1)
            inside.pop()
            leases.release()

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    seen.append(leases.retire(30))
    assert not inside
    for thread in threads:
        thread.join()
    assert seen == [True]
