"""Pieces become batches: nothing is lost, doubled or out of order, whatever is broken."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from headrace.serving.offline.batches import Batches, Decoded, collate
from headrace.serving.offline.sources import Image


def batches_of(size, pieces):
    """What comes out for pieces given as (is broken for each image, is last)."""
    collector, number, made = Batches(size), 0, []
    for broken, last in pieces:
        images = [Image(number + offset, "", error="no" if bad else None) for offset, bad in enumerate(broken)]
        rows = np.array([[image.row] for image in images if image.error is None]).reshape(-1, 1)
        number += len(images)
        made.append(collector.accumulate(Decoded(None, images, rows, last)))
    made.append(collector.flush())
    return [collate(batch) for batch in made if batch is not None]


@given(
    st.integers(1, 5).flatmap(
        lambda size: st.tuples(
            st.just(size), st.lists(st.tuples(st.lists(st.booleans(), max_size=size), st.booleans()), max_size=40)
        )
    )
)
def test_every_image_and_every_end_comes_once_and_in_order(case):
    size, pieces = case
    found, ends = [], []
    for batch in batches_of(size, pieces):
        assert len(batch.rows) <= size
        whole = [image.row for part in batch.parts for image in part.images if image.error is None]
        assert whole == list(batch.rows[:, 0])
        for part in batch.parts:
            found += [image.row for image in part.images]
            ends += [len(found)] if part.last else []
    assert found == list(range(sum(len(broken) for broken, _ in pieces)))
    counted, expected = 0, []
    for broken, last in pieces:
        counted += len(broken)
        expected += [counted] if last else []
    assert ends == expected


def test_batches_are_full_while_images_come():
    sizes = [len(batch.rows) for batch in batches_of(4, [([False] * 3, False)] * 9)]
    assert sizes == [4] * 6 + [3]


def test_many_broken_images_do_not_pile_up():
    made = batches_of(2, [([True, True], False)] * 100)
    assert max(sum(len(part.images) for part in batch.parts) for batch in made) <= 26
