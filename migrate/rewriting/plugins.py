"""A user's own rules, from a plain Python file. Loading one runs it in this process, so only where the user says so."""

import importlib.util
import re
import sys
from collections.abc import Sequence
from pathlib import Path

from ...errors import MigrateError
from ..reading.finding import Finding
from .repository_settings import RepositorySettings, read_settings
from .rewrite import choose_rules
from .rule import Rule, all_rules

_CODE = re.compile(r"(?!PS|PG)[A-Z]{2,8}\d{3,4}")


def load_rules(path: Path) -> list[Rule]:
    """The rules of one file: every subclass of `rewriting.rule.Rule` that it defines, in the order of their codes.

    Raises MigrateError when the file is not there, fails to import, holds no rule, or has a code that is taken or ill-formed.
    """
    if not path.is_file():
        raise MigrateError(f"{path}: no such file with rules")
    name = f"_headrace_rules_{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise MigrateError(f"{path} is no Python file; rules stand in a .py file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses look their module up
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        raise MigrateError(f"{path} does not import: {type(error).__name__}: {error}") from error
    classes = [
        value
        for value in vars(module).values()
        if isinstance(value, type) and issubclass(value, Rule) and value is not Rule and value.__module__ == name
    ]
    if not classes:
        raise MigrateError(f"{path} holds no rule; subclass headrace.migrate.rewriting.rule.Rule in it")
    for value in classes:
        lacking = [name for name in ("code", "name", "safety", "check") if not hasattr(value, name)]
        if lacking or getattr(value.check, "__isabstractmethod__", False):
            raise MigrateError(f"{path}: {value.__name__} lacks {', '.join(lacking or ['check'])}; see CONTRIBUTING.md, A rule")
    rules = [value() for value in classes]
    _check_codes(rules, str(path))
    return sorted(rules, key=lambda rule: rule.code)


def load_all(paths: Sequence[Path]) -> list[Rule]:
    """The rules of several files; their codes must differ too."""
    rules = [rule for path in paths for rule in load_rules(path)]
    _check_codes(rules, ", ".join(map(str, paths)))
    return rules


def choose_settings(
    root: Path,
    *,
    select: Sequence[str],
    ignore: Sequence[str],
    files: Sequence[Path],
    trusted: bool,
    options: Sequence[str] = (),
) -> tuple[RepositorySettings, list[Rule], list[Finding]]:
    """The repository's own settings, the rules that the command line and they choose, and the findings on both.

    Raises MigrateError for a code that no rule has, and for files that hold no good rule.
    """
    settings = read_settings(root)
    named, untrusted = rules_of(root, settings.rules, trusted=trusted)
    extra = load_all([*files, *named])
    settings = settings.with_known_codes([*all_rules(), *extra])
    try:
        chosen = choose_rules(select or settings.select, ignore or settings.ignore, extra, options)
    except ValueError as error:
        raise MigrateError(str(error)) from None
    return settings, chosen, [*settings.findings, *untrusted]


def rules_of(root: Path, named: Sequence[str], *, trusted: bool) -> tuple[list[Path], list[Finding]]:
    """The files with rules that a repository's own pyproject.toml names; without trust only the remark that it names them."""
    if not named:
        return [], []
    if not trusted:
        message = f"names rules in {', '.join(named)}, which were not run; read them, and let them run with --trust-rules"
        return [], [Finding("pyproject.toml", 1, 0, "PS021", message, "warning")]
    outside = [name for name in named if not (root / name).resolve().is_relative_to(root)]
    if outside:
        raise MigrateError(
            f"pyproject.toml names rules outside the repository: {', '.join(outside)}; give them with --rules FILE"
        )
    return [root / name for name in named], []


def _check_codes(rules: Sequence[Rule], where: str) -> None:
    taken = {rule.code: rule.name for rule in all_rules()}
    for rule in rules:
        if rule.code in taken:
            raise MigrateError(
                f"{where}: the code {rule.code} of {rule.name!r} is taken by {taken[rule.code]!r}; choose another"
            )
        if not _CODE.fullmatch(rule.code):
            raise MigrateError(
                f"{where}: the code {rule.code!r} of {rule.name!r} is none of your own; take two or more capitals that are not "
                "PS or PG, and three digits, e.g. ME001"
            )
        taken[rule.code] = rule.name
