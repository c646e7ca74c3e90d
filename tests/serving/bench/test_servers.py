"""The processes of a benchmark, on real subprocesses."""

import contextlib
import os
import signal
import subprocess
import sys
import time

import psutil
import pytest

from headrace.errors import BenchError
from headrace.serving.bench.servers import Server, Service, machine_seconds, own_seconds, run_to_end, terminate_as_exit

READY = "import json, os, sys, time; open(sys.argv[1], 'w').write(json.dumps({'http': 1, 'pid': os.getpid()}));"


def server(tmp_path, program, *, timeout=60.0):
    service = Service(name="thing", command=(sys.executable, "-c", program, "{ready}"), path="/x")
    return Server(service, folder=tmp_path, timeout_seconds=timeout)


def gone(pid):
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def eventually(condition, seconds=60.0):
    end = time.monotonic() + seconds
    while not condition() and time.monotonic() < end:
        time.sleep(0.02)
    return condition()


def test_a_server_that_does_not_start_is_shown_with_the_end_of_its_log(tmp_path):
    with (
        pytest.raises(BenchError, match="status 3") as caught,
        server(tmp_path, "print('port is taken'); raise SystemExit(3)") as one,
    ):
        one.wait_ready()
    assert "port is taken" in str(caught.value)
    assert "thing.log" in str(caught.value)


def test_a_restarted_server_is_another_process_whose_log_goes_on(tmp_path):
    with server(tmp_path, READY + "print(os.getpid(), flush=True); time.sleep(60)") as one:
        one.wait_ready()
        first = one.ready["pid"]
        one.pause()
        one.restart()
        second = one.ready["pid"]
        assert first != second
        assert gone(first)
        assert eventually(lambda: one.log.read_text().split() == [str(first), str(second)])
    assert gone(second)


def test_a_server_that_never_gets_ready_is_given_up_and_ended(tmp_path):
    with server(tmp_path, "import time; time.sleep(60)", timeout=0.5) as one:
        pid = one._process.pid
        with pytest.raises(BenchError, match="not ready within"):
            one.wait_ready()
    assert gone(pid)


def test_leaving_ends_the_server_and_its_children_even_when_they_ignore_sigterm(tmp_path):
    program = READY + (
        "import signal, subprocess; signal.signal(signal.SIGTERM, signal.SIG_IGN);"
        "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'], start_new_session=True);"
        "print(child.pid, flush=True); time.sleep(600)"
    )
    one = server(tmp_path, program)
    one.stop_seconds = 0.5
    with one:
        one.wait_ready()
        assert eventually(lambda: one.log.read_text().strip())
        pids = [one.ready["pid"], int(one.log.read_text())]
        one.pause()
    assert eventually(lambda: all(gone(pid) for pid in pids))


def test_a_paused_server_takes_no_processor_time(tmp_path):
    with server(tmp_path, READY + "\nwhile True: pass") as one:
        one.wait_ready()
        one.pause()
        assert eventually(lambda: psutil.Process(one.ready["pid"]).status() == psutil.STATUS_STOPPED)
        before = one.cpu_seconds()
        time.sleep(0.3)
        assert one.cpu_seconds() == before > 0
        one.resume()
        assert eventually(lambda: one.cpu_seconds() > before)
        assert one.memory_bytes() > 1_000_000


def test_facts_tell_the_command_the_allocator_and_the_variables(tmp_path, monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.setenv("SECRET", "x")
    with server(tmp_path, READY + "time.sleep(60)") as one:
        one.wait_ready()
        facts = one.facts()
    assert facts["command"][-1].endswith("thing.ready.json")
    assert facts["environment"]["OMP_NUM_THREADS"] == "1"
    assert "SECRET" not in facts["environment"]
    assert facts["allocator"]


def test_a_server_that_ends_under_load_is_noticed(tmp_path):
    with server(tmp_path, READY + "sys.exit(7)") as one:
        one.wait_ready()
        one._process.wait(60)
        with pytest.raises(BenchError, match="status 7 under load"):
            one.check_alive()


def test_a_load_generator_that_fails_or_hangs_is_an_error_and_is_ended(tmp_path):
    ticks = []
    failing = [sys.executable, "-c", "raise SystemExit('no such url')"]
    with pytest.raises(BenchError, match="no such url"):
        run_to_end(failing, log=tmp_path / "log", timeout_seconds=120, tick=lambda: ticks.append(1))
    hanging = [sys.executable, "-c", "import time; time.sleep(60)"]
    with pytest.raises(BenchError, match="did not finish"):
        run_to_end(hanging, log=tmp_path / "log", timeout_seconds=0.4, tick=lambda: ticks.append(1))
    assert ticks
    for child in psutil.Process().children():
        with contextlib.suppress(psutil.Error):  # one that has just ended
            assert "sleep(60)" not in " ".join(child.cmdline())


def test_sigterm_unwinds_and_ends_what_was_started(tmp_path):
    program = (
        "import sys, time; from pathlib import Path\n"
        "from headrace.serving.bench.servers import Service, Server, terminate_as_exit\n"
        f"one = Service(name='thing', command=(sys.executable, '-c', {READY + 'time.sleep(600)'!r}, '{{ready}}'), path='/')\n"
        "with terminate_as_exit(), Server(one, folder=Path(sys.argv[1]), timeout_seconds=120) as server:\n"
        "    server.wait_ready(); server.pause(); print(server.ready['pid'], flush=True); time.sleep(600)\n"
    )
    for number in (signal.SIGTERM, signal.SIGINT):
        with subprocess.Popen(
            [sys.executable, "-c", program, str(tmp_path)], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        ) as bench:
            pid = int(bench.stdout.readline())
            os.kill(bench.pid, number)
            assert bench.wait(120) != 0
        assert gone(pid)
    before = signal.getsignal(signal.SIGTERM)
    with terminate_as_exit():
        assert signal.getsignal(signal.SIGTERM) is not before
    assert signal.getsignal(signal.SIGTERM) is before


def test_processor_time_of_the_machine_and_of_this_process():
    machine, own = machine_seconds(), own_seconds()
    subprocess.run([sys.executable, "-c", "import time\nwhile time.process_time() < 0.4: pass"], check=True)
    assert 0.4 <= own_seconds() - own < 5
    assert machine_seconds() - machine > 0.3
