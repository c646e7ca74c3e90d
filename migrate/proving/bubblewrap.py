"""The walls of `confine` built by bubblewrap instead: for where it may make namespaces and this program may not.

That is where it is setuid root, or where the system lets named programs alone make them, as Ubuntu's AppArmor does. What
bubblewrap leaves to its caller (bounds, denied system calls, Landlock) `confine` does inside. See bwrap(1).
"""

from __future__ import annotations

import os
import shutil
import socket
import stat
from collections.abc import Sequence
from pathlib import Path
from typing import Any

VARIABLE = "HEADRACE_SANDBOX"
_OWN = ("/tmp", "/run", "/dev/shm")  # noqa: S108 - the sandbox's own
_DEVICES = ("/dev/dri", "/dev/kfd", "/dev/dxg")


def installed() -> str | None:
    """The program, where it is on PATH."""
    return shutil.which("bwrap")


def is_wanted() -> bool:
    """Whether HEADRACE_SANDBOX=bubblewrap says that no other walls are to be built."""
    return os.environ.get(VARIABLE) == "bubblewrap"


def arguments(program: str, settings: dict[str, Any], command: Sequence[str], cwd: Path) -> tuple[list[str], list[int]]:
    """The command behind the walls that `settings` asks for, and the file descriptors that it reads, to be closed after it."""
    uid, gid, home = os.geteuid(), os.getegid(), settings["home"]
    words = [program, "--unshare-user-try", "--unshare-ipc", "--unshare-pid", "--unshare-net", "--unshare-uts"]
    words += ["--unshare-cgroup-try", "--die-with-parent", "--cap-drop", "ALL", "--proc", "/proc", "--dev", "/dev"]
    sized = not os.stat(program).st_mode & stat.S_ISUID  # which it refuses then: half of the memory is the most
    for path in _OWN:
        size = 2**24 if path == "/run" else settings["shared_memory_bytes"]
        words += ["--perms", "1777", *(["--size", str(size)] if sized else []), "--tmpfs", path]
    shown = [(path, "--ro-bind-try") for path in settings["readable"]] + [(path, "--bind") for path in settings["writable"]]
    for path, how in sorted(shown, key=lambda item: item[0].count("/")):  # the outer ones first
        if not any(f"{own}/".startswith(f"{path.rstrip('/')}/") for own in _OWN):
            words += [how, path, path]
    for path in (*_DEVICES, *(f"/dev/{name}" for name in os.listdir("/dev") if name.startswith("nvidia"))):
        words += ["--dev-bind-try", path, path]
    texts = {
        "/etc/passwd": f"user:x:{uid}:{gid}::{home}:/bin/sh\n",
        "/etc/group": f"user:x:{gid}:\n",
        "/etc/hosts": f"127.0.0.1 localhost {socket.gethostname()}\n::1 localhost\n",
        "/etc/nsswitch.conf": "passwd: files\ngroup: files\nhosts: files\n",
    }
    handles = []
    for path, text in texts.items():
        handles.append(_file(text))
        words += ["--ro-bind-data", str(handles[-1]), path]
    words += ["--remount-ro", "/proc", "--remount-ro", "/", "--chdir", str(cwd), "--", *command]
    return words, handles


def _file(text: str) -> int:
    """A file without a name that is read from its beginning."""
    handle = os.memfd_create("headrace", os.MFD_CLOEXEC)
    os.write(handle, text.encode())
    os.lseek(handle, 0, os.SEEK_SET)
    return handle
