"""Libraries of which so little is used that it is done here, where they are not installed, as they do it."""

from __future__ import annotations

import importlib
from typing import Any

from . import attribute_dicts, project_root

_ALIKE = {"oyaml": "yaml", "pickle5": "pickle", "simplejson": "json", "ujson": "json"}
"""Libraries that have the names of another, and do by them what it does."""
_FETCHERS = {
    "gdown": ["download", "cached_download", "download_folder"],
    "kagglehub": ["dataset_download", "competition_download", "model_download", "login"],
    "wget": ["download"],
}
LIBRARIES = frozenset([*_ALIKE, *_FETCHERS, *attribute_dicts.LIBRARIES, *project_root.LIBRARIES])


def contents(library: str, root: str) -> dict[str, Any]:
    """What one of `LIBRARIES` has, for a repository in `root`."""
    if library in project_root.LIBRARIES:
        return dict(project_root.functions(root))
    if library in attribute_dicts.LIBRARIES:
        return attribute_dicts.contents(library)
    if library in _FETCHERS:
        return {name: _fetcher(name) for name in _FETCHERS[library]}
    return {name: value for name, value in vars(importlib.import_module(_ALIKE[library])).items() if not name.startswith("__")}


def _fetcher(name: str) -> Any:
    def fetch(*_: Any, **__: Any) -> None:
        raise OSError("nothing is fetched from a network here")  # `downloads` has taken its place before anybody calls it

    fetch.__name__ = name
    return fetch
