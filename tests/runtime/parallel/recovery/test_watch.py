"""A rank that is gone ends the others, and they say which it was."""

import pytest

from tests.runtime.parallel.conftest import said

pytestmark = pytest.mark.timeout(900)  # several processes that wait for each other, on whatever cores there are


@pytest.mark.parametrize(
    ("who", "how", "way", "message"),
    [
        # silent as one that hangs, below
        pytest.param(1, "kill", "captured", "rank 1 has said nothing", marks=pytest.mark.slow),
        (1, "hang", "captured", "rank 1 has said nothing"),
        (2, "raise", "eager", "rank 2 ended with ValueError: labels of another data set"),
        (0, "kill", "eager", "rank 0"),
    ],
)
def test_the_others_stop_and_name_it(ranks, who, how, way, message):
    begun = ranks.start(3, "losing", who=who, how=how, way=way)
    others = [pair for rank, pair in enumerate(begun) if rank != who]
    for process, out in others:
        process.wait(timeout=600)
        assert process.returncode != 0
        assert message in said(out), said(out)
    if how == "raise":
        assert "labels of another data set" in said(begun[who][1])
