"""The tests of this folder again with the Triton programs themselves, in Triton's interpreter.

Triton looks at TRITON_INTERPRET when it is imported, so they run in a process of their own.
"""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from headrace.kernels import _launch

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
needs_triton = pytest.mark.skipif(_launch.triton is None, reason="needs Triton: pip install triton")


def interpreted(*command):
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST")}
    environment |= {"TRITON_INTERPRET": "1", "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}  # they take seconds to import
    return subprocess.run([sys.executable, *command], env=environment, capture_output=True, text=True, check=False, cwd=ROOT)


# Shapes and tiles by the dozen. The others hold each kernel to its reference, with strides, NaN and rows longer than a block.
MANY = ("any_shape", "any_window", "any_tile", "whole_levels", "several_rows")


@needs_triton
@pytest.mark.skipif(_launch.INTERPRETED, reason="this process interprets already")
@pytest.mark.parametrize("which", ["few", pytest.param("all", marks=pytest.mark.slow)])
def test_every_kernel_holds_in_tritons_interpreter(which):
    left_out = (Path(__file__).name, "test_compile.py", "test__ahead.py")  # which compile, or start processes of their own
    files = sorted(str(path) for path in HERE.glob("test_*.py") if path.name not in left_out)
    registered = "not torchs_own_checks and not export"  # which is the same for both, and slow
    left = "".join(f" and not {name}" for name in MANY) if which == "few" else ""
    done = interpreted(
        "-m",
        "pytest",
        "-q",
        "-p",
        "pytest_timeout",
        "-p",
        "no:cacheprovider",
        "--timeout",
        "200",
        "-W",
        "ignore",
        "-k",
        registered + left,
        *(("-m", "not slow") if which == "few" else ()),
        *files,
    )
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
    counts = re.search(r"(\d+) passed", done.stdout)
    assert counts is not None
    assert int(counts[1]) >= 5 * len(files)
    assert "skipped" not in done.stdout.splitlines()[-1], done.stdout[-2000:]


def test_without_triton_the_operators_are_their_references(tmp_path, warm_python):
    """As where it is not installed: the import fails."""
    code = (
        "import sys\n"
        "sys.modules['triton'] = None\n"
        "from headrace import kernels\n"
        "from headrace.kernels import _launch\n"
        "assert _launch.triton is None\n"
        "for kernel in kernels.discover().values():\n"
        "    for name, operator in kernel.operators.items():\n"
        "        operator.run(*operator.example('cpu'))\n"
        "        print(name)\n"
    )
    done = warm_python(["-c", code], cwd=tmp_path)
    assert len(done.stdout.split()) >= 5, done.stderr[-2000:]


def test_float64_is_computed_by_the_reference():
    assert not _launch.runs_by_triton(torch.ones(1, dtype=torch.float64))
