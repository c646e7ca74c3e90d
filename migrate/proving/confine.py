"""Set limits on this process, wall it off from files, network and other processes, and run a command: the child of `sandbox`.

Run as a plain file by `python -I confine.py LIMITS.json-text COMMAND...`, so that it needs neither the package nor the
environment, and so that the parent needs no `preexec_fn` (which is not safe beside threads). Standard library only.

    confine ──fork──> init (process 1 of its own process namespace) ──fork, exec──> COMMAND

The walls, as bubblewrap builds them: namespaces of its own (user, mount, pid, ipc, net, uts); an empty root into which only
the folders given are bound, read-only but for the writable ones, with /dev, /proc, /tmp and /run of its own; no capability
that administers; system calls denied that a script does not need and a break-out does. Where namespaces are refused, nothing
is run, unless the caller trusts the code: then Landlock, where the kernel has it, still keeps it from writing elsewhere.
With "walled" bubblewrap itself has built them, and this program is inside already (see `bubblewrap.py`).
When init ends, the kernel ends every process of its namespace, whatever session or group they put themselves in.
The line written to the status descriptor says what holds. See user_namespaces(7), pivot_root(2), seccomp(2), landlock(7).
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import json
import os
import platform
import re
import resource
import signal
import socket
import struct
import sys
import time
from typing import Any

CLONE_NEWNS, CLONE_NEWUTS, CLONE_NEWIPC, CLONE_NEWUSER = 0x20000, 0x4000000, 0x8000000, 0x10000000
CLONE_NEWPID, CLONE_NEWNET, ANY_NAMESPACE = 0x20000000, 0x40000000, 0x7E020080
MS_RDONLY, MS_NOSUID, MS_NODEV, MS_NOEXEC, MS_REMOUNT, MS_BIND, MS_REC, MS_PRIVATE = 1, 2, 4, 8, 0x20, 0x1000, 0x4000, 0x40000
MOUNT_OPTIONS = {
    "ro": 1, "nosuid": 2, "nodev": 4, "noexec": 8, "noatime": 0x400, "nodiratime": 0x800, "relatime": 0x200000,
}  # fmt: skip
MNT_DETACH = 2
PR_SET_PDEATHSIG, PR_SET_SECCOMP, PR_CAPBSET_DROP, PR_SET_CHILD_SUBREAPER, PR_SET_NO_NEW_PRIVS = 1, 22, 24, 36, 38
COUNTING_SECONDS = 0.05
SIOCSIFFLAGS, IFF_UP, IFF_RUNNING = 0x8914, 0x1, 0x40
REFUSED = 125
# What a program needs to work with its own files as root: chown, dac_override, fowner, fsetid, kill, sys_nice.
KEPT_CAPABILITIES = frozenset({0, 1, 3, 4, 5, 23})
DEVICES = ("null", "zero", "full", "random", "urandom", "dri", "kfd", "dxg")
# What a nested container hides of /proc it also forbids to mount anew: these are then shown one by one.
PROC_FILES = ("cpuinfo", "filesystems", "loadavg", "meminfo", "stat", "uptime", "version")

# Numbers on x86-64 and arm64; -1: not there. Denied with EPERM, as containers do.
DENIED = {
    "ptrace": (101, 117), "process_vm_readv": (310, 270), "process_vm_writev": (311, 271), "kcmp": (312, 272),
    "add_key": (248, 217), "request_key": (249, 218), "keyctl": (250, 219), "bpf": (321, 280), "perf_event_open": (298, 241),
    "userfaultfd": (323, 282), "mount": (165, 40), "umount2": (166, 39), "pivot_root": (155, 41), "chroot": (161, 51),
    "setns": (308, 268), "name_to_handle_at": (303, 264), "open_by_handle_at": (304, 265), "init_module": (175, 105),
    "finit_module": (313, 273), "delete_module": (176, 106), "kexec_load": (246, 104), "kexec_file_load": (320, 294),
    "reboot": (169, 142), "swapon": (167, 224), "swapoff": (168, 225), "acct": (163, 89), "settimeofday": (164, 170),
    "clock_settime": (227, 112), "adjtimex": (159, 171), "clock_adjtime": (305, 266), "quotactl": (179, 60),
    "iopl": (172, -1), "ioperm": (173, -1), "modify_ldt": (154, -1), "syslog": (103, 116), "vhangup": (153, 58),
    "fanotify_init": (300, 262), "io_uring_setup": (425, 425), "io_uring_enter": (426, 426), "io_uring_register": (427, 427),
    "open_tree": (428, 428), "move_mount": (429, 429), "fsopen": (430, 430), "fsconfig": (431, 431), "fsmount": (432, 432),
    "fspick": (433, 433), "pidfd_getfd": (438, 438), "mount_setattr": (442, 442), "quotactl_fd": (443, 443),
}  # fmt: skip
CLONE, UNSHARE, CLONE3 = (56, 220), (272, 97), 435
MACHINES = {"x86_64": (0xC000003E, 0), "aarch64": (0xC00000B7, 1)}
# landlock(7): every right that changes files, and what of them each version of the kernel's interface knows.
LANDLOCK_CREATE, LANDLOCK_ADD, LANDLOCK_SELF = 444, 445, 446
LANDLOCK_WRITES, LANDLOCK_REFER, LANDLOCK_TRUNCATE, LANDLOCK_ON_FILES = 0x1FF2, 0x2000, 0x4000, 0x4002


def main() -> None:
    limits: dict[str, Any] = json.loads(sys.argv[1])
    command = sys.argv[2:]
    _resource_limits(limits)
    held = {"network": False, "processes": False, "filesystem": False, "syscalls": False}
    if limits["walled"]:
        held.update(network=True, processes=True, filesystem=True)
        _init(command, held, limits)
    if sys.platform == "linux":
        try:
            _unshare(limits, held)
        except OSError as error:
            _refuse(limits, str(error))
        # Without a process namespace, orphans at least come back to this process, where the parent finds them.
        _libc().prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
        _libc().prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    init = os.fork()
    if init == 0:
        try:
            _init(command, held, limits)
        except (OSError, ValueError, LookupError) as error:
            _refuse(limits, f"{type(error).__name__}: {error}")
    _end_like(os.waitpid(init, 0)[1])


def _resource_limits(limits: dict[str, Any]) -> None:
    """Private writable memory, not address space: torch and CUDA reserve far more addresses than they use."""
    wanted = {
        resource.RLIMIT_DATA: limits["memory_bytes"],
        resource.RLIMIT_FSIZE: limits["file_bytes"],
        resource.RLIMIT_CORE: 0,
    }
    if os.geteuid() != 0:  # the kernel does not hold root to it; init counts instead
        wanted[resource.RLIMIT_NPROC] = limits["tasks"]
    for kind, value in wanted.items():
        hard = resource.getrlimit(kind)[1]
        bound = value if hard == resource.RLIM_INFINITY else min(value, hard)
        resource.setrlimit(kind, (bound, bound))


def _unshare(limits: dict[str, Any], held: dict[str, bool]) -> None:
    """Enter fresh namespaces, as many as the platform lets us."""
    network = 0 if limits["network"] else CLONE_NEWNET
    inner = CLONE_NEWNS | CLONE_NEWPID | CLONE_NEWIPC | CLONE_NEWUTS
    for flags in (inner | network | CLONE_NEWUSER, inner | network, network | CLONE_NEWUSER, network):
        uid, gid = os.geteuid(), os.getegid()
        with _IdentityMap() as wider:
            if not flags or _libc().unshare(flags) != 0:
                continue
            if flags & CLONE_NEWUSER and not wider.write():
                for name, line in (("setgroups", "deny"), ("uid_map", f"{uid} {uid} 1"), ("gid_map", f"{gid} {gid} 1")):
                    with open(f"/proc/self/{name}", "w", encoding="ascii") as file:
                        file.write(line)
        held["network"], held["processes"] = bool(flags & CLONE_NEWNET), bool(flags & CLONE_NEWPID)
        if flags & CLONE_NEWNET:
            _loopback_up()
        return


class _IdentityMap:
    """A process outside of the new user namespace, which maps every user to itself where this one may: root sees all files of
    the folders that it was given, and has its rights over nothing else."""

    def __enter__(self) -> _IdentityMap:
        self._ask, self._answer, self._helper = -1, -1, 0
        if os.geteuid() == 0:
            asked, self._ask = os.pipe()
            self._answer, answered = os.pipe()
            self._helper = os.fork()
            if self._helper == 0:
                os.close(self._ask)
                os._exit(self._map(asked, answered))
            os.close(asked)
            os.close(answered)
        return self

    def _map(self, asked: int, answered: int) -> int:
        if not os.read(asked, 1):
            return 0
        try:
            for name in ("uid_map", "gid_map"):
                with open(f"/proc/self/{name}", encoding="ascii") as file:
                    known = [line.split() for line in file]
                with open(f"/proc/{os.getppid()}/{name}", "w", encoding="ascii") as file:
                    file.write("".join(f"{first} {first} {count}\n" for first, _, count in known))
        except OSError:
            return 1
        os.write(answered, b"1")
        return 0

    def write(self) -> bool:
        if not self._helper:
            return False
        os.write(self._ask, b"1")
        os.close(self._ask)
        self._ask = -1
        return os.read(self._answer, 1) == b"1"

    def __exit__(self, *_: object) -> None:
        for handle in (self._ask, self._answer):
            if handle >= 0:
                os.close(handle)
        if self._helper:
            os.waitpid(self._helper, 0)


def _loopback_up() -> None:
    """Distributed scripts rendezvous on 127.0.0.1, which starts switched off in a new network namespace."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as handle:
        try:
            fcntl.ioctl(handle, SIOCSIFFLAGS, struct.pack("16sh22x", b"lo", IFF_UP | IFF_RUNNING))
        except OSError as error:
            print(f"headrace: loopback stays down: {error}", file=sys.stderr)  # noqa: T201


class _Root:
    """A new root, in which there is only what is shown. Paths lead to the same files as outside, links on the way too."""

    def __init__(self, base: str, volatile_bytes: int) -> None:
        """`base` is any folder; it is covered for a moment only."""
        self._seen: set[str] = set()
        self._writable: set[str] = set()
        self._own: list[str] = []
        _mount("none", "/", None, MS_REC | MS_PRIVATE)
        _mount("tmpfs", base, "tmpfs", MS_NOSUID | MS_NODEV, "mode=755,size=16m")
        for name in ("old", "new"):
            os.mkdir(f"{base}/{name}", 0o755)
        _call("pivot_root", _libc().pivot_root(base.encode(), f"{base}/old".encode()))
        os.chdir("/")
        _mount("tmpfs", "/new", "tmpfs", MS_NOSUID | MS_NODEV, "mode=755,size=16m")
        self.volatile("/tmp", volatile_bytes)  # noqa: S108 - the sandbox's own
        self.volatile("/run", 2**24)
        self.volatile("/dev/shm", volatile_bytes)  # noqa: S108 - data loaders exchange tensors there

    def volatile(self, path: str, size: int) -> None:
        os.makedirs(f"/new{path}", exist_ok=True)
        _mount("tmpfs", f"/new{path}", "tmpfs", MS_NOSUID | MS_NODEV, f"mode=1777,size={size}")
        self._writable.add(path)
        self._own.append(path)

    def text(self, path: str, content: str) -> None:
        os.makedirs(os.path.dirname(f"/new{path}"), exist_ok=True)
        with open(f"/new{path}", "w", encoding="utf-8") as file:
            file.write(content)

    def show(self, path: str, *, writable: bool = False) -> None:
        """Bind a file or folder to its own place. Links that lead to it become the same links."""
        here = self._real(path)
        if here is None or not os.path.lexists(f"/old{here}") or any(f"{own}/".startswith(f"{here}/") for own in self._own):
            return
        if writable:
            self._writable.add(here)
        elif self._closest(here) in self._seen - self._writable:
            return
        self._seen.add(here)
        if os.path.isdir(f"/old{here}"):
            os.makedirs(f"/new{here}", exist_ok=True)
        else:
            os.makedirs(os.path.dirname(f"/new{here}"), exist_ok=True)
            if not os.path.lexists(f"/new{here}"):
                os.close(os.open(f"/new{here}", os.O_CREAT | os.O_WRONLY, 0o600))
        _mount(f"/old{here}", f"/new{here}", None, MS_BIND | MS_REC)

    def _real(self, path: str) -> str | None:
        """The path with its links followed, each of them made in the new root; None where it leads into one that is bound."""
        real, rest = "", [part for part in path.split("/") if part]
        for _ in range(200):
            if not rest:
                return real or "/"
            part = rest.pop(0)
            if part == "..":
                real = os.path.dirname(real).rstrip("/")
            elif os.path.islink(f"/old{real}/{part}"):
                target = os.readlink(f"/old{real}/{part}")
                if not os.path.lexists(f"/new{real}/{part}"):
                    os.makedirs(f"/new{real}", exist_ok=True)
                    os.symlink(target, f"/new{real}/{part}")
                real = "" if target.startswith("/") else real
                rest = [one for one in target.split("/") if one and one != "."] + rest
            else:
                real = f"{real}/{part}"
        return None

    def devices(self) -> None:
        names = [*DEVICES, *(name for name in os.listdir("/old/dev") if name.startswith("nvidia"))]
        for name in names:
            self.show(f"/dev/{name}")
        for name, target in (("fd", "self/fd"), ("stdin", "self/fd/0"), ("stdout", "self/fd/1"), ("stderr", "self/fd/2")):
            os.symlink(f"/proc/{target}", f"/new/dev/{name}")
        os.mkdir("/new/dev/pts")
        with contextlib.suppress(OSError):  # no terminals then
            _mount("devpts", "/new/dev/pts", "devpts", MS_NOSUID | MS_NOEXEC, "newinstance,ptmxmode=0666,mode=620")
            os.symlink("pts/ptmx", "/new/dev/ptmx")
            self._writable.add("/dev/pts")

    def processes(self) -> bool:
        """A /proc of this namespace's processes alone; where that is refused, a few files of the outer one.

        It is closed to writing as all else: the system's settings below it obey any user 0, capabilities or not.
        """
        os.makedirs("/new/proc", exist_ok=True)
        try:
            _mount("proc", "/new/proc", "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC)
        except OSError:
            for name in PROC_FILES:
                self.show(f"/proc/{name}")
            return False
        return True

    def enter(self) -> None:
        """Close everything to writing that is not to be written, leave the old root for good, and go where we were."""
        proc = "/new/proc" if os.path.exists("/new/proc/self/mountinfo") else "/old/proc"
        with open(f"{proc}/self/mountinfo", encoding="utf-8", errors="surrogateescape") as file:
            mounts = [(line.split()[4].encode("utf-8", "surrogateescape"), line.split()[5]) for line in file]
        for raw, options in mounts:
            place = os.fsdecode(re.sub(rb"\\(\d{3})", lambda octal: bytes([int(octal[1], 8)]), raw))
            inside = place.removeprefix("/new") or "/"
            below = any(inside == path or inside.startswith(f"{path}/") for path in self._writable)
            bound = self._closest(inside)
            if not (place == "/new" or place.startswith("/new/")) or (below and bound in self._writable):
                continue
            kept = sum({MOUNT_OPTIONS.get(option, 0) for option in options.split(",")})
            closed = MS_NOSUID | (0 if inside.startswith("/dev/") else MS_NODEV)
            _mount("none", place, None, MS_REMOUNT | MS_BIND | MS_RDONLY | closed | kept)
        os.chdir("/new")
        _call("pivot_root", _libc().pivot_root(b".", b"."))
        _call("umount2", _libc().umount2(b".", MNT_DETACH))
        os.chdir("/")

    def _closest(self, inside: str) -> str:
        """The innermost of what was shown that holds a path."""
        holding = [path for path in self._seen | self._writable if inside == path or inside.startswith(f"{path}/")]
        return max(holding, key=len, default="/")


def _wall_off(limits: dict[str, Any]) -> bool:
    """Build the new root and enter it; whether it has a /proc of its own. Raises OSError where the kernel refuses."""
    here = os.getcwd()
    root = _Root(limits["writable"][0], limits["shared_memory_bytes"])
    shown = [(path, False) for path in limits["readable"]] + [(path, True) for path in limits["writable"]]
    for path, writable in sorted(shown, key=lambda item: item[0].count("/")):  # the outer ones first
        root.show(path, writable=writable)
    root.devices()
    uid, gid, host = os.geteuid(), os.getegid(), socket.gethostname()
    users = f"user:x:{uid}:{gid}::{limits['home']}:/bin/sh\nroot:x:0:0::{limits['home']}:/bin/sh\n"
    root.text("/etc/passwd", users if uid else users.split("\n")[1] + "\n")
    root.text("/etc/group", "root:x:0:\n" + (f"user:x:{gid}:\n" if gid else ""))
    root.text("/etc/hosts", f"127.0.0.1 localhost {host}\n::1 localhost\n")
    root.text("/etc/nsswitch.conf", "passwd: files\ngroup: files\nhosts: files\n")
    own = root.processes()
    os.makedirs(f"/new{here}", exist_ok=True)
    root.enter()
    os.chdir(here)
    return own


def _init(command: list[str], held: dict[str, bool], limits: dict[str, Any]) -> None:
    """Process 1: wall everything off, start the command, collect orphans, end with the command's status.

    With a /proc of its own it also counts processes, which is quick, and ends all of them at once when they are too many: an
    observer outside is too slow for programs that fork without end.
    """
    counts = False
    if sys.platform == "linux":
        _libc().prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if limits["walled"]:
        counts = True
    elif not limits["trusted"]:
        missing = [name for name in ("processes", "network") if not (held[name] or (limits["network"] and name == "network"))]
        if missing:
            raise PermissionError(f"the system lets no process cut itself off from {' and '.join(missing)}")
        counts = _wall_off(limits)
        held["filesystem"] = True
    elif held["processes"]:
        with contextlib.suppress(OSError):  # inside containers that hide parts of /proc
            _mount("none", "/", None, MS_REC | MS_PRIVATE)
            _mount("proc", "/proc", "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC)
            counts = True
    child = os.fork()
    if child == 0:
        try:
            if sys.platform == "linux":
                for capability in set(range(64)) - KEPT_CAPABILITIES:
                    _libc().prctl(PR_CAPBSET_DROP, capability, 0, 0, 0)
                _libc().prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
                _libc().prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
                own = () if limits["trusted"] else ("/tmp", "/run")  # noqa: S108
                held["filesystem"] |= _landlock([*limits["writable"], "/dev", *own])
                held["syscalls"] = _deny_system_calls()
            os.write(limits["status_fd"], json.dumps(held).encode() + b"\n")
            os.close(limits["status_fd"])
            os.execvp(command[0], command)  # noqa: S606
        except OSError as error:
            print(f"headrace: cannot run {command[0]}: {error}", file=sys.stderr)  # noqa: T201
            os._exit(127)
    while True:
        pid, status = os.waitpid(-1, os.WNOHANG if counts else 0)
        if pid == 0:
            if sum(name.isdigit() for name in os.listdir("/proc")) > limits["processes"] + (2 if limits["walled"] else 1):
                os.write(limits["status_fd"], b"processes\n")
                os.kill(-1, signal.SIGKILL)
                os._exit(128 + signal.SIGKILL)
            time.sleep(COUNTING_SECONDS)
        elif pid == child:
            # A namespace's process 1 cannot end itself by signal, so the number travels as 128 + n, as in a shell.
            os._exit(os.WEXITSTATUS(status) if os.WIFEXITED(status) else 128 + os.WTERMSIG(status))


def _landlock(writable: list[str]) -> bool:
    """Let nothing be written but below these folders; false where the kernel has no Landlock."""
    libc = _libc()
    version = libc.syscall(LANDLOCK_CREATE, None, 0, 1)
    if version < 1:
        return False
    rights = LANDLOCK_WRITES | (LANDLOCK_REFER if version >= 2 else 0) | (LANDLOCK_TRUNCATE if version >= 3 else 0)
    rules = libc.syscall(LANDLOCK_CREATE, struct.pack("Q", rights), 8, 0)
    if rules < 0:
        return False
    for path in writable:
        try:
            handle = os.open(path, os.O_PATH | os.O_CLOEXEC)
        except OSError:
            continue
        allowed = rights if os.path.isdir(path) else rights & LANDLOCK_ON_FILES
        libc.syscall(LANDLOCK_ADD, rules, 1, struct.pack("=Qi", allowed, handle), 0)
        os.close(handle)
    done = libc.syscall(LANDLOCK_SELF, rules, 0) == 0
    os.close(rules)
    return bool(done)


def _deny_system_calls() -> bool:
    """Install the filter; false on a machine whose numbers are not known here."""
    if platform.machine() not in MACHINES:
        return False
    architecture, column = MACHINES[platform.machine()]
    load, equal, at_least, any_bit, end = 0x20, 0x15, 0x35, 0x45, 0x06
    kill, allow, denied, unknown = 0x80000000, 0x7FFF0000, 0x50000 | 1, 0x50000 | 38

    def one(code: int, value: int, yes: int = 0, no: int = 0) -> bytes:
        return struct.pack("HBBI", code, yes, no, value)

    program = [one(load, 4), one(equal, architecture, 1, 0), one(end, kill), one(load, 0)]
    program += [one(at_least, 0x40000000, 0, 1), one(end, denied)]  # x86-64's second set of numbers
    for number in sorted({numbers[column] for numbers in DENIED.values()} - {-1}):
        program += [one(equal, number, 0, 1), one(end, denied)]
    program += [one(equal, CLONE3, 0, 1), one(end, unknown)]  # its flags lie in memory; the C library falls back to clone
    for number in (CLONE[column], UNSHARE[column]):
        program += [one(equal, number, 0, 4), one(load, 16), one(any_bit, ANY_NAMESPACE & ~0x80, 0, 1), one(end, denied)]
        program += [one(end, allow)]
    program += [one(end, allow)]
    code = b"".join(program)
    buffer = ctypes.create_string_buffer(code)
    header = struct.pack("HxxxxxxP", len(program), ctypes.addressof(buffer))
    return bool(_libc().prctl(PR_SET_SECCOMP, 2, header, 0, 0) == 0)


def _mount(source: str, target: str, kind: str | None, flags: int, options: str = "") -> None:
    arguments = (os.fsencode(source), os.fsencode(target), kind.encode() if kind else None, flags, options.encode() or None)
    _call(f"mount of {target}", _libc().mount(*arguments))


def _call(what: str, result: int) -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{os.strerror(number)} ({what})")


def _refuse(limits: dict[str, Any], why: str) -> None:
    """Nothing was run: say so, and why."""
    os.write(limits["status_fd"], json.dumps({"refused": why}).encode() + b"\n")
    os._exit(REFUSED)


def _end_like(status: int) -> None:
    sys.exit(os.WEXITSTATUS(status) if os.WIFEXITED(status) else 128 + os.WTERMSIG(status))


_LIBC: list[ctypes.CDLL] = []


def _libc() -> ctypes.CDLL:
    if not _LIBC:
        _LIBC.append(ctypes.CDLL(None, use_errno=True))
    return _LIBC[0]


if __name__ == "__main__":
    main()
