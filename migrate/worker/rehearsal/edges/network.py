"""Network: what a script fetches is taken from the user's own caches, or made; weights that were made are marked as such."""

from __future__ import annotations

import contextlib
import re
import runpy
import sys
import traceback
import types
import urllib.parse
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ....proving.rehearsal_protocol import WANTING, Rehearsal
from .. import checkpoint_keys, weights
from ..forms import own_checkpoints, stored_layers
from ..making import Maker
from ..places import is_users
from ..settings.environment import holding
from ..stage import Stage
from .libraries import hugging_face_models

_REPOSITORIES = re.compile(r"^pytorch/vision|pytorch-image-models|facebookresearch/(deit|convnext|swav|dino|vissl|semi)", re.I)
_FETCHING = ("source", "force_reload", "trust_repo", "skip_validation", "verbose")
"""What torch.hub.load itself takes by name."""

_OWN_SERVICE = re.compile(r"\b(localhost|127\.0\.0\.1|0\.0\.0\.0)\b(?:[\"'() ,.\d]{0,16}?(?::| ?port[= ]|, )(\d{2,5})\b)?")
"""A service on the user's own machine, such as a database or a queue, and its port, as errors name them."""


@contextlib.contextmanager
def stand_in(stage: Stage) -> Iterator[None]:
    maker = Maker(stage)
    stage.when_imported("torch", lambda torch: _torch(stage, maker, torch))
    stage.when_imported("timm.models._builder", lambda library: _forgiving(stage, library, "load_pretrained"))
    stage.when_imported("timm.models.helpers", lambda library: _forgiving(stage, library, "load_pretrained"))
    stage.when_imported("huggingface_hub.file_download", lambda library: _hugging_face(stage, maker, library))
    hugging_face_models.stand_in(stage)
    with holding(environment(stage.request)):
        yield


def environment(request: Rehearsal) -> dict[str, str]:
    """What Hugging Face's libraries look for where they are imported: the user's cache, and that nothing is to be fetched."""
    hub = next((folder for folder in request.caches if Path(folder, "hub").is_dir() and "huggingface" in folder), None)
    offline = dict.fromkeys(("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE", "HF_DATASETS_OFFLINE"), "1")
    return offline | ({"HF_HOME": hub} if hub is not None else {})


def lesson(stage: Stage, error: BaseException) -> bool:
    """A script that gave up for the want of a key in a checkpoint that stands in, or of a name under one."""
    frames = [frame for frame, _ in traceback.walk_tb(error.__traceback__)]
    gave_up = bool(frames) and is_users(frames[-1].f_code.co_filename, stage.root)
    if (gave_up and weights.unpacked(stage, error, frames[-1])) or weights.data_wanted(stage, error):
        return True
    known = stage.learned.get("checkpoint_values", {})
    named = checkpoint_keys.named_value(frames)
    missed = named is not None and isinstance(error, KeyError) and error.args == (named[0],)
    if stored_layers.lesson(stage, error, frames, weights.StandInState):
        return True
    if not missed and weights.unfit(stage, error, frames):
        return True
    if named is None and WANTING in str(error):
        named = checkpoint_keys.stated_value(stage, frames)
        named = named if named is not None and checkpoint_keys.has_what_is_taken(named[1], str(error)) else None
    if named is not None and named[0] not in known:
        return stage.learn("checkpoint_values", {**known, named[0]: named[1]})
    arguments = checkpoint_keys.wanted_arguments(stage, error, frames)
    if arguments:
        return stage.learn("arguments_of_a_checkpoint", {**stage.learned.get("arguments_of_a_checkpoint", {}), **arguments})
    key = checkpoint_keys.missed_key(frames[-1]) if gave_up else None
    if key is not None and stage.add("checkpoint_keys", key):
        return True
    return gave_up and own_checkpoints.lesson(stage, error, frames, weights.StandInState)


def remedy(stage: Stage, error: BaseException) -> str | None:
    text = f"{type(error).__name__} {error}"
    if weights.TABLE in text:
        return "give with --checkpoint the file in which the repository's training saves its model, or --entry another script"
    if WANTING in text:
        return "put the file where the script looks for it: it holds more than weights, and nothing can stand in for that"
    if "required positional argument" in text and any(
        frame.f_code.co_name == "load_from_checkpoint" for frame, _ in traceback.walk_tb(error.__traceback__)
    ):
        return "the checkpoint that is not here holds what its model is made with: give it with --checkpoint FILE"
    if "refused" in text and (found := _OWN_SERVICE.search(text)) is not None:
        return _nothing_serves(f"{found[1]}:{found[2]}" if found[2] else found[1])
    if not re.search(r"URLError|ConnectionError|MaxRetryError|LocalEntryNotFound|name resolution|resolve host|offline", text):
        return None
    method = getattr(getattr(error, "request", None), "method", None)
    if method not in (None, "GET", "HEAD"):
        return _nothing_serves(urllib.parse.urlsplit(error.request.url).hostname)  # type: ignore[attr-defined]
    return "fetch once what the script downloads, so that it lies in your cache, and run the migration again"


def _nothing_serves(where: str | None) -> str:
    return f"nothing stands in for the service at {where} that the script asks; --entry takes one that does without it"


def _torch(stage: Stage, maker: Maker, torch: Any) -> None:
    weights.install(stage, torch, tuple(maker.names), maker.arrays)
    stored_layers.install(stage, torch, len(maker.names))
    making: list[str] = []

    def load(original: Any, repo: str, model: str, *args: Any, **named: Any) -> Any:
        try:
            return original(repo, model, *args, **named)
        except Exception as error:
            if named.get("source") == "local":
                raise
            named = {name: value for name, value in named.items() if name not in _FETCHING}
            if _REPOSITORIES.search(str(repo)):
                return _library_model(str(repo), model, args, named)
            if model in making or model not in _own_models(stage):  # what it makes may itself begin with another's
                raise ConnectionError(f"the code of {model} is that of {repo}, which cannot be fetched here") from error
            stage.note("network", f"{model} is that of the repository's own hubconf.py, not of {repo}")
            making.append(model)
            try:
                return original(str(stage.root), model, *args, source="local", **named)
            finally:
                making.pop()

    def models(original: Any, repo: str, *args: Any, **named: Any) -> Any:
        try:
            return original(repo, *args, **named)
        except Exception:
            if not (found := _own_models(stage)):
                raise
            return found

    stage.wrap(torch.hub, "load", load)
    stage.wrap(torch.hub, "list", models)


def _own_models(stage: Stage) -> list[str]:
    """What the repository's own `hubconf.py` makes for torch.hub, under whatever name the repository is there."""
    file = Path(stage.root, "hubconf.py")
    if not file.is_file():
        return []
    sys.path.insert(0, str(stage.root))
    try:
        return [name for name, value in runpy.run_path(str(file)).items() if callable(value) and not name.startswith("_")]
    finally:
        sys.path.remove(str(stage.root))


def _library_model(repo: str, model: str, args: tuple[Any, ...], named: dict[str, Any]) -> Any:
    """The same model from the installed library that the repository on GitHub is the source of."""
    import importlib

    if repo.startswith("pytorch/vision"):
        return getattr(importlib.import_module("torchvision.models"), model)(*args, **named)
    return importlib.import_module("timm").create_model(model, *args, **named)


def _forgiving(stage: Stage, library: types.ModuleType, name: str) -> None:
    """Pretrained weights are loaded where they can be had; else the model stays as it was built."""

    def load(original: Any, model: Any, *args: Any, **named: Any) -> Any:
        try:
            return original(model, *args, **named)
        except Exception:  # noqa: BLE001 - whatever the library raises for what it cannot fetch
            return stage.weights_stand_in(type(model).__name__)

    stage.wrap(library, name, load)


def _hugging_face(stage: Stage, maker: Maker, library: types.ModuleType) -> None:
    def download(original: Any, repo_id: str, filename: str, *args: Any, **named: Any) -> Any:
        try:
            return original(repo_id, filename, *args, **named)
        except Exception:
            path = str(stage.made / "hugging-face" / repo_id / filename)
            if (
                hugging_face_models.asks()
                or not maker.can(path)
                or (filename.endswith(".json") and "label" not in filename and "class" not in filename)
            ):
                raise  # a configuration is nothing to make up
            maker.file(path)
            stage.note("network", f"{filename} of {repo_id} was made, not downloaded")
            return path

    stage.wrap(library, "hf_hub_download", download)
