"""The folder of the one model that a path stands for."""

from __future__ import annotations

from pathlib import Path

from ...errors import AmbiguousError, ArtifactError
from .artifact import model_names
from .manifest import check_name
from .model_config import FILE, ModelConfig, read_config


def model_folder(path: Path, *, flag: str) -> Path:
    """The folder of the tensor model that `path` names: its own, a companion's beside it, or the only one of a repository.

    Raises ArtifactError for none, AmbiguousError for several; `flag` is the option, or the command, that names one.
    """
    if (path / FILE).is_file():
        target = companion_target(path.resolve().name, read_config(path))
        return path if target is None else path.resolve().parent / target
    names = model_names(path)
    if not names:
        raise ArtifactError(f"no model in {path}; `headrace migrate REPO --out DIR` writes DIR/models")
    if len(names) > 1:
        raise AmbiguousError(f"{path} holds {len(names)} models", candidates=[str(path / name) for name in names], flag=flag)
    return path / names[0]


def holds_models(path: Path) -> bool:
    """Whether a folder holds folders of models."""
    return any(path.glob(f"*/{FILE}"))


def check_place(what: str) -> None:
    """Raise ArtifactError for what is neither a file or folder nor written as a name."""
    if ":" not in what and not Path(what).exists():
        raise ArtifactError(f"{what} is no folder or file, nor a name such as timm:resnet50; docs/names.md has all forms")


def companion_target(name: str, declared: ModelConfig) -> str | None:
    """The tensor model that a folder's model is a companion of; None when it is none, but a model by itself."""
    if declared.backend == "python":
        return name.removesuffix("_decode") if name.endswith("_decode") else None
    if declared.backend != "ensemble":
        return None
    steps = declared.message.get("ensemble_scheduling", {}).get("step", [])
    names = [str(step.get("model_name", "")) for step in steps]
    if len(names) != 2 or names[0] != f"{names[1]}_decode":
        return None
    try:
        return check_name(names[1])  # of a folder beside this one, and no path to elsewhere
    except ArtifactError:
        return None
