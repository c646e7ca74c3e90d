"""A user's model, built again the way the script builds it. It executes the user's code: only ever in a subprocess."""

from __future__ import annotations

import ast
import contextlib
import functools
import os
import sys
import sysconfig
import traceback
import types
from pathlib import Path
from typing import Any

import torch

from ...errors import SandboxError
from ..reading.recipe import Recipe
from .stub_datasets import is_missing_data, stub_datasets_made
from .stub_modules import install_stub
from .unfetched_weights import unfetched

__all__ = ["Recipe", "build_model", "locate", "unwrap"]

MODULE = "__headrace__"
_WRAPPERS = ("DataParallel", "DistributedDataParallel", "FullyShardedDataParallel")
_CUDA_ON_CPU = ("Torch not compiled with CUDA", "Found no NVIDIA driver", "No CUDA GPUs are available")
_LAUNCHER = {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1", "LOCAL_WORLD_SIZE": "1", "SLURM_PROCID": "0"}
"""What a launcher tells the only process of a run."""
_MISSING = 10
"""So many libraries may be missing that building the model does not need."""
_AFTER_CPU_BEFORE_CUDA = 15  # torch.serialization asks its own handlers at 10 and 20; lower comes first


def build_model(recipe: Recipe, notes: list[str] | None = None) -> torch.nn.Module:
    """What the recipe evaluates to, without parallel wrappers, in evaluation mode. Raises as `evaluate` does, and SandboxError
    where it is no module."""
    model = unwrap(evaluate(recipe, notes))
    if not isinstance(model, torch.nn.Module):
        raise SandboxError(f"{recipe.expression!r} in {recipe.script} is a {type(model).__name__}, not a torch.nn.Module")
    return model.eval()


def evaluate(recipe: Recipe, notes: list[str] | None = None) -> Any:
    """Run the recipe's source as its script would run, and return what its expression gives.

    `notes` gets a sentence for each thing that was absent and not needed.

    Changes this process for good: working directory, sys.argv, sys.path. Checkpoints saved on a GPU load on the CPU where there
    is none. Raises SandboxError naming the user's file and line; the original error is its cause.
    """
    script = _enter(recipe)
    module = types.ModuleType(MODULE)
    module.__file__ = str(script)
    sys.modules[MODULE] = module  # dataclasses and pickle look classes up by their module's name
    if not torch.cuda.is_available():
        _load_cuda_storages_on_cpu()
    main = sys.modules["__main__"]
    sys.modules["__main__"] = module  # a model pickled whole by the script names its classes `__main__.Net`
    try:
        with contextlib.nullcontext() if recipe.fetches else unfetched():
            _without_data(compile(recipe.source, str(script), "exec", dont_inherit=True), module, recipe, notes)
            return eval(recipe.expression, module.__dict__)  # noqa: S307
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # whatever user code raises, SystemExit of argparse included
        raise SandboxError(_explain(error, recipe.root), output=_last_lines(error)) from error
    finally:
        sys.modules["__main__"] = main


def _without_data(code: types.CodeType, module: types.ModuleType, recipe: Recipe, notes: list[str] | None) -> None:
    """Run the code; where it stops at a data set that is not here, again without that, since the model may not need it."""
    try:
        _as_launched(code, module, recipe, notes)
    except (OSError, RuntimeError) as error:
        if not is_missing_data(error):
            raise
        with stub_datasets_made() as missing:
            try:
                _as_launched(code, module, recipe, notes)
            except AttributeError as other:
                if any(other.obj is bare for bare, _ in missing):
                    raise error from None  # the data is needed, so its absence is what to mend
                raise
        if notes is not None:
            errors = dict.fromkeys(str(item) for _, item in missing)
            notes += [f"a data set is not here, and was not needed to build the model: {text}" for text in errors]


def _as_launched(code: types.CodeType, module: types.ModuleType, recipe: Recipe, notes: list[str] | None) -> None:
    """Run the code; where it asks for what only a launcher such as torchrun sets, again as its only process.

    Set beforehand, these variables would make other scripts start process groups that they do not need. Where an import
    stops it that building a model may not need, such as a counter of operations, again with an empty module in its place.
    """
    for _ in range(len(_LAUNCHER) + _MISSING):
        try:
            exec(code, module.__dict__)  # noqa: S102 - the recipe's purpose
        except KeyError as error:
            asked = error.args[0] if error.args else None
            if asked not in _LAUNCHER or asked in os.environ:
                raise
            os.environ[asked] = _LAUNCHER[asked]
        except ModuleNotFoundError as error:
            library = (error.name or "").partition(".")[0]
            for_effect = _raised_by(error, module) and not _reads(recipe.source, library)
            if for_effect or not install_stub(error, recipe.root):
                raise
            if notes is not None:
                notes.append(f"the library {library!r} is not installed, and was not needed to build the model")
        else:
            return


def _raised_by(error: BaseException, module: types.ModuleType) -> bool:
    """Whether the recipe itself ran last of all the user's code."""
    frames = [frame.f_globals.get("__name__", "") for frame, _ in traceback.walk_tb(error.__traceback__)]
    return [name for name in frames if name and not name.startswith(("importlib", "headrace."))][-1:] == [module.__name__]


def _reads(source: str, library: str) -> bool:
    """Whether a program reads a name that it imports from a library; else it imports it for what the import does."""
    nodes = list(ast.walk(ast.parse(source)))
    bound: set[str] = set()
    for node in nodes:
        if isinstance(node, ast.Import):
            bound |= {item.asname or library for item in node.names if item.name.partition(".")[0] == library}
        elif isinstance(node, ast.ImportFrom) and not node.level and (node.module or "").partition(".")[0] == library:
            bound |= {item.asname or item.name for item in node.names}
    return any(isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load) and node.id in bound for node in nodes)


def unwrap(model: Any) -> Any:
    """The model inside DataParallel, DDP (torch's or apex's), torch.compile, and holders such as timm's ModelEma."""
    while isinstance(model, torch.nn.Module) or hasattr(model, "module") or hasattr(model, "ema"):
        kind = type(model)
        has_forward = isinstance(model, torch.nn.Module) and getattr(kind, "forward", kind) is not torch.nn.Module.forward
        wrapper = kind.__name__ in _WRAPPERS or not has_forward
        names = ("module", "ema") if wrapper else ()
        inner = next((found for name in names if isinstance(found := getattr(model, name, None), torch.nn.Module)), None)
        if inner is None and kind.__name__ == "OptimizedModule":
            inner = getattr(model, "_orig_mod", None)
        if inner is None or inner is model:
            break
        model = inner
    return model


def locate(error: BaseException, root: str | Path) -> str | None:
    """The innermost "file:line" of the user's own code that an error came through, relative to the repository; None if none."""
    base = Path(root).resolve()
    if isinstance(error, SyntaxError) and error.filename and (own := _own(error.filename, base)):
        return f"{own}:{error.lineno or 1}"
    frames = [
        (own, frame.lineno or 1) for frame in traceback.extract_tb(error.__traceback__) if (own := _own(frame.filename, base))
    ]
    return f"{frames[-1][0]}:{frames[-1][1]}" if frames else None


def _enter(recipe: Recipe) -> Path:
    root = Path(recipe.root).resolve()
    directory = (root / recipe.directory).resolve()
    script = (directory / recipe.script).resolve()
    if not script.is_file():
        script = (root / recipe.script).resolve()
    for place in (directory, script):
        if not place.is_relative_to(root):
            raise SandboxError(f"the recipe leads out of its repository: {place} is not inside {root}")
    if not directory.is_dir():
        raise SandboxError(f"the recipe's working directory {directory} does not exist")
    os.chdir(directory)
    if sys.flags.safe_path:  # then the first entry is not the folder of what runs
        sys.path.insert(0, str(script.parent))
    else:
        sys.path[0] = str(script.parent)
    sys.path += [str(folder) for folder in (root, root / "src") if folder.is_dir()]  # as if what lies there were installed
    sys.argv = [recipe.script, *recipe.argv]
    return script


def _explain(error: BaseException, root: str | Path) -> str:
    where = locate(error, root)
    prefix = f"{where}: " if where else ""
    text = str(error).strip()
    if isinstance(error, SystemExit):
        return f"{prefix}the script ended the process with exit status {error.code!r} while building the model"
    if "Weights only load failed" in text or "weights_only" in text.partition("\n")[0]:
        return (
            f"{prefix}the checkpoint holds more than tensors, and loading it would run code from the file; "
            "if you trust where it comes from, pass --trust-checkpoint"
        )
    if any(sign in text for sign in _CUDA_ON_CPU):
        return f"{prefix}the model is moved to CUDA, and this machine has no usable GPU ({text.splitlines()[0]})"
    if isinstance(error, ModuleNotFoundError):
        return f"{prefix}{text}; install what the repository needs, or check that the path is part of it"
    return f"{prefix}{type(error).__name__}: {text}" if text else f"{prefix}{type(error).__name__}"


def _last_lines(error: BaseException) -> str:
    return "".join(traceback.format_exception(error))[-8000:]


def _own(filename: str, base: Path) -> str | None:
    """The file relative to the repository, unless it is outside, or an installed package of an environment kept inside."""
    path = Path(filename)
    path = (path if path.is_absolute() else Path.cwd() / path).resolve()
    installed = {Path(sysconfig.get_path(kind)).resolve() for kind in ("purelib", "platlib", "stdlib")}
    if not path.is_relative_to(base) or "site-packages" in path.parts or any(path.is_relative_to(place) for place in installed):
        return None
    return path.relative_to(base).as_posix()


@functools.cache  # torch keeps one handler per priority
def _load_cuda_storages_on_cpu() -> None:
    """Register, through torch's own extension point, that tensors saved on a GPU are kept where they were read: on the CPU."""

    def tag(_storage: Any) -> None:
        return None

    def keep(storage: Any, location: str) -> Any:
        return storage if location.startswith("cuda") else None

    torch.serialization.register_package(_AFTER_CPU_BEFORE_CUDA, tag, keep)
