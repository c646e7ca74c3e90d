"""A job from beginning to end: every image once, with the server's answers, from every kind of source."""

import io
import json
import resource
import urllib.error
import urllib.request

import fsspec
import pyarrow as pa
import pytest
from PIL import Image

from headrace.errors import AmbiguousError, ArtifactError, ClassifyError


def answers(rows):
    return {row["image"].rpartition("#")[2]: (row["predictions"], row["error"]) for row in rows}


def ask(url, image):
    request = urllib.request.Request(url, data=image, method="POST", headers={"Content-Type": "application/octet-stream"})
    try:
        with urllib.request.urlopen(request) as reply:
            return reply.status, json.load(reply)
    except urllib.error.HTTPError as error:
        return error.code, json.load(error)


def test_answers_are_the_servers(job, folder, jpegs, models, server):
    _, rows = job(folder, top_k=3)
    assert [row["image"] for row in rows] == sorted(jpegs)
    for row in rows:
        status, answer = ask(f"{server.url}/v1/classify/tiny?k=3", jpegs[row["image"]])
        if status != 200:
            assert row["error"] == answer["error"]
            assert row["predictions"] is row["label"] is row["probability"] is None
            continue
        assert row["error"] is None
        assert [(item["label"], item["index"]) for item in row["predictions"]] == [
            (item["label"], item["index"]) for item in answer["predictions"]
        ]
        assert [item["probability"] for item in row["predictions"]] == pytest.approx(
            [item["probability"] for item in answer["predictions"]], rel=1e-5
        )
        assert (row["label"], row["probability"]) == (row["predictions"][0]["label"], row["predictions"][0]["probability"])


def test_the_summary_counts(job, folder, jpegs):
    (folder / "notes.md").write_text("no image")
    summary, rows = job(folder)
    assert (summary.images, summary.errors, summary.left_out, summary.complete) == (len(jpegs), 1, 1, True)
    assert summary.images == len(rows)
    assert set(summary.busy) == {"read", "decode", "model", "write"}
    assert all(0 <= share <= 1 for share in summary.busy.values())
    assert json.loads((folder.parent / "out" / "_summary.json").read_text()) == summary.to_json()


@pytest.mark.parametrize("ending", ["tar", "tar.gz"])
def test_tar_archives_answer_as_folders_do(job, folder, jpegs, make_tar, tmp_path, ending):
    shards = tmp_path / "shards"
    shards.mkdir()
    names = sorted(jpegs)
    make_tar(shards / f"one.{ending}", {name: jpegs[name] for name in names[:30]} | {"a/000.json": b"{}"})
    make_tar(shards / f"two.{ending}", {name: jpegs[name] for name in names[30:]})
    make_tar(shards / f"void.{ending}", {})
    _, expected = job(folder)
    summary, rows = job(shards, out=tmp_path / "from-tar")
    assert [row["image"] for row in rows] == [f"{'one' if names.index(n) < 30 else 'two'}.{ending}/{n}" for n in names]
    assert [(row["predictions"], row["error"]) for row in rows] == [(row["predictions"], row["error"]) for row in expected]
    assert summary.shards == 3
    assert [row["row"] for row in rows] == [*range(30), *range(len(names) - 30)]


@pytest.mark.parametrize("kind", ["bytes", "struct", "paths"])
def test_parquet_answers_as_folders_do(job, folder, jpegs, make_parquet, tmp_path, kind):
    names = sorted(jpegs)
    if kind == "bytes":
        column = pa.array([jpegs[name] for name in names])
    elif kind == "struct":
        column = pa.array([{"bytes": jpegs[name], "path": name} for name in names])
    else:
        column = pa.array([f"photos/{name}" for name in names])
    source = make_parquet(tmp_path / "data.parquet", column, other=pa.array(range(len(names))))
    _, expected = job(folder)
    summary, rows = job(source, out=tmp_path / "from-parquet")
    assert [(row["predictions"], row["error"]) for row in rows] == [(row["predictions"], row["error"]) for row in expected]
    assert (summary.shards, summary.images) == (1, len(names))
    shown = {"bytes": range(len(names)), "struct": names, "paths": [f"photos/{name}" for name in names]}[kind]
    assert [row["image"] for row in rows] == [f"data.parquet#{name}" for name in shown]


def test_a_list_of_paths_keeps_its_order_and_says_what_is_missing(job, folder, jpegs, tmp_path):
    wanted = ["photos/b/003.jpg", "photos/a/001.jpg", "photos/none.jpg", str(folder / "a/002.jpg"), "photos/b/003.jpg"]
    source = tmp_path / "list.txt"
    source.write_text("\n".join(wanted) + "\n\n")
    _, rows = job(source)
    assert [row["image"] for row in rows] == wanted
    assert rows[2]["error"] == "the file cannot be read: No such file or directory"
    assert [row["error"] for row in rows].count(None) == 4
    assert rows[0]["predictions"] == rows[4]["predictions"]


def test_an_object_store_answers_as_a_folder_does(job, folder, jpegs, make_tar, tmp_path):
    store = fsspec.filesystem("memory")
    for name, data in jpegs.items():
        store.pipe(f"/bucket/photos/{name}", data)
    store.pipe("/bucket/photos/z/more.tar", make_tar(tmp_path / "more.tar", {"x.jpg": jpegs["a/000.jpg"]}).read_bytes())
    try:
        _, expected = job(folder)
        summary, rows = job("memory://bucket/photos", out=tmp_path / "from-store")
        assert sorted(row["image"] for row in rows) == [*sorted(jpegs), "z/more.tar/x.jpg"]
        assert answers(rows) == answers(expected) | {"z/more.tar/x.jpg": answers(expected)["a/000.jpg"]}
        again, _ = job("memory://bucket/photos", out=tmp_path / "from-store")
        assert again.before == summary.images
        with pytest.raises(ClassifyError, match="nothing at memory://bucket/none"):
            job("memory://bucket/none", out=tmp_path / "none")
    finally:
        store.rm("/bucket", recursive=True)


def test_images_that_are_too_large_or_unlike_are_rows(job, tmp_path, jpegs, make_tar):
    big = io.BytesIO()
    Image.new("RGB", (300, 300)).save(big, "PNG")
    source = make_tar(
        tmp_path / "mixed.tar", {"long.jpg": b"x" * 5000, "wide.png": big.getvalue(), "good.jpg": jpegs["a/000.jpg"]}
    )
    _, rows = job(source, max_image_bytes=4000, max_pixels=80_000)
    assert "5000 bytes, more than 4000" in rows[0]["error"]
    assert "pixels" in rows[1]["error"]
    assert rows[2]["error"] is None


def test_a_damaged_archive_is_a_row_and_the_others_go_on(job, tmp_path, jpegs, make_tar):
    source = tmp_path / "shards"
    source.mkdir()
    whole = make_tar(source / "a.tar", {name: jpegs[name] for name in sorted(jpegs)[:9]}).read_bytes()
    (source / "a.tar").write_bytes(whole[: len(whole) // 2])
    (source / "b.tar.gz").write_bytes(b"\x1f\x8b no archive")
    make_tar(source / "c.tar", {"good.jpg": jpegs["a/000.jpg"]})
    summary, rows = job(source)
    assert [row["image"] for row in rows if row["error"]] == ["a.tar", "b.tar.gz"]
    assert "damaged after" in rows[-2]["error"]
    assert rows[-1]["image"] == "c.tar/good.jpg"
    assert summary.complete


def test_more_errors_than_allowed_end_the_job_and_more_allowed_goes_on(job, folder, jpegs):
    for number in range(3):
        (folder / "a" / f"900{number}.jpg").write_bytes(b"no")
    with pytest.raises(ClassifyError, match="--max-errors 2"):
        job(folder, max_errors=2)
    summary, rows = job(folder, max_errors=4)
    assert (summary.errors, len(rows), summary.complete) == (4, len(jpegs) + 3, True)


def test_an_interrupted_job_goes_on(job, folder, jpegs):
    out = folder.parent / "out"
    summary, rows = job(folder, stopped=(out / "part-000000.parquet").exists)
    assert not summary.complete
    assert summary.images == len(rows) < len(jpegs)
    assert not (out / "_summary.json").exists()
    assert not list((out / ".headrace").glob("aside-*"))
    stamps = {path.name: path.stat().st_mtime_ns for path in out.glob("part-*")}
    summary, rows = job(folder)
    assert summary.complete
    assert [row["image"] for row in rows] == sorted(jpegs)
    assert stamps.items() <= {path.name: path.stat().st_mtime_ns for path in out.glob("part-*")}.items()


def test_batches_of_any_size_give_the_same_answers(job, folder, tmp_path):
    _, expected = job(folder)
    for batch in (1, 3):
        _, rows = job(folder, out=tmp_path / str(batch), batch=batch, shard_images=7, instances=2)
        assert [row["image"] for row in rows] == [row["image"] for row in expected]
        for row, right in zip(rows, expected, strict=True):
            assert (row["label"], row["error"]) == (right["label"], right["error"])


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda c: c | {"source": "nothing-here"}, "cannot read nothing-here: No such file"),
        (lambda c: c | {"model": c["models"]}, "holds 3 models"),
        (lambda c: c | {"model": c["empty"]}, "no model in"),
        (lambda c: c | {"source": str(c["empty"])}, "holds no images"),
        (lambda c: c | {"batch": 9}, "--batch 8 or less"),
        (lambda c: c | {"source": "zip://a.jpg::b.zip"}, "chained addresses"),
    ],
)
def test_mistakes_are_said(job, folder, models, tmp_path, change, says):
    empty = tmp_path / "empty"
    empty.mkdir()
    (empty / "text.md").write_text("")
    given = change({"source": str(folder), "models": models, "empty": empty})
    options = {key: value for key, value in given.items() if key in ("model", "batch")}
    with pytest.raises((ArtifactError, ClassifyError, AmbiguousError), match=says):
        job(given["source"], **options)


def test_a_full_disk_is_said_and_what_is_done_stays(job, folder, jpegs):
    summary, _ = job(folder, stopped=(folder.parent / "out/part-000000.parquet").exists)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, hard))
    try:
        with pytest.raises(ClassifyError, match=r"cannot (write|use) .*File too large"):
            job(folder)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    again, rows = job(folder)
    assert again.before == summary.images
    assert [row["image"] for row in rows] == sorted(jpegs)
