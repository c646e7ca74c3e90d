"""Class names: whatever states them, and nothing that does not."""

from __future__ import annotations

import dataclasses
import sys
from collections import UserDict
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from headrace.migrate.worker.live.labels import as_names, class_names, names_called
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


def found_by(frame: Any, count: int, *, own_data: bool) -> tuple[str, ...] | None:
    asked = call()
    asked.frame = frame
    return class_names(object(), asked, count, own_data=own_data)


def test_names_that_were_invented_for_a_stand_in_are_none_wherever_the_script_keeps_them() -> None:
    def script(class_names: object, *, own_data: bool) -> tuple[str, ...] | None:
        return found_by(sys._getframe(), 3, own_data=own_data)

    made = ["class_000", "class_001", "class_002"]
    assert script(made, own_data=False) is None
    assert script({name: number for number, name in enumerate(made)}, own_data=False) is None
    assert script(made, own_data=True) == tuple(made)  # folders of the user's may be called so
    assert script(["ant", "bee", "owl"], own_data=False) == ("ant", "bee", "owl")


def test_names_that_were_invented_are_none_of_one_output_of_several_either() -> None:
    def script(color_names: object, *, own_data: bool) -> tuple[str, ...] | None:
        asked = call()
        asked.frame = sys._getframe()
        return names_called(asked, "color", 2, own_data=own_data)

    assert script(["class_000", "class_001"], own_data=False) is None
    assert script(["red", "blue"], own_data=False) == ("red", "blue")


@dataclasses.dataclass
class Section:
    class_names: list[str]
    width: int = 3


@dataclasses.dataclass
class Settings:
    data: Section


@pytest.mark.parametrize(
    "settings",
    [
        {"data": {"class_names": ["ant", "bee"], "size": 32}, "train": {"names": ["adam", "sgd", "lion"]}},
        {"model": {"head": {"labels": {"0": "ant", "1": "bee"}}}},
        Settings(Section(["ant", "bee"])),
    ],
)
def test_the_sections_of_a_configuration_may_hold_the_names(settings: object) -> None:
    def script(cfg: object) -> tuple[str, ...] | None:
        return found_by(sys._getframe(), 2, own_data=False)

    assert script(settings) == ("ant", "bee")


class Computed(UserDict[str, Any]):
    """A configuration whose values are computed when they are asked for, as OmegaConf's are."""

    def __getitem__(self, name: str) -> Any:
        if (value := super().__getitem__(name)) is None:
            raise ValueError("HydraConfig was not set")
        return value


def test_what_a_configuration_cannot_compute_now_keeps_nothing_else_from_being_read() -> None:
    def script(cfg: object, classes: object) -> tuple[str, ...] | None:
        return found_by(sys._getframe(), 2, own_data=False)

    unset = Computed(output_dir=None)
    assert script(Computed(paths=unset, work=None, data=Computed(labels=["ant", "bee"])), unset) == ("ant", "bee")
    assert script(unset, Computed({"0": None, "1": "ant"})) is None


def test_a_weight_deep_in_a_checkpoint_is_no_section() -> None:
    def script(checkpoint: object) -> tuple[str, ...] | None:
        return found_by(sys._getframe(), 2, own_data=False)

    assert script({"a": {"b": {"c": {"classes": ["ant", "bee"]}}}}) is None
    assert script({str(number): {"classes": ["ant", "bee"]} for number in range(60)}) is None
