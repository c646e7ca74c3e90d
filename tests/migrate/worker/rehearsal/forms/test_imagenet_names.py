"""Files of ImageNet's thousand classes."""

import sys
import types

import pytest

from headrace.migrate.worker.rehearsal.forms import imagenet_names

NAMES = ["tench", "goldfish", *(f"thing {number}" for number in range(998))]


@pytest.fixture(autouse=True)
def libraries(monkeypatch):
    meta = types.ModuleType("torchvision.models._meta")
    meta._IMAGENET_CATEGORIES = NAMES
    for name in ("torchvision", "torchvision.models"):
        monkeypatch.setitem(sys.modules, name, types.ModuleType(name))
    monkeypatch.setitem(sys.modules, "torchvision.models._meta", meta)
    imagenet_names._all.cache_clear()
    yield
    imagenet_names._all.cache_clear()


@pytest.mark.parametrize(
    "path",
    [
        *("data/imagenet_class_index.json", "imagenet-simple-labels.json", "imagenet_classes.txt", "ImageNet1k_labels.txt"),
        *("imagenet1000_clsidx_to_labels.txt", "LOC_synset_mapping.txt", "synset_words.txt", "imagenet_synsets.txt"),
    ],
)
def test_a_file_that_is_called_so_has_their_names(path):
    assert [item.name for item in imagenet_names.of(path)] == NAMES
    assert len(imagenet_names.lines(path).splitlines()) == 1000


@pytest.mark.parametrize(
    "path",
    [
        *("classes.txt", "imagenet/train.txt", "imagenet21k_labels.txt", "tiny_imagenet_classes.txt", "imagenet_r_labels.txt"),
        *("imagenet100_classes.txt", "mini-imagenet-labels.json", "imagenet_model.pth", "labels.json", "words.txt"),
    ],
)
def test_others_have_not(path):
    assert imagenet_names.of(path) is None


def test_a_mapping_of_synsets_has_their_numbers_too():
    number, _, name = imagenet_names.lines("LOC_synset_mapping.txt").splitlines()[1].partition(" ")
    assert (number[0], number[1:].isdigit(), name) == ("n", True, "goldfish")


def test_without_a_library_nobody_knows_them(monkeypatch):
    monkeypatch.setitem(sys.modules, "torchvision.models._meta", None)
    assert imagenet_names.of("imagenet_classes.txt") is None
    assert imagenet_names.lines("imagenet_classes.txt") is None
