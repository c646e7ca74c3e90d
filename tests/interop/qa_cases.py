"""One file of NVIDIA's server tests, unchanged, in a process of its own: `qa_cases.py FILE OUT [--forget-memory] [CASE ...]`.

OUT takes a line of JSON per case: [class.case, "" or what was wrong]. Without cases all of the file run.
"""

from __future__ import annotations

import importlib.util
import json
import sys
import unittest
from pathlib import Path
from types import TracebackType
from typing import Any, TextIO


class Outcomes(unittest.TestResult):
    """Writes each case's outcome when it ends, so that a file which hangs has told of those before."""

    def __init__(self, out: TextIO, *, forget_memory: bool) -> None:
        super().__init__()
        self._out, self._forget_memory = out, forget_memory
        self._said = ""

    def startTest(self, test: unittest.TestCase) -> None:
        super().startTest(test)
        self._said = ""
        self._write(test, "did not end")

    def stopTest(self, test: unittest.TestCase) -> None:
        super().stopTest(test)
        self._write(test, self._said)
        if self._forget_memory:
            # NVIDIA's script starts a server for each case.
            import tritonclient.http

            with tritonclient.http.InferenceServerClient("localhost:8000") as client:
                client.unregister_system_shared_memory()

    def addError(self, test: unittest.TestCase, err: Any) -> None:
        super().addError(test, err)
        self._keep(err)

    def addFailure(self, test: unittest.TestCase, err: Any) -> None:
        super().addFailure(test, err)
        self._keep(err)

    def addSubTest(self, test: unittest.TestCase, subtest: unittest.TestCase, err: Any) -> None:
        super().addSubTest(test, subtest, err)
        if err is not None:
            self._keep(err)

    def addSkip(self, test: unittest.TestCase, reason: str) -> None:
        super().addSkip(test, reason)
        self._said = f"skipped: {reason}"

    def _keep(self, err: tuple[type[BaseException], BaseException, TracebackType]) -> None:
        self._said = self._said or f"{err[0].__name__}: {err[1]}"

    def _write(self, test: unittest.TestCase, said: str) -> None:
        self._out.write(json.dumps([test.id().partition(".")[2], said]) + "\n")
        self._out.flush()


def main() -> None:
    file, out, *words = sys.argv[1:]
    sys.path.insert(0, str(Path(file).parent))
    sys.path.append("../common")
    spec = importlib.util.spec_from_file_location("qa", file)
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules["qa"] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    loader = unittest.TestLoader()
    cases = [word for word in words if word != "--forget-memory"]
    found = loader.loadTestsFromNames(cases, module) if cases else loader.loadTestsFromModule(module)
    with open(out, "a") as lines:
        found.run(Outcomes(lines, forget_memory="--forget-memory" in words))


if __name__ == "__main__":
    main()
