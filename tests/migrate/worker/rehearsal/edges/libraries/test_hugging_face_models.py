"""Models of transformers by their names, where nothing of them is in the cache."""

import pytest

LOADS = """
import torch
from PIL import Image
from transformers import AutoImageProcessor, AutoModelForImageClassification, ViTImageProcessor, pipeline
for name in ("google/vit-tiny-patch16-224", "microsoft/resnet-50", "facebook/deit-tiny-patch16-224"):
    processor = AutoImageProcessor.from_pretrained(name)
    model = AutoModelForImageClassification.from_pretrained(name, num_labels=7, ignore_mismatched_sizes=True).eval()
    with torch.no_grad():
        scores = model(**processor(images=Image.new("RGB", (300, 200)), return_tensors="pt")).logits
    print(type(processor).__name__.removesuffix("Fast"), type(model).__name__, tuple(scores.shape))
    assert processor(images=Image.new("RGB", (300, 200)), return_tensors="pt")["pixel_values"].shape[2:] == (224, 224)
    assert "resnet" not in name or processor.image_mean == [0.485, 0.456, 0.406]
print(type(ViTImageProcessor.from_pretrained("google/vit-base-patch16-224-in21k")).__name__)
print(len(pipeline("image-classification", model="microsoft/resnet-50")(Image.new("RGB", (300, 200)))))
"""


def test_models_and_what_prepares_their_images_are_made_with_the_defaults_of_their_kind(rehearsed):
    pytest.importorskip("transformers")
    done = rehearsed({"main.py": LOADS})
    assert done.report.ended == "finished", done.report.why
    assert done.stdout.splitlines() == [
        "ViTImageProcessor ViTForImageClassification (1, 7)",
        "ConvNextImageProcessor ResNetForImageClassification (1, 7)",
        "ViTImageProcessor ViTForImageClassification (1, 7)"
        if "DeiTImageProcessor" not in done.stdout
        else "DeiTImageProcessor DeiTForImageClassification (1, 7)",
        "ViTImageProcessor",
        "2",
    ]
    assert not done.report.user_weights
    said = [item.what for item in done.standins("network")]
    assert "preprocessor_config.json of microsoft/resnet-50 was made, with the defaults of resnet" in said
    assert done.standins("data") == []  # a model's name is no path


def test_a_model_that_is_made_has_the_classes_that_the_sources_name(rehearsed):
    pytest.importorskip("transformers")
    text = (
        "from transformers import AutoModelForImageClassification\n"
        "print(AutoModelForImageClassification.from_pretrained('models/resnet-18').config.id2label)\n"
        "print(AutoModelForImageClassification.from_pretrained('models/resnet-18', num_labels=5).classifier[1].out_features)\n"
    )
    done = rehearsed({"main.py": text, "serve/handler.py": "ID2LABEL = {0: 'coat', 1: 'shirt', 2: 'sock'}\n"})
    assert done.report.ended == "finished", done.report.why
    assert done.stdout.splitlines() == ["{0: 'coat', 1: 'shirt', 2: 'sock'}", "5"]
    assert "config.json of models/resnet-18 was made, with the defaults of resnet and the 3 classes that the sources name" in [
        item.what for item in done.standins("network")
    ]


def test_a_name_that_tells_no_kind_is_not_made_up(rehearsed):
    pytest.importorskip("transformers")
    text = "from transformers import AutoImageProcessor\nAutoImageProcessor.from_pretrained('nobody/best-model')\n"
    done = rehearsed({"main.py": text})
    assert done.report.ended == "stopped"
    assert done.report.where == "main.py:2"
