"""Read argparse: which options a script takes, and a command line that satisfies it."""

import ast
from collections.abc import Iterable

from .facts import Option
from .nodes import keyword_of, text_of
from .scopes import last_name


def is_parse_call(node: ast.AST) -> bool:
    return isinstance(node, ast.Call) and last_name(node.func) in ("parse_args", "parse_known_args", "parse_intermixed_args")


def destination(call: ast.Call) -> str | None:
    """The attribute under which an `add_argument` call's value is found, or None when it is not written literally."""
    if (stated := keyword_of(call, "dest")) is not None:
        return text_of(stated.value)
    flags = _flags(call)
    if not flags or len(flags) != len(call.args):
        return None
    chosen = next((flag for flag in flags if flag.startswith("--")), flags[0])
    return chosen.lstrip("-").replace("-", "_")


def _flags(call: ast.Call) -> list[str]:
    return [text for node in call.args if (text := text_of(node)) is not None]


def read_options(nodes: Iterable[ast.AST]) -> list[Option]:
    """The options that `add_argument` calls among the nodes declare, in source order."""
    found: dict[str, Option] = {}
    calls = [node for node in nodes if isinstance(node, ast.Call) and last_name(node.func) == "add_argument"]
    for call in sorted(calls, key=lambda node: (node.lineno, node.col_offset)):
        if (option := _read(call)) is not None:
            found.setdefault(option.dest, option)
    return list(found.values())


def _read(call: ast.Call) -> Option | None:
    dest = destination(call)
    if dest is None:
        return None
    flags = tuple(_flags(call))
    positional = not flags[0].startswith("-")
    keywords = {keyword.arg: keyword.value for keyword in call.keywords}
    nargs = _literal(keywords.get("nargs"))
    choices = _literal(keywords.get("choices"))
    action = _literal(keywords.get("action"))
    required = nargs not in ("?", "*") if positional else _literal(keywords.get("required")) is True
    return Option(
        flags=flags,
        dest=dest,
        line=call.lineno,
        positional=positional,
        required=required and "default" not in keywords if positional else required,
        default=_literal(keywords.get("default")),
        choices=tuple(choices) if isinstance(choices, list | tuple | set) else None,
        type=last_name(keywords["type"]) or None if "type" in keywords else None,
        action=action if isinstance(action, str) else None,
        nargs=nargs if isinstance(nargs, int | str) else None,
        help=str(_literal(keywords.get("help")) or ""),
    )


def _literal(node: ast.AST | None) -> object:
    try:
        return ast.literal_eval(node) if node is not None else None  # type: ignore[arg-type]
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        return None


def flag_of(option: Option) -> str:
    """The option's long spelling, or its name when it is positional."""
    return next((flag for flag in option.flags if flag.startswith("--")), option.flags[0])


def command_line(options: Iterable[Option], given: dict[str, str]) -> list[str]:
    """An argument vector with the given values by destination, and neutral ones where an option must be there."""
    positional: list[str] = []
    flagged: list[str] = []
    for option in options:
        if option.dest in given:
            values = [given[option.dest]]
        elif option.required:
            values = [_neutral(option)] * (option.nargs if isinstance(option.nargs, int) else 1)
        else:
            continue
        if option.positional:
            positional += values
        elif option.action in ("store_true", "store_false", "count"):
            flagged.append(flag_of(option))
        else:
            flagged += [flag_of(option), *values]
    return [*flagged, "--", *positional] if positional and flagged else [*flagged, *positional]


def _neutral(option: Option) -> str:
    if option.choices:
        return str(option.choices[0])
    return {"int": "1", "float": "1.0", "bool": "0"}.get(option.type or "", ".")
