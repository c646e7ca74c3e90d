import importlib.util
import io

import numpy
import pytest
from PIL import Image

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("torchvision") is not None, reason="the one that is installed is taken"
)

TORCHVISION = {
    "torchvision/__init__.py": "from . import io\n",
    "torchvision/io/__init__.py": "from .image import decode_image, read_file, read_image\n",
    "torchvision/io/image.py": "def _has_image_ops():\n    return HAS\n"
    "def read_file(path):\n    raise RuntimeError('no extension')\n"
    "read_image = decode_image = decode_jpeg = decode_png = decode_gif = decode_webp = read_file\n",
}
SCRIPT = """
import sys
sys.path.insert(0, {folder!r})
from torchvision.io import decode_image, read_file, read_image
class Mode:
    name = "GRAY"
print(read_file({path!r}).dtype, [list(read_image({path!r}, *mode).shape) for mode in ([], ["RGB"], [Mode])])
print(decode_image(read_file({path!r})).flatten()[:3].tolist(), len(decode_image([read_file({path!r})])))
"""


@pytest.mark.parametrize(("mode", "channels"), [("RGB", 3), ("L", 1), ("RGBA", 4), ("P", 3)])
def test_pillow_decodes_where_the_extension_is_not_there(rehearsed, tmp_path, mode, channels):
    folder = tmp_path / "installed"
    for name, text in TORCHVISION.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text.replace("HAS", "False"))
    pixels = numpy.random.default_rng(0).integers(0, 256, (5, 7, 3), dtype=numpy.uint8)
    image = Image.fromarray(pixels).convert(mode)
    image.save(path := tmp_path / "image.png")
    done = rehearsed({"main.py": SCRIPT.format(folder=str(folder), path=str(path))})
    shapes = [[channels, 5, 7], [3, 5, 7], [1, 5, 7]]
    kept = image if mode != "P" else image.convert("RGB")
    first = numpy.atleast_3d(numpy.array(kept)).transpose(2, 0, 1).ravel()[:3].tolist()
    assert (done.report.ended, done.stdout) == ("finished", f"torch.uint8 {shapes}\n{first} 1\n"), done.report.why
    said = {item.what for item in done.standins("libraries")}
    assert said == {"torchvision could not load its image extension; Pillow decoded images in its place"}


def test_an_extension_that_is_there_is_used(rehearsed, tmp_path):
    folder = tmp_path / "installed"
    for name, text in TORCHVISION.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text.replace("HAS", "True"))
    Image.new("RGB", (4, 4)).save(file := io.BytesIO(), "PNG")
    (tmp_path / "image.png").write_bytes(file.getvalue())
    done = rehearsed({"main.py": SCRIPT.format(folder=str(folder), path=str(tmp_path / "image.png"))})
    assert done.report.why == "RuntimeError: no extension"
    assert done.standins("libraries") == []
