"""How many processes there are, and how many threads in each, where nobody says so."""

import pytest

from headrace.serving import config as config_module
from headrace.serving.config import ServeConfig


@pytest.fixture
def machine(monkeypatch, tmp_path):
    """machine(logical, physical, gpus, **options): the configuration on such a machine."""

    def make(logical: int, physical: int, gpus: int = 0, **options) -> ServeConfig:
        monkeypatch.setattr(config_module, "available_cores", lambda: logical)
        monkeypatch.setattr(config_module, "default_threads", lambda: physical)
        monkeypatch.setattr(config_module, "visible_gpus", lambda: gpus)
        return ServeConfig.of(models=tmp_path, **options)

    return make


@pytest.mark.parametrize(
    ("logical", "physical", "gpus", "front_ends", "decoders"),
    [
        (2, 2, 0, 0, 2),
        (15, 15, 0, 0, 15),
        (16, 16, 0, 2, 8),
        (16, 8, 0, 0, 8),
        (64, 64, 0, 8, 4),
        (2, 2, 1, 0, 2),
        (4, 2, 1, 2, 2),
        (16, 8, 1, 8, 2),  # two threads of each core
        (16, 16, 1, 8, 2),
        (16, 16, 8, 8, 2),
        (256, 128, 1, 64, 2),
    ],
)
def test_front_ends_and_their_decoders(machine, logical, physical, gpus, front_ends, decoders):
    config = machine(logical, physical, gpus)
    assert (config.front_ends, config.decoders_each) == (front_ends, decoders)


@pytest.mark.parametrize(
    ("logical", "physical", "gpus", "waiting"),
    [(2, 2, 0, 256), (15, 15, 0, 256), (4, 2, 1, 256), (16, 8, 1, 1024), (256, 128, 1, 8192)],
)
def test_more_requests_may_wait_where_more_are_decoded(machine, logical, physical, gpus, waiting):
    """512 connections to a machine with a GPU and 16 logical processors: 256 of them were rejected again and again, which took
    the processors from those that were not."""
    assert machine(logical, physical, gpus).max_queue == waiting
    assert machine(logical, physical, gpus, max_queue=100).max_queue == 100


def test_what_is_asked_for_counts(machine):
    assert machine(16, 8, 1, frontends=3).front_ends == 3
    assert machine(16, 8, 1, frontends=0).front_ends == 0
    assert machine(16, 8, 1, shared_memory=True).front_ends == 0
    assert machine(16, 8, 1, decode_threads=8).decoders_each == 1
    assert machine(16, 8, 1, decode_threads=24).decoders_each == 3
    assert machine(16, 8, frontends=0, decode_threads=5).decoders_each == 5
