"""One model of a model repository."""

from headrace.migrate.named.sources.package_folder import takes


def test_a_config_and_a_manifest_make_one(tmp_path):
    assert not takes(str(tmp_path))
    (tmp_path / "config.pbtxt").write_text("")
    assert not takes(str(tmp_path))
    (tmp_path / "1").mkdir()
    (tmp_path / "1" / "headrace.json").write_text("{}")
    assert takes(str(tmp_path))
