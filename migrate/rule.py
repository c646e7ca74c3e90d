"""What a rule is: a code, a page, examples that test themselves, and a check that yields remarks with or without edits."""

from __future__ import annotations

import importlib
import pkgutil
from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar, Literal

from .edits import Edit, Positions
from .facts import Survey
from .finding import Finding
from .loops import CallSite
from .scopes import Module
from .survey import Knowledge


@dataclass(frozen=True)
class Fix:
    """One remark and the edits that act on it; without edits it is only a remark."""

    finding: Finding
    edits: tuple[Edit, ...] = ()


@dataclass(frozen=True)
class Context:
    """One file under the rules, with what the survey knows around it."""

    module: Module
    survey: Survey
    known: Knowledge
    positions: Positions
    sites: tuple[CallSite, ...]
    """The model calls of this file."""


class Rule(ABC):
    """One rewrite or remark. The docstring of a rule's class is its page: What it does / Why / Example / Fix safety.

    VALID are sources that the rule leaves alone; INVALID are pairs of a source and what the rule makes of it, or of a source
    and None where the rule only remarks. Both are whole files, and the tests run them for every rule.
    """

    code: ClassVar[str]
    name: ClassVar[str]
    safety: ClassVar[Literal["safe", "unsafe", "manual"]]
    VALID: ClassVar[tuple[str, ...]] = ()
    INVALID: ClassVar[tuple[tuple[str, str | None], ...]] = ()

    @abstractmethod
    def check(self, context: Context) -> Iterator[Fix]:
        """The remarks on one file."""


def all_rules() -> list[Rule]:
    """Every rule in `rules/`, found by file name, in the order of their codes. Two with one code are an error."""
    from . import rules

    found: dict[str, Rule] = {}
    for item in pkgutil.iter_modules(rules.__path__):
        module = importlib.import_module(f"{rules.__name__}.{item.name}")
        for value in vars(module).values():
            if (
                isinstance(value, type)
                and issubclass(value, Rule)
                and value is not Rule
                and value.__module__ == module.__name__
            ):
                if value.code in found:
                    raise RuntimeError(f"two rules have the code {value.code}: {found[value.code].name} and {value.name}")
                found[value.code] = value()
    return [found[code] for code in sorted(found)]
