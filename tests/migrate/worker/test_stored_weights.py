"""Files of stored weights are told from what else is opened."""

from __future__ import annotations

import importlib
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from headrace.migrate.worker.stored_weights import stored_weights_read


@pytest.mark.parametrize("kind", ["zip", "legacy", "numpy"])
def test_weights_that_are_read_are_named_once(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "weights.bin"
    if kind == "numpy":
        with path.open("wb") as file:
            np.savez(file, weight=np.zeros(3))
    else:
        torch.save({"weight": torch.zeros(3)}, path, _use_new_zipfile_serialization=kind == "zip")
    with stored_weights_read() as found:
        assert found == []
        for _ in range(2):
            np.load(path) if kind == "numpy" else torch.load(path)
    assert found == [path]


def test_code_text_images_and_what_is_written_are_no_weights(tmp_path: Path) -> None:
    Image.new("RGB", (4, 4)).save(tmp_path / "image.png")
    (tmp_path / "names.txt").write_text("cat\ndog\n")
    (tmp_path / "module.py").write_text("x = 1\n")
    with stored_weights_read() as found:
        Image.open(tmp_path / "image.png").load()
        (tmp_path / "names.txt").read_text()
        compile((tmp_path / "module.py").read_text(), "module.py", "exec")
        torch.save({"weight": torch.zeros(3)}, tmp_path / "written.pth")
    torch.load(tmp_path / "written.pth")
    assert found == [], "outside of the block nothing is heard"


def test_blocks_may_be_nested(tmp_path: Path) -> None:
    torch.save(torch.zeros(1), tmp_path / "a.pt")
    torch.save(torch.zeros(1), tmp_path / "b.pt")
    with stored_weights_read() as outer:
        torch.load(tmp_path / "a.pt")
        with stored_weights_read() as inner:
            torch.load(tmp_path / "b.pt")
    assert inner == [tmp_path / "b.pt"]
    assert outer == [tmp_path / "a.pt", tmp_path / "b.pt"]


def test_safetensors_are_seen_though_no_python_opens_them(tmp_path: Path) -> None:
    library = pytest.importorskip("safetensors")
    files = importlib.import_module("safetensors.torch")
    path = tmp_path / "model.safetensors"
    files.save_file({"weight": torch.zeros(3)}, path)
    with stored_weights_read() as found:
        files.load_file(path)
        with library.safe_open(path, "pt") as file:
            file.get_tensor("weight")
    assert found == [path]
