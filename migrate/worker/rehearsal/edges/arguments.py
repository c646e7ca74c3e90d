"""Arguments: what a script requires on its command line, or of its environment, and was not given is guessed.

From choices, types, names and help.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import difflib
import inspect
import linecache
import os
import re
import sys
import traceback
import types
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from ..making import Maker
from ..places import is_users
from ..settings import click_commands, configurations, dotenv_files, environment, fire_commands, settings_classes
from ..settings.running_code import around, held, is_bound, running
from ..stage import Stage
from .processes import LAUNCHED, launch

_TABLES = (dict, list, tuple, set, frozenset)
OVERRIDES = "overrides"
"""Learned: what a configuration of OmegaConf's is told on the command line."""
_SWITCHES = "switches"
"""Learned: options without a value that are set."""
_EVALUATES = re.compile(
    r"(do_?|run_?|is_?|mode_?)?(eval(uate)?|evaluation|test(ing)?|val(id(ate)?)?|pred(ict)?|infer(ence)?|classify)", re.I
)
_TRAINS = re.compile(r"(do_?|run_?|is_?|mode_?)?(train(ing)?|fit)", re.I)
_NEAR = 6
"""Lines within which a script that gives up has looked at its arguments."""
_CONFIGURES = re.compile(r"config|cfg|ya?ml", re.I)
_FOLDER = re.compile(r"\b(director(y|ies)|folders?)\b", re.I)
"""What help says of a path that its name alone leaves open."""
_VAGUE = r"path"
"""What may be of a file as well as of a folder: help that is at hand says more."""
# What an argument stands for, by words in its name, its metavar or its help, and what is given for it.
_GUESSES = (
    (r"(image|img|input|crop)_?(size|dim|height|width|h|w)$", "224"),
    (r"^(num|n|nb|number)_(?!class)|(^|_)(epochs?|bs|batch|batch_?size|workers|count|seed|k|fold)$", "1"),
    (_CONFIGURES.pattern, None),
    (r"out(put)?|save|log|export|result|dst|dest", "output"),
    (r"check_?point|ckpt|weights?|resume|pretrained|model_?(path|file)|snapshot|state_?dict|\.pth?\b", "checkpoint.pth"),
    (r"csv|annotations?|ann_?file", "annotations.csv"),
    (r"(class|label)(es|s)?_?(names?|file|map|json)|\bjson\b", "labels.json"),
    (r"(class|label)(es|s)?_?(path|list|txt)", "labels.txt"),
    (r"(^|_)lists?(_(file|path|txt))?$", "list.txt"),
    (r"(image|img|data)s?_?(dir|folder|root)(ectory)?(_?path)?\b|(image|img)s\b|\b(data|root|dir|folder|directory|dataset_?(dir|path|root))\b|data_?(dir|path|root)"
     r"|^(?!.*model).*_(root|dir|folder|directory)$", "data"),
    (r"image|img|picture|photo|input|file|source|filename|url", "image.jpg"),
    (r"data_?set", "cifar10"),
    (r"arch|model|backbone|net(work)?\b|encoder", "resnet18"),
    (r"device|gpu", "cpu"),
    (_VAGUE, "data"),
)  # fmt: skip


@contextlib.contextmanager
def stand_in(stage: Stage) -> Iterator[None]:
    maker = Maker(stage)
    sys_argv = [guess(name, "", maker) for name in stage.learned.get("argv", ())] + stage.learned.get(OVERRIDES, [])

    def parse(original: Any, self: Any, args: Any = None, namespace: Any = None) -> Any:
        given = _without(chosen, [*sys.argv[1:]] if args is None else list(args))
        given += [part for flag, value in chosen.items() if flag in self._option_string_actions for part in (flag, value)]
        given += [flag for flag in switched if flag in self._option_string_actions and flag not in given]
        try:
            found = original(self, given, namespace)
        except _RequiredError as missing:
            found = original(self, [*given, *_filled(stage, self, maker, missing.names)], namespace)
        values = vars(found[0])
        stage.offered |= {flag: list(action.choices or ()) for flag, action in self._option_string_actions.items()}
        stage.options |= {
            flag: values.get(action.dest) for flag, action in self._option_string_actions.items() if len(flag) > 2
        }
        return found

    def reject(original: Any, self: Any, message: str) -> Any:
        found = re.match(r"the following arguments are required: (.*)", message)
        if found and id(self) not in asked:
            asked.add(id(self))
            raise _RequiredError(found[1].split(", "))
        if refused := re.match(r"argument ([-\w/]+): invalid choice: '(.*)' \(choose from (.*)\)$", message):
            offered = [word.strip("'\"") for word in re.split(r",\s*", refused[3])]
            if (meant := _respelled(refused[2], offered)) is not None:
                stage.refused = (refused[1].split("/")[-1], meant)
        return original(self, message)

    asked: set[int] = set()  # each parser once: those of commands have arguments of their own
    chosen: dict[str, str] = stage.learned.get("choices", {})
    switched: list[str] = stage.learned.get(_SWITCHES, [])
    for flag in switched:
        stage.note("arguments", f"{flag} was set, for without it no model is called")
    for flag, value in chosen.items():
        stage.note("arguments", f"{flag} {value} was guessed")
    stage.wrap(argparse.ArgumentParser, "parse_known_args", parse)
    stage.wrap(argparse.ArgumentParser, "error", reject)
    values, uses = lambda name, told="": guess(name, told, maker), (_EVALUATES, _TRAINS)
    click_commands.stand_in(stage, values, uses)
    stage.when_imported("fire", lambda library: fire_commands.stand_in(stage, library, values, uses))
    environment.stand_in(stage)
    dotenv_files.stand_in(stage)
    before = sys.argv
    if sys_argv:
        stage.extra_argv = sys_argv
        for value in sys_argv:
            stage.note("arguments", f"{value!r} was guessed")
    yield
    sys.argv = before


def lesson(stage: Stage, error: BaseException) -> bool:
    """A script that reads `sys.argv` itself, or cannot go on with an option that is None, is given more."""
    own = [frame for frame, _ in traceback.walk_tb(error.__traceback__) if is_users(frame.f_code.co_filename, stage.root)]
    if (unset := environment.wanted(stage, error, own)) is not None:
        if unset in LAUNCHED:
            return launch(stage, unset)
        maker, values = Maker(stage), {}
        for name in environment.with_it(unset, error, own[-1]) if own else [unset]:
            value = environment.stated(stage.root, name) or environment.told(name, error) or environment.usual(name)
            guessed = environment.in_repository(stage.root, guess(name, "", maker))
            counted = environment.as_number(name, guessed, error, maker.classes)
            values[name] = counted if value is None else value
        return stage.learn(environment.LEARNED, {**stage.learned.get(environment.LEARNED, {}), **values})
    if wanted := settings_classes.missing(error, lambda name: guess(name, "", Maker(stage))):
        values = {name: environment.stated(stage.root, name) or value for name, value in wanted.items()}
        return stage.learn(environment.LEARNED, {**values, **stage.learned.get(environment.LEARNED, {})})
    if isinstance(error, SystemExit) and stage.refused is not None and stage.refused[0].startswith("-"):
        option, choice = stage.refused
        return stage.learn("choices", {**stage.learned.get("choices", {}), option: choice})
    if missing := re.search(r"Missing mandatory value: ([\w.]+)", str(error)):  # OmegaConf's, under any configuration library
        value = guess(missing[1].rpartition(".")[2], "", Maker(stage))
        return stage.add(OVERRIDES, f"{missing[1]}={value}")
    if configurations.take_for_missing(stage, error):
        return True
    if isinstance(error, KeyError) and own and error.args and isinstance(error.args[0], str):
        return _other_choice(stage, error.args[0], own[-1]) or configurations.take_another(stage)
    if own and isinstance(error, AttributeError) and (offered := _named_in(error)) is not None:
        return _choose(stage, *offered)
    if own and (missed := _missed(own[-1])) is not None:
        return _choose(stage, missed[0], [missed[1]])
    if own and (flag := _demanded(stage, own[-1])) is not None:
        return _give(stage, flag)
    if own and isinstance(error, TypeError | AttributeError | KeyError) and _option_of(stage, own[-1]):
        return True
    if own and isinstance(error, TypeError) and "object is not iterable" in str(error) and _listed(stage, own[-1]):
        return True
    if own and _handed(stage, error, own):
        return True
    if own and isinstance(error, AttributeError | TypeError) and configurations.take_another(stage):
        return True
    if own and isinstance(error, NotImplementedError) and configurations.take_another(stage, of_another_kind=True):
        return True
    if isinstance(error, ImportError) and configurations.names(stage, error.name):
        return configurations.take_any_other(stage)
    if isinstance(error, TypeError) and "NoneType" in str(error):
        return _path_option(stage)
    if not own or not isinstance(error, IndexError | SystemExit | ValueError):
        return False
    lines = linecache.getlines(own[-1].f_code.co_filename)
    reads = [line for line in lines if "sys.argv" in line or re.search(r"\bargv\[", line)]
    place = own[-1].f_lineno
    if not any("argv" in line for line in lines[max(0, place - _NEAR) : place]):
        return False
    known = stage.learned.get("argv", [])
    if not reads or len(known) >= 4 or (isinstance(error, SystemExit) and error.code in (None, 0)):
        return False
    number = 1 + len(known) + len(stage.request.argv)
    named = next((line.split("=")[0].strip() for line in reads if f"argv[{number}]" in line and "=" in line), "image")
    return stage.learn("argv", [*known, named])


def last_lesson(stage: Stage, error: BaseException) -> bool:
    """A configuration, or a command, that was guessed may have brought an error for which nothing else is known."""
    known = isinstance(error, ArithmeticError | AssertionError | IndexError | NameError | RuntimeError | ValueError)
    return (known and configurations.take_another(stage)) or click_commands.take_another(stage)


def last_in_vain(stage: Stage) -> bool:
    """A script may want to be told what to do (`--eval`), or its guessed configuration may be for other data than images."""
    return _name_image(stage) or _switch_on(stage) or configurations.take_any_other(stage) or click_commands.take_another(stage)


def _name_image(stage: Stage) -> bool:
    """Have a script that goes through all that its command line names, without a parser, be told of one image."""
    if stage.options or stage.request.argv or stage.learned.get("argv"):
        return False
    lines = linecache.getlines(os.path.join(stage.root, stage.request.script))
    return any(re.search(r"\bargv\[1:\]", line) for line in lines) and stage.learn("argv", ["image"])


def _switch_on(stage: Stage) -> bool:
    """Have a switch set that is off and is called like what a model is used for: one that evaluates, then one that trains."""
    known = stage.learned.get(_SWITCHES, [])
    off = [flag for flag, value in stage.options.items() if value is False and flag not in known]
    for use in (_EVALUATES, _TRAINS):
        if (flag := next((flag for flag in off if use.fullmatch(flag.lstrip("-"))), None)) is not None:
            return stage.add(_SWITCHES, flag)
    return False


def _respelled(name: str, offered: Sequence[str]) -> str | None:
    """What an option takes that is another spelling of a name: `mobile-net` for MobileNet. Any other name stays refused."""

    def plain(text: str) -> str:
        return re.sub(r"[\W_]", "", text).lower()

    return next((item for item in offered if plain(item) == plain(name)), None)


def _without(chosen: Iterable[str], given: Sequence[str]) -> list[str]:
    """Arguments without those that another value was chosen for: argparse refuses a wrong one though a right one follows."""
    kept: list[str] = []
    flags = set(chosen)
    for number, word in enumerate(given):
        if word.partition("=")[0] in flags or (number and given[number - 1] in flags and not word.startswith("-")):
            continue
        kept.append(word)
    return kept


def _other_choice(stage: Stage, key: str, frame: Any) -> bool:
    """A table of the user's has no such entry: the option that named it, or names a model, takes the table's first."""
    code, line = frame.f_code, linecache.getline(frame.f_code.co_filename, frame.f_lineno)
    scope = {**frame.f_globals, **frame.f_locals}
    names = [name for name in dict.fromkeys((*code.co_names, *code.co_varnames)) if name in scope]
    names.sort(key=lambda name: re.search(rf"\b{name}(\.__dict__)?\[", line) is None)
    if code.co_flags & inspect.CO_VARKEYWORDS:  # what a function was handed by name is no table
        first = code.co_argcount + code.co_kwonlyargcount + bool(code.co_flags & inspect.CO_VARARGS)
        names = [name for name in names if name != code.co_varnames[first]]
    tables = [table for table in (_table(scope[name]) for name in names) if table]
    return _choose(stage, key, tables)


def _table(value: Any) -> list[str]:
    """The names by which a table of the user's is asked: those of a dictionary, or of the functions that a module holds."""
    if isinstance(value, types.ModuleType) and getattr(value, "__name__", "") in sys.modules:
        own = [(name, item) for name, item in vars(value).items() if callable(item) and name.islower() and name[0] != "_"]
        return [name for name, item in own if str(getattr(item, "__module__", "")).startswith(value.__name__)]
    return list(value) if type(value) is dict and all(isinstance(item, str) for item in value) else []


def _named_in(error: AttributeError) -> tuple[str, list[list[str]]] | None:
    """The name that a module of the script's lacks, as in `getattr(networks, args.model)`, and those of the models it has:
    first of networks that are made without arguments, as they stand there."""
    module = error.obj
    if not isinstance(module, types.ModuleType) or not error.name:
        return None
    kind = sys.modules["torch"].nn.Module if "torch" in sys.modules else ()
    own = [item for item in vars(module).values() if isinstance(item, type) and item.__module__ == module.__name__]
    models = [item for item in own if issubclass(item, kind)]
    models.sort(key=lambda item: (_needs_arguments(item), re.search("net|model|classifier", item.__name__, re.I) is None))
    return error.name, [names] if (names := [item.__name__ for item in models] or _table(module)) else []


def _needs_arguments(kind: type) -> bool:
    given = inspect.signature(kind).parameters.values()
    return any(item.default is item.empty and item.kind not in (item.VAR_POSITIONAL, item.VAR_KEYWORD) for item in given)


def _choose(stage: Stage, key: str | None, tables: Sequence[Iterable[str]]) -> bool:
    """The option that has this value, or names a model and has none, takes of the first table what comes nearest to it."""
    named = [flag for flag, value in stage.options.items() if value == key is not None]
    named += [
        flag for flag, value in stage.options.items() if value is None and re.search(r"arch|model|backbone|network", flag)
    ]
    if not named or not tables:
        return False
    offered = list(tables[0])
    chosen = next(iter(difflib.get_close_matches(key or "", offered, 1)), offered[0])
    return stage.learn("choices", {**stage.learned.get("choices", {}), named[0]: chosen})


def _missed(frame: Any) -> tuple[str | None, list[str]] | None:
    """What the line that ended the script looked for, and the names among which it was not: `assert args.arch in models`."""
    for node in around(frame):
        for test in (part for part in ast.walk(node.test) if isinstance(part, ast.Compare) and len(part.ops) == 1):
            key, offered = held(frame, test.left), held(frame, test.comparators[0])
            names = [name for name in offered if isinstance(name, str)] if isinstance(offered, _TABLES) else []
            looked = isinstance(test.ops[0], ast.In | ast.NotIn) and (key is None or isinstance(key, str))
            if looked and names and key not in names:
                return key, names
        if isinstance(node, ast.If):  # one of `if job == "train": ... elif job == "test": ... else: raise`
            tests = [part for part in ast.walk(node) if isinstance(part, ast.Compare) and isinstance(part.ops[0], ast.Eq)]
            known = [part.comparators[0] for part in tests]
            names = [str(item.value) for item in known if isinstance(item, ast.Constant) and isinstance(item.value, str)]
            same = len({ast.dump(part.left) for part in tests}) == 1
            key = held(frame, tests[0].left) if same else None
            if len(names) > 1 and isinstance(key, str) and key not in names:
                return key, sorted(names, key=lambda name: not _evaluates(name))
    return None


def _evaluates(name: str) -> bool:
    return re.search("eval|test|predict|infer|classify", name) is not None


def _demanded(stage: Stage, frame: Any) -> str | None:
    """The option whose want ended the script: `assert args.weights`, `if not args.weights: raise ...`, `... is None`."""
    known = stage.learned.get("choices", {})
    for node in around(frame):
        for part in ast.walk(node.test):
            name = part.attr if isinstance(part, ast.Attribute) else part.id if isinstance(part, ast.Name) else None
            for flag, value in stage.options.items():
                same = name is not None and flag.lstrip("-").replace("-", "_") == name
                if same and value in (None, "") and flag not in known:
                    return flag
    return None


def _option_of(stage: Stage, frame: Any) -> bool:
    """An option without a value that the running line takes, itself or by a name it gave it: the first of what it may be, or a
    guess."""
    line = running(frame)
    before = linecache.getlines(frame.f_code.co_filename)[max(0, frame.f_code.co_firstlineno - 1) : frame.f_lineno]
    for name in dict.fromkeys(re.findall(r"\b[A-Za-z_]\w*", line)):
        if _is_empty(frame.f_locals.get(name, name)):
            line += " ".join(found[1] for text in before if (found := re.match(rf"\s*{name}\s*=\s*(\w+\.\w+)\s*$", text)))
    known = stage.learned.get("choices", {})
    for flag, value in stage.options.items():
        if _is_empty(value) and flag not in known and re.search(rf"\.{flag.lstrip('-').replace('-', '_')}\b", line):
            return _give(stage, flag)
    return False


def _listed(stage: Stage, frame: Any) -> bool:
    """Give an option of several values (nargs="+") that the running line goes through, and whose default is one, that one."""
    line = linecache.getline(frame.f_code.co_filename, frame.f_lineno)
    known = stage.learned.get("choices", {})
    for flag, value in stage.options.items():
        number = isinstance(value, int | float) and not isinstance(value, bool)
        if number and flag not in known and re.search(rf"\.{flag.lstrip('-').replace('-', '_')}\b", line):
            return stage.learn("choices", {**known, flag: str(value)})
    return False


def _give(stage: Stage, flag: str) -> bool:
    """Give an option a value: the first of what it may be, else a guess."""
    offered = [str(item) for item in stage.offered.get(flag, ())]
    made = offered[0] if offered else guess(flag.lstrip("-"), "", Maker(stage))
    return stage.learn("choices", {**stage.learned.get("choices", {}), flag: made})


def _handed(stage: Stage, error: BaseException, own: Sequence[Any]) -> bool:
    """A function could not go on with an empty argument: the option that a caller handed it is given."""
    frame = own[-1]
    parts = [part for node in around(frame) for part in ast.walk(node.test)]
    tested = [held(frame, part) for part in parts if isinstance(part, ast.Name | ast.Attribute) and is_bound(frame, part)]
    empty = any(map(_is_empty, tested)) or getattr(error, "filename", None) == ""
    return empty and any(_option_of(stage, caller) for caller in reversed(own))


def _is_empty(value: object) -> bool:
    return value is None or (isinstance(value, str) and not value)


def _path_option(stage: Stage) -> bool:
    """A path that is None: the first option without a value that names data, images or a checkpoint."""
    known = stage.learned.get("choices", {})
    for flag, value in stage.options.items():
        if value is None and flag not in known and re.search(r"data|root|dir|path|image|img|file|checkpoint|weights", flag):
            return _give(stage, flag)
    return False


def remedy(stage: Stage, error: BaseException) -> str | None:
    if isinstance(error, SystemExit) and error.code == 2:
        return (
            "the script did not take its arguments; --entry FILE takes another script, --data DIR gives the folder of the data"
        )
    return None


class _RequiredError(Exception):
    def __init__(self, names: Sequence[str]) -> None:
        super().__init__(*names)
        self.names = names


def _filled(stage: Stage, parser: argparse.ArgumentParser, maker: Maker, names: Sequence[str]) -> list[str]:
    positional: list[str] = []
    optional: list[str] = []
    wanted = {part for name in names for part in name.split("/")}
    for action in parser._actions:
        if not wanted & {*action.option_strings, action.dest, str(action.metavar)}:
            continue
        count = action.nargs if isinstance(action.nargs, int) else 1
        value = stage.learned.get("choices", {}).get(action.dest) or _value(action, maker)
        stage.options.setdefault(action.dest, value)
        values = [value] * count
        stage.note(
            "arguments", f"{action.option_strings[-1] if action.option_strings else action.dest} {values[0]} was guessed"
        )
        if action.option_strings:
            optional += [action.option_strings[-1], *(values if action.nargs != 0 else [])]
        else:
            positional += values
    return [*optional, *(["--", *positional] if optional and positional else positional)]


def _value(action: argparse.Action, maker: Maker) -> str:
    if action.choices:
        likely = (item for item in action.choices if isinstance(action, argparse._SubParsersAction) and _evaluates(str(item)))
        return str(next(likely, next(iter(action.choices))))
    if action.type is int:
        return str(maker.classes if re.search("class|label", action.dest) else 1)
    if action.type is float:
        return "0.1"
    return guess(action.dest, f"{action.metavar or ''} {action.help or ''}", maker)


CHECKPOINT = re.compile(
    r"\.(pth?|ckpt)\b|\b(path|file)\b.{0,20}\b(model|weights|checkpoint)|\b(model|weights|checkpoint|state) (path|file)"
)
"""What says that a file of weights is asked for."""


def guess(name: str, told: str, maker: Maker) -> str:
    """A value for an argument: by its name, and where that says nothing by its help."""
    if CHECKPOINT.search(told.lower()) and not _CONFIGURES.search(name):
        return "checkpoint.pth"
    vague: str | None = None
    for text in (name.lower().replace("-", "_"), told.lower()):
        for pattern, value in _GUESSES:
            if not re.search(pattern, text):
                continue
            if value is None:
                return configurations.guessed(maker.stage, name)
            if value == "image.jpg" and _FOLDER.search(told) and not re.search("file", told, re.I):
                return "data"
            if pattern != _VAGUE:
                return value
            vague = value
    return vague or "1"
