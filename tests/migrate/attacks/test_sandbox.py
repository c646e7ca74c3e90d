"""A repository's code that means harm, in the sandbox: what it tries fails, as root and as a plain user.

Each way out is tried by one program in one run; the tests look at what became of it. Where no namespaces can be made, nothing
is run unless the user says so, and even then nothing outside is written.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from headrace.migrate.proving.bubblewrap import VARIABLE, installed

# In a user namespace that maps this user to 1000: no capability, no root, and the files can still be read.
AS_USER = """
import ctypes, os
uid, gid = os.geteuid(), os.getegid()
assert ctypes.CDLL(None).unshare(0x10000000) == 0
for name, line in (("setgroups", "deny"), ("uid_map", f"1000 {uid} 1"), ("gid_map", f"1000 {gid} 1")):
    with open(f"/proc/self/{name}", "w") as file:
        file.write(line)
"""
# As a container does that allows no namespaces: the filter of the sandbox itself, on the process that wants to make one.
WITHOUT_NAMESPACES = """
from headrace.migrate.proving import confine
assert confine._libc().prctl(confine.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0
assert confine._deny_system_calls()
"""
RUN = """
import json, os, sys
from pathlib import Path
from headrace.migrate.proving.confined_run import Limits, clean_environment, run
place, code, trusted = Path(sys.argv[2]), sys.argv[3], sys.argv[4] == "trusted"
done = run(
    [sys.executable, "-c", code], cwd=place, environment=clean_environment(place), writable=[place], trusted=trusted,
    limits=Limits(timeout=60),
)
print(json.dumps({"exit": done.exit, "stdout": done.stdout, "stderr": done.stderr, "stopped": done.stopped, "why": done.why,
                  "isolation": dict(done.isolation)}))
"""
LAUNCH = "import os, sys; {before}\nos.execv(sys.executable, [sys.executable, '-c', sys.argv[1], *sys.argv[1:]])"


def sandboxed(place: Path, code: str, *, before: str = "", trusted: bool = False, walls: str = "own") -> dict[str, Any]:
    place.mkdir(exist_ok=True)
    prelude = before if "confine" in before else ""
    launch = LAUNCH.format(before=before if not prelude else "pass")
    arguments = [prelude + RUN, str(place), code, "trusted" if trusted else "untrusted"]
    done = subprocess.run(
        [sys.executable, "-c", launch, *arguments],
        capture_output=True, text=True, check=False, timeout=120, env={**os.environ, VARIABLE: walls},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


HARM = """
import os
inherited = sorted(os.readlink(f"/proc/self/fd/{name}").split(":")[0] for name in os.listdir("/proc/self/fd")
                   if os.path.lexists(f"/proc/self/fd/{name}"))
import ctypes, json, socket, struct, sys  # libffi keeps a file of its own open
outside, socket_path, abstract, port, parent = sys.argv[1:]
libc = ctypes.CDLL(None, use_errno=True)
found = {"inherited": inherited}

def attempt(name):
    def decorate(act):
        try:
            found[name] = repr(act())
        except OSError as error:
            found[name] = type(error).__name__
    return decorate

def call(result):
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return result

MACHINE = os.uname().machine == "x86_64"
NUMBERS = {"ptrace": (101, 117), "keyctl": (250, 219), "add_key": (248, 217), "bpf": (321, 280), "perf_event_open": (298, 241),
           "userfaultfd": (323, 282), "process_vm_readv": (310, 270), "open_by_handle_at": (304, 265),
           "io_uring_setup": (425, 425),
           "fsopen": (430, 430), "open_tree": (428, 428), "pidfd_getfd": (438, 438), "kexec_load": (246, 104),
           "init_module": (175, 105), "setns": (308, 268), "chroot": (161, 51), "pivot_root": (155, 41), "syslog": (103, 116)}
for name, numbers in NUMBERS.items():
    attempt(f"syscall {name}")(lambda: call(libc.syscall(numbers[0 if MACHINE else 1], 0, 0, 0, 0, 0)))
attempt("new user namespace by unshare")(lambda: call(libc.unshare(0x10000000)))
attempt("new mount namespace by unshare")(lambda: call(libc.unshare(0x20000)))
attempt("new user namespace by clone")(lambda: call(libc.syscall(56 if MACHINE else 220, 0x10000000 | 17, 0, 0, 0, 0)))
attempt("new user namespace by clone3")(lambda: call(libc.syscall(435, struct.pack("11Q", 0x10000000, *[0] * 10), 88)))
attempt("remount for writing")(lambda: call(libc.mount(b"none", b"/usr", None, 0x20 | 0x1000, None)))
attempt("unmount")(lambda: call(libc.umount2(b"/usr", 2)))
attempt("make a device")(lambda: os.mknod("disk", 0o60600, os.makedev(254, 0)))

@attempt("a socket of the file system")
def _():
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(socket_path)

@attempt("an abstract socket")
def _():
    with socket.socket(socket.AF_UNIX) as client:
        client.connect("\\0" + abstract)

@attempt("a port of this machine")
def _():
    socket.create_connection(("127.0.0.1", int(port)), 2)

@attempt("another machine")
def _():
    socket.create_connection(("192.0.2.1", 9), 2)

os.symlink(outside, "link")
for name, path in (("a file outside", outside), ("through a link of its own", "link"),
                   ("through init", "/proc/1/root" + outside),
                   ("through the parent", f"/proc/{parent}/root{outside}"), ("the home folder", os.path.dirname(outside)),
                   ("passwords", "/etc/shadow"), ("keys of ssh", "/etc/ssh"), ("docker", "/var/run/docker.sock")):
    attempt(f"read {name}")(lambda: os.listdir(path) if os.path.isdir(path) else open(path, "rb").read(10))
for path in ("/usr/bin/planted", "/etc/ld.so.preload", os.path.join(sys.prefix, "planted.pth"), "/planted",
             "/sys/kernel/mm/ksm/run", os.path.dirname(os.path.abspath(os.__file__)) + "/planted.py"):
    attempt(f"write {path}")(lambda: open(path, "a").close())  # opening does no harm yet
attempt("signal the parent")(lambda: os.kill(int(parent), 0))
for path in ("/proc/sys/kernel/core_pattern", "/proc/sys/vm/drop_caches", "/proc/sysrq-trigger", "/proc/self/oom_score_adj"):
    attempt(f"write {path}")(lambda: open(path, "a").close())
found["processes in sight"] = sum(name.isdigit() for name in os.listdir("/proc"))
found["root"] = sorted(os.listdir("/"))
found["tmp"] = sorted(os.listdir("/tmp"))
found["run"] = os.listdir("/run")
open("/tmp/own", "w").write("x"); open("/dev/shm/own", "w").write("x"); open("/dev/null", "w").write("x")
os.openpty()
print(json.dumps(found))
"""


@pytest.fixture(scope="module")
def outside(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A home folder with a secret and a listening socket."""
    folder = tmp_path_factory.mktemp("home-of-the-user")
    (folder / "secret").write_text("hunter2")
    with socket.socket(socket.AF_UNIX) as server, socket.socket(socket.AF_UNIX) as abstract, socket.socket() as tcp:
        os.chdir(folder)  # the path of a socket must be short
        server.bind("s")
        server.listen()
        abstract.bind(f"\0headrace-{os.getpid()}")
        abstract.listen()
        tcp.bind(("127.0.0.1", 0))
        tcp.listen()
        (folder / "port").write_text(str(tcp.getsockname()[1]))
        os.chdir("/")
        yield folder


@pytest.fixture(
    scope="module",
    params=["as we are", "as a plain user", "as we are, by bubblewrap", "as a plain user, by bubblewrap"],
)
def harm(request: pytest.FixtureRequest, outside: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    place = tmp_path_factory.mktemp("scratch")
    argv = [
        str(outside / "secret"),
        str(outside / "s"),
        f"headrace-{os.getpid()}",
        (outside / "port").read_text(),
        str(os.getpid()),
    ]
    code = f"import sys\nsys.argv[1:] = {argv!r}\n" + textwrap.dedent(HARM)
    walls = "bubblewrap" if "bubblewrap" in request.param else "own"
    if walls == "bubblewrap" and installed() is None:
        pytest.skip("bubblewrap is not installed")
    done = sandboxed(place, code, before=AS_USER if "plain" in request.param else "", walls=walls)
    if done["stopped"] == "isolation":
        pytest.skip(done["why"])
    assert done["exit"] == 0, done
    assert all(done["isolation"].values()), done["isolation"]
    return {**json.loads(done["stdout"]), "walls": walls}


REFUSED = {
    "PermissionError",
    "OSError",
    "FileNotFoundError",
    "NotADirectoryError",
    "ConnectionRefusedError",
    "ProcessLookupError",
}
ATTEMPTS = 45


def test_every_way_out_is_closed(harm: dict[str, Any]) -> None:
    results = {name: result for name, result in harm.items() if isinstance(result, str) and name != "walls"}
    assert len(results) >= ATTEMPTS
    assert {name: result for name, result in results.items() if result not in REFUSED} == {}


def test_denied_calls_are_denied_not_just_failing(harm: dict[str, Any]) -> None:
    calls = {name: result for name, result in harm.items() if name.startswith(("syscall", "new ", "remount", "unmount"))}
    assert set(calls.values()) == {"PermissionError", "OSError"}
    assert [name for name, result in calls.items() if result == "OSError"] == ["new user namespace by clone3"], "ENOSYS"


def test_nothing_else_is_in_sight(harm: dict[str, Any]) -> None:
    assert harm["processes in sight"] == (2 if harm["walls"] == "own" else 3)
    assert harm["run"] == []
    assert not {"home", "mnt", "var", "boot", "srv", "media"} & set(harm["root"])
    assert [name for name in harm["inherited"] if not name.startswith(("/dev/pts/", "/proc/", "pipe"))] == []


TRUST = """
from headrace.errors import SandboxError
from headrace.migrate.proving.sandbox import trust_repository
for asked in (False, True):
    try:
        print("unwalled" if trust_repository(asked) else "walled")
    except SandboxError as error:
        print("refused" if "--trust-repository" in str(error) else error)
"""


def test_walls_are_used_where_there_are_any_and_missed_only_by_word(monkeypatch: pytest.MonkeyPatch) -> None:
    def answers(before: str) -> list[str]:
        command = [sys.executable, "-c", before + TRUST]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()

    monkeypatch.delenv("HEADRACE_TRUST_REPOSITORY", raising=False)
    assert answers("") in (["walled", "walled"], ["refused", "unwalled"]), "as this machine allows; trust changes no wall"
    assert answers(WITHOUT_NAMESPACES) == ["refused", "unwalled"]
    monkeypatch.setenv("HEADRACE_TRUST_REPOSITORY", "1")
    assert answers(WITHOUT_NAMESPACES) == ["unwalled", "unwalled"]


@pytest.mark.parametrize("before", ["", AS_USER], ids=["as we are", "as a plain user"])
def test_without_namespaces_nothing_is_run(tmp_path: Path, before: str) -> None:
    nested = f"import os\n{before}\n{WITHOUT_NAMESPACES}"
    done = sandboxed(tmp_path / "scratch", "open('ran', 'w')", before=nested)
    assert done["stopped"] == "isolation"
    assert "cut itself off" in done["why"]
    assert not (tmp_path / "scratch/ran").exists()


# A plain user who may make no user namespace, beside a bubblewrap that is setuid root: where no more namespaces are allowed.
SETUID_BUBBLEWRAP = """
import os, shutil
from headrace.migrate.proving import confine
with confine._IdentityMap() as wider:
    assert confine._libc().unshare(confine.CLONE_NEWUSER) == 0
    assert wider.write()
with open("/proc/sys/user/max_user_namespaces", "w") as file:
    file.write("0")
shutil.copy(shutil.which("bwrap"), {folder!r})
os.chmod({folder!r} + "/bwrap", 0o4755)
os.setgid(0)
os.setresuid(1000, 1000, 1000)
assert confine._libc().unshare(confine.CLONE_NEWUSER) != 0
os.environ.update(PATH={folder!r} + ":" + os.environ["PATH"], HOME="/nowhere")
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to make bubblewrap setuid")
@pytest.mark.skipif(installed() is None, reason="bubblewrap is not installed")
@pytest.mark.skipif(
    not all(path.stat().st_mode & 0o011 == 0o011 for path in Path(sys.executable).resolve().parents),
    reason="others cannot reach this Python",
)
def test_bubblewrap_builds_the_walls_where_only_it_may(tmp_path: Path) -> None:
    for name in ("bin", "scratch"):
        (tmp_path / name).mkdir()
        (tmp_path / name).chmod(0o777)
    for folder in [tmp_path, *tmp_path.parents][:3]:
        folder.chmod(folder.stat().st_mode | 0o055)
    code = (
        "import os; print(os.path.exists('/etc/shadow'), os.geteuid(), os.listdir('/home') if os.path.exists('/home') else 0)"
    )
    done = sandboxed(tmp_path / "scratch", code, before=SETUID_BUBBLEWRAP.format(folder=str(tmp_path / "bin")))
    assert (done["stopped"], done["stdout"]) == (None, "False 1000 0\n"), done
    assert all(done["isolation"].values()), done["isolation"]


HIDDEN_PROC = """
import ctypes, os
uid, gid, libc = os.geteuid(), os.getegid(), ctypes.CDLL(None)
assert libc.unshare(0x10020000) == 0
for name, line in (("setgroups", "deny"), ("uid_map", f"{uid} {uid} 1"), ("gid_map", f"{gid} {gid} 1")):
    with open(f"/proc/self/{name}", "w") as file:
        file.write(line)
assert libc.mount(b"none", b"/", None, 0x44000, None) == 0
assert libc.mount(b"tmpfs", b"/proc/sys", b"tmpfs", 0, None) == 0
"""


def test_where_no_proc_can_be_mounted_the_outer_one_is_not_shown(tmp_path: Path) -> None:
    """As in containers that hide parts of /proc: the outer one would lead out, through the root of any process in it."""
    done = sandboxed(
        tmp_path / "scratch", "import os; print(sorted(os.listdir('/proc')), os.cpu_count() > 0)", before=HIDDEN_PROC
    )
    names = ["cpuinfo", "filesystems", "loadavg", "meminfo", "stat", "uptime", "version"]
    assert done["stdout"] == f"{names} True\n", done


@pytest.fixture
def on_disk(tmp_path: Path) -> Iterator[Path]:
    """A folder that is not in shared memory, to which such code may write."""
    if not tmp_path.is_relative_to("/dev"):
        yield tmp_path
        return
    with tempfile.TemporaryDirectory(dir="/var/tmp") as folder:
        yield Path(folder)


@pytest.mark.parametrize("before", ["", AS_USER], ids=["as we are", "as a plain user"])
def test_trusted_code_without_namespaces_writes_nothing_outside(on_disk: Path, before: str) -> None:
    (on_disk / "precious").write_text("keep me")
    code = f"""
open("ran", "w").write("x")
for mode in ("w", "a", "r+"):
    try:
        open({str(on_disk / "precious")!r}, mode)
    except PermissionError:
        print("denied")
import os
os.remove({str(on_disk / "precious")!r})
"""
    done = sandboxed(on_disk / "scratch", code, before=f"import os\n{before}\n{WITHOUT_NAMESPACES}", trusted=True)
    if not done["isolation"]["filesystem"]:
        pytest.skip("this kernel has no Landlock")
    assert (done["stdout"], done["isolation"]["processes"]) == ("denied\n" * 3, False)
    assert "PermissionError" in done["why"]
    assert (on_disk / "precious").read_text() == "keep me"
    assert (on_disk / "scratch/ran").exists()
