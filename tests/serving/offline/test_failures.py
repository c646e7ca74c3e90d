"""What is said of a stage that failed."""

import logging

import pytest

from headrace.errors import ClassifyError, RankLostError
from headrace.serving.offline.failures import StageError, named
from headrace.serving.offline.sources import Image

IMAGES = [Image(0, "a.tar/1.jpg"), Image(1, "a.tar/2.jpg")]


@pytest.mark.parametrize(
    ("error", "place", "says"),
    [
        (
            OSError(28, "No space left on device"),
            IMAGES[:1],
            "model failed at a.tar/1.jpg: OSError: [Errno 28] No space left on device. ",
        ),
        (
            MemoryError(),
            IMAGES,
            "model failed at a.tar/1.jpg to a.tar/2.jpg: MemoryError. What is finished stays; the same command",
        ),
        (
            RankLostError("stage 1 of 3 has ended (signal SIGKILL); it is started again"),
            "after x.jpg",
            "model failed after x.jpg: stage 1 of 3 has ended (signal SIGKILL). What is finished stays",
        ),
        (ClassifyError("cannot write x: full; go on"), [], "model failed at the end of a shard: cannot write x: full; go on"),
        (OSError("two\nlines"), [Image(0, "odd\n\udcff.jpg")], "model failed at odd\\n\\xff.jpg: OSError: two lines"),
    ],
)
def test_the_stage_and_the_images_are_named(error, place, says, caplog):
    with pytest.raises(StageError) as raised, named("model", place):
        raise error
    assert str(raised.value).startswith(says)
    assert raised.value.__cause__ is error
    assert not caplog.records


def test_what_nobody_foresaw_has_its_traceback(caplog):
    with pytest.raises(StageError, match="read failed at a.tar/1.jpg: KeyError: 'x'"), named("read", IMAGES[:1]):
        raise KeyError("x")
    [record] = caplog.records
    assert (record.levelno, record.exc_info[0]) == (logging.ERROR, KeyError)


def test_the_stage_that_failed_first_is_named():
    with pytest.raises(StageError, match="read failed"), named("write", "later"), named("read", "before"):
        raise OSError
