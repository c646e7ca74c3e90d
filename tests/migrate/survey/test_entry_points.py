"""Commands that installing a repository makes, and the modules that they stand for."""

import pytest

from headrace.migrate.survey.documented_commands import documented_commands
from headrace.migrate.survey.entry_points import called_by_commands, entry_points

GUARD = "def main(): ...\n\nif __name__ == '__main__':\n    main()\n"


@pytest.fixture
def repository(tmp_path):
    def write(**files):
        for name, text in files.items():
            path = tmp_path / name.replace("__in__", "/").replace("__dot__", ".")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        return tmp_path

    return write


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("pyproject__dot__toml", '[project.scripts]\nnet-train = "net.cli:main"\n'),
        ("pyproject__dot__toml", '[tool.poetry.scripts]\nnet-train = "net.cli:main"\n'),
        ("setup__dot__cfg", "[options.entry_points]\nconsole_scripts =\n    net-train = net.cli:main\n"),
        ("setup__dot__py", "setup(entry_points={'console_scripts': ['net-train = net.cli:main']})\n"),
    ],
)
@pytest.mark.parametrize("folder", ["", "src__in__"])
def test_a_command_is_its_module(repository, name, text, folder):
    root = repository(**{name: text, f"{folder}net__in__cli__dot__py": GUARD})
    assert entry_points(root) == {"net-train": "net.cli"}


@pytest.mark.parametrize(
    "line",
    [
        "net-train {}", "$ net-train {}", "uv run net-train {}", "$ uv run --extra cpu --frozen net-train {}",
        "poetry run net-train {}", "uvx net-train {}", "pixi run -e cuda net-train {}",
    ],
)  # fmt: skip
def test_a_command_is_run_in_a_projects_environment(repository, line):
    line = line.format("train --config a.yaml")
    root = repository(
        pyproject__dot__toml='[project.scripts]\nnet-train = "net.cli:main"\n',
        net__in__cli__dot__py=GUARD,
        README__dot__md=f"```bash\n{line}\nuv run python net/other.py net-train\n```\n",
        net__in__other__dot__py=GUARD,
    )
    found = [(command.script, " ".join(command.arguments)) for command in documented_commands(root)]
    assert found == [("net/cli.py", "train --config a.yaml"), ("net/other.py", "net-train")]


def test_a_module_that_runs_nothing_is_left_to_its_package(repository):
    text = '[project.scripts]\na = "net.cli:main"\nb = "other.cli:main"\nc = "gone:main"\nd = 3\n'
    root = repository(
        pyproject__dot__toml=text,
        net__in__cli__dot__py="def main(): ...\n",
        net__in____main____dot__py="from .cli import main\nmain()\n",
        other__in__cli__dot__py="def main(): ...\n",
    )
    assert entry_points(root) == {"a": "net", "b": "other.cli"}
    assert called_by_commands(root) == {"other/cli.py": "main"}


def test_broken_files_name_no_commands(repository):
    assert entry_points(repository(pyproject__dot__toml="[project\n", setup__dot__cfg="x")) == {}


def test_documentation_that_names_the_command_runs_the_module(repository):
    readme = (
        "# net\n\nnet-train is described below.\n\n```\n$ net-train evaluate --config conf/a.yaml\nnet-train-all --x\n```\n"
    )
    root = repository(
        pyproject__dot__toml='[project.scripts]\nnet-train = "net.cli:main"\n',
        src__in__net__in__cli__dot__py=GUARD,
        README__dot__md=readme,
    )
    found = documented_commands(root)
    assert [(item.script, item.arguments, item.line) for item in found] == [
        ("src/net/cli.py", ("evaluate", "--config", "conf/a.yaml"), 6)
    ]
