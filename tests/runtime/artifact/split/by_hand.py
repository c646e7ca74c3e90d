"""Processes of split models started by hand, and packages with files of another part."""

import contextlib
import json
import os
import socket
import sys

from headrace.runtime.artifact.manifest import digest, read_content, write_manifest
from headrace.runtime.artifact.split import members
from headrace.runtime.artifact.split.link import Kind, Link


@contextlib.contextmanager
def by_hand(program, artifact, part, **told):
    """Gives what starts the module `program` for a part of the package, `told` what its START says beside that; each start may
    change it, and gives the process and the link to it. All end with the block."""
    running = []

    def begin(parent=None, **changed):
        ours, theirs = socket.socketpair()
        with theirs:
            command = [sys.executable, "-P", "-m", program, str(theirs.fileno()), str(parent or os.getpid()), "by hand"]
            process = members.subprocess.Popen(command, pass_fds=(theirs.fileno(),))
        wanted = {"folder": str(artifact.path), "file": part.file, "digest": part.digest, **told}
        link = Link(ours)
        running.append((process, link))
        start = {**wanted, "backend": "onnxruntime", "threads": 1, **changed}
        with contextlib.suppress(OSError):  # it has ended already, as receiving tells
            link.send(Kind.START, 0, 0, json.dumps(start).encode())
        return process, link

    try:
        yield begin
    finally:
        for process, link in running:
            process.kill()
            process.wait()
            link.close()


def answer(link):
    """The next message that is no sign of life."""
    while (message := link.receive()).kind is Kind.ALIVE:
        pass
    return message


def exchange(folder, part, other):
    """Replace one of a package's files by another, under digests that fit."""
    version = folder / "1"
    (version / part).write_bytes((version / other).read_bytes())
    content = read_content(version)
    content["digests"][part] = digest(version / part, inside=version)
    write_manifest(version, content)
