import os

import pytest

from headrace.migrate.worker.rehearsal.settings import environment

WANTED = [
    "import os, pathlib\nprint(os.path.join(os.getenv('PLANTS_ROOT'), 'a'))",
    "import os\nROOT = os.environ.get('PLANTS_ROOT')\nprint(os.path.join(ROOT, 'a'))",
    "import os\nfrom pathlib import Path\nROOT = os.getenv('PLANTS_ROOT', None)\nprint(Path(ROOT) / 'a')",
    "import os\nclass Settings:\n    root = os.getenv('PLANTS_ROOT')\nprint(os.path.join(Settings().root, 'a'))",
    "import os\ndef read(root):\n    return os.path.join(root, 'a')\nprint(read(os.getenv('PLANTS_ROOT')))",
    "import os\nroot: str = os.environ.get(\n    'PLANTS_ROOT'\n)\nprint(\n    os.path.join(\n        root, 'a')\n)",
    "import os\nROOT = os.getenv('PLANTS_ROOT')\nprint(ROOT.strip() + '/a')",
]


def test_values_hold_for_a_while(monkeypatch):
    monkeypatch.setenv("KNOWN", "before")
    with environment.holding({"KNOWN": "within", "OTHER": "1"}):
        assert (os.environ["KNOWN"], os.environ["OTHER"]) == ("within", "1")
    assert (os.environ["KNOWN"], os.environ.get("OTHER")) == ("before", None)


@pytest.mark.parametrize("text", WANTED)
def test_a_variable_whose_none_ends_the_script_is_set(rehearsed, text):
    done = rehearsed({"main.py": f"import os\nos.getenv('COLORS')\n{text}\nassert 'COLORS' not in os.environ\n"})
    assert (done.report.ended, done.stdout, done.report.attempts) == ("finished", "data/a\n", 2), done.report.why
    assert [item.what for item in done.standins("arguments")] == ["PLANTS_ROOT=data was guessed"]


@pytest.mark.parametrize(
    "text",
    [
        # The None is another's.
        "found = re.match('a', 'b')\nprint(found.group(0))",
        # The variable has something else in its place, or is given up on purpose.
        "root = os.getenv('ROOT', 'there')\nos.path.join(root, None)",
        "root = os.getenv('ROOT', 'there')\nroot = None\nos.path.join(root, 'a')",
        "root = os.getenv('ROOT') or 'there'\nos.path.join(None, root)",
        "raise SystemExit('None is given')",
    ],
)
def test_what_did_not_end_the_script_stays_unset(rehearsed, text):
    done = rehearsed({"main.py": f"import os, re\nrank = os.environ.get('LOCAL_RANK')\n{text}\n"})
    assert done.report.ended == "stopped"
    assert not [item for item in done.standins("arguments") if "LOCAL_RANK" in item.what or "ROOT" in item.what]


def test_variables_of_which_numbers_are_made_are_numbers_all_at_once(rehearsed):
    text = "WEIGHT_DECAY: float = float(os.getenv('WEIGHT_DECAY'))\nCLASSES = int(os.environ.get('OUTPUT_CLASSES'))\n"
    text += "".join(f"x{number} = int(getenv('SIZE_{number}'))\n" for number in range(12))
    done = rehearsed(
        {"main.py": f"import os\nfrom os import getenv\nnum_classes = 7\n{text}print(WEIGHT_DECAY, CLASSES, x11)\n"}
    )
    assert (done.report.ended, done.stdout, done.report.attempts) == ("finished", "1.0 7 1\n", 2), done.report.why


@pytest.mark.parametrize(("others", "taken"), [((), "given/labels.json"), (("more/labels.json",), "labels.json")])
def test_a_file_that_the_repository_has_is_taken_where_one_of_its_name_is_guessed(rehearsed, others, taken):
    text = "import json, os\njson.load(open(os.getenv('LABELS_JSON')))\nprint(os.getenv('LABELS_JSON'))\n"
    done = rehearsed({"main.py": text, "given/labels.json": "{}", **dict.fromkeys(others, "{}")})
    assert (done.report.ended, done.stdout) == ("finished", f"{taken}\n"), done.report.why


INSISTS = """
import os
MODE = os.getenv('SEED_MODE', 'hub')
if MODE not in ('hub', 'folder'):
    raise RuntimeError('SEED_MODE must be hub or folder')
ROOT = os.getenv('SEED_ROOT', {default})
if not ROOT:
    raise RuntimeError({message})
print(MODE, ROOT)
"""


@pytest.mark.parametrize("default", ["''", "None"])
@pytest.mark.parametrize("message", ["'SEED_ROOT must be set when SEED_MODE=hub'", "'with SEED_MODE=hub set SEED_ROOT'"])
def test_of_the_variables_that_an_error_names_the_one_without_a_value_is_set(rehearsed, default, message):
    done = rehearsed({"main.py": INSISTS.format(default=default, message=message)})
    assert (done.report.ended, done.stdout) == ("finished", "hub data\n"), done.report.why
    assert [item.what for item in done.standins("arguments")] == ["SEED_ROOT=data was guessed"]


def test_of_two_variables_without_a_value_the_error_asks_for_the_first(rehearsed):
    asked = "a, b = os.getenv('SEED_DIR'), os.getenv('SEED_CSV')"
    text = f"import os\n{asked}\nif b is None:\n    raise ValueError('SEED_CSV or SEED_DIR')\n"
    done = rehearsed({"main.py": text})
    assert [item.what.partition("=")[0] for item in done.standins("arguments")] == ["SEED_CSV"], done.report.why


def test_the_example_of_the_repositorys_settings_is_taken_before_a_guess(rehearsed):
    text = "import os\nprint(os.path.join(os.getenv('PLANTS_ROOT'), os.getenv('PLANTS_CSV')))\n"
    example = "# where\nexport PLANTS_ROOT='plants'\nPLANTS_CSV=<your table>\n"
    done = rehearsed({"main.py": text, ".env.example": example})
    assert (done.report.ended, done.stdout) == ("finished", "plants/annotations.csv\n"), done.report.why
    assert [item.what for item in done.standins("arguments")] == [
        "PLANTS_ROOT=plants was taken from the example of its settings",
        "PLANTS_CSV=annotations.csv was guessed",
    ]


@pytest.mark.parametrize(
    ("line", "value"),
    [
        ("ROOT=there", "there"),
        ('export ROOT = "there"  ', "there"),
        ("ROOT=", None),
        ("ROOT=your_root", None),
        ("ROOT=<root>", None),
        ("ROOTS=there", None),
        ("# ROOT=there", None),
    ],
)
def test_an_example_states_a_variable(tmp_path, line, value):
    (tmp_path / ".env.sample").write_text(f"OTHER=1\n{line}\n")
    assert environment.stated(str(tmp_path), "ROOT") == value
    assert environment.stated(str(tmp_path / "none"), "ROOT") is None


def test_what_a_launcher_sets_is_set_as_it_does(rehearsed):
    text = (
        "import os\nlocal = int(os.environ.get('LOCAL_RANK'))\nprint(local, int(os.getenv('RANK')), os.getenv('WORLD_SIZE'))\n"
    )
    done = rehearsed({"main.py": text})
    assert (done.report.ended, done.stdout, done.report.attempts) == ("finished", "0 0 1\n", 2), done.report.why
    assert not done.standins("arguments")


LIBRARY = """
import os

def need(name):
    os.environ.get("OTHER_NAME"), os.environ.get("WORD")
    if name not in os.environ:
        raise ValueError(f"the variable {name} is not set: no WORD")
    return os.environ[name]
"""
USES = "import sys\nsys.path.insert(0, 'env/site-packages')\nimport needs\n"


def test_a_librarys_variable_is_set_that_its_error_names(rehearsed):
    files = {"env/site-packages/needs.py": LIBRARY, "main.py": USES + "print([needs.need('CUDA_VISIBLE_DEVICES')])\n"}
    done = rehearsed(files)
    assert (done.report.ended, done.stdout) == ("finished", "['']\n"), done.report.why
    assert [item.what for item in done.standins("arguments")] == ["CUDA_VISIBLE_DEVICES= was guessed"]


@pytest.mark.parametrize(
    ("said", "value"),
    [
        ("to keep using files, set `NETLIB_ALLOW_FILES=true`", "true"),
        ("NETLIB_ALLOW_FILES must be one of ['yes', 'no'] (case-insensitive)", "yes"),
        ("set NETLIB_ALLOW_FILES to 1, or use a database", "1"),
        ("NETLIB_ALLOW_FILES is not set", None),
    ],
)
def test_an_error_says_what_the_variable_should_be(said, value):
    assert environment.told("NETLIB_ALLOW_FILES", ValueError(said)) == value


ENDS_ITSELF = """
import os, sys
KEY = os.environ.get("STORE_KEY")
SECRET = os.getenv("STORE_SECRET")
OTHER = os.getenv("COLORS")
if not KEY or not SECRET:
    print("no credentials")
    sys.exit(STATUS)
print("stored", OTHER)
"""


def test_a_script_that_ends_itself_for_want_of_variables_gets_them(rehearsed):
    done = rehearsed({"main.py": ENDS_ITSELF.replace("STATUS", "1")})
    assert (done.report.ended, done.stdout) == ("finished", "stored None\n"), done.report.why
    assert sorted(item.what.partition("=")[0] for item in done.standins("arguments")) == ["STORE_KEY", "STORE_SECRET"]


def test_a_script_that_ends_well_wants_nothing(rehearsed):
    done = rehearsed({"main.py": ENDS_ITSELF.replace("STATUS", "0")})
    assert (done.stdout, done.standins("arguments")) == ("no credentials\n", [])


def test_a_word_that_an_error_has_by_chance_is_no_librarys_variable(rehearsed):
    done = rehearsed({"env/site-packages/needs.py": LIBRARY, "main.py": USES + "needs.need('WORD')\n"})
    assert (done.report.ended, done.standins("arguments")) == ("stopped", [])
