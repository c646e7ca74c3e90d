"""`python -P tests/collected.py SOCKET ARGUMENTS...`: collect as `pytest ARGUMENTS...` does, then fork for its workers.

They find the modules of the tests loaded, their assertions rewritten, and collect in a second.
"""

import socket
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1]))
from tests.warm_python import fork_on_request

del sys.path[0]


def main() -> None:
    number, *arguments = sys.argv[1:]
    pytest.main(["--collect-only", "--quiet", *arguments])
    fork_on_request(socket.socket(fileno=int(number)))


main()
