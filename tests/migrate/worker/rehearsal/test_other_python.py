"""What is another Python's is said to be that, and not to be the repository's mistake."""

import sys

import pytest

from headrace.migrate.worker.rehearsal.other_python import said_of

HERE = f"Python {sys.version_info[0]}.{sys.version_info[1]}"


def test_syntax_that_this_python_lacks_is_not_called_the_repositorys_mistake(rehearsed):
    files = {"main.py": "import net\n", "net.py": "x = 1\ntype X := int\n", "pyproject.toml": 'requires-python = ">=3.99"\n'}
    done = rehearsed(files)
    assert done.report.remedy.startswith(f"net.py:2 is no syntax of {HERE}, in which Headrace runs: pyproject.toml asks for")
    assert ">=3.99" in done.report.remedy


def test_syntax_of_python_2_is_said_to_be_that(rehearsed):
    done = rehearsed({"main.py": "import net\n", "net.py": "print 'x'\n"})
    assert done.report.remedy.startswith("net.py:1 is written for Python 2")


def test_a_name_that_only_another_standard_library_has(rehearsed):
    done = rehearsed({"main.py": "from typing import of_the_future\nprint(of_the_future)\nof_the_future('x')\n"})
    assert "typing of Python" in done.report.remedy
    assert "has no of_the_future" in done.report.remedy


@pytest.mark.parametrize("error", [ValueError("x"), SyntaxError("invalid syntax", ("<string>", 1, 1, "x y")), ImportError("x")])
def test_other_errors_are_left_to_others(error, tmp_path):
    assert said_of(error, str(tmp_path)) is None


def test_a_file_of_the_repository_that_is_called_like_the_standard_librarys_is_its_own(tmp_path, monkeypatch):
    module = type(sys)("numbers")
    module.__file__ = str(tmp_path / "numbers.py")
    monkeypatch.setitem(sys.modules, "numbers", module)
    assert said_of(ImportError("cannot import name 'x' from 'numbers' (numbers.py)"), str(tmp_path)) is None
