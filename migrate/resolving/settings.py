"""What a script is told on its command line, and what could not be told."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from ..reading.arguments import command_line, flag_of, of_command
from ..reading.facts import Option, Script
from ..reading.finding import Finding
from ..reading.scopes import Module
from .input_size import Shape, from_settings, from_transforms

_HARMLESS = re.compile(
    r"data|root|path|dir|image|img|out|save|log|file|name|tag|rank|gpu|device|worker|batch|epoch|lr|seed|url", re.I
)
"""Options whose value decides nothing about the model."""


@dataclass
class Settings:
    """One resolution's choices and remarks."""

    arguments: list[str] = field(default_factory=list)
    """Given by the user together with the entry script."""
    given: dict[str, str] = field(default_factory=dict)
    """What the script's own options were set to, by destination."""
    findings: list[Finding] = field(default_factory=list)

    def remark(self, path: str, line: int, code: str, message: str, severity: str = "warning") -> None:
        """Add a finding, once."""
        finding = Finding(path, line, 0, code, message, "note" if severity == "note" else "warning")
        if finding not in self.findings:
            self.findings.append(finding)

    def stated_size(self, root: Path, modules: Iterable[Module]) -> Shape | None:
        """The shape that files of settings state, or transforms that nothing calls with the model, which is remarked."""
        found = from_settings(root) or from_transforms(modules)
        if found is None:
            return None
        shape, path, line = found
        message = f"its input is taken to be {list(shape)}, as {path}:{line} has it; --input-size C,H,W says otherwise"
        self.remark(path, line, "PS015", message, "note")
        return shape

    def argv(self, script: Script, options: Sequence[Option]) -> list[str]:
        """The user's arguments, the chosen values of those options that a program has, and what else it must have."""
        options = of_command(options, self.arguments)
        given_flags = {item.partition("=")[0] for item in self.arguments}
        left = [option for option in options if not given_flags & set(option.flags)]
        for option in left:
            unknown = option.required and option.dest not in self.given and not option.choices
            if unknown and not _HARMLESS.search(option.dest) and not (option.positional and self.arguments):
                message = (
                    f"{script.path} requires {flag_of(option)}, for which a neutral value was put; "
                    f'give it as in --entry "{script.path} {flag_of(option)} VALUE"'
                )
                self.remark(script.path, option.line, "PS014", message)
        if self.arguments and not self.arguments[0].startswith("-"):
            left = [option for option in left if not option.positional]
        return [*command_line(left, self.given), *self.arguments]

    def told(self, options: Sequence[Option]) -> list[str]:
        """The same without what it must have and nobody chose."""
        given_flags = {item.partition("=")[0] for item in self.arguments}
        left = [option for option in options if option.dest in self.given and not given_flags & set(option.flags)]
        return [*command_line(left, self.given), *self.arguments]
