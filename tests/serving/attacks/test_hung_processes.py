"""Processes of the server that stand still, or cannot be started: requests are answered, readiness is true, all comes back."""

import http.client
import resource
import signal
import time

import psutil
import pytest

FAR = 120
HUNG = 5  # seconds; 15 where a user starts it


def ask(server, method, path, body=b"", timeout=20):
    """The status; None when nothing came in time or the connection broke."""
    connection = http.client.HTTPConnection(server.http, timeout=timeout)
    try:
        connection.request(method, path, body)
        return connection.getresponse().status
    except (OSError, http.client.HTTPException):
        return None
    finally:
        connection.close()


def until(what, seconds):
    end = time.monotonic() + seconds
    while not (found := what()):
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.1)
    return found


def test_a_hung_engine_is_seen_and_replaced(start, models, make_photo):
    server = start(models, frontends=1, hung_seconds=HUNG)
    (engine,) = server.children("engine")
    assert ask(server, "POST", "/v1/classify/tiny", make_photo(0)) == 200
    engine.send_signal(signal.SIGSTOP)
    assert ask(server, "POST", "/v1/classify/tiny?timeout_ms=500", make_photo(0)) == 503
    assert server.children("engine") == [engine], "it is answered by its deadline, before the engine was found to hang"
    until(lambda: ask(server, "GET", "/v2/health/ready") == 503, FAR)
    assert ask(server, "GET", "/v2/health/live") == 200
    until(lambda: ask(server, "POST", "/v1/classify/tiny", make_photo(0)) == 200, FAR)
    assert server.children("engine") != [engine]
    assert server.stop() == 0, server.output


def test_a_hung_front_end_is_replaced(start, models, make_photo):
    server = start(models, frontends=2, hung_seconds=HUNG)
    stopped = server.children("frontend")[0]
    stopped.send_signal(signal.SIGSTOP)
    until(lambda: stopped not in server.children("frontend") and len(server.children("frontend")) == 2, FAR)
    until(lambda: all(ask(server, "POST", "/v1/classify/tiny", make_photo(0), 2) == 200 for _ in range(12)), FAR)
    assert server.stop() == 0, server.output


def test_an_engine_that_hangs_while_it_loads_is_replaced(start, models, make_photo):
    server = start(models, frontends=1, hung_seconds=HUNG)
    (first,) = server.children("engine")
    first.kill()
    (loading,) = until(lambda: [one for one in server.children("engine") if one != first], FAR)
    loading.send_signal(signal.SIGSTOP)
    until(lambda: ask(server, "POST", "/v1/classify/tiny", make_photo(0)) == 200, FAR)
    assert server.children("engine") not in ([first], [loading])
    assert server.stop() == 0, server.output


@pytest.mark.parametrize("kind", ["engine", "frontend"])
def test_a_server_ends_without_waiting_for_a_process_that_hangs(start, models, kind):
    """It waited as long as accepted requests may take, 35 seconds for each: an orchestrator kills all of it before that."""
    server = start(models, frontends=2, hung_seconds=HUNG, drain_seconds=600.0)
    hung = server.children(kind)[0]
    hung.send_signal(signal.SIGSTOP)
    assert server.stop(FAR) == 0, server.output
    assert f"has not moved for {HUNG} s" in server.output


def test_a_server_that_was_suspended_whole_goes_on_with_the_same_processes(start, models, make_photo):
    server = start(models, frontends=1, hung_seconds=HUNG)
    processes = [psutil.Process(server.process.pid), *psutil.Process(server.process.pid).children()]
    for process in processes:
        process.send_signal(signal.SIGSTOP)
    time.sleep(HUNG + 2)
    for process in processes:
        process.send_signal(signal.SIGCONT)
    until(lambda: ask(server, "POST", "/v1/classify/tiny", make_photo(0)) == 200, FAR)
    time.sleep(3)
    assert psutil.Process(server.process.pid).children() == processes[1:]
    assert server.stop() == 0, server.output


@pytest.mark.parametrize("gone", ["engine", pytest.param("frontend", marks=pytest.mark.slow)])  # both are started in one way
def test_a_process_that_cannot_be_started_is_tried_again(gone, start, models, make_photo):
    """Descriptors are used up when one has ended, as memory or the number of processes might be."""
    server = start(models, frontends=1, forks=False)
    limits = resource.prlimit(server.process.pid, resource.RLIMIT_NOFILE)
    resource.prlimit(server.process.pid, resource.RLIMIT_NOFILE, (4, limits[1]))
    server.children(gone)[0].kill()
    time.sleep(2)
    assert server.process.poll() is None
    resource.prlimit(server.process.pid, resource.RLIMIT_NOFILE, limits)
    until(lambda: ask(server, "POST", "/v1/classify/tiny", make_photo(0)) == 200, FAR)
    assert server.stop() == 0, server.output


def test_a_signal_ends_a_server_that_cannot_start_a_process(start, models):
    server = start(models, frontends=1)
    resource.prlimit(server.process.pid, resource.RLIMIT_NOFILE, (4, 4))
    server.children("engine")[0].kill()
    time.sleep(1)
    assert server.stop() == 0, server.output
