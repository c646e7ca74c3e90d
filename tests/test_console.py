"""What is printed cannot steer the terminal: repositories name files, and servers answer, as they like."""

import pytest

from headrace.console import make_console, print_error
from headrace.errors import HeadraceError

# Clears the screen, names the window, and the same in one byte of C1.
STEERING = "\x1b[2J\x1b]0;owned\x07\x9b2J\r"
SPELLED = r"\x1b[2J\x1b]0;owned\x07\x9b2J\r"


def test_errors(capsys):
    print_error(HeadraceError(f"the first\nsecond [line] of {STEERING}"))
    assert capsys.readouterr().err == f"error: the first\nsecond [line] of {SPELLED}\n"


def test_what_turns_a_line_round_or_is_no_character(capsys):
    """As `exe.txt` of a name that ends in `txt.exe`; and names that are not UTF-8, which no stream in UTF-8 takes."""
    make_console().print("a\u202etxt.exe\u2028\u2066\udcff \u00e9\u4e2d")
    assert capsys.readouterr().out == "a\\u202etxt.exe\\u2028\\u2066\\udcff \u00e9\u4e2d\n"
    print_error(HeadraceError("a\u202etxt.exe\udcff"))
    assert capsys.readouterr().err == "error: a\\u202etxt.exe\\udcff\n"


@pytest.mark.parametrize("form", ["text", "table"])
def test_whatever_a_console_prints(capsys, form):
    from rich.table import Table
    from rich.text import Text

    console = make_console()
    if form == "text":
        console.print(f"[bold]bold[/] {STEERING}".replace("[2J", "2J").replace("]0", "0"))
    else:
        table = Table(box=None)
        table.add_column("file")
        table.add_row(Text(STEERING))
        console.print(table)
    said = capsys.readouterr().out
    assert not any((character < " " and character != "\n") or "\x7f" <= character < "\xa0" for character in said)
    assert r"\x1b" in said


def test_places_are_no_pictures(capsys):
    make_console().print("train.py:100:4")
    assert capsys.readouterr().out == "train.py:100:4\n"


def test_styles_reach_a_terminal(monkeypatch, capsys):
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    make_console().print("[bold red]error:[/]")
    assert "\x1b[1;31merror:\x1b[0m" in capsys.readouterr().out


@pytest.mark.parametrize(("columns", "width"), [(None, 160), ("90", 90)])
def test_a_file_has_wide_lines_unless_it_is_told(monkeypatch, columns, width):
    monkeypatch.delenv("COLUMNS", raising=False)
    if columns is not None:
        monkeypatch.setenv("COLUMNS", columns)
    assert make_console().width == width
