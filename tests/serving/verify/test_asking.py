"""How requests are made: busy endpoints are asked again, silent ones given up, and never more than a few at once."""

from __future__ import annotations

import numpy as np
import pytest

from headrace.errors import VerifyError
from headrace.serving.verify.answers import from_scores
from headrace.serving.verify.asking import Asking
from headrace.serving.verify.client import Unreachable
from headrace.serving.verify.scores import Refusal


class Scripted:
    """An endpoint that answers as it is told, one after the other."""

    title, takes_images, most_rows = "an endpoint", True, 1

    def __init__(self, *script):
        self.script = list(script)

    def ask(self, items):
        (said,) = self.script[:1]
        self.script = self.script[1:] or self.script
        if isinstance(said, Exception):
            raise said
        return [said]


GOOD, BUSY, BAD = from_scores(np.arange(3)), Refusal("HTTP 503", busy=True), Refusal("HTTP 500")


def test_a_busy_endpoint_is_asked_again():
    asking = Asking(Scripted(BUSY, BUSY, GOOD), pause=0)
    assert asking.one_by_one([1, 2]).rows == (GOOD, GOOD)
    assert asking.requests == 4


def test_one_that_stays_busy_is_not_judged():
    with pytest.raises(VerifyError, match="too busy to be judged.*HTTP 503"):
        Asking(Scripted(GOOD, BUSY), pause=0).one_by_one([1, 2, 3])


def test_nothing_but_refusals_is_an_error_and_some_are_answers():
    with pytest.raises(VerifyError, match="none of 2 requests is answered with classes: HTTP 500"):
        Asking(Scripted(BAD)).one_by_one([1, 2])
    assert Asking(Scripted(BAD, GOOD)).one_by_one([1, 2]).rows == (BAD, GOOD)


def test_silence_at_once_is_an_error_and_later_it_takes_three():
    silence = Unreachable("no answer")
    with pytest.raises(VerifyError, match="given up after 1 requests"):
        Asking(Scripted(silence)).one_by_one([1])
    asking = Asking(Scripted(GOOD, silence, GOOD, silence, GOOD))
    assert [isinstance(row, Refusal) for row in asking.one_by_one(range(5)).rows] == [False, True, False, True, False]
    with pytest.raises(VerifyError, match="given up after 3 requests"):
        Asking(Scripted(GOOD, silence)).one_by_one(range(9))
