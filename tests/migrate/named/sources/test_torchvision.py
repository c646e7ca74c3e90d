"""Names of torchvision: weights by their name there, or a file."""

import importlib.util

import pytest

from headrace.errors import MigrateError
from headrace.migrate.named.packaged import packaged, read
from headrace.migrate.named.source import Options

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("torchvision") is None, reason="torchvision is not installed: make names installs it"
)


def test_what_follows_the_name_is_weights_or_a_file(tmp_path):
    assert read("torchvision:resnet18:IMAGENET1K_V1", Options()).what == "torchvision:resnet18:IMAGENET1K_V1"
    path = tmp_path / "net.pth"
    path.write_bytes(b"x")
    assert read(f"torchvision:resnet18:{path}", Options()).readable == (path,)
    with pytest.raises(MigrateError, match="no such checkpoint"):
        read("torchvision:resnet18:./none.pth", Options())
    with pytest.raises(MigrateError, match="--random-weights does not go with"):
        read("torchvision:resnet18:IMAGENET1K_V1", Options(random_weights=True))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("what", "said"),
    [
        ("torchvision:resnet81", "has no classification model 'resnet81'; did you mean resnet18"),
        ("torchvision:resnet18:IMAGENET1K_V9", "there are IMAGENET1K_V1"),
        ("torchvision:fasterrcnn_resnet50_fpn", "has no classification model"),
    ],
)
def test_names_that_torchvision_has_not(tmp_path, what, said):
    with pytest.raises(MigrateError, match=said):
        packaged(what, cache=tmp_path)
