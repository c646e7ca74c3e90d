"""The processes of split models in tests: forks of one that has imported what they need.

With an interpreter of its own each, as a session starts them, they are in runtime/artifact/split/test_members.py, and behind
the servers of serving/models.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence

import pytest

from tests.warm_python import WarmProcess, WarmPython

MEMBERS = (
    "onnxruntime",
    "headrace.runtime.artifact.pipeline.stage",
    "headrace.runtime.artifact.split.rank",
    "headrace.runtime.backends.*",
)
# Their parent is the process that forks. A parent that is told to be another one stays so: they must not begin then.
_PROGRAM = """
import importlib, os, sys
program, link, parent, name = sys.argv[1:]
sys.argv[1:] = [link, parent or str(os.getppid()), name]
importlib.import_module(program).main()
"""


class ForkedMembers:
    """What the module `subprocess` is to that of the members; their parent is `warm`, which ends with this process."""

    DEVNULL, TimeoutExpired = subprocess.DEVNULL, subprocess.TimeoutExpired

    def __init__(self, warm: WarmPython) -> None:
        self._warm = warm

    def Popen(self, command: Sequence[str], *, stdin: int | None = None, pass_fds: Sequence[int]) -> WarmProcess:
        *python, program, link, parent, name = command
        assert python == [sys.executable, "-P", "-m"]
        parent = "" if int(parent) == os.getpid() else parent
        return self._warm.popen(["-P", "-c", _PROGRAM, program, link, parent, name], stdin=stdin, pass_fds=pass_fds)


@contextlib.contextmanager
def forked_by(warm: WarmPython) -> Iterator[None]:
    from headrace.runtime.artifact.split import members

    with pytest.MonkeyPatch.context() as patches:
        patches.setattr(members, "subprocess", ForkedMembers(warm))
        yield
