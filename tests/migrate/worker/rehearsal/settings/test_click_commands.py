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
