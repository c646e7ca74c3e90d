"""Commands of an installed package whose file runs nothing by itself."""

import pytest

POINT = '[project.scripts]\nleaves = "leaves.cli:Tool.main"\n'
CLI = """\
import sys


class Tool:
    @staticmethod
    def main():
        print("told", sys.argv[1:])
        return 0
"""


def test_what_the_command_calls_is_called(rehearsed):
    done = rehearsed({"pyproject.toml": POINT, "src/leaves/cli.py": CLI}, "a.jpg", script="src/leaves/cli.py")
    assert (done.report.ended, done.stdout) == ("finished", "told ['a.jpg']\n")


@pytest.mark.parametrize("end", ["\nif __name__ == '__main__':\n    Tool.main()\n", None])
def test_a_file_that_calls_it_or_is_none_of_a_command_is_only_run(rehearsed, end):
    files = {"pyproject.toml": POINT if end else "", "src/leaves/cli.py": CLI + (end or "")}
    done = rehearsed(files, "a.jpg", script="src/leaves/cli.py")
    assert done.stdout == ("told ['a.jpg']\n" if end else "")
