"""Mutants are put into a module that others have imported from, and are what mutmut makes."""

import types

import pytest

from .mutants import _put, mutants

SOURCE = """
LIMIT = 3

class Gate:
    most: int = 4

    def passes(self, value):
        return value <= LIMIT

def larger(a, b=1):
    return a > b
"""


def module_of(source):
    module = types.ModuleType("changed")
    module.__file__ = "changed.py"
    exec(compile(source, "changed.py", "exec"), vars(module))
    return module


def test_who_has_imported_a_function_sees_the_mutant():
    module = module_of(SOURCE)
    larger, gate = module.larger, module.Gate()
    _put(module, SOURCE.replace("a > b", "a >= b").replace("b=1", "b=2").replace("LIMIT = 3", "LIMIT = None"))
    assert larger(2)
    assert not larger(1)
    assert module.LIMIT is None
    _put(module, SOURCE.replace("value <= LIMIT", "value < LIMIT").replace("most: int = 4", "most: int = 5"))
    assert not gate.passes(3)
    assert gate.most == 5


def test_mutants_are_of_code_and_not_of_messages():
    pytest.importorskip("libcst")
    pytest.importorskip("mutmut")
    found = dict(mutants(SOURCE + '\ndef said() -> "int":\n    """Words."""\n    return "a message"\n'))
    assert "- return a > b + return a >= b" in found
    assert "- LIMIT = 3 + LIMIT = 4" in found
    assert not any("message" in what or "Words" in what or "int" in what for what in found if "most" not in what)
