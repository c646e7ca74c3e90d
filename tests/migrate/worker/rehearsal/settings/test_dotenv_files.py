"""Settings in a file called .env, where the library that reads them is not installed."""

import importlib.util
import os
import sys

import pytest

from headrace.migrate.worker.rehearsal.edges import arguments
from headrace.migrate.worker.rehearsal.settings.dotenv_files import values_of

absent = pytest.mark.skipif(importlib.util.find_spec("dotenv") is not None, reason="python-dotenv is installed")
SETTINGS = """# where things are
export MODEL_DIR="models/best one"  # quoted
CLASSES=7
EMPTY=
NAME='a # b'
PLAIN = spaced out   # said
not a line
"""


def test_the_lines_of_a_file(tmp_path):
    (tmp_path / ".env").write_text(SETTINGS)
    assert values_of(str(tmp_path / ".env")) == {
        "MODEL_DIR": "models/best one", "CLASSES": "7", "EMPTY": "", "NAME": "a # b", "PLAIN": "spaced out",
    }  # fmt: skip
    assert values_of(str(tmp_path / "missing")) == {}


@absent
def test_a_script_finds_its_settings_and_what_is_set_comes_first(on_stage, monkeypatch):
    monkeypatch.setenv("CLASSES", "9")
    world = on_stage(arguments, files={".env": SETTINGS})
    names = world.play(
        "import os\nfrom dotenv import dotenv_values, find_dotenv, load_dotenv\nfound, path = load_dotenv(), find_dotenv()\n"
        "read = os.environ['MODEL_DIR'], os.environ['CLASSES'], dotenv_values('.env')['CLASSES']\n"
        "load_dotenv(override=True)\nlast = os.environ['CLASSES']\n"
    )
    assert (names["found"], names["read"], names["last"]) == (True, ("models/best one", "9", "7"), "7")
    assert names["path"] == str(world.root / ".env")
    assert world.said("libraries") == ["python-dotenv is not installed; files of settings are read as it reads them"]


@absent
def test_a_script_without_such_a_file_goes_on_and_nothing_stays(rehearsed):
    done = rehearsed({"main.py": "import dotenv\nprint(dotenv.load_dotenv(), repr(dotenv.find_dotenv('no.env')))\n"})
    assert (done.report.ended, done.stdout, done.report.attempts) == ("finished", "False ''\n", 1), done.report.why
    assert "dotenv" not in sys.modules
    assert "MODEL_DIR" not in os.environ


@absent
def test_the_users_own_module_of_that_name_is_its_own(rehearsed):
    done = rehearsed(
        {"main.py": "import dotenv\nprint(dotenv.load_dotenv())\n", "dotenv.py": "def load_dotenv():\n    return 'mine'\n"}
    )
    assert done.stdout == "mine\n"
