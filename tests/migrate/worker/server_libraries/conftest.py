"""The stand-in of a library by its own name, as a script imports it; gone again after the test."""

import importlib
import sys

import pytest

from headrace.migrate.worker.server_libraries import Finder


@pytest.fixture
def library():
    finder, before = Finder(lambda name: True), set(sys.modules)
    sys.meta_path.insert(0, finder)  # before a library that is installed
    yield importlib.import_module
    sys.meta_path.remove(finder)
    for name in set(sys.modules) - before:
        if name.partition(".")[0] in ("ts", "cog", "litserve", "bentoml", "triton_python_backend_utils"):
            del sys.modules[name]
