import numpy as np
import pytest

from headrace.errors import BackendError
from headrace.runtime.base.calibration import Observer, layers_in_floats, required, worst_first
from headrace.specs import INT8


def observed(values):
    """What two runs make of values [n, channels]."""
    seen = Observer()
    for part in np.array_split(values, 2):
        seen.take(float(part.min()), float(part.max()), len(part), part.sum(0), np.square(part).sum(0))
    return seen


def in_8_bits(values):
    low, high = min(values.min(), 0.0), max(values.max(), 0.0)
    return np.round((values - low) / (high - low) * 255) * (high - low) / 255 + low


def layer(values, weights):
    return observed(values), observed(values @ weights.T), np.square(weights).sum(1)


def test_variance_and_noise_are_those_of_the_values():
    random = np.random.default_rng(0)
    values = random.normal(2, (1, 3, 0.2), size=(4001, 3))
    seen = observed(values)
    np.testing.assert_allclose(seen.variance, values.var(0))
    assert (seen.low, seen.high) == (values.min(), values.max())
    assert seen.noise == pytest.approx(np.var(in_8_bits(values) - values), rel=0.05)


@pytest.mark.parametrize("seed", range(5))
def test_the_worst_comes_first(seed):
    """Of layers with one range: what weights let through decides, as the error of computing with 8 bits shows."""
    random = np.random.default_rng(seed)
    x = random.normal(size=(4000, 1)) + random.normal(size=(4000, 24)) * 0.05  # channels that are nearly alike
    kept, errors, layers = random.normal(1, 0.1, size=(8, 24)), [], []
    for share in (1.0, 0.0, 0.1, 0.01):  # the less, the more of what is common cancels out
        weights = kept - (1 - share) * kept.mean(1, keepdims=True)
        exact = x @ weights.T
        errors.append(np.mean((in_8_bits(x) @ weights.T - exact) ** 2) / exact.var(0).mean())
        layers.append(layer(x, weights))
    assert worst_first(layers) == np.argsort(errors)[::-1].tolist()


def test_a_channel_that_drowns_the_others_counts_though_it_is_loud_behind_the_weights():
    random = np.random.default_rng(0)
    x, weights = random.normal(size=(4000, 24)), random.normal(size=(8, 24))
    loud = x * np.where(np.arange(24) == 3, 1e4, 1.0)
    assert worst_first([layer(x, weights), layer(2 * x, weights), layer(loud, weights)])[0] == 2


def test_constants_and_zeros_have_a_place():
    zeros, ones = np.zeros((10, 4)), np.ones((10, 4))
    x = np.random.default_rng(0).normal(size=(10, 4))
    assert sorted(worst_first([layer(zeros, zeros), layer(ones, ones), layer(x, ones)])) == [0, 1, 2]
    assert worst_first([]) == []


def test_a_share_is_at_least_a_layer_more_at_each_level_and_never_all():
    more = INT8.with_more_in_floats
    assert [layers_in_floats(precision, 4) for precision in (INT8, more, more.with_more_in_floats)] == [0, 1, 2]
    assert layers_in_floats(more, 50) == 5
    with pytest.raises(BackendError, match="every layer"):
        layers_in_floats(more, 1)


def test_int8_without_images_says_what_is_missing():
    with pytest.raises(BackendError, match="calibration= or images="):
        required(None)
