"""What a rule is: a code, a page, examples that test themselves, and a check that yields remarks with or without edits."""

import ast
import importlib
import inspect
import pkgutil
import re
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import ClassVar, Literal

from ..reading.edits import Edit, Positions
from ..reading.facts import Loop, Survey
from ..reading.finding import Finding, Severity
from ..reading.finding import Fix as Offer
from ..reading.scopes import Module
from ..survey.loops import CallSite
from ..survey.survey import ProjectIndex


@dataclass(frozen=True)
class Fix:
    """One remark and the edits that act on it; without edits it is only a remark."""

    finding: Finding
    edits: tuple[Edit, ...] = ()


def at_call(
    fact: Loop, code: str, message: str, edits: Iterable[Edit] = (), *, severity: Severity = "note", offer: Offer = "safe"
) -> Fix:
    """A remark at a model's call, with what is offered where there are edits."""
    edits = tuple(edits)
    offer = offer if edits else "manual"
    return Fix(Finding(fact.path, fact.call_line, fact.call_column, code, message, severity, offer), edits)


@dataclass(frozen=True)
class Context:
    """One file under the rules, with what the survey knows around it."""

    module: Module
    survey: Survey
    index: ProjectIndex
    positions: Positions
    sites: tuple[CallSite, ...]
    """The model calls of this file; none while sources are being repaired."""
    eager: Mapping[Loop, str] = field(default_factory=dict)
    """Model calls that are to stay eager, and why, as was found where the model was to become a graph."""


class Rule(ABC):
    """One rewrite or remark. The docstring of a rule's class is its page: What it does / Why / Example / Fix safety.

    A rule of the stage "repair" sees every file, before the survey that the others build on, again and again until it has
    nothing more to do; one of the stage "rewrite" sees the repaired files once.

    VALID are sources that the rule leaves alone; INVALID are pairs of a source and what the rule makes of it, or of a source
    and None where the rule only remarks; a rule that is unsafe is allowed to act. Both are whole files, and the tests run them
    for every rule.
    """

    code: ClassVar[str]
    name: ClassVar[str]
    safety: ClassVar[Literal["safe", "unsafe", "manual"]]
    stage: ClassVar[Literal["repair", "rewrite"]] = "rewrite"
    option: ClassVar[str | None] = None
    """The option of the command that asks for a rule; None where a rule is asked for by none."""
    VALID: ClassVar[tuple[str, ...]] = ()
    INVALID: ClassVar[tuple[tuple[str, str | None], ...]] = ()

    def __init_subclass__(cls) -> None:
        """A rule of this package has its code from its file's name, ps101_async_argument, and its name from AsyncArgument."""
        super().__init_subclass__()
        if found := re.match(r"ps\d{3}(?=_)", cls.__module__.rpartition(".")[2]):
            cls.code = found[0].upper()
            cls.name = re.sub(r"(?<=[a-z])(?=[A-Z\d])|(?<=\d)(?=[A-Z])", "-", cls.__name__).lower()

    @abstractmethod
    def check(self, context: Context) -> Iterator[Fix]:
        """The remarks on one file."""

    def claims(self, context: Context) -> Iterable[CallSite]:
        """The model calls of a file that this rule rewrites, and that no rule without an option is to see."""
        return ()

    def fix(
        self,
        context: Context,
        node: ast.expr | ast.stmt | ast.keyword | ast.alias | ast.arg | ast.ExceptHandler,
        message: str,
        edits: Iterable[Edit] = (),
        *,
        severity: Severity = "warning",
        offer: Offer | None = None,
    ) -> Fix:
        """A remark at a node, with what is offered: by default the rule's own safety where there are edits."""
        line, column = context.module.place(node)
        edits = tuple(edits)
        offer = (offer or self.safety) if edits else "manual"
        return Fix(Finding(context.module.path, line, column, self.code, message, severity, offer), edits)


class Repair(Rule):
    """A rule of the stage "repair"."""

    stage = "repair"


class TextRule(Repair):
    """A repair of files that do not parse: it works on tokens, and its edits are only kept where the file parses then."""

    def check(self, context: Context) -> Iterator[Fix]:
        """Nothing: what parses needs no such repair."""
        yield from ()

    @abstractmethod
    def check_text(self, path: str, text: str) -> Iterator[Fix]:
        """The remarks on a file that does not parse."""

    def fix_at(self, path: str, positions: Positions, start: int, message: str, edits: Iterable[Edit]) -> Fix:
        """A remark at a character of the text."""
        line, column = positions.place(start)
        return Fix(Finding(path, line, column, self.code, message, "error", self.safety), tuple(edits))


def diff(text: str) -> tuple[str, str]:
    """A pair for INVALID: of its lines those that begin with "-" go, those with "+" come, and all others stay."""
    lines = text.splitlines(keepends=True)
    before, after = ([line.removeprefix(own) for line in lines if not line.startswith(other)] for own, other in ("-+", "+-"))
    return "".join(before), "".join(after)


def all_rules() -> list[Rule]:
    """Every rule in `rules/`, found by file name, in the order of their codes. Two with one code are an error."""
    from .. import rules

    found: dict[str, Rule] = {}
    for item in pkgutil.iter_modules(rules.__path__):
        module = importlib.import_module(f"{rules.__name__}.{item.name}")
        for value in vars(module).values():
            if (
                isinstance(value, type)
                and issubclass(value, Rule)
                and not inspect.isabstract(value)
                and value.__module__ == module.__name__
            ):
                if value.code in found:
                    raise RuntimeError(f"two rules have the code {value.code}: {found[value.code].name} and {value.name}")
                found[value.code] = value()
    return [found[code] for code in sorted(found)]
