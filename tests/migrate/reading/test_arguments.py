"""Command lines by the options of a script."""

from __future__ import annotations

import ast

import pytest

from headrace.migrate.reading.arguments import COMMANDS, OPEN, command_line, documented, read_options, split

SCRIPT = """
parser.add_argument("folder", nargs="?")
parser.add_argument("-n", "--net", required=True, choices=["vgg", "resnet"])
parser.add_argument("-j", type=int)
parser.add_argument("--lr", type=float)
parser.add_argument("--size", nargs=2, type=int)
parser.add_argument("--steps", nargs="+")
parser.add_argument("--gpu", action="store_true")
"""
OPTIONS = read_options(ast.walk(ast.parse(SCRIPT)))


def parts(line: str) -> list[tuple[str | None, str]]:
    return [(option.dest if option else None, " ".join(words)) for option, words in split(OPTIONS, line.split())]


def test_a_command_line_is_split_by_its_options() -> None:
    assert parts("-n vgg data --size 3 4 -j4 --lr=-1 --gpu --steps a b --net=x") == [
        ("net", "-n vgg"), ("folder", "data"), ("size", "--size 3 4"), ("j", "-j4"), ("lr", "--lr=-1"), ("gpu", "--gpu"),
        ("steps", "--steps a b"), ("net", "--net=x"),
    ]  # fmt: skip
    assert parts("--siz 3 4 --lr -1 -- data more") == [
        ("size", "--siz 3 4"),
        ("lr", "--lr -1"),
        ("folder", "data"),
        (None, "more"),
    ]
    assert parts("--s 3 --other 5 6") == [(None, "--s 3"), (None, "--other 5"), ("folder", "6")]
    assert split([], ["--a", "b", "c"]) == [(None, ["--a", "b"]), (None, ["c"])]


@pytest.mark.parametrize(
    ("line", "taken"),
    [
        ("-n vgg", "-n vgg"),
        ("data -n vgg -j 4", "data -n vgg -j 4"),
        ("-n ? --gpu", "--gpu"),  # required, and left to the reader
        ("-n vgg --lr ? ?", "-n vgg"),
        ("-n vgg --lr=?", "-n vgg"),
        ("--gpu", None),  # a required one is missing
        ("-n lenet", None),  # no such choice
        ("-n vgg -j four", None),
        ("-n vgg --size 3 x", None),
        ("-n vgg --other 1", None),
        ("-n vgg a b", None),
        ("-n vgg --help", None),
    ],
)
def test_a_documented_line_fits_or_not(line: str, taken: str | None) -> None:
    found = documented(OPTIONS, line.replace("?", OPEN).split())
    assert (None if found is None else " ".join(word for _, words in found for word in words)) == taken


def test_without_known_options_anything_goes() -> None:
    found = documented([], ["experiment=a", "--x", OPEN, OPEN, "-v"])
    assert found == [(None, ["experiment=a"]), (None, ["-v"])]
    assert documented([], ["-h"]) is None


def test_the_rest_of_the_line_may_be_anything() -> None:
    options = read_options(ast.walk(ast.parse("p.add_argument('--cfg'); p.add_argument('opts', nargs=argparse.REMAINDER)")))
    assert [option.required for option in options] == [False, False]
    assert documented(options, ["--cfg", "a", "TEST.X", "1", "TEST.Y", "2"]) is not None


def test_a_subcommand_comes_before_its_options() -> None:
    text = """
commands = parser.add_subparsers(dest="what", required=True)
train = commands.add_parser("train")
train.add_argument("--config", required=True)
train.add_argument("data")
commands.add_parser("infer").add_argument("--config")
"""
    options = read_options(ast.walk(ast.parse(text)))
    assert (options[0].dest, options[0].action, options[0].choices) == ("what", COMMANDS, ("train", "infer"))
    assert command_line(options, {"config": "a", "what": "train", "data": "d"}) == ["train", "--config", "a", "--", "d"]
    assert documented(options, ["train", "--config", "a", "d"]) is not None
    assert documented(options, ["export", "--config", "a", "d"]) is None
    assert read_options(ast.walk(ast.parse("p.add_subparsers()")))[0].dest == "command"


def test_what_one_subcommand_must_be_told_another_is_not() -> None:
    text = """
def common(parser):
    parser.add_argument("--config", required=True)

parser = argparse.ArgumentParser()
commands = parser.add_subparsers()
one = commands.add_parser("train")
common(one)
one.add_argument("--epochs", type=int, required=True)
one.add_argument("--seed")
one = commands.add_parser("predict")
one.add_argument("--checkpoint", required=True)
one.add_argument("images", nargs="+")
one.add_argument("--seed")
commands.add_parser("export").add_argument("--opset", required=True)
"""
    options = read_options(ast.walk(ast.parse(text)))
    assert {option.dest: option.commands for option in options if option.dest != "command"} == {
        "config": (), "epochs": ("train",), "seed": ("train", "predict"), "checkpoint": ("predict",), "images": ("predict",),
        "opset": ("export",),
    }  # fmt: skip
    assert documented(options, ["train", "--config", "a", "--epochs", "3"]) is not None
    assert documented(options, ["train", "--config", "a"]) is None
    assert documented(options, ["train", "--config", "a", "--epochs", "3", "b.jpg"]) is None
    told = documented(options, ["predict", "--config", "a", "--checkpoint", "b.pth", "c.jpg"]) or []
    assert [option.dest for option, _ in told if option is not None] == ["command", "config", "checkpoint", "images"]
