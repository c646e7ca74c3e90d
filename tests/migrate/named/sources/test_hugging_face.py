"""Names of the Hugging Face hub."""

import importlib.util

import pytest

from headrace.errors import MigrateError
from headrace.migrate.named.packaged import packaged, read
from headrace.migrate.named.source import Options
from headrace.runtime.artifact.artifact import load_artifact

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
    transformers = pytest.importorskip("transformers", exc_type=Exception)
    hub = tmp_path / "hub"
    snapshot = hub / "models--own--tiny" / "snapshots" / ("0" * 40)
    small = {"image_size": 32, "patch_size": 16, "hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
    config = transformers.ViTConfig(**small, intermediate_size=16, num_labels=3)
    transformers.ViTForImageClassification(config).save_pretrained(snapshot)
    transformers.ViTImageProcessor(size={"height": 32, "width": 32}).save_pretrained(snapshot)
    (hub / "models--own--tiny" / "refs").mkdir()
    (hub / "models--own--tiny" / "refs" / "main").write_text("0" * 40)
    monkeypatch.setenv("HF_HUB_CACHE", str(hub))
    models = packaged("hf:own/tiny", cache=tmp_path / "cache")
    artifact = load_artifact(models / "tiny")
    assert artifact.preprocessing is not None
    assert artifact.labels is None  # LABEL_0 names nothing


@pytest.mark.parametrize("name", ["hf:a/b/c", "hf:/etc/passwd", "hf:../a", "hf:"])
def test_what_is_no_name_of_the_hub(name):
    with pytest.raises(MigrateError, match="no name of the hub"):
        read(name, Options())


def test_a_checkpoint_does_not_go_with_it(tmp_path):
    with pytest.raises(MigrateError, match="--checkpoint does not go with"):
        read("hf:a/b", Options(checkpoint=tmp_path))
