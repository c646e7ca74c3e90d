"""Sources become shards in an order that names alone decide, and memory does not hold their files."""

import os
from pathlib import Path

import pyarrow as pa
import pytest

from headrace.errors import ClassifyError
from headrace.serving.offline.config import ClassifyConfig
from headrace.serving.offline.locations import is_remote, join, parent, walk
from headrace.serving.offline.plan import write_plan


@pytest.fixture
def planned(tmp_path):
    def plan(source, **options):
        place = tmp_path / f"plan{len(list(tmp_path.glob('plan*')))}"
        place.mkdir()
        config = ClassifyConfig(source=str(source), model=tmp_path, out=tmp_path / "out", **options)
        return write_plan(config, place)

    return plan


def test_a_folder_is_cut_in_a_stable_order(planned, folder, jpegs):
    plan = planned(folder, shard_images=16)
    assert [(shard.kind, shard.count) for shard in plan.shards] == [("files", 16), ("files", 16), ("files", 9)]
    names = [name for shard in plan.shards for name, _, _ in plan.members(shard)]
    assert names == sorted(jpegs)
    assert sum(shard.size for shard in plan.shards) == sum(map(len, jpegs.values()))
    assert plan.images == len(jpegs)
    assert planned(folder, shard_images=16).digest == plan.digest
    assert planned(folder, shard_images=17).digest != plan.digest


def test_hidden_and_other_files_are_left_out_and_links_to_nowhere_are_rows(planned, folder, jpegs):
    (folder / ".trash").mkdir()
    (folder / ".trash/x.jpg").write_bytes(b"x")
    (folder / "._a.jpg").write_bytes(b"x")
    (folder / "page.html").write_text("x")
    (folder / "gone.jpg").symlink_to(folder / "nowhere")
    (folder / "round").symlink_to(folder)
    os.mkfifo(folder / "pipe.jpg")
    plan = planned(folder)
    assert (plan.images, plan.left_out) == (len(jpegs) + 2, 1)
    assert [size for shard in plan.shards for name, _, size in plan.members(shard) if name in ("gone.jpg", "pipe.jpg")] == [
        0,
        0,
    ]


def test_archives_and_parquet_files_are_shards_of_their_own(planned, folder, jpegs, make_tar, make_parquet):
    make_tar(folder / "c.tar", {"x.jpg": b"x"})
    make_parquet(folder / "d.parquet", pa.array([b"x", b"y"]))
    plan = planned(folder)
    assert [(shard.kind, shard.name, shard.count) for shard in plan.shards] == [
        ("tar", "c.tar", None), ("parquet", "d.parquet", 2), ("files", "", len(jpegs)),
    ]  # fmt: skip
    assert plan.images is None


@pytest.mark.parametrize(
    ("columns", "wanted", "says"),
    [
        ({"number": pa.array([1])}, None, "no column of images or paths; its columns are number"),
        ({"a": pa.array([b"x"]), "b": pa.array([b"x"])}, None, r"several columns that may hold images \(a, b\)"),
        ({"a": pa.array([b"x"])}, "c", "no column 'c'; it has a"),
        ({"a": pa.array([1])}, "a", "column 'a' of .* is int64"),
    ],
)
def test_a_parquet_file_without_a_column_to_take_is_said(planned, tmp_path, columns, wanted, says):
    import pyarrow.parquet as pq

    pq.write_table(pa.table(columns), tmp_path / "x.parquet")
    with pytest.raises(ClassifyError, match=says):
        planned(tmp_path / "x.parquet", column=wanted)


def test_the_column_is_found_by_type_and_then_by_name(planned, tmp_path, make_parquet):
    make_parquet(tmp_path / "x.parquet", pa.array([b"x"]), name="anything", label=pa.array(["cat"]), path=pa.array(["p"]))
    assert planned(tmp_path / "x.parquet").images == 1
    make_parquet(tmp_path / "y.parquet", pa.array(["a.jpg"]), name="path", label=pa.array(["cat"]))
    assert planned(tmp_path / "y.parquet").images == 1


def test_a_file_that_is_no_parquet_is_said(planned, tmp_path):
    (tmp_path / "x.parquet").write_bytes(b"nothing")
    with pytest.raises(ClassifyError, match=r"x.parquet cannot be read as Parquet"):
        planned(tmp_path / "x.parquet")


def test_names_that_are_no_utf8_survive(planned, tmp_path):
    root = tmp_path / "odd"
    root.mkdir()
    (root / os.fsdecode(b"caf\xe9.jpg")).write_bytes(b"x")
    plan = planned(root)
    ((name, location, size),) = plan.members(plan.shards[0])
    assert (os.fsencode(name), size) == (b"caf\xe9.jpg", 1)
    assert Path(location).read_bytes() == b"x"


def test_locations():
    assert is_remote("s3://bucket/x")
    assert is_remote("memory://x")
    assert not is_remote("a/b://c")
    assert not is_remote("/a/b")
    assert join("s3://bucket/dir/", "x/y.jpg") == "s3://bucket/dir/x/y.jpg"
    assert join("dir", "/abs/y.jpg") == "/abs/y.jpg"
    assert join("dir", "s3://b/y.jpg") == "s3://b/y.jpg"
    assert parent("s3://bucket/dir/list.txt") == "s3://bucket/dir"


def test_a_walk_says_what_it_cannot_enter(tmp_path):
    with pytest.raises(ClassifyError, match="cannot read .*none"):
        list(walk(str(tmp_path / "none")))
