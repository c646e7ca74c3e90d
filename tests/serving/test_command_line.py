"""Commands whose options are fields of classes: their help, and what the shell completes."""

import inspect
import re
from dataclasses import dataclass

import typer
from typer.testing import CliRunner

from headrace.cli import app
from headrace.serving.command_line import takes
from headrace.serving.config import GROUPS
from headrace.serving.named.config import NamedModel
from headrace.serving.options import OptionGroup, option, options_of
from headrace.serving.ray.config import RayConfig


@dataclass(frozen=True, kw_only=True)
class Colors(OptionGroup):
    title = "Colors"

    needed: str
    red_bytes: int = option(1024, "Red.", name="red-kib", unit=1024)
    tints: tuple[str, ...] = option((), "Names.", name="tint")


def test_a_command_takes_the_options_of_a_group_before_its_keywords(monkeypatch):
    seen = []

    @takes(Colors, variables="PAINT_")
    def paint(wall: str, *, dry: bool = False, **options):
        seen.append((wall, dry, options))

    assert list(inspect.signature(paint).parameters) == ["wall", "red_kib", "tint", "dry"]
    paints = typer.Typer(add_completion=False)
    paints.command()(paint)
    assert CliRunner().invoke(paints, ["north", "--tint", "a", "--tint", "b"], env={"PAINT_RED_KIB": "3"}).exit_code == 0
    assert CliRunner().invoke(paints, ["north", "--dry"]).exit_code == 0
    assert seen == [("north", False, {"red_kib": 3, "tint": ["a", "b"]}), ("north", True, {"red_kib": 1, "tint": None})]


def test_the_help_is_in_groups():
    shown = CliRunner().invoke(app, ["serve", "--help"]).output
    titles = re.findall(r"^(\S.*):$", shown, re.MULTILINE)
    assert titles == ["Arguments", "Options", *(group.title for group in (*GROUPS.values(), NamedModel, RayConfig))]
    assert all(one.flag in shown for group in (*GROUPS.values(), NamedModel, RayConfig) for one in options_of(group))


def test_the_shell_completes_options_and_choices():
    environment = {"_HEADRACE_COMPLETE": "complete_bash", "COMP_WORDS": "headrace serve x --max-", "COMP_CWORD": "3"}
    shown = CliRunner().invoke(app, [], env=environment, prog_name="headrace").output.split()
    assert "--max-body-bytes" in shown
    environment |= {"COMP_WORDS": "headrace serve x --decoding ", "COMP_CWORD": "4"}
    assert CliRunner().invoke(app, [], env=environment, prog_name="headrace").output.split() == [
        "exact",
        "fast",
        "scaled",
        "gpu",
    ]
