"""Groups of commands of Click and Typer: one is called, and where it leads to no model another."""

import pytest

CLICK = """
import click

@click.group(ABOUT)
def cli():
    print("cli")

@cli.command()
def prepare():
    print("prepare")

@cli.command()
@click.option("--epochs", type=int, required=True)
def train(epochs):
    print("train", epochs)

@cli.command("test")
@click.argument("image")
def run_test(image):
    print("test", image)

cli()
"""
TYPER = """
import typer

app, ml, data = typer.Typer(), typer.Typer(), typer.Typer()

@data.command()
def build():
    print("build")

@ml.command()
def split():
    print("split")

@ml.command()
def train(folder: str, rate: float):
    print("train", folder, rate)

app.add_typer(data, name="data")
app.add_typer(ml, name="ml")
app()
"""


def test_the_command_that_uses_a_model_is_called(rehearsed):
    pytest.importorskip("click")
    done = rehearsed({"main.py": CLICK.replace("ABOUT", "")})
    assert (done.report.ended, done.stdout) == ("finished", "cli\ntest image.jpg\n"), done.report.why
    assert [item.what for item in done.standins("arguments")] == ["the command test was guessed", "image image.jpg was guessed"]


def test_the_command_that_is_told_is_called(rehearsed):
    pytest.importorskip("click")
    done = rehearsed({"main.py": CLICK.replace("ABOUT", "")}, "prepare")
    assert (done.report.ended, done.stdout, done.standins("arguments")) == ("finished", "cli\nprepare\n", []), done.report.why


def test_commands_of_a_group_within_a_group_are_called(rehearsed):
    pytest.importorskip("typer")
    done = rehearsed({"main.py": TYPER})
    assert (done.report.ended, done.stdout) == ("finished", "train data 0.1\n"), done.report.why
    assert done.standins("arguments")[0].what == "the command ml train was guessed"


def test_another_command_is_called_where_the_first_leads_to_no_model(rehearsed):
    pytest.importorskip("click")
    text = CLICK.replace("ABOUT", "").replace('print("test", image)', 'raise RuntimeError("no run is here")')
    done = rehearsed({"main.py": text})
    assert (done.report.ended, done.stdout) == ("finished", "cli\ntrain 1\n"), done.report.why


def test_a_group_that_does_without_a_command_is_asked_so_first(rehearsed):
    pytest.importorskip("click")
    done = rehearsed({"main.py": CLICK.replace("ABOUT", "invoke_without_command=True")})
    assert (done.report.ended, done.stdout) == ("finished", "cli\n"), done.report.why


FILES = """
import os
import click

@click.command()
@click.argument("images", nargs=-1, required=True, type=click.Path(exists=True, dir_okay=False))
@click.option("--folder", type=click.Path(exists=True, file_okay=False))
def cli(images, folder):
    print(images, [os.path.isfile(image) for image in images], folder and os.path.isdir(folder))

cli()
"""


@pytest.mark.parametrize(
    ("told", "printed", "made"),
    [
        ((), "('image.jpg',) [True] None\n", ["image.jpg"]),
        (("leaf.jpg", "a.png", "--folder", "test"), "('leaf.jpg', 'a.png') [True, True] True\n", ["leaf.jpg", "a.png", "test"]),
    ],
)
def test_paths_that_have_to_be_there_are_made(rehearsed, told, printed, made):
    pytest.importorskip("click")
    done = rehearsed({"main.py": FILES}, *told)
    assert (done.report.ended, done.stdout) == ("finished", printed), done.report.why
    assert set(made) <= {item.what for item in done.standins("data")}


def test_a_file_of_which_nobody_knows_what_it_holds_is_missed(rehearsed):
    pytest.importorskip("click")
    done = rehearsed({"main.py": FILES}, "what.is_it")
    assert "File 'what.is_it' does not exist" in done.stderr
