"""Every command that the pages show runs as it stands, or stands in the table of what cannot run here.

A page is read from its top to its end, by somebody whose folder has what the pages name (world.py). A server is started on free
ports; what asks it at localhost asks it there.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.commands import world
from tests.commands.elsewhere import ELSEWHERE, Elsewhere
from tests.commands.pages import PAGES, ROOT, Command, File, has_form, steps
from tests.commands.running import Reader
from tests.warm_python import WarmPython

# Dear, and on several pages: run once, for all of them. The packaged models in the reader's folder are what the second gives.
SHARED = (
    "headrace migrate path/to/repository",
    "headrace migrate path/to/repository --out build/migrated",
    "headrace migrate net.mar --out build/net",
)
# Status 1 says what the page says, too: a preview, a check or the findings of a linter have something to tell.
TELLS = re.compile(r"^headrace (migrate(?!.*--(out|write))|migrate .*--check|verify|triton lint) ")

# Every command that these show is on README.md or on a page that stays; or serves with options, whose three places
# serving/test_options holds, and the modes of model control serving/models and serving/processes.
REPEATS = (
    "docs/console.md", "docs/index.md", "docs/model-control.md", "docs/names.md", "docs/serve-options.md", "docs/triton.md",
    "docs/tutorials/repository.md", "docs/tutorials/timm.md", "docs/tutorials/torchserve.md",
)  # fmt: skip


def succeeded(text: str) -> tuple[int, ...]:
    """The statuses of a command that did what it should."""
    return (0, 1) if TELLS.search(text) else (0,)


Made = tuple[Path, dict[str, subprocess.CompletedProcess[str]]]


@pytest.fixture(scope="session")
def made(once: Callable[..., Any], warm_torch: WarmPython) -> Made:
    """The reader's folder, and how the shared commands went there; nobody writes to it."""

    def make(folder: Path) -> Made:
        at = folder / "reader"
        world.make(at)
        reader = Reader(at, warm_torch)
        done = {text: reader.run(text) for text in SHARED}
        for text, one in done.items():
            assert one.returncode in succeeded(text), one.stdout + one.stderr
        shutil.copytree(at / "build" / "migrated" / "models", at / "models")
        return at, done

    return once("commands", make)


@pytest.fixture
def reader(made: Made, tmp_path: Path, warm_torch: WarmPython) -> Iterator[Reader]:
    folder = shutil.copytree(made[0], tmp_path / "reader")
    found = Reader(folder, warm_torch)
    yield found
    found.stop()


def _elsewhere(command: Command) -> Elsewhere | None:
    return next((row for row in ELSEWHERE if row.holds(command)), None)


def _cases() -> Iterator[Any]:
    """Each page with commands that run, and once more, with those that are dear as well, where it has such."""
    for page in PAGES:
        try:
            rows = [_elsewhere(step) for step in steps(page) if isinstance(step, Command)]
        except ValueError:
            rows = [None]  # the page's test says why
        if None in rows:
            yield pytest.param(page, False, id=str(page), marks=[pytest.mark.slow] if str(page) in REPEATS else [])
        if any(row and row.dear for row in rows):
            yield pytest.param(page, True, id=f"{page}, whole", marks=[pytest.mark.slow, pytest.mark.timeout(900)])


@pytest.mark.parametrize(("page", "whole"), list(_cases()))
def test_what_a_page_shows_runs(page: Path, whole: bool, made: Made, reader: Reader) -> None:
    if "models/faces" in (ROOT / page).read_text():
        world.add_faces(reader.folder / "models")
    shown = steps(page)
    for step in shown:  # the file that a command names may stand below it
        if isinstance(step, File):
            world.written(reader.folder, step.name, step.text)
    away: Elsewhere | None = None  # where the server of this page is, if not here
    for step in shown:
        if isinstance(step, File):
            world.written(reader.folder, step.name, step.text)
            continue
        row = _elsewhere(step)
        if row and row.dear and whole:
            row = None
        if re.search(r"headrace (serve|triton run)\b", step.text):
            away = row
        if row or (away and "localhost:" in step.text):
            continue
        done = made[1].get(step.text.partition("#")[0].strip()) or reader.run(step.text)
        said = f"{step.place}: {step.text}\n{done.stdout}{done.stderr}"
        assert done.returncode in succeeded(step.text), f"status {done.returncode} of {said}"
        assert "Traceback" not in done.stderr, said
        assert has_form(step.answer, done.stdout + done.stderr), f"the page shows {step.answer}, and not the answer of {said}"


def test_every_row_of_the_table_is_needed_and_names_what_runs_it() -> None:
    commands = [step for page in PAGES for step in steps(page) if isinstance(step, Command)]
    needed = {row for command in commands if (row := _elsewhere(command))}
    assert not [row.pattern for row in ELSEWHERE if row not in needed], "no page shows such a command any more"
    for row in ELSEWHERE:
        _, make, target = row.instead.rpartition("make ")
        assert target in _targets() if make else (ROOT / row.instead).is_file(), f"{row.instead} is not there"


def test_targets_that_the_pages_name_are_in_the_makefile() -> None:
    shown = {
        word
        for page in PAGES
        for step in steps(page)
        if isinstance(step, Command) and step.text.startswith("make ")
        for word in step.text.partition("#")[0].split()[1:]
        if "=" not in word
    }
    assert shown
    assert not shown - _targets()


def _targets() -> set[str]:
    return set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
