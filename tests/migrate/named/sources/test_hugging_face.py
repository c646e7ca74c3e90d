"""Names of the Hugging Face hub."""

import importlib.util

import pytest

from headrace.errors import MigrateError
from headrace.migrate.named.packaged import packaged, read
from headrace.migrate.named.source import Options
from headrace.runtime.artifact.artifact import load_artifact
from tests.migrate.named.hugging_face_models import saved

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("transformers") is None, reason="transformers is not installed: make names installs it"
)


def test_a_name_and_its_revision():
    code = read("hf:google/vit-base@abc123", Options())
    assert (code.what, code.title, code.strange) == ("hf:google/vit-base@abc123", "vit-base", False)
    assert code.fetch
    assert "'abc123'" in code.recipe.source
    assert read("hf:google/vit-base", Options(trust_remote_code=True)).strange


@pytest.mark.slow
def test_what_lies_in_the_hubs_own_cache_needs_no_network(tmp_path, monkeypatch):
    hub = tmp_path / "hub"
    snapshot = hub / "models--own--tiny" / "snapshots" / ("0" * 40)
    snapshot.parent.mkdir(parents=True)
    saved("vit", snapshot)
    (hub / "models--own--tiny" / "refs").mkdir()
    (hub / "models--own--tiny" / "refs" / "main").write_text("0" * 40)
    monkeypatch.setenv("HF_HUB_CACHE", str(hub))
    models = packaged("hf:own/tiny", cache=tmp_path / "cache")
    artifact = load_artifact(models / "tiny")
    assert artifact.preprocessing is not None
    assert artifact.labels.names[3] == "class 3"


@pytest.mark.parametrize("name", ["hf:a/b/c", "hf:/etc/passwd", "hf:../a", "hf:"])
def test_what_is_no_name_of_the_hub(name):
    with pytest.raises(MigrateError, match="no name of the hub"):
        read(name, Options())


def test_a_checkpoint_does_not_go_with_it(tmp_path):
    with pytest.raises(MigrateError, match="--checkpoint does not go with"):
        read("hf:a/b", Options(checkpoint=tmp_path))
