"""What lies in a models folder, looked at again and again."""

import logging

from headrace.serving.models import scan as scanning
from headrace.serving.models.scan import model_folders, scan


def test_only_configs_that_changed_are_read_again(repository):
    for name in ("one", "two"):
        repository.package(name)
    first = scan(repository.path)
    before = scanning._target.cache_info()
    assert scan(repository.path) == first
    after = scanning._target.cache_info()
    assert (after.misses, after.hits) == (before.misses, before.hits + 6)
    config = repository.path / "two_decode" / "config.pbtxt"
    config.write_text(config.read_text().replace('backend: "python"', 'backend: "onnxruntime"'))
    changed = scan(repository.path)
    assert scanning._target.cache_info().misses == before.misses + 1
    assert changed["one"] == first["one"]
    assert changed["two"].companions == ("two_classify",)
    assert changed["two_decode"].tensor


def test_what_is_no_model_s_name_is_said_once(repository, caplog):
    repository.package("good")
    for name in ("a name", "line\nbreak"):
        (repository.path / name).mkdir()
        (repository.path / name / "config.pbtxt").write_text("")
    with caplog.at_level(logging.WARNING, "headrace.serving"):
        for _ in range(3):
            assert model_folders(repository.path) == ["good", "good_classify", "good_decode"]
    assert [record.getMessage().partition(":")[0] for record in caplog.records] == [
        "skipping 'a name'",
        "skipping 'line\\nbreak'",
    ]
