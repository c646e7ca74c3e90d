"""An export stands only where its answers are the package's, and nothing else is ever replaced."""

import json
from dataclasses import replace

import numpy as np
import onnx
import onnxruntime
import openvino
import pytest
import torch
from onnx import numpy_helper
from PIL import Image
from typer.testing import CliRunner

import headrace
from headrace import GraphConfig
from headrace.cli import app
from headrace.errors import ArtifactError, BackendError, ParityError
from headrace.runtime import formats
from headrace.runtime.export.export import export
from headrace.runtime.formats import onnx as onnx_format
from headrace.specs import BF16, FP32, INT8

PLACES = {name: "models" if item.repository else f"net{item.suffix}" for name, item in formats.discover().items()}


def left(folder):
    return sorted(path.name for path in folder.iterdir())


@pytest.mark.parametrize("name", PLACES)
def test_every_format_is_compared_and_placed(packaged_net, tmp_path, name):
    out = tmp_path / "out" / PLACES[name]
    done = export(packaged_net, name, out, precision=FP32)
    assert (done.format, done.model, done.path) == (name, "net", str(out))
    assert done.max_abs <= done.tolerance
    assert done.top1_agreement == 1.0
    assert done.bytes > 1000
    assert left(out.parent) == [PLACES[name]]
    if name == "triton":
        with pytest.raises(ArtifactError, match="--overwrite"):
            export(packaged_net, name, out, precision=FP32)
    else:
        before = out.stat().st_mtime_ns
        with pytest.raises(ArtifactError, match="--overwrite"):
            export(packaged_net, name, out, precision=FP32)
        assert out.stat().st_mtime_ns == before


def wrong(path, package, precision, write=onnx_format.Onnx.write):
    """Writes what one weight of a thousand is wrong in."""
    write(onnx_format.FORMAT, package, precision, path)
    model = onnx.load(path)
    item = max(model.graph.initializer, key=lambda item: len(item.dims))
    values = numpy_helper.to_array(item).copy()
    values.reshape(-1)[0] += 0.5
    item.CopyFrom(numpy_helper.from_array(values, item.name))
    onnx.save(model, path)


def test_what_answers_otherwise_never_stands(packaged_net, tmp_path, monkeypatch):
    out = tmp_path / "net.onnx"
    export(packaged_net, "onnx", out, precision=FP32)
    good = out.read_bytes()
    monkeypatch.setattr(onnx_format.Onnx, "write", lambda self, package, precision, path: wrong(path, package, precision))
    with pytest.raises(ParityError, match="net as onnx fp32 does not answer as the package does"):
        export(packaged_net, "onnx", out, precision=FP32, overwrite=True)
    assert out.read_bytes() == good
    with pytest.raises(ParityError):
        export(packaged_net, "onnx", tmp_path / "other.onnx", precision=FP32)
    assert left(tmp_path) == ["net.onnx"]


def test_a_stopped_export_leaves_nothing_that_has_the_name(packaged_net, tmp_path, monkeypatch):
    for name in ("onnx", "openvino", "triton"):
        kind, out = type(formats.get(name)), tmp_path / name / PLACES[name]

        def stopped(self, package, precision, path):
            (path / "half" if path.is_dir() else path).write_bytes(b"half")
            raise KeyboardInterrupt

        monkeypatch.setattr(kind, "write", stopped)
        with pytest.raises(KeyboardInterrupt):
            export(packaged_net, name, out, precision=FP32)
        assert not out.exists()
        assert not out.parent.exists() or left(out.parent) == []


def test_lossy_forms_say_what_they_were_judged_on(packaged_net, tmp_path):
    done = export(packaged_net, "pt2", tmp_path / "net.pt2", precision=BF16)
    assert "rows of noise" in done.compared
    assert any("no images judged it" in remark for remark in done.remarks)
    photos = tmp_path / "photos"
    photos.mkdir()
    random = np.random.default_rng(0)
    for index in range(100):
        pixels = np.clip(random.integers(0, 255, 3) + random.normal(0, 20, (20, 24, 3)), 0, 255).astype(np.uint8)
        Image.fromarray(pixels).save(photos / f"{index}.png")
    done = export(packaged_net, "onnx", tmp_path / "net.onnx", precision=INT8, images=photos)
    assert done.compared == "75 images"
    assert done.top1_agreement > 0.9
    assert (tmp_path / "net.onnx").stat().st_size > 0


def test_nothing_but_an_export_is_replaced(packaged_net, tmp_path):
    (tmp_path / "own").mkdir()
    (tmp_path / "own" / "thesis.txt").write_text("mine")
    with pytest.raises(ArtifactError, match="something else than an export"):
        export(packaged_net, "openvino", tmp_path / "own", precision=FP32, overwrite=True)
    (tmp_path / "real.onnx").write_text("mine")
    (tmp_path / "link.onnx").symlink_to(tmp_path / "real.onnx")
    with pytest.raises(ArtifactError, match="no file of its own"):
        export(packaged_net, "onnx", tmp_path / "link.onnx", precision=FP32, overwrite=True)
    with pytest.raises(ArtifactError, match=r"must end with \.onnx"):
        export(packaged_net, "onnx", tmp_path / "net", precision=FP32)
    with pytest.raises(ArtifactError, match="is no folder"):
        export(packaged_net, "triton", tmp_path / "real.onnx", precision=FP32)
    assert (tmp_path / "own" / "thesis.txt").read_text() == (tmp_path / "real.onnx").read_text() == "mine"


@pytest.mark.parametrize(("name", "place"), [("triton", "."), ("onnx", "net/1/net.onnx"), ("openvino", "net")])
def test_the_package_itself_is_never_written_to(packaged_net, name, place):
    before = {path: path.stat().st_mtime_ns for path in packaged_net.parent.rglob("*")}
    with pytest.raises(ArtifactError, match=r"where the package itself lies|something else than an export"):
        export(packaged_net, name, packaged_net.parent / place, precision=FP32, overwrite=True)
    assert {path: path.stat().st_mtime_ns for path in packaged_net.parent.rglob("*")} == before


def test_a_package_that_lies_about_its_answers_is_refused(packaged_net, tmp_path, monkeypatch):
    from headrace.runtime.export import opened as module

    load = module.load_artifact

    def lying(*given, **named):
        artifact = load(*given, **named)
        assert artifact.answers is not None
        values = [[-value for value in row] for row in artifact.answers["values"]]
        return replace(artifact, answers={**artifact.answers, "values": values})

    monkeypatch.setattr(module, "load_artifact", lying)
    with pytest.raises(ArtifactError, match="does not answer as when it was packaged"):
        export(packaged_net, "onnx", tmp_path / "net.onnx", precision=FP32)


def test_an_unknown_format_is_named(packaged_net, tmp_path):
    with pytest.raises(BackendError, match="the formats are .*onnx, openvino, pt2"):
        export(packaged_net, "tflite", tmp_path / "net", precision=FP32)


def test_the_command(packaged_net, tmp_path):
    arguments = ["export", str(packaged_net.parent), "--to", "onnx", "--out", str(tmp_path / "net.onnx")]
    done = CliRunner().invoke(app, arguments)
    assert done.exit_code == 0, done.output
    assert "net as onnx fp32" in done.output
    assert "note: the preprocessing is described" in done.output
    done = CliRunner().invoke(app, [*arguments, "--overwrite", "--format", "json"])
    assert json.loads(done.output)["tolerance"] > 0
    done = CliRunner().invoke(app, [*arguments, "--precision", "fp12"])
    assert (done.exit_code, "--precision" in done.output) == (2, True)


class TwoHeads(torch.nn.Module):
    """Outputs whose names are not in the order of the alphabet, one of them a vector."""

    def __init__(self):
        super().__init__()
        self.body = torch.nn.Conv2d(3, 8, 3, bias=False)
        self.head, self.last = torch.nn.Linear(8, 4), torch.nn.Linear(8, 6)

    def forward(self, images):
        x = self.body(images).relu().mean((2, 3))
        return {"z_classes": self.head(x), "a_vector": self.last(x)}


def test_several_outputs_keep_their_order_and_names(tmp_path):
    torch.manual_seed(0)
    config = GraphConfig(backend="onnxruntime", buckets=(1, 4), threads=1, task="single-label,embedding")
    graph = headrace.compile(TwoHeads().eval(), torch.randn(2, 3, 16, 16), config=config)
    labels = {"z_classes": ['a "quoted" <label> & more', "\u00fc\U0001f431", "\x07bell", "d"]}
    folder = graph.save(tmp_path / "models" / "two", labels=labels)
    for name, place in PLACES.items():
        done = export(folder, name, tmp_path / "out" / place, precision=FP32)
        assert done.max_abs <= done.tolerance
    session = onnxruntime.InferenceSession(str(tmp_path / "out" / "net.onnx"))
    assert [output.name for output in session.get_outputs()] == ["z_classes", "a_vector"]
    core = openvino.Core().read_model(str(tmp_path / "out" / "net" / "two.xml"))
    assert json.loads(core.get_rt_info(["headrace", "labels"]).astype(str)) == labels["z_classes"]
