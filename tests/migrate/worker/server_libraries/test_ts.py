import json

import pytest
import torch


def test_every_module_of_the_library_has_its_names(library):
    assert library("ts.torch_handler.base_handler").BaseHandler is library("ts").BaseHandler
    assert library("ts.utils.util").list_classes_from_module(library("ts.context"), Exception)


@pytest.mark.parametrize(
    ("content", "found"),
    [
        ({"0": "ant", "1": ["n2", "bee"]}, {"0": "ant", "1": "bee"}),
        ({"object_type_names": ["ant", "bee"]}, {"0": "ant", "1": "bee"}),
        (None, None),
    ],
)
def test_names_of_classes_are_read(library, tmp_path, content, found):
    path = tmp_path / "index_to_name.json"
    if content is not None:
        path.write_text(json.dumps(content))
    assert library("ts").load_label_mapping(str(path)) == found


def test_probabilities_are_named(library):
    named = library("ts").map_class_to_label
    assert named([[0.75, 0.25]], {"3": "dog", "1": "bee"}, [[3, 1]]) == [{"dog": 0.75, "bee": 0.25}]
    assert named([[0.75]], None, [[3]]) == [{"3": 0.75}]


def test_a_handler_without_a_model_says_what_is_missing(library, tmp_path):
    ts = library("ts")
    context = ts.Context("net", str(tmp_path), {"model": {"serializedFile": "net.bin"}}, 1, None, "1")
    with pytest.raises(RuntimeError, match=r"net\.bin: no model file is there"):
        ts.BaseHandler().initialize(context)
    assert torch.equal(ts.BaseHandler().preprocess([1.0]), torch.tensor([1.0]))
