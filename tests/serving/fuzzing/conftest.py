"""The fuzzer is a program of its own: its modules import each other by their bare names."""

import sys
from pathlib import Path


def pytest_configure() -> None:
    sys.path.insert(0, str(Path(__file__).parent))
