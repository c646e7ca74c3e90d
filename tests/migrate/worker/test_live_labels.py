"""Class names: whatever states them, and nothing that does not."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch

from headrace.migrate.worker.live_labels import as_names, class_names
from headrace.migrate.worker.module_calls import Call


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
