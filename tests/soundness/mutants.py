"""`make mutants`: the gates' own code is changed in one place at a time, and a test of that file must fail.

python -m tests.soundness.mutants [--every N] [--survivors] [FILE ...]    needs mutmut, whose operators it uses

With --every, each N-th mutant is a sample of all; with --survivors, those that survived the last time are tried again.

What survives must be explained in tests/soundness/survivors.json. Strings are left alone: they are messages.
"""

from __future__ import annotations

import argparse
import difflib
import importlib
import itertools
import json
import os
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any

from . import page

ROOT = Path(__file__).parents[2]
_EXPLAINED = Path(__file__).with_name("survivors.json")
_SECONDS = 120.0  # a mutant that loops for ever is noticed, too
_KEY_TESTS = ("differ_inside", "every_setting", "other_code", "another_graph")
# Their tests; of the plans' cache, the key, since what else it does takes many seconds a test.
_FILES = {
    "runtime/artifact/parity.py": ["tests/runtime/artifact/test_parity.py"],
    "runtime/artifact/lossy_parity.py": ["tests/runtime/artifact/test_lossy_parity.py"],
    "runtime/tuning/proof.py": ["tests/runtime/tuning/test_proof.py"],
    "runtime/tuning/rare_rows.py": ["tests/runtime/tuning/test_rare_rows.py", "tests/runtime/tuning/test_proof.py"],
    "runtime/artifact/known_answers.py": ["tests/runtime/artifact/test_known_answers.py"],
    "serving/models/self_check.py": ["tests/serving/models/test_self_check.py"],
    "runtime/artifact/manifest.py": ["tests/runtime/artifact/test_artifact.py"],
    "runtime/backends/shared/compiled_files.py": ["tests/runtime/backends/shared/test_compiled_files.py"],
    "runtime/graph/packaged.py": ["tests/runtime/graph/test_packaged.py"],
    "runtime/tuning/cache.py": ["tests/runtime/tuning/test_cache.py", "-k", " or ".join(_KEY_TESTS)],
}
_FUNCTIONS = {"runtime/tuning/cache.py": ("cache_key", "source_digest", "_content")}


def mutants(source: str, functions: tuple[str, ...] = ()) -> Iterator[tuple[str, str]]:
    """The changed sources, each with what was changed: "- line" and "+ line". With names, of those functions alone."""
    import libcst as cst
    from mutmut.mutation import mutators

    left_out = (mutators.operator_string, mutators.operator_dict_arguments)
    module = cst.parse_module(source)
    inside = [item for item in module.body if not functions or getattr(getattr(item, "name", None), "value", "") in functions]
    for node in (node for item in inside for node in (item, *_code(item))):
        for kind, operator in mutators.mutation_operators:
            if isinstance(node, kind) and operator not in left_out:
                for other in operator(node):
                    changed = module.deep_replace(node, other).code  # type: ignore[arg-type]
                    lines = difflib.ndiff(source.splitlines(), changed.splitlines())
                    what = " ".join(f"{line[0]} {line[2:].strip()}" for line in lines if line[0] in "+-")
                    if what and _compiles(changed):
                        yield what, changed


def _code(node: Any) -> Iterator[Any]:
    """Nodes of what is executed: no annotations, decorators, imports or messages."""
    import libcst as cst

    left_out = cst.Annotation | cst.Decorator | cst.Import | cst.ImportFrom | cst.Assert | cst.Raise | cst.FormattedString
    for child in node.children:
        if not isinstance(child, left_out):
            yield child
            yield from _code(child)


def _compiles(source: str) -> bool:
    try:
        compile(source, "mutant", "exec")
    except SyntaxError:
        return False
    return True


def _put(module: Any, source: str) -> None:
    """Have a module's functions, classes and constants do what another source says; who has imported them sees it."""
    fresh: dict[str, Any] = {"__name__": module.__name__, "__package__": module.__package__, "__file__": module.__file__}
    exec(compile(source, module.__file__, "exec"), fresh)
    for name, value in fresh.items():
        own = vars(module).get(name)
        if isinstance(value, type) and value.__module__ == module.__name__ and isinstance(own, type):
            for attribute, inner in vars(value).items():
                _put_one(own, attribute, vars(own).get(attribute), inner)
        elif not name.startswith("__"):
            _put_one(module, name, own, value)


def _put_one(owner: Any, name: str, own: Any, value: Any) -> None:
    old, new = (getattr(item, "fget", None) or getattr(item, "__func__", item) for item in (own, value))
    if isinstance(new, FunctionType) and isinstance(old, FunctionType):
        if len(new.__code__.co_freevars) == len(old.__code__.co_freevars):
            old.__code__, old.__defaults__, old.__kwdefaults__ = new.__code__, new.__defaults__, new.__kwdefaults__
    elif not name.startswith("__") and not isinstance(value, FunctionType | ModuleType | type):
        setattr(owner, name, value)


class _Mutating:
    """A plugin of pytest that runs the collected tests once for each mutant, in a fork."""

    def __init__(self, file: str, only: set[str] | None, every: int) -> None:
        self.only, self.every = only, every
        self.source = (ROOT / file).read_text(encoding="utf-8")
        self.name, self.file = "headrace." + file.removesuffix(".py").replace("/", "."), file
        self.count, self.survivors = 0, list[str]()

    def pytest_runtestloop(self, session: Any) -> bool:
        module = importlib.import_module(self.name)
        if not self._passes(session, module, self.source):
            raise SystemExit(f"{self.file}: its tests fail without any mutant")
        for what, changed in itertools.islice(mutants(self.source, _FUNCTIONS.get(self.file, ())), 0, None, self.every):
            self.count += 1
            if self.count % 100 == 0:
                print(f"{self.file}: {self.count} mutants so far", file=sys.stderr, flush=True)
            if (self.only is None or what in self.only) and self._passes(session, module, changed):
                self.survivors.append(what)
                print(f"{self.file}: {what}", file=sys.stderr, flush=True)
        return True

    def _passes(self, session: Any, module: Any, source: str) -> bool:
        from _pytest.main import pytest_runtestloop

        child = os.fork()
        if child == 0:
            code = 1
            try:
                os.setsid()
                silent = os.open(os.devnull, os.O_RDWR)
                for stream in (0, 1, 2):
                    os.dup2(silent, stream)
                _put(module, source)
                pytest_runtestloop(session)
                code = int(session.testsfailed > 0)
            finally:
                os._exit(code)
        deadline = time.monotonic() + _SECONDS
        while (ended := os.waitpid(child, os.WNOHANG))[0] == 0:
            if time.monotonic() > deadline:
                os.killpg(child, signal.SIGKILL)
                os.waitpid(child, 0)
                return False
            time.sleep(0.01)
        return os.waitstatus_to_exitcode(ended[1]) == 0


def examine(file: str, only: set[str] | None = None, every: int = 1) -> dict[str, Any]:
    """How many mutants there are of a file, and which survive its tests."""
    import pytest

    plugin = _Mutating(file, only, every)
    pytest.main(["-x", "-q", "-s", "-p", "no:cacheprovider", "-p", "no:xdist", *_FILES[file]], plugins=[plugin])
    print(f"{file}: {plugin.count - len(plugin.survivors)} of {plugin.count} mutants were noticed", flush=True)
    return {"mutants": plugin.count, "every": every, "survivors": plugin.survivors}


def main(arguments: list[str]) -> int:
    """Examine the files, or all; 1 where a mutant survives that nobody explained."""
    parser = argparse.ArgumentParser(prog="python -m tests.soundness.mutants")
    parser.add_argument("files", nargs="*", metavar="FILE")
    parser.add_argument("--every", type=int, default=1, metavar="N")
    parser.add_argument("--survivors", action="store_true")
    options = parser.parse_args(arguments)
    explained = json.loads(_EXPLAINED.read_text(encoding="utf-8"))
    results = page.read().get("mutants", {})
    for file in options.files or (list(results) if options.survivors else _FILES):
        every = results[file]["every"] if options.survivors else options.every
        found = examine(file, set(results[file]["survivors"]) if options.survivors else None, every)
        patterns = {**explained.get(file, {}), **explained["*"]}
        why = {what: next((text for part, text in patterns.items() if part in what), None) for what in found["survivors"]}
        results[file] = {**found, "survivors": why}
        page.update("mutants", results)
    unexplained = [f"{file}: {what}" for file, item in results.items() for what, why in item["survivors"].items() if not why]
    for text in unexplained:
        print(f"survives without an explanation: {text}")
    return 1 if unexplained else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
