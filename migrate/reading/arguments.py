"""Read argparse: which options a script takes, and a command line that satisfies it."""

import ast
import re
from collections.abc import Iterable, Sequence
from dataclasses import replace

from .facts import Option
from .nodes import keyword_of, text_of
from .scopes import last_name

OPEN = "\ue000"
"""Stands for an argument, or a part of one, that whoever types the command line has to fill in."""
COMMANDS = "parsers"
"""The action of the option that takes the name of a subcommand."""


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
    nodes = list(nodes)
    calls = [node for node in nodes if isinstance(node, ast.Call)]
    made = [node for node in nodes if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call)]
    for call in sorted(calls, key=lambda node: (node.lineno, node.col_offset)):
        if last_name(call.func) == "add_argument" and (option := _read(call)) is not None:
            commands = _commands_of(call, made)
            known = found.setdefault(option.dest, replace(option, commands=commands))
            both = (*known.commands, *commands) if known.commands and commands else ()
            found[option.dest] = replace(known, commands=tuple(dict.fromkeys(both)))
        elif last_name(call.func) == "add_subparsers":
            option = _subcommands(call, calls)
            found.setdefault(option.dest, option)
    return list(found.values())


def _subcommands(call: ast.Call, calls: Iterable[ast.Call]) -> Option:
    """The option that takes a subcommand; never required, since who guesses one must guess its options too."""
    stated = keyword_of(call, "dest")
    dest = (text_of(stated.value) if stated is not None else None) or "command"
    made = (node for node in calls if last_name(node.func) == "add_parser" and node.args)
    names = tuple(name for node in made if (name := text_of(node.args[0])) is not None)
    return Option(
        flags=(dest,), dest=dest, line=call.lineno, positional=True, required=False, choices=names or None, action=COMMANDS
    )


def _commands_of(call: ast.Call, made: Iterable[ast.Assign]) -> tuple[str, ...]:
    """The subcommand to whose parser an option is added: what its name was given last above, or what is called right there."""
    parser: ast.AST = getattr(call.func, "value", call)
    if isinstance(parser, ast.Name):
        name, line = parser.id, call.lineno
        above = [
            one for one in made if one.lineno < line and any(isinstance(it, ast.Name) and it.id == name for it in one.targets)
        ]
        parser = max(above, key=lambda one: one.lineno).value if above else parser
    is_made = isinstance(parser, ast.Call) and last_name(parser.func) == "add_parser" and bool(parser.args)
    name_of = text_of(parser.args[0]) if is_made else None  # type: ignore[attr-defined]
    return (name_of,) if name_of is not None else ()


def of_command(options: Sequence[Option], tokens: Sequence[str]) -> list[Option]:
    """The options as they are for the subcommand that a command line names: those of others are not required, and take no
    words by their place."""
    names = {str(name) for option in options if option.action == COMMANDS for name in option.choices or ()}
    chosen = next((token for token in tokens if token in names), None)
    if chosen is None:
        return list(options)
    mine = [option for option in options if not option.commands or chosen in option.commands]
    return [*mine, *(replace(option, required=False) for option in options if option not in mine and not option.positional)]


def _read(call: ast.Call) -> Option | None:
    dest = destination(call)
    if dest is None:
        return None
    flags = tuple(_flags(call))
    positional = not flags[0].startswith("-")
    keywords = {keyword.arg: keyword.value for keyword in call.keywords}
    rest = "nargs" in keywords and last_name(keywords["nargs"]) == "REMAINDER"
    nargs = "*" if rest else _literal(keywords.get("nargs"))
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


def split(options: Sequence[Option], tokens: Sequence[str]) -> list[tuple[Option | None, list[str]]]:
    """A command line by the options that its parts belong to, each part as it is written; None for what no option takes."""
    options = of_command(options, tokens)
    by_flag = {flag: option for option in options if not option.positional for flag in option.flags}
    places = [option for option in options if option.positional for _ in range(_count(option) or 1)]
    found: list[tuple[Option | None, list[str]]] = []
    rest = list(tokens)
    while rest:
        word = rest.pop(0)
        if word == "--":
            continue
        if not _is_flag(word):
            option = places[0] if places else None
            places = places if option is not None and option.nargs in ("+", "*") else places[1:]
            found.append((option, [word]))
            continue
        flag, equals, _ = word.partition("=")
        option = by_flag.get(flag)
        longer = [item for name, item in by_flag.items() if name.startswith(flag)] if flag.startswith("--") else []
        option = option or (longer[0] if len(set(map(id, longer))) == 1 else None)
        joined = option is None and by_flag.get(word[:2])  # -j4
        parts = [word]
        if joined and not word.startswith("--"):
            option = joined
        elif not equals:
            wanted = 1 if option is None else _count(option)
            while rest and not _is_flag(rest[0]) and (wanted is None or len(parts) <= wanted):
                parts.append(rest.pop(0))
        found.append((option, parts))
    return found


def _is_flag(word: str) -> bool:
    return re.match(r"-+[A-Za-z?]", word) is not None


def _count(option: Option) -> int | None:
    """How many values an option takes at most; None for any number."""
    if option.action not in (None, "store", "append", "extend", COMMANDS):
        return 0
    return option.nargs if isinstance(option.nargs, int) else None if option.nargs in ("+", "*") else 1


def documented(options: Sequence[Option], tokens: Sequence[str]) -> list[tuple[Option | None, list[str]]] | None:
    """The parts of a documented command line that the script can be given, without those that are left to the reader; None
    where the script does not take the command line, as far as its options tell, or where something is missing from it."""
    found, given = [], set()
    options = of_command(options, tokens)
    for option, parts in split(options, tokens):
        values = [part.partition("=")[2] if _is_flag(part) else part for part in parts if not _is_flag(part) or "=" in part]
        if {"-h", "--help"} & set(parts) or (options and option is None and OPEN not in parts):
            return None
        if option is not None:
            given.add(option.dest)
            if not any(OPEN in value for value in values) and not all(_fits(option, value) for value in values):
                return None
        if not any(OPEN in part for part in parts):
            found.append((option, parts))
    if any(option is not None and option.positional and OPEN in parts for option, parts in split(options, tokens)):
        found = [(option, parts) for option, parts in found if option is None or not option.positional]  # their order tells
    return found if all(option.dest in given for option in options if option.required) else None


def fits(option: Option, values: Iterable[str]) -> bool:
    """Whether an option takes values, as far as its choices and its type tell."""
    return all(_fits(option, value) for value in values)


def _fits(option: Option, value: str) -> bool:
    if option.choices:
        return value in map(str, option.choices)
    try:
        return option.type not in ("int", "float") or float(value) is not None
    except ValueError:
        return False


def command_line(options: Iterable[Option], given: dict[str, str]) -> list[str]:
    """An argument vector with the given values by destination, and neutral ones where an option must be there."""
    commands: list[str] = []
    positional: list[str] = []
    flagged: list[str] = []
    for option in options:
        if option.dest in given:
            values = [given[option.dest]]
        elif option.required:
            values = [_neutral(option)] * (option.nargs if isinstance(option.nargs, int) else 1)
        else:
            continue
        if option.action == COMMANDS:
            commands += values
        elif option.positional:
            positional += values
        elif option.action in ("store_true", "store_false", "count"):
            flagged.append(flag_of(option))
        else:
            flagged += [flag_of(option), *values]
    return [*commands, *flagged, "--", *positional] if positional and flagged else [*commands, *flagged, *positional]


def _neutral(option: Option) -> str:
    if option.choices:
        return str(option.choices[0])
    return {"int": "1", "float": "1.0", "bool": "0"}.get(option.type or "", ".")
