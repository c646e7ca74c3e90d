"""A file of settings that is not here says what its example says."""

import pytest

from headrace.migrate.worker.rehearsal.forms.examples import example_of

READ = "import json\nprint(json.load(open('config.json'))['classes'])\n"


@pytest.mark.parametrize(
    ("missing", "example"),
    [
        ("config.yaml", "config.yaml.example"),
        ("config.yaml", "config.sample.yaml"),
        ("settings.ini", "settings-template.ini"),
        ("params.toml", "Example.params.toml"),
        (".env", ".env.dist"),
        (".env", "sample.env"),
        ("secrets.ini", "secretsExample.ini"),
    ],
)
def test_the_example_beside_it(tmp_path, missing, example):
    (tmp_path / example).write_text("")
    (tmp_path / f"other{missing}.example").write_text("")
    assert example_of(str(tmp_path / missing)) == str(tmp_path / example)


@pytest.mark.parametrize("name", ["weights.pth", "photo.jpg", "other.yaml", "missing/config.yaml"])
def test_what_has_none(tmp_path, name):
    for other in ("config.yaml.example", "weights.pth.example", "photo.sample.jpg"):
        (tmp_path / other).write_text("")
    assert example_of(str(tmp_path / name)) is None


def test_a_script_goes_on_with_what_the_example_says(rehearsed):
    done = rehearsed({"main.py": READ, "config.example.json": '{"classes": 12}'})
    assert (done.report.ended, done.stdout) == ("finished", "12\n"), done.report.why
    said = [item.what for item in done.standins("arguments")]
    assert said == ["config.json is not here, and says what config.example.json says"]
    assert not done.standins("data")


def test_a_parser_of_sections_reads_it_too(rehearsed):
    text = (
        "import configparser\nconfig = configparser.ConfigParser()\nconfig.read('keys.ini')\nprint(config['Tracker']['Key'])\n"
    )
    done = rehearsed({"main.py": text, "keysExample.ini": "[Tracker]\nKey:<KEY>\n"})
    assert (done.report.ended, done.stdout) == ("finished", "<KEY>\n"), done.report.why


def test_an_example_where_nothing_can_be_written_is_read_there(rehearsed, tmp_path):
    (tmp_path / "config.example.json").write_text('{"classes": 5}')
    done = rehearsed({"main.py": READ.replace("'config.json'", repr(str(tmp_path / "config.json")))})
    assert (done.report.ended, done.stdout) == ("finished", "5\n"), done.report.why
    assert not (tmp_path / "config.json").exists()


def test_the_users_own_file_comes_first(rehearsed):
    done = rehearsed({"main.py": READ, "config.json": '{"classes": 3}', "config.json.example": '{"classes": 12}'})
    assert (done.stdout, done.standins("arguments")) == ("3\n", [])
