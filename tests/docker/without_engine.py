"""Build and run the image of docker/Dockerfile where there is no Docker engine: `make test-docker`.

The instructions of the stages build-cpu and cpu are carried out as they stand in the Dockerfile, on a copy-on-write view of
this machine's root (an overlay) in place of the base image, in namespaces as container engines make them. The server then runs
as process 1, as the image's user, without capabilities, on a read-only root with memory at the two places that docker/README.md
names, and without any network but its own loopback. Needs root, Linux, and util-linux (unshare, nsenter, setpriv).

What this cannot show: that the base image has what this machine has. Therefore the libraries are listed that the wheels expect
of it; PROVIDED are those that python:3.11-slim-bookworm brings.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pathspec
import psutil
from dockerfile_parse import DockerfileParser

ROOT = Path(__file__).parents[2]
WORK = ROOT / "build" / "docker"
READY_SECONDS, STOP_SECONDS = 180, 60
# Debian 12's libc6, libgcc-s1, libstdc++6, zlib1g: all are part of python:3.11-slim-bookworm.
PROVIDED = {
    "ld-linux-x86-64.so.2", "libc.so.6", "libdl.so.2", "libgcc_s.so.1", "libm.so.6", "libpthread.so.0", "librt.so.1",
    "libstdc++.so.6", "libutil.so.1", "libz.so.1",
}  # fmt: skip
# OpenVINO's plugin for Intel's GPUs needs it, and is loaded for nothing else.
OPTIONAL = {"libOpenCL.so.1"}
MODEL = """
import torch

class Tiny(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = torch.nn.Conv2d(3, 8, 3, 2, 1)
        self.head = torch.nn.Linear(8, 5)

    def forward(self, x):
        return self.head(torch.relu(self.conv(x)).mean((2, 3)))
"""
ASK = """
import json, sys, urllib.request
image = {"name": sys.argv[1], "datatype": "FP32", "shape": [1, 3, 32, 32], "data": [0.5] * 3072}
body = json.dumps({"inputs": [image]}).encode()
call = urllib.request.Request("http://127.0.0.1:8000/v2/models/tiny/infer", body, {"Content-Type": "application/json"})
print(urllib.request.urlopen(call, timeout=30).read().decode())
print(len(urllib.request.urlopen("http://127.0.0.1:8002/metrics", timeout=30).read()))
"""


class Stage:
    """The instructions of one stage of the Dockerfile, those of the stages that it starts from first."""

    def __init__(self, name: str) -> None:
        stages: dict[str, list[tuple[str, str]]] = {}
        current: list[tuple[str, str]] = []
        for entry in DockerfileParser(str(ROOT / "docker" / "Dockerfile")).structure:
            if entry["instruction"] == "FROM":
                image, _, own = entry["value"].partition(" AS ")
                current = list(stages.get(image, ()))
                stages[own] = current
            elif entry["instruction"] != "COMMENT":
                current.append((entry["instruction"], entry["value"]))
        self.instructions = stages[name]

    def last(self, instruction: str) -> str:
        """The value that holds: that of the last instruction of this kind."""
        return [value for name, value in self.instructions if name == instruction][-1]

    def pairs(self, instruction: str) -> dict[str, str]:
        """What all ENV or ARG instructions set."""
        lines = [value for name, value in self.instructions if name == instruction]
        return dict(pair.split("=", 1) for line in lines for pair in shlex.split(line))


def context() -> Path:
    """What an engine would send: the files that .dockerignore leaves, of those that git knows or would take."""
    spec = pathspec.PathSpec.from_lines("gitignore", (ROOT / ".dockerignore").read_text().splitlines())
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"], cwd=ROOT, capture_output=True, check=True
    )
    folder = WORK / "context"
    for name in filter(None, listed.stdout.decode().split("\0")):
        if (ROOT / name).is_file() and not spec.match_file(name):
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(ROOT / name, folder / name)
    return folder


def view(folders: dict[str, Path], *, writable: bool) -> str:
    """A script that makes the container's root at $R, with these folders in it, and a private /tmp."""
    lines = [
        "set -eu",
        f"R={shlex.quote(str(WORK / 'root'))}",
        "mount -t tmpfs tmpfs $R",
        "mkdir $R/upper $R/work $R/merged",
        "mount -t overlay overlay -o lowerdir=/,upperdir=$R/upper,workdir=$R/work $R/merged",
        "R=$R/merged",
        "mkdir -p $R/proc && mount -t proc proc $R/proc",
        # Interpreters of version managers lie in root's home, which the image's user could not enter.
        f"chmod a+x $R{shlex.quote(str(Path(sys.base_prefix).parents[-2]))}",
        "mount -t tmpfs tmpfs $R/dev && mkdir -m 1777 $R/dev/shm",
        "for d in null zero random urandom; do touch $R/dev/$d; mount --bind /dev/$d $R/dev/$d; done",
        "mount -t tmpfs -o mode=1777 tmpfs $R/tmp",
    ]
    for place, folder in folders.items():
        lines += [f"mkdir -p $R{place}", f"mount --bind {shlex.quote(str(folder))} $R{place}"]
        lines += [] if writable else [f"mount -o remount,bind,ro $R{place}"]
    return "\n".join(lines)


def build() -> None:
    """The stage build-cpu: the wheels, and the environment from them; each is started from nothing."""
    stage = Stage("build-cpu")
    shutil.rmtree(WORK, ignore_errors=True)
    for name in ("root", "wheels", "headrace", "models"):
        (WORK / name).mkdir(parents=True)
    folders = {"/source": context(), "/wheels": WORK / "wheels", "/opt/headrace": WORK / "headrace"}
    settings = stage.pairs("ARG") | {name: os.environ[name] for name in ("TORCH_INDEX", "LOCK") if name in os.environ}
    python = str(Path(sys.base_prefix) / "bin")
    environment = {**os.environ, **settings, "PATH": f"{python}:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"}
    for instruction, command in stage.instructions:
        if instruction == "RUN":
            print(f"RUN {command}", flush=True)
            within = f"cd {stage.last('WORKDIR')} && {command}"
            script = view(folders, writable=True) + f"\nexec chroot $R /bin/sh -c {shlex.quote(within)}"
            subprocess.run(["unshare", "--mount", "--pid", "--fork", "sh", "-c", script], env=environment, check=True)


def expected_libraries() -> set[str]:
    """Shared libraries that something in the environment needs and nothing in it provides."""
    found, needed = set(), set()
    for path in (WORK / "headrace").rglob("*.so*"):
        found.add(path.name)
        said = subprocess.run(["readelf", "-d", str(path)], capture_output=True, text=True, check=False).stdout
        needed |= {line.rpartition("[")[2].rstrip("]") for line in said.splitlines() if "(NEEDED)" in line}
        found |= {line.rpartition("[")[2].rstrip("]") for line in said.splitlines() if "(SONAME)" in line}
    return needed - found


def as_user(stage: Stage, command: list[str]) -> str:
    """The command as the image's user, with its variables and without capabilities."""
    user, group = stage.last("USER").split(":")
    path = "/usr/local/bin:/usr/bin:/bin"
    variables = [f"{name}={value.replace('$PATH', path)}" for name, value in ({"PATH": path} | stage.pairs("ENV")).items()]
    return shlex.join(
        ["setpriv", f"--reuid={user}", f"--regid={group}", "--clear-groups", "--no-new-privs", "--bounding-set=-all",
         "--inh-caps=-all", "env", "-i", *variables, *command]
    )  # fmt: skip


class Container:
    """The image's entry point with some arguments, as process 1 of its own namespaces."""

    def __init__(self, arguments: list[str], *, models_writable: bool = False) -> None:
        self.stage = Stage("cpu")
        folders = {"/opt/headrace": WORK / "headrace"}
        script = view(folders, writable=False)
        script += f"\nmkdir /$R/models && mount --bind {shlex.quote(str(WORK / 'models'))} $R/models"
        script += "" if models_writable else "\nmount -o remount,bind,ro $R/models"
        for instruction, value in self.stage.instructions:
            if instruction == "COPY" and not value.startswith("--from"):
                source, target = value.split()
                script += f"\ncp {shlex.quote(str(WORK / 'context' / source))} $R{target}"
            elif instruction == "RUN":
                script += f"\nchroot $R /bin/sh -c {shlex.quote(value)}"
        cache = self.stage.pairs("ENV")["HEADRACE_CACHE"]
        script += f"\nmount -t tmpfs -o mode=1777 tmpfs $R{cache}\nip link set lo up\nmount -o remount,ro $R"
        command = [*json.loads(self.stage.last("ENTRYPOINT")), *arguments]
        place = shlex.quote(self.stage.last("WORKDIR"))
        within = f"cd {place} && exec {as_user(self.stage, command)}"
        script += f"\nexec chroot $R /bin/sh -c {shlex.quote(within)}"
        self.log = WORK / "log.txt"
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                ["unshare", "--mount", "--pid", "--net", "--ipc", "--uts", "--fork", "--kill-child", "sh", "-c", script],
                stdout=log,
                stderr=subprocess.STDOUT,
            )

    def first(self) -> psutil.Process | None:
        """Process 1, once it is the image's own command."""
        children = psutil.Process(self.process.pid).children()
        return children[0] if children and children[0].uids().real == int(self.stage.last("USER").split(":")[0]) else None

    def inside(self, command: list[str]) -> subprocess.CompletedProcess[str]:
        """Run one more command in it, as `docker exec` does."""
        first = self.first()
        if first is None:
            return subprocess.CompletedProcess(command, 1, "", "it has not begun yet")
        enter = ["nsenter", f"--target={first.pid}", "--mount", "--pid", "--net", "--ipc", "--uts", "--root", "--wd=/tmp"]
        script = as_user(self.stage, command)
        return subprocess.run([*enter, "sh", "-c", script], capture_output=True, text=True, check=False, timeout=120)

    def health(self) -> subprocess.CompletedProcess[str]:
        """The health check, as the Dockerfile says."""
        return self.inside(json.loads(self.stage.last("HEALTHCHECK").partition("CMD ")[2]))

    def wait_until_ready(self) -> None:
        """Ask the health check until it succeeds; it must have failed before."""
        assert self.health().returncode == 1, "the health check succeeds before the server is ready"
        end = time.monotonic() + READY_SECONDS
        while (asked := self.health()).returncode:
            if self.process.poll() is not None or time.monotonic() > end:
                raise SystemExit(f"the server did not become ready: {asked.stderr}\n{self.log.read_text()}")
            time.sleep(0.5)

    def stop(self) -> int:
        """As `docker stop`: the stop signal to process 1. Returns its exit status."""
        first = self.first()
        assert first is not None, self.log.read_text()
        first.send_signal(getattr(signal, self.stage.last("STOPSIGNAL")))
        return self.process.wait(STOP_SECONDS)


@contextmanager
def container(arguments: list[str], *, models_writable: bool = False) -> Iterator[Container]:
    started = Container(arguments, models_writable=models_writable)
    try:
        yield started
    finally:
        started.process.kill()
        started.process.wait()


def compile_model() -> None:
    """`docker run --volume models:/models IMAGE compile ...`: what the image's own command packages."""
    (WORK / "models" / "tiny.py").write_text(MODEL)
    user, group = map(int, Stage("cpu").last("USER").split(":"))
    for path in (WORK / "models", WORK / "models" / "tiny.py"):
        os.chown(path, user, group)
    arguments = ["compile", "/models/tiny.py:Tiny", "--name", "tiny", "--input-size", "3,32,32", "--out", "/models"]
    with container(arguments, models_writable=True) as one:
        status = one.process.wait(300)
        assert status == 0, one.log.read_text()
    print(one.log.read_text())


def serve(extra: list[str]) -> None:
    """Start it, ask for health and an answer, look at what it may and does, and stop it."""
    arguments = [*json.loads(Stage("cpu").last("CMD")), *extra]
    print(f"headrace {shlex.join(arguments)}", flush=True)
    with container(arguments) as server:
        server.wait_until_ready()
        first = server.first()
        assert first is not None
        lines = Path(f"/proc/{first.pid}/status").read_text().splitlines()
        status = dict(line.split(":\t", 1) for line in lines if ":\t" in line)
        assert status["NSpid"].split()[-1] == "1", "the server is not process 1"
        assert {status[name] for name in ("CapPrm", "CapEff", "CapBnd", "CapInh")} == {"0" * 16}, "it has capabilities"
        assert status["NoNewPrivs"].strip() == "1"
        metadata = json.loads((WORK / "models" / "tiny" / "1" / "headrace.json").read_text())
        answer = server.inside(["python", "-c", ASK, metadata["signature"]["inputs"][0]["name"]])
        assert answer.returncode == 0, answer.stderr
        print(answer.stdout)
        for place in ("/opt/headrace", "/models", "/var", "/etc", "/"):
            refused = server.inside(["touch", f"{place}/x"])
            assert refused.returncode, f"{place} can be written to"
        written = server.inside(["find", "/tmp", "/var/cache/headrace", "-type", "f"])
        assert (written.returncode, written.stdout) == (0, ""), f"files that nobody asked for: {written.stdout}{written.stderr}"
        returned = server.stop()
        assert returned == 0, f"it ended with {returned}\n{server.log.read_text()}"
    assert "draining" in server.log.read_text()


def main() -> None:
    """Build once; then compile, and serve in one process and in several."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--keep", action="store_true", help="use what an earlier run has built")
    keep = parser.parse_args().keep
    if sys.platform != "linux" or os.geteuid():
        raise SystemExit("this makes namespaces and mounts as a container engine does: run it on Linux as root")
    if missing := [name for name in ("unshare", "nsenter", "setpriv", "ip", "readelf") if not shutil.which(name)]:
        raise SystemExit(f"not found: {', '.join(missing)}; install util-linux, iproute2 and binutils")
    if not keep:
        build()
    unknown = expected_libraries() - PROVIDED - OPTIONAL
    assert not unknown, f"the wheels need libraries that the base image lacks: {sorted(unknown)}"
    compile_model()
    serve([])
    serve(["--frontends", "2"])
    print("the image's steps, health check, read-only root and stop signal hold")


if __name__ == "__main__":
    main()
