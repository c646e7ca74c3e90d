"""Which script says most about a repository's model, and what it is told: as the documentation has it, and nobody is asked."""

from __future__ import annotations

import ast
import contextlib
import itertools
import os
import posixpath
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from ..reading.arguments import OPEN, documented, flag_of, split
from ..reading.facts import Command, Option, Script, Survey
from ..reading.scopes import Module, apart
from ..reading.source import NOTEBOOK, readme_text
from ..slicing.recipes import configuration_files, names_configuration, names_model, working_folder
from ..survey.importers import leading_to
from ..survey.submodules import submodule_paths
from ..survey.survey import is_guarded, project_index, runnable
from .construction import imported_paths

_BARE = re.compile(r"[A-Za-z_ -]+")
_PATH_NAME = re.compile(
    r"(^|_)(path|file|filename|dir|directory|folder|root|image|img|input|picture|checkpoint|ckpt|weights|data)(_|$)", re.I
)
"""Names of options whose values are paths."""
_MOST_MATCHES, _MOST_LOOKED_AT = 4, 1000
"""Files for which a pattern stands, and those that are looked at to find the first ones."""
_MOST_BESIDE = 8
"""Files that are offered in place of one that is not here."""
_SETTINGS = (".yaml", ".yml", ".json", ".jsonnet", ".toml", ".cfg", ".ini", ".conf")
_OF_ANY = re.compile(r"(my_?)?(config(uration)?s?|cfg|conf|settings|options|default|base)|.{1,2}", re.I)
"""Names of files of settings that say nothing of what they set."""
_MOST_NAMED = 6
"""So many of those not taken are named in a remark."""
_PURPOSE = "(main|run|app|train|eval(uate|uation)?|test|val(id|idate)?|predict(ion)?|infer(ence)?|classify|demo|serve)"
_MODELS = re.compile(
    r"torch|timm|lightning|fastai|ultralytics|transformers|accelerate|mmcls|mmcv|mmengine|mmpretrain|skorch|clip"
)
"""Libraries, by part of their names, that hold models."""
_IMAGES = re.compile(r"torchvision|timm|PIL|cv2|skimage|imageio|albumentations|kornia|imgaug|mm(cls|pretrain)")
"""Libraries that read images or hold models of images."""
_LAYERS = re.compile(r"\bConv2d\b")
_LABELS = re.compile(r"(?<!binary_)cross_?entropy|\bnll_?loss|BCEWithLogits", re.I)
"""Losses of classifiers; that of an autoencoder is `binary_cross_entropy`."""
_SETS = re.compile(r"ImageFolder|MNIST|CIFAR|ImageNet|\w*Dataset\b")
_BY_NAME = re.compile(r"\b(import_module|__import__|instantiate|exec|run_path|runpy|subprocess|load_learner)\b")
"""Ways to what a file does not import."""
EVALUATE_NAMES = frozenset(
    "evaluate eval eval_only evaluate_only evaluation only_eval test test_only test_phase validate val_only".split()  # noqa: SIM905
)
"""Options by which scripts that train are told to evaluate only."""
_TASK = re.compile(r"^(run_?)?(action|command|mode|phase|stage|task)$")


def ranked(survey: Survey, scripts: Iterable[Script]) -> list[Script]:
    """Scripts, the one that says most about the model first.

    What lies in a git submodule, as others' examples do, comes last of all; before it what imports nothing that could hold
    a model, such as the client of a server. Those that a README runs come first, then those that other documents run or
    that it mentions. Of these one for images comes before one that is not, as in a course that begins with points and
    lines: it leads to layers for them or imports a library for them itself, or, less surely, leads to such a library. What
    the README at the top runs comes before what one in a folder does, such as that of an old version. Then one that
    evaluates comes before one that predicts before one that trains (or takes gradients of what it predicts, as a transfer
    of style does); then a plain name like `train.py` before `bn_train.py`, the order in which they are documented, a file's
    depth, and the natural order of the names.
    Tests, notebooks and files in which nothing is seen to call a model and whose name does not say that they do come last;
    where the name does, and no README runs them, they come after those that are seen to.
    """
    scripts = list(scripts)
    readme = readme_text(survey.root)
    known = project_index(survey)
    modules = known.repository.modules
    imported = imported_paths(known)
    holding, with_layers, with_images = leading_to(known.repository, _holds_models, _holds_layers, _holds_images)
    others = tuple(f"{path}/" for path in submodule_paths(survey.root))
    calls = any(script.roles for script in scripts)
    shallowest = min((script.path.count("/") for script in scripts), default=0)

    def rank(script: Script) -> tuple[object, ...]:
        order, named, below = next(
            (
                (index, 0 if command.readme else 1, command.path.count("/"))
                for index, command in enumerate(survey.commands)
                if _runs(command, script)
            ),
            (len(survey.commands), 1 if re.search(rf"(?<![\w/.-]){re.escape(script.path)}\b", readme) else 2, 0),
        )
        depth = script.path.count("/")
        stem = posixpath.basename(script.path).removesuffix(".py").lower()
        return (
            script.path.startswith(others),
            script.path not in holding,
            named == 2 and is_test(script.path),
            not script.roles and ((calls and not _purpose(script)) or (not script.main_guard and script.path in imported)),
            script.path.endswith(NOTEBOOK),
            calls and not script.roles and named > 0,
            named,
            0 if script.path in with_layers or _holds_images(modules[script.path]) else 1 if script.path in with_images else 2,
            depth > shallowest,
            below if named == 0 else 0,
            3 if set(script.roles) == {"predict"} and _takes_gradients(modules[script.path]) else tier(script),
            re.fullmatch(_PURPOSE, stem) is None,
            order,
            depth,
            natural(script.path),
        )

    return sorted(scripts, key=rank)


def _holds_models(module: Module) -> bool:
    """Whether a file imports a library which holds models; or may, by a name that it makes."""
    return any(_MODELS.search(name) for name in _libraries(module)) or bool(_BY_NAME.search(module.file.text or ""))


def _holds_layers(module: Module) -> bool:
    """Whether a file builds layers for images."""
    return bool(_LAYERS.search(module.file.text or ""))


def _holds_images(module: Module) -> bool:
    """Whether a file imports a library for images."""
    return any(_IMAGES.match(name) for name in _libraries(module))


def importing(survey: Survey, libraries: Iterable[str]) -> set[str]:
    """The files that import one of the libraries, or one of these files."""
    wanted = set(libraries)
    (found,) = leading_to(project_index(survey).repository, lambda module: not wanted.isdisjoint(_libraries(module)))
    return found


def reaching(survey: Survey, path: str) -> set[str]:
    """A file and those that import it, or one of these."""
    (found,) = leading_to(project_index(survey).repository, lambda module: module.path == path)
    return found


def _takes_gradients(module: Module) -> bool:
    return any(isinstance(call.func, ast.Attribute) and call.func.attr == "backward" for call in module.calls)


def classifying(survey: Survey) -> set[str]:
    """The files that lead to images, to a set of data and to the loss of a classifier."""
    ways = (_holds_images, _holds_sets, _holds_labels)
    return set.intersection(*map(set, leading_to(project_index(survey).repository, *ways)))


def _holds_sets(module: Module) -> bool:
    return bool(_SETS.search(module.file.text or ""))


def _holds_labels(module: Module) -> bool:
    return bool(_LABELS.search(module.file.text or ""))


def _libraries(module: Module) -> set[str]:
    return {name.partition(".")[0] for name in (*module.imports.values(), *module.star_imports)}


def candidates(survey: Survey) -> list[Script]:
    """What may be run to see the model, best first: the scripts that call one, and others that the documentation runs."""
    known = {script.path for script in survey.scripts}
    others = [script for script in runnable(survey) if script.path not in known and script.path != "setup.py"]
    named = [script for script in others if is_run_by_documents(survey, script)]
    if all(path.endswith(NOTEBOOK) for path in known):  # what people tried in a notebook comes after what they made of it
        named += [script for script in others if _purpose(script) and script not in named]
    return ranked(survey, [*survey.scripts, *(named or (others if not known else []))])


def is_run_by_documents(survey: Survey, script: Script) -> bool:
    """Whether a README or another document has a command line that runs a script."""
    return any(_runs(command, script) for command in survey.commands)


def last_candidates(survey: Survey, scripts: Iterable[Script]) -> list[Script]:
    """What else may be run where none of `scripts` shows a model: files that start something when they are run."""
    known = {script.path for script in scripts}
    modules = project_index(survey).repository.modules
    others = [script for script in runnable(survey) if script.path not in known and script.path != "setup.py"]
    return ranked(survey, [script for script in others if is_guarded(modules[script.path]) and not is_test(script.path)])


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
    Where there is none, single arguments of any command line of the repository, for what must be told; of one that runs
    another script nothing that the lines of this one do without: its model may be another one than its weights are of.
    """
    needed = [option for option in script.options if _is_needed(option)]
    if script.options and not needed and not always:
        return [], None  # what it does by itself is what it is for
    told = (*survey.commands, *survey.usages)
    own = [command for command in told if _runs(command, script)]
    if not script.options and not always:
        own = [command for command in own if command.readme]
    whole = [
        (*_rank(parts, needed), [word for _, words in parts for word in words], command)
        for command, parts in _whole(survey, script, own)
    ]
    if whole:
        *_, argv, command = min(whole, key=lambda item: (*item[:2], -len(item[2]) if always else 0))
        return argv, f"{command.path}:{command.line}" if argv else None
    found: dict[str, list[str]] = {}
    where = None
    required = [option for option in needed if option.required] if own else needed
    for command, wanted in [*((one, needed) for one in own), *((one, required) for one in told if one not in own)]:
        for option, words in split(wanted, command.arguments):
            fits = option is not None and not option.positional and documented([option], words)
            if option is not None and fits and option.dest not in found and _is_here(survey, script, option, words):
                found[option.dest] = words
                where = where or f"{command.path}:{command.line}"
    return [word for words in found.values() for word in words], where


def other_arguments(survey: Survey, script: Script) -> Iterator[tuple[list[str], str, bool]]:
    """All documented command lines of a script, the one that says most first and then each time the one that says least of what
    was said before, with "path:line" of where, and whether each stands there word for word.

    Then those that name a configuration which is not here, with each of those that lie where it should.
    """
    needed = [option for option in script.options if _is_needed(option)]
    own = [command for command in (*survey.commands, *survey.usages) if _runs(command, script)]
    lines = [
        (_rank(parts, needed), [word for _, words in parts for word in words], f"{command.path}:{command.line}")
        for command, parts in _whole(survey, script, own)
    ]
    said: Counter[str] = Counter()
    while lines:
        _, argv, where = line = min(lines, key=lambda item: (*item[0], sum(said[word] for word in item[1]), -len(item[1])))
        lines.remove(line)
        said.update(argv)
        yield argv, where, True
    for command in own:
        parts = documented(script.options, _opened(survey, script, command.arguments)) or ()
        gone = [index for index, part in enumerate(parts) if not _is_here(survey, script, *part)]
        if len(gone) == 1:
            _, words = parts[gone[0]]
            for other in _beside(survey, script, value := words[-1].partition("=")[2] or words[-1]):
                instead = [*words[:-1], words[-1].removesuffix(value) + other]
                argv = [word for index, part in enumerate(parts) for word in (instead if index == gone[0] else part[1])]
                yield argv, f"{command.path}:{command.line} (whose {value} is not here; {other} beside it was taken)", False


def configurations(survey: Survey, script: Script, option: Option) -> list[str]:
    """The files that a required `--cfg FILE` can mean: those that the option names first (`--model-config`: model.yaml), then
    the README's, then those that its help names, then the nearest. Of other options none."""
    readme, known = readme_text(survey.root), project_index(survey)

    def rank(path: str) -> tuple[object, ...]:
        stem = posixpath.splitext(posixpath.basename(path))[0].lower()
        named = _OF_ANY.fullmatch(stem) is None
        by_flag = named and stem in option.dest.lower().split("_")
        by_help = named and re.search(rf"\b{re.escape(stem)}", option.help, re.I) is not None
        place = (apart(path, script.path), path.count("/"), natural(path))
        return not by_flag, path not in readme, readme.find(path), not by_help, *place

    files = sorted(configuration_files(survey.root, option), key=rank)
    start = working_folder(known.repository.modules[script.path], known.repository)
    return [posixpath.relpath(path, start) for path in files]


def other_configurations(survey: Survey, script: Script) -> Iterator[tuple[list[str], str, bool]]:
    """What chooses each of the files but the first that a script's required configuration can mean, as `other_arguments`."""
    for option in script.options:
        files = configurations(survey, script, option) if option.required else []
        for value in files[1:]:
            yield [*([] if option.positional else [flag_of(option)]), value], f"another of {len(files)} configurations", True


def _rank(parts: Sequence[tuple[Option | None, list[str]]], needed: Sequence[Option]) -> tuple[bool, bool]:
    """Whether a command line lacks what the script must be told, and whether it does not only evaluate: by an option, or by the
    word that a script of several tasks is given first, or as its mode."""
    given = {option.dest for option, _ in parts if option is not None}
    tasks = {
        word for option, words in parts if option is None or option.positional or _TASK.match(option.dest) for word in words
    }
    return any(option.dest not in given for option in needed), not (given | tasks) & EVALUATE_NAMES


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
    value = words[-1].partition("=")[2] or words[-1]
    suffix = posixpath.splitext(value)[1]
    if option is None:  # of a script whose options nobody knows
        flag = words[0].partition("=")[0]
        dest = flag.strip("-").replace("-", "_")
        like = Option(flags=(flag,), dest=dest, line=0, positional=False, required=False)
        if not (flag == "-c" or names_configuration(like)) or suffix not in _SETTINGS or flag == value:
            return True
    elif not names_configuration(option) or not suffix:
        return True
    return any(os.path.isfile(folder / value) for folder in _seen_from(survey, script))


def _seen_from(survey: Survey, script: Script) -> tuple[Path, ...]:
    """The folders in which a file may lie that a command line names."""
    told = documented_folder(survey, script) or "."
    return survey.root / told, survey.root / posixpath.dirname(script.path), survey.root


def _beside(survey: Survey, script: Script, value: str) -> list[str]:
    """The files of the folder and the format of one that is not here, as the command line would name them."""
    above, suffix = posixpath.dirname(value), posixpath.splitext(value)[1]
    if value.startswith("/") or ".." in value.split("/"):
        return []
    for folder in _seen_from(survey, script):
        with contextlib.suppress(OSError):
            names = sorted((path.name for path in (folder / above).iterdir() if path.suffix == suffix), key=natural)
            if names:
                return [posixpath.join(above, name) for name in names[:_MOST_BESIDE]]
    return []


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
