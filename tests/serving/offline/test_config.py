"""Wrong settings are refused by name before anything is read."""

from pathlib import Path

import pytest

from headrace.serving.offline.config import ClassifyConfig


def config(**given):
    return ClassifyConfig(**{"source": "photos", "model": Path("models"), "out": Path("out")} | given)


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"source": ""}, "SOURCE must name"),
        ({"out": Path("s3://bucket/labels")}, "--out must be a folder of this machine"),
        ({"top_k": 0}, "--top-k must be a whole number from 1 to 1000"),
        ({"top_k": 1001}, "--top-k must be a whole number from 1 to 1000"),
        ({"shard_images": True}, "--shard-images must be a whole number of at least 1"),
        ({"readers": 1.5}, "--readers must be a whole number of at least 1"),
        ({"max_errors": -1}, "--max-errors must be a whole number of at least 0"),
        ({"decoding": "best"}, "--decoding must be one of exact, fast, scaled"),
    ],
)
def test_what_cannot_be_is_refused_by_name(given, says):
    with pytest.raises(ValueError, match=says):
        config(**given)


def test_a_store_is_read_by_many_threads_and_a_disk_by_few():
    assert config(source="s3://bucket/photos").reading_threads > config().reading_threads >= 1
    assert config(readers=7).reading_threads == 7
    assert config(max_errors=0).max_errors == 0


def test_only_what_changes_answers_is_the_jobs_identity():
    assert config(threads=3, readers=2, instances=2, max_errors=5, decode_threads=1).identity() == config().identity()
    assert config(top_k=3).identity() != config().identity()
