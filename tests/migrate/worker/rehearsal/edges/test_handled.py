"""Errors that a script handles, tells of, and gives up for."""

import pytest

MAIN = """
import logging, sys, traceback
from pathlib import Path

class DatasetError(RuntimeError):
    pass

def main():
    root = Path("data/train")
    if not root.is_dir():
        raise DatasetError(f"Dataset directory does not exist: {root}")
    print(len(list(root.iterdir())))
    return 0

try:
    status = main()
except Exception as error:
    TELL
    status = 1
END
"""


@pytest.mark.parametrize(
    "tell",
    ["print(error)", "logging.getLogger('a').error('failed: %s', error)", "traceback.print_exc()", "logging.exception('no')"],
)
@pytest.mark.parametrize("end", ["sys.exit(status)", "raise SystemExit(status)"])
def test_what_a_script_could_not_go_on_without_is_made(rehearsed, tell, end):
    done = rehearsed({"main.py": MAIN.replace("TELL", tell).replace("END", end), "net.py": "num_classes = 3\n"})
    assert (done.report.ended, done.stdout) == ("finished", "3\n"), done.report.why
    assert [item.what for item in done.standins("data")] == ["data/train"]


def test_the_error_is_told_where_nothing_can_be_learned_of_it(rehearsed):
    text = "import sys\ntry:\n    raise ValueError('full moon')\nexcept ValueError as no:\n    print(no)\n    sys.exit(3)\n"
    done = rehearsed({"main.py": text})
    assert (done.report.ended, done.report.where) == ("stopped", "main.py:3")
    assert done.report.why == "the script ended itself: 3, after ValueError: full moon"


def test_what_is_asked_for_and_not_installed_is_no_failure(rehearsed):
    text = "import sys\ntry:\n    import nobody_has_this\nexcept ImportError as error:\n    print(error)\nsys.exit(3)\n"
    done = rehearsed({"main.py": text})
    assert done.report.why == "the script ended itself: 3"


@pytest.mark.parametrize(
    ("module", "tell"),
    [
        ("rich", "from rich.console import Console\n    Console().print(f'[red]{error}[/red]')"),
        ("click", "import click\n    click.echo(error, err=True)"),
        ("typer", "import typer\n    typer.secho(str(error))"),
    ],
)
def test_what_a_library_prints_is_told_too(rehearsed, module, tell):
    pytest.importorskip(module)
    text = f"try:\n    raise ValueError('full moon')\nexcept ValueError as error:\n    {tell}\nimport sys\nsys.exit(3)\n"
    assert rehearsed({"main.py": text}).report.why == "the script ended itself: 3, after ValueError: full moon"


def test_what_a_script_was_handling_when_it_ended_itself_is_told_whatever_it_says(rehearsed):
    text = "import sys\ntry:\n    raise ValueError('full moon')\nexcept ValueError:\n    sys.exit(3)\n"
    done = rehearsed({"main.py": text})
    assert (done.report.why, done.report.where) == ("the script ended itself: 3, after ValueError: full moon", "main.py:3")


TRIED_AGAIN = """
import time
from PIL import Image

rows = [line.split("\\t") for line in open("data/cats.txt").readlines()]
for name, *_ in rows[:2]:
    while True:
        try:
            image = Image.open("data/" + name)
        except OSError:
            print("not connected")
            time.sleep(1)
        else:
            break
    print(image.mode)
done = True
"""


def test_what_a_script_tries_again_for_ever_is_made(rehearsed):
    """It copes with a missing file no more than a script that stops does. Here its lines are taken apart at tabs, too."""
    done = rehearsed({"main.py": TRIED_AGAIN}, counted=True)
    assert (done.report.ended, done.stdout, done.report.attempts) == ("finished", "RGB\nRGB\n", 2), done.report.remedy
    assert [item.what for item in done.standins("data")] == ["data/cats.txt", "data/image_0000.jpg", "data/image_0001.jpg"]
