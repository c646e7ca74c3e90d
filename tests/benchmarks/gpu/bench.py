"""The sections one after another, the time that each may take, and what they found."""

from __future__ import annotations

import argparse
import contextlib
import importlib
import json
import logging
import os
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gpu.about import about
from gpu.summary import summary

# Of the time, and where each section is. What one leaves over goes to those after it.
SHARES = {
    "roofline": (4, "roofline"),
    "probe": (10, "probe"),
    "kernels": (12, "kernels"),
    "tiles": (8, "tiles"),
    "resnet50": (44, "throughput"),
    "served": (22, "served"),
    "decoding": (4, "decoding"),
    "vit_small_patch16_224": (14, "throughput"),
    "correctness": (6, "correctness"),
    "resnet101": (6, "throughput"),
    "sanitizer": (3, "sanitizer"),
}


@dataclass(frozen=True, kw_only=True)
class Subject:
    """A model that was planned, for serving: the module in fp32 on the device, its signature, the plan and its files."""

    name: str
    model: Any
    signature: Any
    plan: Any
    directory: Path


class Bench:
    """What the sections share. `found` is the JSON, `failures` what makes the exit status 1, `folder` is for files."""

    def __init__(self, arguments: argparse.Namespace, folder: Path, sections: list[str]) -> None:
        self.arguments, self.folder, self.sections = arguments, folder, sections
        self.device, self.quick = arguments.device, arguments.quick
        self.size = 32 if arguments.quick else 224
        usual = "1,3" if arguments.quick else "1,8,32,128,256,512"
        self.batches = tuple(int(part) for part in (arguments.batches or usual).split(","))
        self.begin = self.deadline = time.monotonic()
        self.subject: Subject | None = None
        self.failures: list[str] = []
        self.found: dict[str, Any] = {
            **about(arguments), "batches": list(self.batches), "summary": {}, "sections": {}, "failures": self.failures,
            "roofline": {}, "probe": {}, "kernels": {}, "models": {}, "served": {}, "decoding": {}, "correctness": [],
            "sanitizer": {}, "warnings": [],
        }  # fmt: skip
        self.before = 0.0
        if arguments.continued is not None:
            self.found |= json.loads(arguments.continued.read_text(encoding="utf-8"))
            self.failures, self.before = self.found["failures"], self.found["seconds"]
        handler = logging.Handler(logging.WARNING)
        handler.emit = lambda record: self.found["warnings"].append(record.getMessage())  # such as refused CUDA graphs
        logging.getLogger("headrace").addHandler(handler)

    @property
    def left(self) -> float:
        """Seconds of the whole run."""
        return self.arguments.seconds - (time.monotonic() - self.begin)

    @property
    def here(self) -> float:
        """Seconds of the section that runs."""
        return self.deadline - time.monotonic()

    def say(self, text: str) -> None:
        print(f"[{time.monotonic() - self.begin:6.1f} s] {text}", flush=True)

    def failed(self, text: str) -> None:
        self.failures.append(text)
        self.say(f"FAILED {text}")

    def run(self) -> int:
        """0 when everything that ran was right. SIGTERM ends the services too, and leaves what is known in the JSON."""
        from headrace.serving.bench.servers import terminate_as_exit

        with terminate_as_exit(), stacks(self.arguments.out.with_suffix(".stacks")):
            for number, name in enumerate(self.sections):
                try:
                    self.section(name, self.sections[number:])
                finally:
                    self.found["seconds"] = round(self.before + time.monotonic() - self.begin, 1)
                    self.write()
                if lost(self.device):
                    again = ["kernels"] if name == "kernels" else []  # goes on behind the case that failed
                    return self.elsewhere([*again, *self.sections[number + 1 :]])
        self.found["summary"] = summary(self.found)
        self.write()
        for warning in self.found["warnings"]:
            print(f"warning: {warning}")
        print(json.dumps(self.found["summary"], indent=1))
        right = sum(item["status"] == "right" for item in [*self.found["correctness"], *self.found["kernels"].get("cases", [])])
        print(f"{right} checks right, {len(self.failures)} failures; {self.found['seconds']:.0f} s; {self.arguments.out}")
        return 1 if self.failures else 0

    def section(self, name: str, rest: list[str]) -> None:
        """One section, within its share of what is left; whatever it raises is a failure of that section alone."""
        record = self.found["sections"][name] = {"status": "skipped: no time left", "seconds": 0.0}
        left = self.left
        if left <= 0:
            self.say(f"{name} is skipped: no time left")
            return
        share, module = SHARES[name]
        self.deadline = time.monotonic() + left * share / sum(SHARES[other][0] for other in rest)
        self.say(f"== {name}, about {self.here:.0f} s")
        begin, record["status"] = time.monotonic(), "ended from outside"
        try:
            importlib.import_module(f"gpu.{module}").section(self, name)
            record["status"] = "ran"
        except Exception as error:  # noqa: BLE001 - it is reported, and the other sections are measured
            record["status"] = f"failed: {described(error)}"
            record["traceback"] = traceback.format_exc()[-4000:]
            self.failed(f"section {name}: {described(error)}")
        finally:
            record["seconds"] = round(time.monotonic() - begin, 1)
            with contextlib.suppress(Exception):  # after a CUDA error nothing more can be freed
                release()

    def elsewhere(self, rest: list[str]) -> int:
        """The other sections in a process of their own, since an illegal access leaves this one without a GPU."""
        self.say("the CUDA context is lost; a new process goes on")
        given = self.arguments
        command = [sys.executable, str(Path(__file__).resolve().parent), "--device", self.device, "--sections", *rest]
        command += ["--continued", str(given.out), "--out", str(given.out), "--seconds", str(max(0.0, self.left))]
        command += ["--batches", ",".join(map(str, self.batches)), "--contenders", *given.contenders]
        command += ["--quick"] if self.quick else []
        command += ["--compiled", str(given.compiled)] if given.compiled else []
        for option in ("backends", "operators"):
            if getattr(given, option) is not None:
                command += [f"--{option}", *getattr(given, option)]
        process = subprocess.Popen(command)
        try:
            process.wait()
        finally:
            process.terminate()  # where this one is ended; it then ends its services
            process.wait()
        return process.returncode or 1

    def write(self) -> None:
        """All that is known so far; a reader sees the old file or the new one."""
        out = self.arguments.out
        out.parent.mkdir(parents=True, exist_ok=True)
        aside = out.with_name(f".{out.name}.{os.getpid()}")
        aside.write_text(json.dumps(self.found, indent=1) + "\n", encoding="utf-8")
        aside.replace(out)


@contextlib.contextmanager
def stacks(path: Path) -> Iterator[None]:
    """Where every thread stands, written once a minute: what hangs on a machine that is gone afterwards tells where.

    By a thread of Python's: `faulthandler.dump_traceback_later` crashed in a function that torch had compiled.
    """
    over = threading.Event()

    def watch() -> None:
        while not over.wait(60):
            frames = sys._current_frames().items()
            text = "\n".join(f"thread {one}\n{''.join(traceback.format_stack(frame, limit=40))}" for one, frame in frames)
            path.write_text(text, encoding="utf-8")

    watcher = threading.Thread(target=watch, name="stacks", daemon=True)
    watcher.start()
    try:
        yield
    finally:
        over.set()
        watcher.join()
        path.unlink(missing_ok=True)


def lost(device: str) -> bool:
    """Whether an error has left this process without a usable GPU."""
    if device != "cuda":
        return False
    import torch

    try:
        torch.cuda.synchronize()
    except RuntimeError:
        return True
    return False


def described(error: BaseException) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())[:800]}"


def release() -> None:
    """Give the memory of what is gone back to the GPU: the next section's processes need it too."""
    import gc

    import torch

    if "torch._dynamo" in sys.modules:
        torch.compiler.reset()  # compiled modules stay alive otherwise, and count towards the limit of recompilations
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.synchronize()
        torch.cuda.empty_cache()
