"""Names of timm: what is read of them here, and what timm says of one that it has not."""

import importlib.util
from pathlib import Path

import pytest

from headrace.errors import MigrateError
from headrace.migrate.named.packaged import packaged, read
from headrace.migrate.named.source import Options

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("timm") is None, reason="timm is not installed: make names installs it"
)


def test_a_checkpoint_follows_the_name_and_is_part_of_what_decides(tmp_path):
    (tmp_path / "net.pth").write_bytes(b"one")
    code = read(f"timm:resnet10t:{tmp_path / 'net.pth'}", Options())
    assert (code.what, code.title, code.fetch) == ("timm:resnet10t", "resnet10t", "")
    assert code.readable == (Path(tmp_path / "net.pth"),)
    (tmp_path / "net.pth").write_bytes(b"two")
    assert read("timm:resnet10t", Options(checkpoint=tmp_path / "net.pth")).key() != code.key()
    assert read("timm:resnet10t", Options()).fetch
    random = read("timm:resnet10t", Options(random_weights=True))
    assert not random.fetch
    assert not random.known_weights


@pytest.mark.slow
def test_a_name_that_timm_has_not_is_told_what_is_near(tmp_path):
    with pytest.raises(MigrateError, match="has no model 'resnet5O'; did you mean resnet50"):
        packaged("timm:resnet5O", cache=tmp_path)


@pytest.mark.slow
def test_weights_that_cannot_be_had_are_never_random_in_silence(tmp_path, monkeypatch):
    for name in ("HF_HOME", "TORCH_HOME", "XDG_CACHE_HOME"):
        monkeypatch.setenv(name, str(tmp_path / "empty"))
    for name in ("HTTPS_PROXY", "https_proxy", "HTTP_PROXY", "http_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    with pytest.raises(MigrateError, match="cannot be downloaded .* --checkpoint, or --random-weights"):
        packaged("timm:resnet10t", cache=tmp_path / "cache")
    assert list((tmp_path / "cache" / "named").iterdir()) == []
