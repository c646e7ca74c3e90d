"""Names of the Hugging Face hub."""

import importlib.util

import pytest

from headrace.errors import MigrateError
from headrace.migrate.named.packaged import read
from headrace.migrate.named.source import Options

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("transformers") is None, reason="transformers is not installed: make names installs it"
)


def test_a_name_and_its_revision():
    code = read("hf:google/vit-base@abc123", Options())
    assert (code.what, code.title, code.strange) == ("hf:google/vit-base@abc123", "vit-base", False)
    assert code.fetch
    assert "'abc123'" in code.recipe.source
    assert read("hf:google/vit-base", Options(trust_remote_code=True)).strange


@pytest.mark.parametrize("name", ["hf:a/b/c", "hf:/etc/passwd", "hf:../a", "hf:"])
def test_what_is_no_name_of_the_hub(name):
    with pytest.raises(MigrateError, match="no name of the hub"):
        read(name, Options())


def test_a_checkpoint_does_not_go_with_it(tmp_path):
    with pytest.raises(MigrateError, match="--checkpoint does not go with"):
        read("hf:a/b", Options(checkpoint=tmp_path))
