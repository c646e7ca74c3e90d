"""What `headrace compile` takes before it runs anything."""

import numpy as np
import pytest

from headrace.errors import MigrateError
from headrace.migrate.stages.compile_model import CompileConfig, read_images

IMAGES = np.zeros((4, 3, 8, 8), np.float32)


def test_images_and_their_labels_are_read(tmp_path):
    np.savez(tmp_path / "some.npz", images=IMAGES, labels=np.arange(4))
    found = read_images(tmp_path / "some.npz")
    assert found.inputs.shape == (4, 3, 8, 8)
    assert found.targets.tolist() == [0, 1, 2, 3]
    np.savez(tmp_path / "plain.npz", images=IMAGES)
    assert read_images(tmp_path / "plain.npz").targets is None


@pytest.mark.parametrize(
    ("arrays", "why"),
    [
        ({"pictures": IMAGES}, "no .npz file with an array 'images'"),
        ({"images": IMAGES[0]}, r"must be floats of shape \[n, C, H, W\], got float32 \(3, 8, 8\)"),
        ({"images": IMAGES.astype(np.uint8)}, "got uint8"),
        ({"images": IMAGES, "labels": np.arange(3)}, "for 3 labels"),
        ({"images": np.array([object()])}, "no .npz file"),
    ],
)
def test_what_is_something_else_is_refused(tmp_path, arrays, why):
    np.savez(tmp_path / "some.npz", **arrays)
    with pytest.raises(MigrateError, match=why):
        read_images(tmp_path / "some.npz")


def test_what_is_no_archive_is_refused(tmp_path):
    (tmp_path / "some.npz").write_bytes(b"PK\x03\x04 not really")
    for path in (tmp_path / "some.npz", tmp_path / "none.npz", tmp_path):
        with pytest.raises(MigrateError, match="no .npz file"):
            read_images(path)


def test_a_budget_needs_images(tmp_path):
    with pytest.raises(ValueError, match="give --images FILE.npz, too"):
        CompileConfig(out=tmp_path, budget=1.0)
