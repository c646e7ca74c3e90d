import json
import shutil
import zipfile

import pytest

from headrace.errors import MigrateError
from headrace.migrate.named.source import Options
from headrace.migrate.named.sources.model_archive import SOURCE


def archive(path, handler="handler.py"):
    with zipfile.ZipFile(path, "w") as file:
        file.writestr("handler.py", "import torch\n")
        file.writestr("MAR-INF/MANIFEST.json", json.dumps({"model": {"handler": handler}}))
    return path


def test_only_archives_that_are_there_are_taken(tmp_path):
    assert SOURCE.takes(str(archive(tmp_path / "net.mar")))
    assert not SOURCE.takes(str(tmp_path / "other.mar"))
    assert not SOURCE.takes(str(tmp_path))


def test_an_archive_is_unpacked_in_the_cache_once(tmp_path, monkeypatch):
    asked = []
    monkeypatch.setattr(
        "headrace.migrate.named.folders.prepared",
        lambda path, place, *, entry, **_: asked.append((sorted(item.name for item in path.iterdir()), entry)) or place,
    )
    subject = SOURCE.read(str(archive(tmp_path / "net.mar")), Options())
    first = subject.models(tmp_path / "cache", Options(), None)
    assert subject.models(tmp_path / "cache", Options(), None) == first
    assert asked == [(["MAR-INF", "handler.py"], "handler.py")] * 2
    archive(tmp_path / "net.mar", "missing.py")
    with pytest.raises(MigrateError, match=r"missing\.py"):
        subject.models(tmp_path / "cache", Options(), None)
    assert len(list((tmp_path / "cache").rglob("handler.py"))) == 1


@pytest.mark.parametrize("name", ["copy.mar", "entry.mar", "entry.txt.mar"])
def test_a_copy_under_another_name_is_called_so(tmp_path, monkeypatch, name):
    folders = []
    monkeypatch.setattr("headrace.migrate.named.folders.prepared", lambda path, place, **_: folders.append(path) or place)
    archive(tmp_path / "net.mar")
    shutil.copy(tmp_path / "net.mar", tmp_path / name)
    for file in ("net.mar", name):
        SOURCE.read(str(tmp_path / file), Options()).models(tmp_path / "cache", Options(), None)
    assert [path.name for path in folders] == ["net", name.partition(".")[0]]
    assert all((path / "handler.py").is_file() for path in folders)
