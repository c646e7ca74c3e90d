"""Settings that every test shares."""

import fcntl
import gc
import importlib.metadata
import logging
import os
import pickle
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from tests.warm_python import COLLECTED, COMMANDS, FORKED, SHARED, TORCH, WarmPython

_shared: list[int] = []  # the number of the socket of a process that has torch imported, where there is one

# Tests of tuning must tune, here and in the processes they start; the cache's own tests turn it on.
os.environ["HEADRACE_CACHE"] = "off"

# As many workers run as there are cores: more threads in each would wait for one another, spinning. What is told how many
# threads to take (a session, a server) still takes them.
for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "TORCHINDUCTOR_COMPILE_THREADS"):
    os.environ.setdefault(name, "1")

# Where a test takes several threads, those that wait leave the core to what works, as in the migrator's sandbox.
os.environ.setdefault("GOMP_SPINCOUNT", "20000")

# What inductor compiled lasts from one run to the next: it knows its own by source, flags and processor.
os.environ.setdefault(
    "TORCHINDUCTOR_CACHE_DIR", str(Path.home() / ".cache" / f"headrace-tests-torch-{importlib.metadata.version('torch')}")
)

# Tests start hundreds of processes: whatever the environment says, they find compiled what this one has imported.
sys.dont_write_bytecode = False

# How long it takes to draw an example, or to try it, is up to what else the machine does.
settings.register_profile("headrace", settings(), deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("headrace")

# A shell starts its background jobs with SIGINT ignored, and what they start inherits that: tests that interrupt would wait.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_configure() -> None:
    if (number := os.environ.pop(SHARED, None)) is not None:  # not for what the tests start, which has not the socket
        _shared.append(int(number))


def pytest_collection_finish() -> None:
    """What is imported and collected stays: no collection of garbage looks at these millions of objects again, nor after every
    seven hundred new ones, since tracing and exporting a model make a hundred thousand."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 10)
    # Else pytest listens to it by itself, and torch writes out every graph that it makes for that.
    traces = logging.getLogger("torch.__trace")
    traces.propagate = True
    traces.setLevel(logging.CRITICAL)  # nor does it print them, once some test has set up torch's own logs


def pytest_addoption(parser: pytest.Parser) -> None:
    text = "write what the migrator says about tests/migrate/corpus today as what it shall say; review the difference by eye"
    parser.addoption("--update-goldens", action="store_true", help=text)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_setupnodes(config: pytest.Config) -> None:
    """The workers, and what they start in their turn, are forks of one process that has torch imported: they of one that has
    collected the tests as well, which takes as long as some hundred of them."""
    from execnet import gateway_io

    class ForkedIO(gateway_io.Popen2IOMaster):
        def __init__(self, args: list[str], execmodel: Any) -> None:
            read, write = os.pipe()
            with os.fdopen(read, "rb") as stdin, warm.another() as other:
                environment = {**os.environ, SHARED: str(other.fileno())}
                self.popen = collected.popen(
                    args[1:], env=environment, stdin=stdin, stdout=subprocess.PIPE, pass_fds=(other.fileno(),)
                )
            gateway_io.Popen2IO.__init__(self, os.fdopen(write, "wb"), self.popen.stdout, execmodel=execmodel)

    warm = WarmPython(TORCH)
    config.add_cleanup(warm.close)
    ours, theirs = socket.socketpair()
    with theirs:
        command = ["-P", COLLECTED, theirs.fileno(), "-c", str(config.inipath), *config.args]
        warm.popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, pass_fds=(theirs.fileno(),))
    collected = WarmPython(control=ours)
    config.add_cleanup(collected.close)
    gateway_io.Popen2IOMaster = ForkedIO


@pytest.fixture(scope="session")
def warm_torch() -> Iterator[WarmPython]:
    warm = WarmPython(control=socket.socket(fileno=_shared[0])) if _shared else WarmPython(TORCH)
    warm.python(["-c", ""], cwd=Path.cwd())  # it is ready then, and no test's own limit counts its start
    yield warm
    warm.close()


@pytest.fixture(scope="session")
def warm_python(warm_torch: WarmPython) -> Callable[..., subprocess.CompletedProcess[str]]:
    """warm_python(["-m", "headrace", ...], cwd=folder) runs Python as a fork of a process that has torch imported."""
    return warm_torch.python


@pytest.fixture(scope="session")
def warm_commands() -> Iterator[WarmPython]:
    """A process that has imported what commands need that do without torch."""
    warm = WarmPython(COMMANDS)
    yield warm
    warm.close()


@pytest.fixture(scope="session")
def warm_headrace(warm_commands: WarmPython) -> Callable[..., subprocess.CompletedProcess[str]]:
    """warm_headrace("migrate", ..., cwd=folder) is `headrace migrate ...`, as a fork of a process that has imported it."""

    def run(*arguments: object, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
        return warm_commands.python(["-m", "headrace", *map(str, arguments)], cwd=cwd or Path.cwd())

    return run


@pytest.fixture(scope="session")
def forked_headrace(warm_torch: WarmPython) -> Callable[..., subprocess.CompletedProcess[str]]:
    """As `warm_headrace`, for what imports torch, in its own process or in the sandbox: both are forks that have it imported.

    For friendly repositories: see `tests/commands/forked.py`.
    """

    def run(*arguments: object, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
        return warm_torch.python(["-P", FORKED, *map(str, arguments)], cwd=cwd or Path.cwd(), shares=True)

    return run


@pytest.fixture(scope="session")
def once(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str, Callable[[Path], Any]], Any]:
    """once(name, make) is what `make(an empty folder)` returns: the first worker that asks makes it, for all of them.

    The others read it back, and its folder is theirs too: nobody may write there.
    """
    base = tmp_path_factory.getbasetemp()
    shared = base.parent if "PYTEST_XDIST_WORKER" in os.environ else base

    def of_all(name: str, make: Callable[[Path], Any]) -> Any:
        folder, made = shared / f"once-{name}", shared / f"once-{name}.pickle"
        with (shared / f"once-{name}.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not made.exists():
                shutil.rmtree(folder, ignore_errors=True)  # of one that failed
                folder.mkdir()
                made.write_bytes(pickle.dumps(make(folder)))
        return pickle.loads(made.read_bytes())

    return of_all


@pytest.fixture(scope="session")
def pillow_decoder() -> type:
    """A decoder of JPEGs for the CPU that needs no library: as torchvision's, it fails as a whole where one file is broken.

    `batches` counts the files of each call.
    """
    import io

    import numpy as np
    import torch
    from PIL import Image

    from headrace.runtime.images.jpeg_decoders import JpegDecoder

    class ByPillow(JpegDecoder):
        def __init__(self, device=torch.device("cpu")):  # noqa: B008 - as the libraries' own are opened
            super().__init__(device)
            self.batches = []

        def decode(self, images):
            self.batches.append(len(images))
            try:
                return [torch.from_numpy(np.array(Image.open(io.BytesIO(data)).convert("RGB"))) for data in images]
            except OSError as error:
                raise RuntimeError("one of them is broken") from error

    return ByPillow
