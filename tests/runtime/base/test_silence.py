"""Loggers say only errors within the block, whatever they were asked before, and are as they were after."""

import logging

from headrace.runtime.base.silence import silence


def test_loggers_are_silent_within_the_block_alone():
    one, below = logging.getLogger("chatter"), logging.getLogger("chatter.below")
    below.setLevel(logging.INFO)
    before = one.level, below.level
    assert below.isEnabledFor(logging.INFO)
    with silence("chatter"):
        assert not one.isEnabledFor(logging.ERROR)
        assert not below.isEnabledFor(logging.ERROR)
    assert below.isEnabledFor(logging.INFO)
    assert (one.level, below.level) == before
