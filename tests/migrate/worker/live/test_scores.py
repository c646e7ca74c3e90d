"""A model called as its script calls it, with other images and other numbers of them."""

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import nn

from headrace.migrate.reading.recipe import LiveModel
from headrace.migrate.worker.live.scores import adapted
from headrace.migrate.worker.live.seen import Call

IMAGES = torch.zeros(4, 3, 8, 8)


class Echo(nn.Module):
    """Gives what it was called with."""

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return {"args": args, "kwargs": kwargs, "scores": torch.ones(2, 3)}


def call(slot, *args, flat=False, **kwargs):
    return Call(IMAGES, slot, args, kwargs, "main.py:1", False, False, (3, 8, 8), flat=flat)


def live(output=None):
    return LiveModel(class_name="Echo", ordinal=0, evaluating=True, row=(3, 8, 8), output=output)


def given(model, images=None):
    made = model(torch.full((2, 3, 8, 8), 7.0) if images is None else images)
    return made["args"], made["kwargs"]


def test_a_model_that_takes_images_alone_stays_itself():
    model = Echo()
    assert adapted(model, call((0, 0), IMAGES), live()) is model
    assert adapted(model, call((0, 0), IMAGES), live(("scores",))) is not model


@pytest.mark.parametrize("kept", [0.5, None, "words", torch.tensor(3.0), torch.zeros(9)])
def test_what_does_not_belong_to_the_batch_is_given_again(kept):
    (images, more), named = given(adapted(Echo(), call((0, 0), IMAGES, kept, scale=kept), live()))
    assert images.shape == (2, 3, 8, 8)
    assert more is kept
    assert named["scale"] is kept


def test_targets_of_the_batch_are_left_out_and_what_comes_behind_them():
    targets = torch.zeros(4)
    args, named = given(adapted(Echo(), call((0, 0), IMAGES, 1, targets, 2, labels=targets, mask={"of": targets}), live()))
    assert (len(args), args[1], named) == (2, 1, {})


@pytest.mark.parametrize(
    ("slot", "args", "kwargs", "found"),
    [
        ((1, "pixels"), (), {"pixels": IMAGES}, lambda args, kwargs: kwargs["pixels"]),
        ((0, 0, "image"), ({"image": IMAGES, "size": 8},), {}, lambda args, kwargs: args[0]["image"]),
        ((0, 0, 1), ([5, IMAGES],), {}, lambda args, kwargs: args[0][1]),
        ((1, "batch", 0), (), {"batch": (IMAGES, 5)}, lambda args, kwargs: kwargs["batch"][0]),
    ],
)
def test_images_lie_where_the_script_puts_them(slot, args, kwargs, found):
    images = torch.full((2, 3, 8, 8), 7.0)
    assert found(*given(adapted(Echo(), call(slot, *args, **kwargs), live()), images)) is images


def test_rows_of_pixels_and_a_part_of_what_it_gives():
    (images,), _ = given(adapted(Echo(), call((0, 0), IMAGES, flat=True), live()))
    assert images.shape == (2, 192)
    assert adapted(Echo(), call((0, 0), IMAGES), live(("scores",)))(IMAGES).tolist() == torch.ones(2, 3).tolist()


def test_one_number_for_each_image_is_a_column():
    model = adapted(nn.Flatten(0), call((0, 0), IMAGES), replace(live(), column=True))
    assert model(torch.zeros(4, 1)).shape == (4, 1)
