"""Folders of save_pretrained, finished and not."""

import importlib.util
import json

import pytest

from headrace.errors import MigrateError
from headrace.migrate.named.packaged import packaged
from headrace.migrate.named.source import Options
from headrace.migrate.named.sources.hugging_face import is_folder, read_folder
from tests.migrate.named.hugging_face_models import saved

missing = pytest.mark.skipif(
    importlib.util.find_spec("transformers") is None, reason="transformers is not installed: make names installs it"
)


@pytest.mark.parametrize("content", ["[]", "{}", "not json", '{"model_type": 3}'])
def test_other_folders_with_a_config_are_none(tmp_path, content):
    (tmp_path / "config.json").write_text(content)
    assert not is_folder(str(tmp_path))
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "vit"}))
    assert is_folder(str(tmp_path))


@missing
def test_any_of_its_files_makes_another_package(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "vit"}))
    before = read_folder(str(tmp_path), Options()).key()
    (tmp_path / "preprocessor_config.json").write_text("{}")
    assert read_folder(str(tmp_path), Options()).key() != before


@missing
@pytest.mark.slow
def test_weights_without_a_head_are_no_classifier(tmp_path):
    folder = saved("headless", tmp_path / "vit")
    with pytest.raises(MigrateError, match="no finished image classifier|have no classifier"):
        packaged(str(folder), cache=tmp_path / "cache")


@missing
@pytest.mark.slow
def test_pickled_weights_are_not_opened(tmp_path):
    import torch
    from safetensors.torch import load_file

    folder = saved("vit", tmp_path / "vit")
    torch.save(load_file(folder / "model.safetensors"), folder / "pytorch_model.bin")
    (folder / "model.safetensors").unlink()
    with pytest.raises(MigrateError, match="safetensors"):
        packaged(str(folder), cache=tmp_path / "cache")


@missing
@pytest.mark.slow
def test_its_own_code_does_not_run(tmp_path):
    folder = saved("vit", tmp_path / "vit")
    content = json.loads((folder / "config.json").read_text())
    remote = {"AutoConfig": "code.Config", "AutoModelForImageClassification": "code.Net"}
    content |= {"model_type": "strange", "auto_map": remote}
    (folder / "config.json").write_text(json.dumps(content))
    (folder / "code.py").write_text("raise SystemExit('it ran')")
    with pytest.raises(MigrateError) as caught:
        packaged(str(folder), cache=tmp_path / "cache")
    assert "it ran" not in str(caught.value)
