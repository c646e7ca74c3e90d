"""What may be asked for, and how weights are named."""

import pytest

from headrace.errors import MigrateError
from headrace.migrate.named.source import Options, existing_checkpoint, file_digest, versions


@pytest.mark.parametrize(
    "options", [{"device": "tpu"}, {"max_tuning_seconds": 0.0}, {"timeout": -1.0}, {"input_size": (3, 0, 4)}]
)
def test_what_means_nothing_is_rejected(options):
    with pytest.raises(ValueError, match="must be"):
        Options(**options)


def test_a_budget_needs_images(tmp_path):
    with pytest.raises(ValueError, match="give --images, too"):
        Options(budget=1.0)
    Options(budget=1.0, images=tmp_path)


def test_weights_are_named_once_and_are_there(tmp_path):
    path = tmp_path / "net.pth"
    path.write_bytes(b"x")
    assert existing_checkpoint("", Options()) is None
    assert existing_checkpoint(str(path), Options()) == path == existing_checkpoint("", Options(checkpoint=path))
    for given, options, said in (
        (str(path), Options(checkpoint=path), "named twice"),
        (str(path), Options(random_weights=True), "--random-weights does not go with"),
        (str(tmp_path / "none.pth"), Options(), "no such checkpoint"),
    ):
        with pytest.raises(MigrateError, match=said):
            existing_checkpoint(given, options)


def test_a_library_that_is_missing_is_named_with_its_command():
    assert versions("torch")["torch"]
    with pytest.raises(MigrateError, match="pip install no-such-library"):
        versions("no-such-library")


def test_the_digest_of_a_file_that_cannot_be_read_is_an_error(tmp_path):
    with pytest.raises(MigrateError, match="Is a directory"):
        file_digest(tmp_path)
