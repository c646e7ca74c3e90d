"""Set limits on this process, cut it off from network and file system, and run a command: the child side of `sandbox`.

Run as a plain file by `python -I confine.py LIMITS.json-text COMMAND...`, so that it needs neither the package nor the
environment, and so that the parent needs no `preexec_fn` (which is not safe beside threads). Standard library only.

    confine ──fork──> init (process 1 of its own process namespace) ──fork, exec──> COMMAND

When init ends, the kernel ends every process of its namespace, whatever session or group they put themselves in.
What the platform does not allow is left out; the line written to the status descriptor says what holds.
See user_namespaces(7), pid_namespaces(7), mount_setattr(2), capabilities(7).
"""

from __future__ import annotations

import ctypes
import fcntl
import json
import os
import resource
import signal
import socket
import struct
import sys
import time
from typing import Any

CLONE_NEWNS, CLONE_NEWUSER, CLONE_NEWPID, CLONE_NEWNET, CLONE_NEWIPC = 0x20000, 0x10000000, 0x20000000, 0x40000000, 0x8000000
MS_NOSUID, MS_NODEV, MS_NOEXEC, MS_BIND, MS_REC, MS_PRIVATE = 0x2, 0x4, 0x8, 0x1000, 0x4000, 0x40000
SYS_MOUNT_SETATTR, AT_FDCWD, AT_RECURSIVE, MOUNT_ATTR_RDONLY = 442, -100, 0x8000, 0x1
PR_SET_PDEATHSIG, PR_CAPBSET_DROP, PR_SET_CHILD_SUBREAPER, PR_SET_NO_NEW_PRIVS = 1, 24, 36, 38
COUNTING_SECONDS = 0.02
SIOCSIFFLAGS, IFF_UP, IFF_RUNNING = 0x8914, 0x1, 0x40
# What a program needs to work with its own files as root: chown, dac_override, fowner, fsetid, kill, sys_nice.
KEPT_CAPABILITIES = frozenset({0, 1, 3, 4, 5, 23})


def main() -> None:
    limits: dict[str, Any] = json.loads(sys.argv[1])
    command = sys.argv[2:]
    _resource_limits(limits)
    held = _isolate(limits) if sys.platform == "linux" else {}
    os.chdir(os.getcwd())  # by name again: the open directory still lies on the mount before ours
    os.write(limits["status_fd"], json.dumps(held).encode() + b"\n")
    os.set_inheritable(limits["status_fd"], False)  # init may write a second line; the command must not
    if sys.platform == "linux":
        # Without a process namespace, orphans at least come back to this process, where the parent finds them.
        _libc().prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
        _libc().prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    init = os.fork()
    if init == 0:
        _init(command, bool(held.get("processes")), bool(held.get("filesystem")), limits)
    _end_like(os.waitpid(init, 0)[1])


def _resource_limits(limits: dict[str, Any]) -> None:
    """Private writable memory, not address space: torch and CUDA reserve far more addresses than they use."""
    wanted = {
        resource.RLIMIT_DATA: limits["memory_bytes"],
        resource.RLIMIT_FSIZE: limits["file_bytes"],
        resource.RLIMIT_CORE: 0,
    }
    if os.geteuid() != 0:  # the kernel does not hold root to it; the parent counts instead
        wanted[resource.RLIMIT_NPROC] = limits["tasks"]
    for kind, value in wanted.items():
        hard = resource.getrlimit(kind)[1]
        bound = value if hard == resource.RLIM_INFINITY else min(value, hard)
        resource.setrlimit(kind, (bound, bound))


def _isolate(limits: dict[str, Any]) -> dict[str, bool]:
    """Enter fresh namespaces, as many as the platform lets us, and say which hold."""
    libc = _libc()
    uid, gid = os.geteuid(), os.getegid()
    inner = CLONE_NEWNS | CLONE_NEWPID | CLONE_NEWIPC
    network = 0 if limits["network"] else CLONE_NEWNET
    for flags in (inner | network, inner | network | CLONE_NEWUSER, network, network | CLONE_NEWUSER):
        if not flags or libc.unshare(flags) != 0:
            continue
        if flags & CLONE_NEWUSER:
            for name, line in (("setgroups", "deny"), ("uid_map", f"{uid} {uid} 1"), ("gid_map", f"{gid} {gid} 1")):
                with open(f"/proc/self/{name}", "w", encoding="ascii") as file:
                    file.write(line)
        if flags & CLONE_NEWNET:
            _loopback_up()
        filesystem = bool(flags & CLONE_NEWNS) and _read_only_outside(limits["writable"], limits["shared_memory_bytes"])
        return {"network": bool(flags & CLONE_NEWNET), "processes": bool(flags & CLONE_NEWPID), "filesystem": filesystem}
    return {"network": False, "processes": False, "filesystem": False}


def _loopback_up() -> None:
    """Distributed scripts rendezvous on 127.0.0.1, which starts switched off in a new network namespace."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as handle:
        try:
            fcntl.ioctl(handle, SIOCSIFFLAGS, struct.pack("16sh22x", b"lo", IFF_UP | IFF_RUNNING))
        except OSError as error:
            print(f"headrace: loopback stays down: {error}", file=sys.stderr)  # noqa: T201


def _read_only_outside(writable: list[str], shared_memory_bytes: int) -> bool:
    """Make every mount read-only but the folders given and a /dev/shm of its own; false where the kernel refuses."""
    libc = _libc()
    if libc.mount(b"none", b"/", None, MS_REC | MS_PRIVATE, None) != 0:
        return False
    for folder in writable:
        if libc.mount(os.fsencode(folder), os.fsencode(folder), None, MS_BIND | MS_REC, None) != 0:
            return False
    if os.path.isdir("/dev/shm"):  # noqa: S108 - data loaders exchange tensors there
        options = f"size={shared_memory_bytes},mode=1777".encode()
        libc.mount(b"tmpfs", b"/dev/shm", b"tmpfs", MS_NOSUID | MS_NODEV, options)

    def attributes(path: str, flags: int, *, on: int = 0, off: int = 0) -> bool:
        record = struct.pack("QQQQ", on, off, 0, 0)
        return bool(libc.syscall(SYS_MOUNT_SETATTR, AT_FDCWD, os.fsencode(path), flags, record, len(record)) == 0)

    if not attributes("/", AT_RECURSIVE, on=MOUNT_ATTR_RDONLY):
        return False
    open_again = [attributes(folder, 0, off=MOUNT_ATTR_RDONLY) for folder in [*writable, "/dev/shm"] if os.path.isdir(folder)]  # noqa: S108
    return all(open_again)


def _init(command: list[str], own_namespace: bool, own_mounts: bool, limits: dict[str, Any]) -> None:
    """Process 1: start the command, collect orphans, end with the command's status.

    With a /proc of its own it also counts processes, which is quick, and ends all of them at once when they are too many: an
    observer outside is too slow for programs that fork without end.
    """
    libc = _libc()
    counts = False
    if sys.platform == "linux":
        libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if own_namespace and own_mounts:  # fails harmlessly inside containers that hide parts of /proc
            counts = libc.mount(b"proc", b"/proc", b"proc", MS_NOSUID | MS_NODEV | MS_NOEXEC, None) == 0
    child = os.fork()
    if child == 0:
        if sys.platform == "linux":
            for capability in set(range(64)) - KEPT_CAPABILITIES:
                libc.prctl(PR_CAPBSET_DROP, capability, 0, 0, 0)
            libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
        try:
            os.execvp(command[0], command)  # noqa: S606
        except OSError as error:
            print(f"headrace: cannot run {command[0]}: {error}", file=sys.stderr)  # noqa: T201
            os._exit(127)
    while True:
        pid, status = os.waitpid(-1, os.WNOHANG if counts else 0)
        if pid == 0:
            if sum(name.isdigit() for name in os.listdir("/proc")) > limits["processes"] + 1:
                os.write(limits["status_fd"], b"processes\n")
                os.kill(-1, signal.SIGKILL)
                os._exit(128 + signal.SIGKILL)
            time.sleep(COUNTING_SECONDS)
        elif pid == child:
            # A namespace's process 1 cannot end itself by signal, so the number travels as 128 + n, as in a shell.
            os._exit(os.WEXITSTATUS(status) if os.WIFEXITED(status) else 128 + os.WTERMSIG(status))


def _end_like(status: int) -> None:
    sys.exit(os.WEXITSTATUS(status) if os.WIFEXITED(status) else 128 + os.WTERMSIG(status))


def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


if __name__ == "__main__":
    main()
