"""`headrace ...`, whose Python in the sandbox is forked from a process that has torch imported, and whose probes are few; for
repositories that are ours.

The namespaces and limits are there; the capabilities are not dropped, for only an exec does that.
"""

import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]


def main() -> None:
    from headrace.cli import main as command
    from headrace.migrate.proving import confined_run

    sys.path[0] = str(ROOT)
    from tests.migrate import probes
    from tests.warm_python import SHARED, WarmProcess, WarmPython

    del sys.path[0]
    probes.take(probes.FEW)
    warm = WarmPython(control=socket.socket(fileno=int(os.environ.pop(SHARED))))

    class Subprocess:
        PIPE, TimeoutExpired = subprocess.PIPE, subprocess.TimeoutExpired

        @staticmethod
        def Popen(command: list[str], **options: Any) -> WarmProcess:
            return warm.popen(command[1:], execs=True, **options)

    confined_run.subprocess = Subprocess
    sys.argv[0] = "headrace"
    command()


main()
