"""Class names: whatever states them, and nothing that does not."""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from headrace.migrate.worker.live.labels import as_names, class_names
from headrace.migrate.worker.live.seen import Call


def call(dataset: Any = None) -> Call:
    images = torch.rand(1, 3, 8, 8)
    return Call(images, (0, 0), (images,), {}, "", False, False, (3, 8, 8), dataset=dataset)


@pytest.mark.parametrize(
    "value",
    [["cat", "dog"], ("cat", "dog"), {0: "cat", 1: "dog"}, {"1": "dog", "0": "cat"}, {"dog": 1, "cat": 0},
     {"0": ["n1", "cat"], "1": ["n2", "dog"]}, [("n1", "cat"), ("n2", " dog ")]],
)  # fmt: skip
def test_names_in_all_their_forms(value: object) -> None:
    assert as_names(value) == ("cat", "dog")


@pytest.mark.parametrize(
    "value",
    [
        None,
        "cat",
        [],
        {},
        [1, 2],
        {0: "cat", 2: "dog"},
        {"LABEL_0": 0},
        {0: "LABEL_0", 1: "LABEL_1"},
        ["a\nb"],
        [""],
        {"a": True},
    ],
)
def test_what_is_no_list_of_names(value: object) -> None:
    assert as_names(value) is None


def test_the_model_comes_before_the_data_set_and_that_before_the_script() -> None:
    subset = SimpleNamespace(dataset=SimpleNamespace(class_to_idx={"owl": 1, "elk": 0}))
    assert class_names(object(), call(subset), 2) == ("elk", "owl")
    configured = SimpleNamespace(config=SimpleNamespace(id2label={0: "ant", 1: "bee"}))
    assert class_names(configured, call(subset), 2) == ("ant", "bee")
    assert class_names(object(), call(subset), 3) is None
    assert class_names(object(), call(SimpleNamespace(classes=["same", "same"])), 2) is None


def test_of_a_stand_in_only_what_is_known_of_its_class_counts() -> None:
    named = type("CIFAR10", (), {"__module__": "torchvision.datasets.cifar", "classes": [f"class_{i}" for i in range(10)]})
    own = type("CIFAR10", (), {})()
    own.classes = [f"class_{i}" for i in range(10)]
    found = class_names(object(), call(type("CIFAR10", (), {"__module__": "torchvision.datasets.cifar"})()), 10, own_data=False)
    assert found is not None
    assert found[:2] == ("airplane", "automobile")
    assert class_names(object(), call(own), 10, own_data=False) is None
    assert class_names(object(), call(named()), 10, own_data=True) == tuple(named.classes)  # type: ignore[attr-defined]


def test_an_object_that_holds_the_model_may_hold_the_names() -> None:
    class Predictor:
        def __init__(self) -> None:
            self.classes = [f"thing {i}" for i in range(998)] + ["crane", "crane"]

        def predict(self) -> tuple[str, ...] | None:
            asked = call()
            asked.frame = sys._getframe()
            return class_names(object(), asked, 1000)

    found = Predictor().predict()
    assert found is not None
    assert found[-1] == "crane"


def test_the_labels_of_a_batch_are_no_names() -> None:
    labels = ["cat", "dog", "cat", "dog"]
    asked = call()
    asked.frame = sys._getframe()
    assert class_names(object(), asked, len(labels)) is None
