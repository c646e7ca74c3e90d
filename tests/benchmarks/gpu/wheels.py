"""Wheels of what serving needs, for a GPU machine on which nothing can be installed: `make gpu-wheels`, or

    python tests/benchmarks/gpu/wheels.py FOLDER [--python 3.12]

The versions are those of this environment, with what they need in turn, but without what every such machine has with torch.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections.abc import Iterable, Iterator
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

from packages import FASTER, SERVING
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

THERE = frozenset({"numpy", "pillow", "torch", "nvidia-cudnn-frontend"})  # brought by the machine, built for its torch
_PLATFORMS = (*(f"manylinux_2_{number}_x86_64" for number in range(39, 4, -1)), "manylinux2014_x86_64", "manylinux1_x86_64")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--python", default="3.12", help="the version on the GPU machine")
    options = parser.parse_args()
    wanted = [f"{name}=={version}" for name, version in sorted(needed({**SERVING, **FASTER}.values()))]
    command = [
        sys.executable,
        "-m",
        "pip",
        "download",
        "--quiet",
        "--no-deps",
        "--only-binary=:all:",
        "--dest",
        str(options.folder),
    ]
    command += ["--python-version", options.python, "--implementation", "cp", "--platform", "any"]
    command += [part for platform in _PLATFORMS for part in ("--platform", platform)]
    return subprocess.run([*command, *wanted], check=False).returncode


def needed(names: Iterable[str]) -> Iterator[tuple[str, str]]:
    """These packages and what they need in turn, each once with its version here; what is not here is left out."""
    seen, waiting = set(THERE), [canonicalize_name(name) for name in names]
    while waiting:
        name = waiting.pop()
        if name in seen:
            continue
        seen.add(name)
        try:
            found = distribution(name)
        except PackageNotFoundError:
            continue
        yield name, found.version
        requirements = map(Requirement, found.requires or ())
        waiting += [canonicalize_name(one.name) for one in requirements if not one.marker or one.marker.evaluate({"extra": ""})]


if __name__ == "__main__":
    sys.exit(main())
