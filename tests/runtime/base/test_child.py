"""A process that is part of another one."""

import os
import signal
import socket
import subprocess
import sys
import time

import psutil

CHILD = (
    "import signal, time; from headrace.runtime.base.child import begin_child\n"
    "link = begin_child(); link.sendall(b'begun'); time.sleep(60)\n"
)
PARENT = f"""
import os, socket, subprocess, sys, time
ours, theirs = socket.socketpair()
child = subprocess.Popen([sys.executable, "-c", {CHILD!r}, str(theirs.fileno()), str(os.getpid())], pass_fds=[theirs.fileno()])
print(child.pid, ours.recv(5), flush=True)
time.sleep(60)
"""


def test_it_leaves_signals_to_its_parent_and_ends_with_it():
    with subprocess.Popen([sys.executable, "-c", PARENT], stdout=subprocess.PIPE, text=True) as parent:
        number, said = parent.stdout.readline().split(" ", 1)
        assert said == "b'begun'\n"
        child = psutil.Process(int(number))
        for asked in (signal.SIGTERM, signal.SIGINT):
            child.send_signal(asked)
        time.sleep(0.3)
        assert child.is_running()
        assert child.status() != psutil.STATUS_ZOMBIE
        parent.kill()
    psutil.wait_procs([child], timeout=30)
    assert not child.is_running() or child.status() == psutil.STATUS_ZOMBIE


def test_it_does_not_begin_where_its_parent_is_gone():
    ours, theirs = socket.socketpair()
    with ours, theirs:
        command = [sys.executable, "-c", CHILD, str(theirs.fileno()), str(os.getpid() + 10**6)]
        assert subprocess.run(command, pass_fds=[theirs.fileno()], timeout=60, check=False).returncode == 1
