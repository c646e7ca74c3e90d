"""With which arguments a user's script is run: those known to work, the data that is here, to evaluate only, on the CPU."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from PIL import Image

from ..reading.facts import Option, Script
from .trace_transform import probe_image

MADE_IMAGE = "headrace-sample.png"
IMAGE_SUFFIXES = (".jpg", ".jpeg", ".png", ".bmp", ".webp", ".ppm")
DATA_NAMES = frozenset("data data_dir data_path data_root datadir dataset_dir dataset_path datapath dataroot root".split())  # noqa: SIM905
# By these, scripts that train are told to evaluate only.
EVALUATE_NAMES = frozenset(
    "evaluate eval eval_only evaluate_only evaluation only_eval test test_only test_phase validate val_only".split()  # noqa: SIM905
)
CPU_NAMES = frozenset("cpu cpu_only use_cpu force_cpu no_cuda no_gpu disable_cuda disable_gpu no_accel".split())  # noqa: SIM905
CUDA_NAMES = frozenset("cuda use_cuda gpu use_gpu".split())  # noqa: SIM905


def arguments(script: Script, tree: Path, known: Sequence[str], *, data: Path | None = None) -> list[str] | str:
    """The argv to run a script with, or the reason why it cannot be known.

    `known` is an argv that works for another script of the repository; options of the same name are carried over.
    """
    argv, given = carried(script, known, data=data)
    missing = [name for name in script.argparse_required if name not in given]
    for option in (option for option in script.options if option.dest == script.image_argument and option.dest in missing):
        image = str(sample_image(tree))
        argv = [*argv, image] if option.positional else [*_spelled(option, image), *argv]
        missing.remove(option.dest)
    return f"it needs arguments that cannot be guessed: {', '.join(missing)}" if missing else argv


def carried(script: Script, known: Sequence[str], *, data: Path | None = None) -> tuple[list[str], set[str]]:
    """What of `known` and of the user's data a script takes, and the names of the options that are given so."""
    argv: list[str] = []
    given = set()
    by_flag = {flag: option for option in script.options for flag in option.flags}
    tokens = iter(known)
    for token in tokens:
        flag, _, value = token.partition("=")
        option = by_flag.get(flag)
        if option is not None and not option.positional:
            takes_value = option.action in (None, "store", "append")
            argv += [token] if not takes_value or value else [token, next(tokens, "")]
            given.add(option.dest)
    if data is not None:
        for option in (option for option in script.options if option.dest in DATA_NAMES and option.dest not in given):
            argv = [*_spelled(option, str(data)), *argv] if option.positional else [*argv, *_spelled(option, str(data))]
            given.add(option.dest)
    return argv, given


def _spelled(option: Option, value: str) -> list[str]:
    return [value] if option.positional else [option.flags[-1], value]


def sample_image(tree: Path) -> Path:
    """An image of the repository, of its test data if it has some, relative to the tree; a made-up one where it has none."""
    found = [path.relative_to(tree) for path in tree.rglob("*") if path.suffix.lower() in IMAGE_SUFFIXES and path.is_file()]

    def rank(path: Path) -> tuple[bool, bool, str]:
        folders = {part.lower() for part in path.parts[:-1]}
        return (
            not folders & {"test", "val", "valid", "validation"},
            not folders & {"data", "images", "samples"},
            path.as_posix(),
        )

    if found:
        return min(found, key=rank)
    made = tree / MADE_IMAGE
    if not made.exists():
        probe_image(np.random.default_rng(0), 224, 224, "RGB").save(made)
    with Image.open(made) as image:
        image.verify()
    return made.relative_to(tree)


def evaluating(script: Script, argv: Sequence[str]) -> list[str] | None:
    """The arguments by which a script that trains evaluates only, `argv` among them; None where it has no option for that."""
    return _switched(script.options, EVALUATE_NAMES, argv, on=True)


def on_cpu(script: Script, argv: Sequence[str]) -> list[str] | None:
    """The arguments by which a script keeps to the CPU, `argv` among them; None where it has no option for that."""
    for option in script.options:
        if option.dest == "device" and not option.positional and option.type in (None, "str"):
            return [*argv, option.flags[-1], "cpu"]
    return _switched(script.options, CPU_NAMES, argv, on=True) or _switched(script.options, CUDA_NAMES, argv, on=False)


def _switched(options: Sequence[Option], names: frozenset[str], argv: Sequence[str], *, on: bool) -> list[str] | None:
    """`argv` with the first option of one of these names switched on, or off."""
    for option in options:
        if option.dest not in names or option.positional:
            continue
        if on and option.action == "store_true":
            return list(argv) if set(option.flags) & set(argv) else [*argv, option.flags[-1]]
        if option.action is None and "bool" in (option.type or "") and (on or option.type != "bool"):  # bool("false") is true
            return [*argv, option.flags[-1], "true" if on else "false"]
        if option.action is None and option.type == "int" and (option.default in (0, 1) or option.choices == (0, 1)):
            return [*argv, option.flags[-1], "1" if on else "0"]
    return None
