import pytest

import headrace
from headrace.runtime.base.passes import PASSES, PassRecord
from headrace.runtime.passes import discover
from headrace.specs import PRECISIONS


def test_every_pass_is_known_by_its_name_in_its_order():
    own = tuple(item.name for item in discover())
    assert own == PASSES[: len(own)]
    assert {name for precision in PRECISIONS for name in precision.passes} <= set(PASSES[len(own) :])


def test_a_lowering_pass_is_judged_by_the_plan():
    record = PassRecord.of_target("int8", "openvino int8+bf16")
    assert record.difference is None
    assert record.why == "for openvino int8+bf16, which the plan's parity gate judges"
    assert PassRecord(**record.to_json()) == record


@pytest.mark.parametrize("names", ["fold_scale", ("fold_everything",), 3])
def test_only_known_passes_can_be_disabled(names):
    with pytest.raises(ValueError, match="disable_passes"):
        headrace.GraphConfig(disable_passes=names)
    assert headrace.GraphConfig(disable_passes=["kernels", "fold_scale"]).disable_passes == ("fold_scale", "kernels")
