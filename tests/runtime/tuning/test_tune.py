import numpy as np
import pytest
import torch
from torch import nn

import headrace
from headrace.errors import InputError, ParityError
from headrace.specs import FP16, FP32


def test_a_zero_head_never_passes_and_eager_runs_it(conv_net, tuned, images):
    nn.init.zeros_(conv_net.head.weight)
    for given in (None, images):
        plan = tuned(conv_net, images=given, max_tuning_seconds=1)
        assert {choice.backend for choice in plan.choices.values()} == {"eager"}
        assert {choice.precision for choice in plan.choices.values()} == {FP32}
        records = [item.parity for item in plan.measurements if item.parity is not None]
        assert records
        assert not any(record.passed for record in records)
        others = [
            item for item in plan.measurements if item.choice.backend != "eager" and item.choice.precision != FP16
        ]  # for GPUs
        tried = [item for item in others if item.status != "skipped"]  # a second is not enough for all of them everywhere
        assert tried
        assert all(item.status == "refused" and "does not depend on its input" in item.why for item in tried)


def test_a_pinned_backend_of_which_nothing_can_be_proved_is_an_error(conv_net, tuned):
    nn.init.zeros_(conv_net.head.weight)
    with pytest.raises(ParityError, match="does not depend on its input"):
        tuned(conv_net, backend="onnxruntime")


def test_labels_that_do_not_fit_the_images_are_refused(conv_net, images):
    with pytest.raises(InputError, match="one class number per image"):
        headrace.compile(conv_net, images=images, labels=np.zeros(95, np.int64))
    with pytest.raises(InputError, match="without images"):
        headrace.compile(conv_net, torch.randn(1, 3, 16, 16)).compile(torch.randn(1, 3, 16, 16), labels=np.zeros(3))


@pytest.mark.parametrize(
    ("task", "labels"),
    [("multi-label", np.zeros(96, int)), ("single-label", np.zeros((96, 5), int)), ("embedding", np.zeros(96))],
)
def test_labels_of_another_task_are_refused(conv_net, tuned, images, task, labels):
    with pytest.raises(InputError, match="cannot be those of output"):
        tuned(conv_net, images=images, labels=labels, task=task, precision="fp32", backend="eager")
