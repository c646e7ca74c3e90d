"""Calls that Pillow took when augmentations were written."""

from headrace.migrate.worker.rehearsal.edges import libraries


def test_no_bits_leave_a_black_image_and_others_what_they_leave(on_stage):
    world = on_stage(libraries)
    names = world.play(
        "from PIL import Image, ImageOps\nimage = Image.new('RGB', (1, 1), (200, 100, 50))\n"
        "found = [ImageOps.posterize(image, bits).getpixel((0, 0)) for bits in (0, 2, 8, 9)]\n"
    )
    assert names["found"] == [(0, 0, 0), (192, 64, 0), (200, 100, 50), (200, 100, 50)]
    assert len(world.said("libraries")) == 2
