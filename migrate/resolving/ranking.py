"""Which script says most about a repository's model, and what it is told: as the documentation has it, and nobody is asked."""

from __future__ import annotations

import contextlib
import itertools
import os
import posixpath
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from ..reading.arguments import OPEN, documented, split
from ..reading.facts import Command, Option, Script, Survey
from ..reading.source import NOTEBOOK, readme_text
from ..slicing.recipes import names_configuration, names_model
from ..survey.survey import ProjectIndex, project_index, runnable
from .construction import imported_paths

_BARE = re.compile(r"[A-Za-z_ -]+")
_PATH_NAME = re.compile(
    r"(^|_)(path|file|filename|dir|directory|folder|root|image|img|input|picture|checkpoint|ckpt|weights|data)(_|$)", re.I
)
"""Names of options whose values are paths."""
_MOST_MATCHES, _MOST_LOOKED_AT = 4, 1000
"""Files for which a pattern stands, and those that are looked at to find the first ones."""
_MOST_NAMED = 6
"""So many of those not taken are named in a remark."""
_PURPOSE = "(main|run|app|train|eval(uate|uation)?|test|val(id|idate)?|predict(ion)?|infer(ence)?|classify|demo|serve)"
_MODELS = re.compile(
    r"torch|timm|lightning|fastai|ultralytics|transformers|accelerate|mmcls|mmcv|mmengine|mmpretrain|skorch|clip"
)
"""Libraries, by part of their names, that hold models."""
_BY_NAME = re.compile(r"\b(import_module|__import__|instantiate|exec|run_path|runpy|subprocess|load_learner)\b")
"""Ways to what a file does not import."""
EVALUATE_NAMES = frozenset(
    "evaluate eval eval_only evaluate_only evaluation only_eval test test_only test_phase validate val_only".split()  # noqa: SIM905
)
"""Options by which scripts that train are told to evaluate only."""


def ranked(survey: Survey, scripts: Iterable[Script]) -> list[Script]:
    """Scripts, the one that says most about the model first.

    What imports nothing that could hold a model, such as the client of a server, comes last of all. Those that a README runs
    come first, then those that other documents run or that it mentions. Of these one that evaluates
    comes before one that predicts before one that trains; then a plain name like `train.py` before `bn_train.py`, the order in
    which they are documented, a file's depth, and the natural order of the names. Tests, notebooks and files in which nothing
    is seen to call a model and whose name does not say that they do come last; where the name does, and no README runs them,
    they come after those that are seen to.
    """
    scripts = list(scripts)
    readme = readme_text(survey.root)
    known = project_index(survey)
    imported = imported_paths(known)
    holding = _with_models(known)
    calls = any(script.roles for script in scripts)
    shallowest = min((script.path.count("/") for script in scripts), default=0)

    def rank(script: Script) -> tuple[object, ...]:
        order, named = next(
            ((index, 0 if command.readme else 1) for index, command in enumerate(survey.commands) if _runs(command, script)),
            (len(survey.commands), 1 if re.search(rf"(?<![\w/.-]){re.escape(script.path)}\b", readme) else 2),
        )
        depth = script.path.count("/")
        stem = posixpath.basename(script.path).removesuffix(".py").lower()
        return (
            script.path not in holding,
            named == 2 and is_test(script.path),
            not script.roles and ((calls and not _purpose(script)) or (not script.main_guard and script.path in imported)),
            script.path.endswith(NOTEBOOK),
            calls and not script.roles and named > 0,
            named,
            depth > shallowest,
            tier(script),
            re.fullmatch(_PURPOSE, stem) is None,
            order,
            depth,
            natural(script.path),
        )

    return sorted(scripts, key=rank)


def _with_models(known: ProjectIndex) -> set[str]:
    """The files that import a library which holds models, or one of these files; or that may, by a name that they make."""
    repository = known.repository
    leads: dict[str, set[str]] = {}
    found = set()
    for module in repository.modules.values():
        names = {*module.imports.values(), *module.star_imports}
        text = module.file.text or ""
        if any(_MODELS.search(name.partition(".")[0]) for name in names) or _BY_NAME.search(text):
            found.add(module.path)
        for part in {part for name in names for part in (name, name.rpartition(".")[0]) if part}:
            if (other := repository.module(part, module.path)) is not None:
                leads.setdefault(other.path, set()).add(module.path)
    queue = list(found)
    while queue:
        new = leads.get(queue.pop(), set()) - found
        found |= new
        queue += new
    return found


def candidates(survey: Survey) -> list[Script]:
    """What may be run to see the model, best first: the scripts that call one, and others that the documentation runs."""
    known = {script.path for script in survey.scripts}
    others = [script for script in runnable(survey) if script.path not in known and script.path != "setup.py"]
    named = [script for script in others if any(_runs(command, script) for command in survey.commands)]
    if all(path.endswith(NOTEBOOK) for path in known):  # what people tried in a notebook comes after what they made of it
        named += [script for script in others if _purpose(script) and script not in named]
    return ranked(survey, [*survey.scripts, *(named or (others if not known else []))])


def _purpose(script: Script) -> bool:
    """Whether a script's name says that it uses a model."""
    return re.search(rf"(^|[_/]){_PURPOSE}([_.]|$)", script.path.lower()) is not None


def tier(script: Script) -> int:
    """What a script does with its model: 0 evaluates it, 1 predicts, 2 trains and evaluates it, 3 trains it, 4 is unknown."""
    roles = set(script.roles)
    if "train" in roles:
        return 2 if "evaluate" in roles else 3
    return 0 if "evaluate" in roles else 1 if "predict" in roles else 4


def natural(text: str) -> list[tuple[int, str]]:
    """A key that sorts "2_lenet" before "10_vgg"."""
    return [(int(part), "") if part.isdecimal() else (-1, part) for part in re.split(r"(\d+)", text)]


def is_test(path: str) -> bool:
    """Whether a file's name is that of a test."""
    return posixpath.basename(path).startswith("test_") or "/tests/" in f"/{path}"


def listed(names: Sequence[str]) -> str:
    """The first of what was not taken, and how many more there are."""
    more = len(names) - _MOST_NAMED
    return ", ".join(names[:_MOST_NAMED]) + (f" and {more} more" if more > 0 else "")


# -- what a script is told


def documented_arguments(survey: Survey, script: Script, *, always: bool = False) -> tuple[list[str], str | None]:
    """The arguments that the documentation gives a script which must be told something, or `always`, and "path:line" of where.

    Its first command line that the script takes; one with nothing left to fill in, of what the script requires, before others,
    and `always` the one that says most.
    Where there is none, single arguments of any command line of the repository, for what must be told.
    """
    needed = [option for option in script.options if _is_needed(option)]
    if script.options and not needed and not always:
        return [], None  # what it does by itself is what it is for
    told = (*survey.commands, *survey.usages)
    own = [command for command in told if _runs(command, script)]
    if not script.options and not always:
        own = [command for command in own if command.readme]
    whole: list[tuple[bool, bool, list[str], Command]] = []
    for command, parts in _whole(survey, script, own):
        given = {option.dest for option, _ in parts if option is not None}
        lacks = any(option.dest not in given for option in needed)
        whole.append((lacks, not given & EVALUATE_NAMES, [word for _, words in parts for word in words], command))
    if whole:
        *_, argv, command = min(whole, key=lambda item: (*item[:2], -len(item[2]) if always else 0))
        return argv, f"{command.path}:{command.line}" if argv else None
    found: dict[str, list[str]] = {}
    where = None
    for command in [*own, *(command for command in told if command not in own)]:
        for option, words in split(needed, command.arguments):
            fits = option is not None and not option.positional and documented([option], words)
            if option is not None and fits and option.dest not in found and _is_here(survey, script, option, words):
                found[option.dest] = words
                where = where or f"{command.path}:{command.line}"
    return [word for words in found.values() for word in words], where


def documented_models(survey: Survey, script: Script) -> list[list[str]]:
    """The arguments of a script's documented command lines that choose a model: the first line for each that they choose."""
    found: dict[tuple[str, ...], list[str]] = {}
    own = [command for command in (*survey.commands, *survey.usages) if _runs(command, script)]
    for _, parts in _whole(survey, script, own):
        chosen = [word for option, words in parts if option is not None and names_model(option) for word in words]
        if chosen:
            found.setdefault(tuple(chosen), [word for _, words in parts for word in words])
    return list(found.values())


def _whole(
    survey: Survey, script: Script, commands: Iterable[Command]
) -> Iterator[tuple[Command, Sequence[tuple[Option | None, list[str]]]]]:
    """The commands with nothing left to fill in, all of whose files are here, each with the options and what they are given."""
    ranks = [option.flags[-1] for option in script.options if _is_needed(option) and option.dest == "local_rank"]
    launched = [word for flag in ranks for word in (flag, "0")]
    for command in commands:
        parts = documented(script.options, [*_opened(survey, script, command.arguments), *launched])
        if parts is not None and all(_is_here(survey, script, *part) for part in parts):
            yield command, parts


def taken_of(others: Sequence[str]) -> str:
    """A remark on the script that was taken."""
    return f"the model is that of this script; --entry takes another ({listed(others)})"


def told_as(script: Script, argv: Sequence[str], where: str) -> str:
    """A remark on a script's documented arguments."""
    return f'told what {where} tells: {" ".join(argv)}; --entry "{script.path} ..." tells something else'


def _runs(command: Command, script: Script) -> bool:
    return command.script == script.path or (not command.is_file and script.path.endswith(f"/{command.script}"))


def documented_folder(survey: Survey, script: Script) -> str | None:
    """Where people stand who type the first documented command line of a script; None where that is not told."""
    for command in (*survey.commands, *survey.usages):
        if command.script == script.path and command.written and f"/{script.path}".endswith(f"/{command.written}"):
            return script.path.removesuffix(command.written).rstrip("/") or "."
    return None


def _opened(survey: Survey, script: Script, words: Sequence[str]) -> list[str]:
    """A documented command line with words that only name what stands there left open: `predict.py input checkpoint`."""
    found: list[str] = []
    folders = (survey.root, survey.root / posixpath.dirname(script.path))
    for option, parts in split(script.options, [name for word in words for name in _matches(word, folders)]):
        *flags, value = parts
        stands_for = option is not None and not option.choices and _PATH_NAME.search(option.dest) is not None
        there = any((folder / value).exists() for folder in folders if _BARE.fullmatch(value))
        found += [*flags, OPEN] if stands_for and _BARE.fullmatch(value) and not there else parts
    return found


def _matches(word: str, folders: Sequence[Path]) -> list[str]:
    """The files that a shell puts for a word such as `images/*.jpg`, a few of them; the word itself where there are none."""
    if word.startswith(("-", "/")) or not re.search(r"[*?[]", word) or ".." in word.split("/"):
        return [word]
    for folder in folders:
        with contextlib.suppress(OSError, ValueError):
            found = sorted(path.relative_to(folder).as_posix() for path in itertools.islice(folder.glob(word), _MOST_LOOKED_AT))
            if found:
                return found[:_MOST_MATCHES]
    return [word]


def _is_here(survey: Survey, script: Script, option: Option | None, words: Sequence[str]) -> bool:
    """Whether the configuration file that an argument names is one of the repository: documentation grows old."""
    if option is None or not names_configuration(option) or not posixpath.splitext(words[-1])[1]:
        return True
    value = words[-1].partition("=")[2] or words[-1]
    folders = (
        survey.root / (documented_folder(survey, script) or "."),
        survey.root / posixpath.dirname(script.path),
        survey.root,
    )
    return any(os.path.isfile(folder / value) for folder in folders)


def _is_needed(option: Option) -> bool:
    """Whether a script must be told an option: it says so, or the option chooses the model and has no default."""
    if option.required:
        return True
    chooses = (
        option.action is None
        and option.default is None
        and not option.positional
        and (names_model(option) or names_configuration(option))
    )
    return chooses and option.type in (None, "str", "Path")
