"""A shard's file is there whole or not at all, however many rows it has and whatever its images are called."""

import os

import pyarrow.parquet as pq
import pytest

from headrace.errors import ClassifyError
from headrace.serving.offline.output import SCHEMA, ShardWriter, finished

LABELS = [{"label": "cat", "index": 3, "probability": 0.75}, {"label": None, "index": 0, "probability": 0.25}]


@pytest.fixture
def writer(tmp_path):
    made = ShardWriter(tmp_path / "part.parquet", tmp_path / "aside", job="j", shard="s")
    yield made
    made.abandon()


def test_many_rows_are_written_in_parts_and_appear_at_once(writer, tmp_path):
    rows = 40_000  # of which more than one buffer is written
    for row in range(rows):
        if row % 100:
            writer.add(f"{row}.jpg", row, LABELS)
        else:
            writer.add_error(f"{row}.jpg", row, "broken")
    assert not (tmp_path / "part.parquet").exists()
    assert (tmp_path / "aside").stat().st_size > 0
    assert finished(tmp_path / "part.parquet", job="j", shard="s") is None
    writer.commit()
    assert not (tmp_path / "aside").exists()
    done = finished(tmp_path / "part.parquet", job="j", shard="s")
    assert (done.images, done.errors) == (rows, rows // 100)
    table = pq.read_table(tmp_path / "part.parquet")
    assert table.schema.equals(SCHEMA)
    assert table["row"].to_pylist() == list(range(rows))
    assert table["error"].null_count == rows - rows // 100
    assert table["predictions"][1].as_py() == LABELS
    assert (table["label"][1].as_py(), table["probability"][1].as_py()) == ("cat", 0.75)


def test_an_image_of_which_no_label_holds_is_no_error(writer, tmp_path):
    writer.add("a.jpg", 0, [])
    writer.commit()
    (row,) = pq.read_table(tmp_path / "part.parquet").to_pylist()
    assert (row["label"], row["probability"], row["predictions"], row["error"]) == (None, None, [], None)


def test_odd_names_are_spelled_out(writer, tmp_path):
    writer.add(os.fsdecode(b"caf\xe9.jpg"), 0, LABELS)
    writer.add_error("日本 😀.jpg", 1, os.fsdecode(b"caf\xe9"))
    writer.commit()
    rows = pq.read_table(tmp_path / "part.parquet").to_pylist()
    assert [row["image"] for row in rows] == ["caf\\xe9.jpg", "日本 😀.jpg"]
    assert rows[1]["error"] == "caf\\xe9"


def test_what_is_given_up_leaves_nothing(writer, tmp_path):
    writer.add("a.jpg", 0, LABELS)
    writer.abandon()
    assert list(tmp_path.iterdir()) == []


def test_a_file_of_another_job_or_shard_is_refused(writer, tmp_path):
    writer.commit()
    for key in ({"job": "other", "shard": "s"}, {"job": "j", "shard": "other"}):
        with pytest.raises(ClassifyError, match="was not written by this job"):
            finished(tmp_path / "part.parquet", **key)


def test_a_folder_that_cannot_be_written_is_said(tmp_path):
    with pytest.raises(ClassifyError, match=r"cannot write .*No such file"):
        ShardWriter(tmp_path / "part.parquet", tmp_path / "none" / "aside", job="j", shard="s")
