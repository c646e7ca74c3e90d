"""What the user's code may read: Python and what it imports from; of the home folder only stored weights."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from headrace.migrate.proving.confined_run import clean_environment
from headrace.migrate.proving.visible_files import remedy, stored_weights, visible_files


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("TORCH_HOME", "HF_HOME", "HF_HUB_CACHE", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    return tmp_path


def test_python_is_there_and_the_home_folder_is_not(home: Path) -> None:
    shown = [
        Path(path) for path in visible_files({"PYTHONPATH": os.pathsep.join([str(home), str(home.parent), "/", "relative"])})
    ]
    assert any(Path(sys.executable).is_relative_to(path) for path in shown)
    assert any(Path(os.__file__).resolve().is_relative_to(path.resolve()) for path in shown)
    assert not [path for path in shown if home.is_relative_to(path.resolve())]
    (home / "packages").mkdir()
    assert str(home / "packages") in visible_files({"PYTHONPATH": str(home / "packages")})


def test_stored_weights_are_named_and_shown_without_the_token_beside_them(home: Path, tmp_path: Path) -> None:
    assert stored_weights() == {}
    torch, hub = home / ".cache/torch/hub/checkpoints", home / ".cache/huggingface/hub"
    torch.mkdir(parents=True)
    hub.mkdir(parents=True)
    (hub.parent / "token").write_text("secret")
    assert stored_weights() == {"TORCH_HOME": str(home / ".cache/torch"), "HF_HUB_CACHE": str(hub)}
    assert stored_weights().items() <= clean_environment(tmp_path / "scratch").items()
    shown = visible_files({})
    assert {str(torch.parent), str(hub)} <= set(shown)
    assert not {str(hub.parent), str(home / ".cache"), str(home / ".cache/torch")} & set(shown)


@pytest.mark.parametrize("name", ["TORCH_HOME", "HF_HOME"])
def test_weights_stored_elsewhere(home: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    (home / "store/hub/checkpoints").mkdir(parents=True)
    monkeypatch.setenv(name, str(home / "store"))
    assert str(home / "store/hub") in visible_files({})


def test_what_the_sandbox_does_not_show_is_told_from_what_is_not_there(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    missing = "FileNotFoundError: [Errno 2] No such file or directory: "
    assert f"; {tmp_path / 'data'} is there" in remedy(f"{missing}'{tmp_path / 'data'}'")
    for why in (f"{missing}'{tmp_path / 'nothing'}'", f"{missing}'data'", f"ValueError: '{tmp_path}'", "", None):
        assert remedy(why) == ""


def test_what_would_be_downloaded_is_told_from_other_files_that_are_not_to_be_written() -> None:
    why = "net.py:4: OSError: [Errno 30] Read-only file system: '{}'"
    cached = remedy(why.format("/home/me/.cache/torch/hub/checkpoints/net.pth.1.partial"))
    assert (
        cached == "; that would be downloaded, and is not here: run the script once by yourself, so that it lies in your cache"
    )
    assert remedy(why.format("/data/out.csv")) == ""
