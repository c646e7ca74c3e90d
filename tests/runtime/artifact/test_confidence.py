"""Exact binomial bounds, beside scipy's where that is there."""

import numpy as np
import pytest

from headrace.runtime.artifact.confidence import chance, enough_images, loss_bound, lower_bound, upper_bound

COUNTS = [(0, 1), (0, 72), (1, 72), (3, 144), (7, 1000), (500, 1000), (501, 1000), (999, 1000), (40, 50000)]


@pytest.mark.parametrize(("found", "count"), COUNTS)
@pytest.mark.parametrize("alpha", [0.05, 0.001])
def test_bounds_are_clopper_and_pearson_s(found, count, alpha):
    beta = pytest.importorskip("scipy.stats").beta
    assert upper_bound(found, count, alpha) == pytest.approx(beta.ppf(1 - alpha, found + 1, count - found), rel=1e-9)
    lower = beta.ppf(alpha, found, count - found + 1) if found else 0.0
    assert lower_bound(found, count, alpha) == pytest.approx(lower, rel=1e-6, abs=1e-12)
    binom = pytest.importorskip("scipy.stats").binom
    assert chance(found, count, 0.01) == pytest.approx(binom.sf(found - 1, count, 0.01), rel=1e-6, abs=1e-12)


def test_the_rule_of_three():
    assert upper_bound(0, 299, 0.05) <= 0.01 < upper_bound(0, 298, 0.05)
    assert (upper_bound(5, 5, 0.05), lower_bound(0, 5, 0.05)) == (1.0, 0.0)
    assert (chance(0, 5, 0.0), chance(1, 5, 0.0), chance(5, 5, 1.0)) == (1.0, 0.0, 1.0)
    with pytest.raises(ValueError, match="6 of 5 images"):
        upper_bound(6, 5, 0.05)


@pytest.mark.parametrize(("share", "limit"), [(0.0, 0.01), (0.002, 0.01), (0.004, 0.005)])
def test_how_many_would_be_enough(share, limit):
    count = enough_images(share, limit, 0.05)
    assert upper_bound(round(share * count), count, 0.05) <= limit
    assert upper_bound(round(share * count * 0.9), int(count * 0.9), 0.05) > limit
    assert enough_images(0.01, 0.01, 0.05) is None
    assert enough_images(0.0, 0.01, 0.05) == 299


@pytest.mark.parametrize(
    ("lost", "won"),
    [(0.01, 0.0), (0.012, 0.002), *(pytest.param(*one, marks=pytest.mark.slow) for one in ((0.02, 0.01), (0.03, 0.02)))],
)
def test_a_loss_is_under_its_bound_in_19_of_20_samples(lost, won):
    """All of these lose one point; the bound may be below that in one sample of twenty."""
    random, below, samples = np.random.default_rng(0), 0, 500
    for a, b, _ in random.multinomial(600, [lost, won, 1 - lost - won], samples):
        below += loss_bound(int(a), int(b), 600, 0.05) < lost - won
    assert below / samples <= 0.05
    assert loss_bound(10, 8, 600, 0.05) < upper_bound(10, 600, 0.05)  # what is won counts, a little
