"""Where the tests of this folder run: on the CPU, where operators are their references, or in Triton's interpreter if
TRITON_INTERPRET was set when the process began (test_interpreted.py starts such a process), and on a GPU if there is one."""

import pytest
import torch


def pytest_generate_tests(metafunc):
    if "device" in metafunc.fixturenames:
        cuda = [pytest.param("cuda", marks=pytest.mark.cuda)] if torch.cuda.is_available() else []
        metafunc.parametrize("device", ["cpu", *cuda])


@pytest.fixture
def generator():
    return torch.Generator().manual_seed(0)
