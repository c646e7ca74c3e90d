"""The preprocessing is held to the repository's own images, where its script read few of them."""

import io

import numpy as np
import pytest
from PIL import Image

from headrace.migrate.proving.verify import Recorded
from headrace.migrate.stages.model.own_images import remark_own_images
from headrace.runtime.images.preprocessing import image_to_row
from headrace.specs import Preprocessing, Resize

MADE = Preprocessing(geometry=(Resize(size=(16, 16)),), source="predict.py:9")


def picture(number, mode="RGB"):
    noise = np.random.default_rng(number).integers(0, 256, (6, 5, 4), np.uint8)
    return Image.fromarray(noise).convert("RGB").resize((40, 30), Image.Resampling.BICUBIC).convert(mode)


@pytest.fixture
def own(migration_of, remarks):
    """What is remarked where the script fed its model these rows, and the repository has four color images and one with
    transparency."""

    def run(change, *, decoy=False):
        migration, rows = migration_of(), []
        for number in range(5):
            image = picture(number, "RGBA" if number == 4 else "RGB")
            data = io.BytesIO()
            image.save(data, "PNG")
            path = migration.surveyed.root / f"{number}.png"
            path.write_bytes(data.getvalue() if not decoy else b"no image")
            rows.append(change(number, image_to_row(data.getvalue(), MADE.to_json()["steps"])))
        recorded = Recorded(inputs=np.stack(rows), outputs=np.zeros((5, 2)))
        remark_own_images(migration, MADE, recorded, MADE.source)
        return remarks(migration)

    return run


def test_rows_of_the_repositorys_images_say_nothing(own):
    assert own(lambda number, row: row) == []


def test_a_decoder_may_round_otherwise(own):
    assert own(lambda number, row: row + np.random.default_rng(number).uniform(-2, 2, row.shape).astype(np.float32) / 255) == []


def test_one_that_is_prepared_otherwise_is_told_of(own):
    ((code, message),) = own(lambda number, row: row[::-1] if number in (1, 3) else row)
    assert code == "PS509"
    assert message.startswith("2 of 5 images that the script fed its model are not what the package makes of any image here")


def test_of_other_modes_it_is_known_that_they_are_converted_otherwise(own):
    assert own(lambda number, row: row[::-1] if number == 4 else row) == []


@pytest.mark.parametrize("decoy", [False, True])
def test_a_script_that_has_its_images_elsewhere_is_not_held_to_these(own, decoy):
    assert own(lambda number, row: row[::-1] if number or not decoy else row, decoy=decoy) == []
