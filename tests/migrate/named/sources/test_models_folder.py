"""Folders of models, those that hold none yet, and copies that headrace migrate wrote."""

import json

from headrace.migrate.named.folders import ModelsFolder
from headrace.migrate.named.source import Options
from headrace.migrate.named.sources.models_folder import read, takes
from headrace.migrate.stages.copy_tree import MARKER


def test_what_holds_models_or_nothing(tmp_path):
    assert takes(str(tmp_path))
    (tmp_path / "notes.txt").write_text("")
    assert not takes(str(tmp_path))
    (tmp_path / "net").mkdir()
    (tmp_path / "net" / "config.pbtxt").write_text("")
    assert takes(str(tmp_path))
    assert read(str(tmp_path), Options()) == ModelsFolder(tmp_path)
    assert not takes(str(tmp_path / "none"))


def test_a_migrated_copy_has_its_models_inside(tmp_path):
    (tmp_path / "models" / "net" / "1").mkdir(parents=True)
    (tmp_path / "models" / "net" / "1" / "headrace.json").write_text("{}")
    (tmp_path / MARKER).write_text(json.dumps({"repository": ""}))
    assert takes(str(tmp_path))
    assert read(str(tmp_path), Options()) == ModelsFolder(tmp_path / "models")
