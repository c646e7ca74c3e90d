"""A repository that asks for the version of the distribution that it is."""

import pytest

from headrace.migrate.worker.rehearsal.edges.libraries.own_distribution import described

ASKS = (
    "from importlib import metadata\nimport nets\nprint(nets.__version__, metadata.metadata('my_nets')['Name'])\n"
    "try:\n    metadata.version('nobody-has-this')\nexcept metadata.PackageNotFoundError:\n    print('not installed')\n"
)


@pytest.mark.parametrize(
    ("file", "text", "version"),
    [
        ("pyproject.toml", "[project]\nname = 'my_nets'\nversion = '1.2.3'\n", "1.2.3"),
        ("src/pyproject.toml", "[tool.poetry]\nname = 'My.Nets'\nversion = '0.4'\n", "0.4"),
        ("setup.cfg", "[metadata]\nname = my-nets\nversion = attr: nets.__version__\n", "0"),
        ("setup.py", "from setuptools import setup\nsetup(\n    name='my-nets',\n    version='2.0.dev1',\n)\n", "2.0.dev1"),
    ],
)
def test_its_version_is_what_its_files_say(rehearsed, file, text, version):
    own = "from importlib.metadata import version\n__version__ = version('my-nets')\n"
    done = rehearsed({"main.py": ASKS, "src/nets/__init__.py": own, file: text})
    assert (done.report.ended, done.stdout) == ("finished", f"{version} my_nets\nnot installed\n"), done.report.why
    said = [item.what for item in done.standins("libraries")]
    assert f"my-nets, which this repository is, is not installed; its version was {version}" in said


def test_a_package_of_that_name_is_enough_and_broken_files_are_none(tmp_path):
    (tmp_path / "pyproject.toml").write_text("[project\nname = 'nets'\n")
    assert described(tmp_path, "nets") is None
    (tmp_path / "src/nets").mkdir(parents=True)
    (tmp_path / "src/nets/__init__.py").write_text("")
    assert described(tmp_path, "Nets") == "0"
    assert described(tmp_path, "torch") is None
