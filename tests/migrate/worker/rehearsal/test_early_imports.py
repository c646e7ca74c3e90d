"""What a script's own modules import where they begin is known before it runs."""

from __future__ import annotations

import os
import sys
import types
from pathlib import Path

import pytest

from headrace.migrate.proving.rehearsal_protocol import Rehearsal
from headrace.migrate.worker.rehearsal import early_imports
from headrace.migrate.worker.rehearsal.early_imports import prepare, stated_libraries


@pytest.fixture
def repository(tmp_path: Path):
    def write(**files: str) -> str:
        for name, text in files.items():
            path = tmp_path / name.replace("__", "/")
            path = path.with_name(path.name + ".py")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        return str(tmp_path)

    return write


def stated(root: str, script: str = "main.py") -> set[str]:
    return set(stated_libraries(root, os.path.join(root, script)))


def test_what_the_script_and_its_own_modules_import_at_once(repository) -> None:
    root = repository(
        main="import numpy as np\nfrom nets.wide import Net\nif True:\n    import pandas\n"
        "try:\n    import seaborn\nexcept ImportError:\n    pass\ndef late():\n    import scipy\n",
        nets__wide="from ..tools import helper\nfrom .deep import Deep\nimport timm.layers\n",
        nets__deep="from sklearn import metrics\n",
        tools="import cv2\n",
        other="import skimage\n",
    )
    found = stated(root)
    assert {"numpy", "pandas", "seaborn", "timm.layers", "sklearn.metrics", "cv2"} <= found
    assert not {"scipy", "skimage"} & found


def test_nothing_that_is_called_like_something_of_the_repository(repository) -> None:
    """It may be put on the import path as the script runs."""
    root = repository(main="import timm\nimport cv2\n", third_party__timm__vit="import scipy\n")
    assert "timm" not in stated(root)
    assert "cv2" in stated(root)


def test_an_optimizer_needs_what_torch_imports_late(repository) -> None:
    assert "torch._dynamo" in stated(repository(main="import torch\nmake = torch.optim.SGD\n"))


def test_a_script_that_does_not_parse_says_nothing(repository) -> None:
    assert stated(repository(main="import cv2\nprint 'old'\n")) == set()


def test_imports_see_that_nothing_is_to_be_fetched_and_leave_the_environment_as_it_was(
    repository, tmp_path, monkeypatch
) -> None:
    monkeypatch.setattr(early_imports, "_SLOW", ("slowlib",))
    monkeypatch.setenv("HF_HUB_OFFLINE", "0")
    folder = tmp_path / "site-packages"
    folder.mkdir()
    (folder / "slowlib.py").write_text("import os\noffline = os.environ['HF_HUB_OFFLINE']\n")
    monkeypatch.syspath_prepend(str(folder))
    prepare(Rehearsal(root=repository(main="import slowlib\n"), script="main.py", made=str(tmp_path / "made")))
    assert sys.modules.pop("slowlib").offline == "1"
    assert os.environ["HF_HUB_OFFLINE"] == "0"
    assert "WANDB_MODE" not in os.environ


def test_what_a_server_loaded_gives_way_to_the_repository_s_own(repository, tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(early_imports, "_SLOW", ("slowlib",))
    monkeypatch.setitem(sys.modules, "slowlib", types.ModuleType("slowlib"))
    monkeypatch.setitem(sys.modules, "slowlib.parts", types.ModuleType("slowlib.parts"))
    root = repository(main="import slowlib\n", slowlib____init__="")
    prepare(Rehearsal(root=root, script="main.py", made=str(tmp_path / "made")))
    assert not {"slowlib", "slowlib.parts"} & set(sys.modules)
