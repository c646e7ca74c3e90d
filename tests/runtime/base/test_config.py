import dataclasses

import pytest

from headrace import GraphConfig


def test_defaults_are_valid_and_frozen():
    config = GraphConfig()
    assert config.precision == "auto"
    with pytest.raises(dataclasses.FrozenInstanceError):
        config.precision = "fp32"


def test_buckets_may_be_any_sequence():
    assert GraphConfig(buckets=[1, 3]).buckets == (1, 3)


def test_a_precision_is_auto_a_name_or_several():
    assert GraphConfig().precisions == ()
    assert GraphConfig(precision="bf16").precisions == ("bf16",)
    config = GraphConfig(precision="int8, fp32,int8")
    assert (config.precision, config.precisions) == ("fp32,int8", ("fp32", "int8"))


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("precision", "fp64"),
        ("precision", "int4"),
        ("precision", "fp32,int4"),
        ("precision", "auto,fp32"),
        ("precision", ""),
        ("precision", 16),
        ("device", "tpu"),
        ("backend", ""),
        ("backend", 3),
        ("buckets", ()),
        ("buckets", (0, 1)),
        ("buckets", (2, 1)),
        ("buckets", (1, 1)),
        ("buckets", (True,)),
        ("buckets", "12"),
        ("buckets", 4),
        ("max_tuning_seconds", 0),
        ("max_tuning_seconds", float("nan")),
        ("max_tuning_seconds", "60"),
        ("tolerance", 0.0),
        ("budget", 0.0),
        ("budget", 101),
        ("budget", "1"),
        ("tolerance", float("inf")),
        ("threads", 0),
        ("threads", 1.5),
        ("max_captures", 0),
        ("max_captures", True),
        ("max_captures", 2.5),
        ("max_captures", None),
    ],
)
def test_a_bad_value_names_its_field(field, value):
    with pytest.raises(ValueError, match=field):
        GraphConfig(**{field: value})


def test_a_gpu_is_planned_for_larger_batches_and_longer():
    config = GraphConfig()
    assert (config.planned("cpu"), config.seconds("cpu")) == ((1, 2, 4, 8, 16), 30.0)
    assert (max(config.planned("cuda")), config.seconds("cuda")) == (128, 240.0)
    given = GraphConfig(buckets=(3,), max_tuning_seconds=7)
    assert {(given.planned(device), given.seconds(device)) for device in ("cpu", "cuda")} == {((3,), 7)}
