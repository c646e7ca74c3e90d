import pytest

SCRIPT = """
import argparse, json, sys
parser = argparse.ArgumentParser()
parser.add_argument("-c", "--config", default="configs/config.json")
args = parser.parse_args()
"""
READ = "print(json.load(open(args.config))['root_dir'])\n"


@pytest.mark.parametrize(
    "read",
    [
        READ,
        f"import os\nif not os.path.isfile(args.config):\n    sys.exit('no settings')\n{READ}",
        f"import os\nif not os.path.isfile(args.config):\n    raise ValueError(args.config + ' is missing')\n{READ}",
    ],
)
def test_for_a_configuration_that_is_named_and_not_here_another_of_its_format_is_taken(rehearsed, read):
    files = {"configs/examples/net.json": '{"root_dir": "here"}', "labels.json": "{}", "configs/net.yaml": "a: 1\n"}
    done = rehearsed({"main.py": SCRIPT + read, **files})
    assert (done.report.ended, done.stdout) == ("finished", "here\n"), done.report.why
    assert "--config configs/examples/net.json was guessed" in [item.what for item in done.standins("arguments")]


def test_the_configuration_that_lacks_what_the_script_takes_gives_way_here_too(rehearsed):
    files = {"configs/a.json": '{"depth": 3}', "configs/b.json": '{"root_dir": "there"}'}
    assert rehearsed({"main.py": SCRIPT + READ, **files}).stdout == "there\n"


def test_without_another_one_it_is_made_as_other_files_are(rehearsed):
    done = rehearsed({"main.py": SCRIPT + READ, "labels.json": '{"root_dir": "a table of labels"}'})
    assert "a table of labels" not in done.stdout
    assert not any("was guessed" in item.what for item in done.standins("arguments"))


def test_a_configuration_that_is_not_here_and_that_nothing_reads_stays(rehearsed):
    text = SCRIPT + "raise KeyError('depth')\n"
    done = rehearsed({"main.py": text, "configs/net.json": "{}"})
    assert (done.report.ended, done.report.attempts) == ("stopped", 1)
