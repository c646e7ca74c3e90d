"""`headrace classify` as a user meets it."""

import contextlib
import fcntl
import io
import json
import os
import re
import struct
import subprocess
import sys
import termios
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from headrace.runtime.artifact.package import write_package
from headrace.specs import Preprocessing, Resize, Signature, TensorSpec


@pytest.fixture
def headrace(warm_python):
    return lambda *arguments: warm_python(["-m", "headrace", "classify", *map(str, arguments)], cwd=Path.cwd())


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    """`mean`: the class is the channel that is the brightest."""
    import onnx
    from onnx import TensorProto, helper

    files = tmp_path_factory.mktemp("files")
    graph = helper.make_graph(
        [helper.make_node("ReduceMean", ["images"], ["scores"], axes=[2, 3], keepdims=0)],
        "model",
        [helper.make_tensor_value_info("images", TensorProto.FLOAT, ["batch", 3, 8, 8])],
        [helper.make_tensor_value_info("scores", TensorProto.FLOAT, ["batch", 3])],
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=9), files / "model.onnx")
    folder = tmp_path_factory.mktemp("repository") / "models"
    folder.mkdir()
    write_package(
        folder / "mean",
        name="mean",
        files_from=files,
        signature=Signature(
            inputs=(TensorSpec(name="images", dtype="float32", shape=("batch", 3, 8, 8)),),
            outputs=(TensorSpec(name="scores", dtype="float32", shape=("batch", 3)),),
        ),
        preprocessing=Preprocessing(geometry=(Resize(size=(8, 8)),), mean=(0.5,) * 3, std=(0.25,) * 3),
        labels=["red", "green", "blue"],
        parity={},
        plans=[],
        provenance={},
        max_batch_size=4,
    )
    return folder


@pytest.fixture
def photos(tmp_path):
    root = tmp_path / "photos"
    root.mkdir()
    for number, name in enumerate(("red", "green", "blue")):
        pixels = np.full((20, 30, 3), 20, np.uint8)
        pixels[..., number] = 220
        data = io.BytesIO()
        Image.fromarray(pixels).save(data, "JPEG")
        (root / f"{name}.jpg").write_bytes(data.getvalue())
    (root / "broken.jpg").write_bytes(b"no image")
    (root / "labels.json").write_text("{}")
    return root


def test_a_folder_is_classified_and_nothing_is_done_twice(headrace, models, photos, tmp_path):
    import pyarrow.parquet as pq

    done = headrace(photos, "--model", models, "--out", tmp_path / "out")
    assert done.returncode == 0, done.stderr
    assert "4 images, 1 file in" in done.stdout
    assert "1 of them could not be classified" in done.stdout
    assert "1 file of the source left out: no image by name" in done.stdout
    assert "bottleneck: " in done.stdout
    rows = {row["image"]: row for row in pq.read_table(tmp_path / "out/part-000000.parquet").to_pylist()}
    assert {name: row["label"] for name, row in rows.items()} == {
        "broken.jpg": None, "red.jpg": "red", "green.jpg": "green", "blue.jpg": "blue",
    }  # fmt: skip
    again = headrace(photos, "--model", models / "mean", "--out", tmp_path / "out", "--format", "json")
    assert again.returncode == 0, again.stderr
    assert {key: json.loads(again.stdout)[key] for key in ("images", "before", "errors", "complete")} == {
        "images": 4, "before": 4, "errors": 1, "complete": True,
    }  # fmt: skip
    assert "4 images are done; 0 of 1 shards are left" in again.stderr


def test_the_page_shows_what_there_is(headrace, models, photos, tmp_path, monkeypatch):
    page = (Path(__file__).parents[3] / "docs/classify.md").read_text()
    shown = headrace("--help").stdout
    for option in set(re.findall(r"--[a-z][\w-]+", page)):
        assert option in shown, option
    monkeypatch.chdir(tmp_path)
    assert headrace(photos, "--model", models, "--out", "labels").returncode == 0
    names = {}
    exec(page.partition("```python\n")[2].partition("```")[0], names)
    columns = re.findall(r"`(\w+)`", page.partition("| column |")[2].partition("\n\n")[0])
    assert names["table"].column_names == columns
    assert names["table"].num_rows <= 3


def test_stages_are_watched_without_a_word_in_the_json(headrace, models, photos, tmp_path):
    done = headrace(photos, "--model", models, "--out", tmp_path / "out", "--watch", "--format", "json")
    assert done.returncode == 0, done.stderr
    summary = json.loads(done.stdout)
    assert set(summary["busy"]) == set(summary["starved"]) == set(summary["blocked"]) == {"read", "decode", "model", "write"}
    share = r"\d+%/\d+%/\d+%"
    stages = ", ".join(f"{stage} {share}" for stage in ("read", "decode", "model", "write"))
    assert re.search(rf"4 of 4 images .* busy/starved/blocked: {stages}\n", done.stderr)
    assert "\x1b" not in done.stderr
    again = headrace(photos, "--model", models, "--out", tmp_path / "out", "--watch")
    assert again.returncode == 0, again.stderr
    assert "starved" not in again.stderr, "nothing ran"


@pytest.mark.parametrize("columns", [30, 120])
def test_stages_are_watched_on_a_terminal(warm_torch, models, photos, tmp_path, columns):
    ours, theirs = os.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    command = ["-m", "headrace", "classify", photos, "--model", models, "--out", tmp_path / "out", "--watch"]
    environment = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "LINES", "NO_COLOR")}
    process = warm_torch.popen(
        command, stdin=theirs, stdout=subprocess.PIPE, stderr=theirs, env=environment | {"TERM": "xterm"}
    )
    os.close(theirs)
    shown = b""
    with contextlib.suppress(OSError):  # the terminal is closed by its last user
        while data := os.read(ours, 1 << 16):
            shown += data
    os.close(ours)
    output = process.stdout.read()
    process.stdout.close()
    assert process.wait(240) == 0, shown
    assert b"4 images, 1 file in" in output
    last = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", shown.decode()).replace("\r", "").rpartition("4 of 4 images")[2]
    for stage in ("read", "decode", "model", "write"):
        assert len(re.findall(rf"^{stage} .*%", last, re.MULTILINE)) == 1
    assert max(map(len, last.splitlines())) <= columns
    assert ("images/s" in last) == (columns == 120)


def test_torch_is_not_loaded(models, photos, tmp_path):
    code = (
        "import sys; from headrace.cli import app; "
        "app(sys.argv[1:], standalone_mode=False); assert 'torch' not in sys.modules and 'fastapi' not in sys.modules"
    )
    command = [sys.executable, "-c", code, "classify", photos, "--model", models, "--out", tmp_path / "out"]
    done = subprocess.run(list(map(str, command)), check=False, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--top-k", "0"], "--top-k must be a whole number from 1 to 1000"),
        (["--model", "nowhere"], "no model in nowhere"),
        (["--max-errors", "0"], "more than --max-errors 0 allows"),
    ],
)
def test_mistakes_are_said(headrace, models, photos, tmp_path, options, says):
    done = headrace(photos, "--model", models, "--out", tmp_path / "out", *options)
    assert done.returncode == 2
    assert says in " ".join(done.stderr.replace("│", " ").split())
    assert "Traceback" not in done.stderr
