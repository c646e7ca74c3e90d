"""With which arguments a user's script is run: those known to work, the data that is here, to evaluate only, on the CPU."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from PIL import Image

from ...proving.trace_transform import probe_image
from ...reading.arguments import fits, split
from ...reading.facts import Option, Script
from ...resolving.ranking import EVALUATE_NAMES

MADE_IMAGE = "headrace-sample.png"
IMAGE_SUFFIXES = (".jpg", ".jpeg", ".png", ".bmp", ".webp", ".ppm")
DATA_NAMES = frozenset("data data_dir data_path data_root datadir dataset_dir dataset_path datapath dataroot root".split())  # noqa: SIM905
CPU_NAMES = frozenset("cpu cpu_only use_cpu force_cpu no_cuda no_gpu disable_cuda disable_gpu no_accel".split())  # noqa: SIM905
CUDA_NAMES = frozenset("cuda use_cuda gpu use_gpu".split())  # noqa: SIM905


def arguments(
    script: Script, tree: Path, known: Sequence[str], *, told: Sequence[str] = (), data: Path | None = None
) -> list[str] | str:
    """The argv to run a script with, or the reason why it cannot be known.

    `known` is an argv that works for another script of the repository; options of the same name are carried over. `told` is
    what the documentation gives this script.
    """
    argv, given = carried(script, known, told=told, data=data)
    missing = [name for name in script.argparse_required if name not in given]
    for option in (option for option in script.options if option.dest == script.image_argument and option.dest in missing):
        image = str(sample_image(tree))
        argv = [*argv, image] if option.positional else [*_spelled(option, image), *argv]
        missing.remove(option.dest)
    return f"it needs arguments that cannot be guessed: {', '.join(missing)}" if missing else argv


def carried(
    script: Script, known: Sequence[str], *, told: Sequence[str] = (), data: Path | None = None
) -> tuple[list[str], set[str]]:
    """What of `known`, of `told` and of the user's data a script takes, and the names of the options that are given so."""
    if not script.options:
        return list(told), set()
    own = [(option, parts) for option, parts in split(script.options, known) if option is not None and not option.positional]
    own = [(option, parts) for option, parts in own if fits(option, parts[1:])]
    given = {option.dest for option, _ in own}
    if data is not None:
        named = [option for option in script.options if option.dest in DATA_NAMES and option.dest not in given]
        own += [(option, _spelled(option, str(data))) for option in named]
        given |= {option.dest for option in named}
    rest = [(option, parts) for option, parts in split(script.options, told) if option is None or option.dest not in given]
    given |= {option.dest for option, _ in rest if option is not None}
    first = [parts for option, parts in own if option.positional]
    later = [parts for option, parts in own if not option.positional]
    return [word for parts in (*first, *(parts for _, parts in rest), *later) for word in parts], given


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
