"""`kill -9` at any moment costs no image and doubles none. `make test-classify` does it with many images and kills."""

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

LARGE = int(os.environ.get("HEADRACE_CLASSIFY_IMAGES", "0"))


def command(source, models, out, *more):
    options = ["--model", models, "--out", out, "--batch", "8", "--threads", "1", "--format", "json"]
    return ["-m", "headrace", "classify", *map(str, [source, *options, *more])]


def killed(warm, command, out, finished):
    """Run it until it has finished that many shards, kill it, and say how many there are then."""
    with tempfile.TemporaryFile("w+") as said:
        process = warm.popen(
            command, stdout=subprocess.DEVNULL, stderr=said, env={**os.environ, "OMP_NUM_THREADS": "1"}, start_new_session=True
        )
        end = time.monotonic() + 240
        while len(list(out.glob("part-*"))) < finished and process.poll() is None and time.monotonic() < end:
            time.sleep(0.01)
        if process.poll() is not None:
            said.seek(0)
            raise AssertionError(said.read())
        process.kill()
        process.wait()
    return len(list(out.glob("part-*")))


def finish(warm, command):
    done = warm.python(command, cwd=Path.cwd(), timeout=250)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def check_kills(warm, source, models, out, expected, rows_of, *, finished, options):
    """A kill after so many finished shards each; then every image is there once, and finished files were not touched."""
    line = command(source, models, out, *options)
    stamps = {}
    for wanted in finished:
        killed(warm, line, out, wanted)
        now = {path.name: path.stat().st_mtime_ns for path in out.glob("part-*")}
        assert stamps.items() <= now.items()
        stamps = now
    summary = finish(warm, line)
    rows = rows_of(out)
    assert [row["image"] for row in rows] == expected
    assert summary["images"] == len(expected)
    assert summary["before"] >= finished[-1]
    assert stamps.items() <= {path.name: path.stat().st_mtime_ns for path in out.glob("part-*")}.items()
    assert not list((out / ".headrace").glob("aside-*"))
    return rows


def test_kills_lose_and_double_no_image(warm_torch, busy_models, tmp_path, make_photo, rows_of):
    source, out = tmp_path / "photos", tmp_path / "out"
    source.mkdir()
    for number in range(112):
        (source / f"{number:04}.jpg").write_bytes(make_photo(number % 50, kind="JPEG"))
    expected = [f"{number:04}.jpg" for number in range(112)]
    rows = check_kills(
        warm_torch, source, busy_models, out, expected, rows_of, finished=(2, 8), options=("--shard-images", "8")
    )
    for number in range(50, 112):
        assert rows[number]["label"] == rows[number - 50]["label"]


@pytest.mark.skipif(not LARGE, reason="takes minutes; `make test-classify` runs it with 20,000 images")
@pytest.mark.parametrize("kind", ["folder", "tar"])
def test_kills_among_many_images(warm_torch, models, tmp_path, make_photo, make_tar, rows_of, kind):
    photos = [make_photo(number, (64, 48), "JPEG") for number in range(100)]
    source, out = tmp_path / "photos", tmp_path / "out"
    source.mkdir()
    names = [f"{number:06}.jpg" for number in range(LARGE)]
    if kind == "folder":
        for number, name in enumerate(names):
            (source / name).write_bytes(photos[number % 100])
        expected = names
    else:
        for first in range(0, LARGE, 1000):
            members = {name: photos[number % 100] for number, name in enumerate(names) if first <= number < first + 1000}
            make_tar(source / f"{first:06}.tar", members)
        expected = [f"{number // 1000 * 1000:06}.tar/{name}" for number, name in enumerate(names)]
    rows = check_kills(
        warm_torch,
        source,
        models / "tiny",
        out,
        expected,
        rows_of,
        finished=(2, LARGE // 3000, LARGE // 1500),
        options=("--top-k", "2"),
    )
    for number in range(100, LARGE):
        assert rows[number]["label"] == rows[number - 100]["label"]


# Both are handled by one function.
@pytest.mark.parametrize("number", [signal.SIGTERM, pytest.param(signal.SIGINT, marks=pytest.mark.slow)])
def test_a_signal_finishes_the_batch_and_says_how_to_go_on(busy_models, tmp_path, make_photo, rows_of, number):
    source, out = tmp_path / "photos", tmp_path / "out"
    source.mkdir()
    for image in range(120):
        (source / f"{image:04}.jpg").write_bytes(make_photo(image % 9, kind="JPEG"))
    line = command(source, busy_models, out, "--shard-images", "8")
    process = subprocess.Popen(
        [sys.executable, *line],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    end = time.monotonic() + 120
    while not list(out.glob("part-*")) and time.monotonic() < end:
        time.sleep(0.01)
    process.send_signal(number)
    output, said = process.communicate(timeout=120)
    assert process.returncode == 128 + number, said
    assert "run the same command again" in said
    summary = json.loads(output)
    assert not summary["complete"]
    assert 0 < summary["images"] == len(rows_of(out)) < 120
    assert not list((out / ".headrace").glob("aside-*"))
