"""Folders that hold models already."""

from headrace.migrate.named.folders import PackageFolder
from headrace.migrate.named.source import Options


def test_a_package_is_shown_with_its_companions_and_without_its_neighbors(tmp_path):
    for name in ("net", "net_decode", "net_classify", "other"):
        (tmp_path / "models" / name).mkdir(parents=True)
    package = PackageFolder(tmp_path / "models" / "net")
    view = package.models(tmp_path / "cache", Options(), None)
    assert sorted(path.name for path in view.iterdir()) == ["net", "net_classify", "net_decode"]
    (tmp_path / "models" / "net_classify").rmdir()
    assert package.models(tmp_path / "cache", Options(), None) == view
    assert sorted(path.name for path in view.iterdir()) == ["net", "net_decode"]
