"""NVIDIA's perf_analyzer for the tests: the binary of the tritonclient 2.51.0 wheel, unpacked under build/, never installed.

    python tests/benchmarks/serving/perf_analyzer_binary.py      # prints the path of a script that runs it

Later wheels no longer carry it. It wants two libraries that most machines lack: libcudart 12, which comes from NVIDIA's wheel
(it is loaded, not used), and libb64, which comes from Debian's or Ubuntu's package.
"""

import os
import platform
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

ROOT = Path(__file__).parents[3]
FOLDER = ROOT / "build" / "perf-analyzer"
WHEELS = ("tritonclient==2.51.0", "nvidia-cuda-runtime-cu12==12.4.127")


class Unavailable(Exception):
    """This machine cannot have the binary; the message says why."""


def provide(folder: Path = FOLDER) -> Path:
    """The path of a script that runs perf_analyzer with its libraries; downloads it once. Raises Unavailable."""
    found = shutil.which("perf_analyzer")
    if found:
        return Path(found)
    script = folder / "perf_analyzer"
    if script.exists():
        return script
    if platform.system() != "Linux" or platform.machine() != "x86_64":
        raise Unavailable("the perf_analyzer binary is for Linux on x86-64")
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent) as name:
        aside = Path(name) / "unpacked"
        (aside / "lib").mkdir(parents=True)
        for wheel in WHEELS:
            _run(
                [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", name, wheel],
                f"{wheel} from the index",
            )
        for wheel in Path(name).glob("*.whl"):
            _take(wheel, aside)
        _libb64(Path(name), aside / "lib")
        binary = aside / "bin"
        binary.chmod(0o755)
        # The folder is found at run time, so that it may be moved into place when it is whole.
        (aside / "perf_analyzer").write_text(
            '#!/bin/sh\nhere=$(dirname "$(readlink -f "$0")")\n'
            'LD_LIBRARY_PATH="$here/lib:$LD_LIBRARY_PATH" exec "$here/bin" "$@"\n'
        )
        (aside / "perf_analyzer").chmod(0o755)
        _run([str(aside / "perf_analyzer"), "--version"], "perf_analyzer with the libraries found")
        try:
            os.rename(aside, folder)
        except OSError:  # another process was quicker
            if not script.exists():
                raise
    return script


def _take(wheel: Path, aside: Path) -> None:
    wanted = {"bin/perf_analyzer": aside / "bin", "lib/libcudart.so.12": aside / "lib" / "libcudart.so.12"}
    with zipfile.ZipFile(wheel) as archive:
        for member in archive.namelist():
            for ending, target in wanted.items():
                if member.endswith(ending):
                    target.write_bytes(archive.read(member))


def _libb64(work: Path, into: Path) -> None:
    listed = subprocess.run(["ldconfig", "-p"], capture_output=True, text=True, check=False).stdout
    if "libb64.so.0d" in listed:
        return
    if not (shutil.which("apt-get") and shutil.which("dpkg-deb")):
        raise Unavailable("perf_analyzer needs libb64.so.0d; install libb64")
    downloads = work / "deb"
    downloads.mkdir()
    _run(["apt-get", "download", "--quiet", "libb64-0d"], "the package libb64-0d", cwd=downloads)
    (package,) = downloads.glob("*.deb")
    _run(["dpkg-deb", "-x", str(package), str(downloads)], "unpacking libb64-0d")
    (library,) = (path for path in downloads.rglob("libb64.so.0d*") if not path.is_symlink())
    shutil.copy(library, into / "libb64.so.0d")


def _run(command: list[str], what: str, cwd: Path | None = None) -> None:
    try:
        done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=240, check=False)
    except subprocess.TimeoutExpired:
        raise Unavailable(f"cannot get {what}: no answer within 240 s") from None
    if done.returncode:
        last = (done.stderr.strip() or done.stdout.strip() or "no message").splitlines()[-1]
        raise Unavailable(f"cannot get {what}: {last}")


if __name__ == "__main__":
    print(provide())
