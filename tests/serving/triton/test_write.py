"""The production variant: what is set, what is said, and that the embedded server and lint take the result."""

import io
import json
import shutil
import struct

import pytest
from google.protobuf import text_format
from PIL import Image
from tritonclient.grpc import model_config_pb2 as schema
from typer.testing import CliRunner

from headrace.cli import app
from headrace.errors import ArtifactError, DigestError
from headrace.runtime.artifact.artifact import load_artifact
from headrace.runtime.artifact.plan import Choice
from headrace.runtime.artifact.write_artifact import write_artifact
from headrace.serving.triton.config import Settings
from headrace.serving.triton.lint import lint
from headrace.serving.triton.write import write
from headrace.specs import BF16, FP16, FP32, INT8

ORT = Choice(backend="onnxruntime", precision=FP32, files=("model.onnx",))


def message(out, name="tiny"):
    return text_format.Parse((out / name / "config.pbtxt").read_text(), schema.ModelConfig())


def caveats(written, name="tiny"):
    return " ".join(caveat for one in written if one.name == name for caveat in one.caveats)


def test_cpu(packaged, tmp_path):
    models, out = packaged({1: ORT, 4: ORT}), tmp_path / "out"
    before = {path: path.read_bytes() for path in models.rglob("*") if path.is_file()}
    written = write(models, out, Settings(instances=2, decoders=3, timeout_seconds=2.5, max_queue=40))
    assert [(one.name, one.written) for one in written] == [("tiny", True), ("tiny_classify", True), ("tiny_decode", True)]
    config = message(out)
    assert [(group.kind, group.count) for group in config.instance_group] == [(schema.ModelInstanceGroup.KIND_CPU, 2)]
    assert config.parameters["intra_op_thread_count"].string_value == "2"
    policy = config.dynamic_batching.default_queue_policy
    assert (policy.default_timeout_microseconds, policy.max_queue_size, policy.allow_timeout_override) == (2_500_000, 40, True)
    assert policy.timeout_action == policy.REJECT
    assert config.dynamic_batching.max_queue_delay_microseconds == 1000
    assert [sample.batch_size for sample in config.model_warmup] == [1, 4, 8]
    assert config.output[0].label_filename == "labels.txt"
    assert "plan measured on" in caveats(written)
    decode = message(out, "tiny_decode")
    assert decode.instance_group[0].count == 3
    image = (out / "tiny_decode" / "warmup" / decode.model_warmup[0].inputs["IMAGE"].input_data_file).read_bytes()
    assert struct.unpack("<I", image[:4])[0] == len(image) - 4
    assert Image.open(io.BytesIO(image[4:])).size == (64, 64)
    assert message(out, "tiny_classify").SerializeToString() == message(models, "tiny_classify").SerializeToString()
    assert lint(out, gpus=0) == []
    assert load_artifact(out / "tiny").max_batch_size == 8
    assert {path: path.read_bytes() for path in models.rglob("*") if path.is_file()} == before


def test_it_may_be_written_again(packaged, tmp_path):
    models, out = packaged({1: ORT}), tmp_path / "out"
    write(models, out, Settings())
    (out / "other").mkdir()
    (out / "tiny" / "1" / "stray").write_text("")
    write(out, tmp_path / "again", Settings(device="cuda"))  # from a production variant to another
    assert len(message(tmp_path / "again").model_warmup) == 2
    assert message(tmp_path / "again").instance_group[0].kind == schema.ModelInstanceGroup.KIND_GPU
    write(models, out, Settings(instances=3))
    assert message(out).instance_group[0].count == 3
    assert not (out / "tiny" / "1" / "stray").exists()
    assert (out / "other").is_dir()


def test_what_triton_cannot_run_is_said(packaged, tmp_path):
    openvino = Choice(backend="openvino", precision=BF16, files=("model.onnx",))
    written = write(packaged({1: ORT, 8: openvino}), tmp_path / "out", Settings())
    assert "batches of 8 with openvino bf16" in caveats(written)
    assert "runs model.onnx in fp32" in caveats(written)
    assert "batches of 1 " not in caveats(written)
    assert not message(tmp_path / "out").default_model_filename


def test_a_graph_of_the_plans_own(packaged, tmp_path):
    """int8 by ONNX Runtime is a file that Triton can open too, so the answers stay those of the plan."""
    int8 = Choice(backend="onnxruntime", precision=INT8, files=("model.int8.onnx",))
    written = write(packaged({1: int8, 8: int8}, extra=["model.int8.onnx"]), tmp_path / "out", Settings())
    assert message(tmp_path / "out").default_model_filename == "model.int8.onnx"
    assert "Triton opens model.int8.onnx, as the plan does" in caveats(written)
    assert lint(tmp_path / "out", gpus=0) == []


def test_a_graph_for_some_sizes_only_is_not_taken(packaged, tmp_path):
    int8 = Choice(backend="onnxruntime", precision=INT8, files=("model.int8.onnx",))
    written = write(packaged({1: ORT, 8: int8}, extra=["model.int8.onnx"]), tmp_path / "out", Settings())
    assert not message(tmp_path / "out").default_model_filename
    assert "batches of 8 with onnxruntime int8" in caveats(written)


def test_cuda(packaged, tmp_path):
    written = write(packaged({1: ORT}), tmp_path / "out", Settings(device="cuda"))
    config = message(tmp_path / "out")
    assert config.instance_group[0].kind == schema.ModelInstanceGroup.KIND_GPU
    assert not config.instance_group[0].gpus
    assert "intra_op_thread_count" not in config.parameters
    assert "no plan was measured for cuda" in caveats(written)
    assert message(tmp_path / "out", "tiny_decode").instance_group[0].kind == schema.ModelInstanceGroup.KIND_CPU
    assert {finding.code for finding in lint(tmp_path / "out", gpus=0)} == {"TR013"}
    assert lint(tmp_path / "out", gpus=1) == []


def test_tensorrt(packaged, tmp_path):
    fp16 = Choice(backend="tensorrt", precision=FP16, files=("model.onnx",))
    models = packaged({1: fp16, 4: fp16}, device="cuda")
    written = write(models, tmp_path / "out", Settings(device="tensorrt", engine_cache="/var/cache/engines"))
    (accelerator,) = message(tmp_path / "out").optimization.execution_accelerators.gpu_execution_accelerator
    assert accelerator.name == "tensorrt"
    assert dict(accelerator.parameters) == {
        "precision_mode": "FP16",
        "trt_profile_min_shapes": "images:1x3x16x16",
        "trt_profile_opt_shapes": "images:4x3x16x16",
        "trt_profile_max_shapes": "images:8x3x16x16",
        "trt_engine_cache_enable": "1",
        "trt_engine_cache_path": "/var/cache/engines",
    }
    assert "fp16" in caveats(written)
    assert lint(tmp_path / "out", gpus=1) == []


def test_tensorrt_without_a_plan_stays_exact(packaged, tmp_path):
    written = write(packaged(), tmp_path / "out", Settings(device="tensorrt"))
    (accelerator,) = message(tmp_path / "out").optimization.execution_accelerators.gpu_execution_accelerator
    assert accelerator.parameters["precision_mode"] == "FP32"
    assert "at every start" in caveats(written)


def test_a_model_without_a_graph_is_left_out(packaged, models, tmp_path):
    folder = packaged({1: ORT})
    files = tmp_path / "torch"
    files.mkdir()
    (files / "model.pt2").write_bytes(b"no graph")
    known = load_artifact(models / "tiny")
    write_artifact(
        folder / "eager",
        name="eager",
        files_from=files,
        signature=known.signature,
        parity={},
        plans=[],
        provenance={},
    )
    shutil.copytree(folder / "tiny_decode", folder / "eager_decode")
    path = folder / "eager_decode" / "config.pbtxt"
    path.write_text(path.read_text().replace("tiny_decode", "eager_decode"))
    written = write(folder, tmp_path / "out", Settings())
    assert {one.name for one in written if not one.written} == {"eager", "eager_decode"}
    assert "no ONNX graph" in caveats(written, "eager")
    assert not (tmp_path / "out" / "eager").exists()
    for name in ("tiny", "tiny_decode", "tiny_classify", "eager_decode"):
        shutil.rmtree(folder / name)
    with pytest.raises(ArtifactError, match="no model that Triton can run"):
        write(folder, tmp_path / "none", Settings())


def test_refusals(packaged, tmp_path):
    models = packaged({1: ORT})
    with pytest.raises(ArtifactError, match="is the models folder itself"):
        write(models, models, Settings())
    (tmp_path / "full" / "tiny").mkdir(parents=True)
    (tmp_path / "full" / "tiny" / "letters").write_text("mine")
    with pytest.raises(ArtifactError, match="holds no model"):
        write(models, tmp_path / "full", Settings())
    assert (tmp_path / "full" / "tiny" / "letters").read_text() == "mine"
    (models / "tiny" / "labels.txt").unlink()
    with pytest.raises(ArtifactError, match="TR012"):
        write(models, tmp_path / "out", Settings())
    (models / "tiny" / "labels.txt").write_text("\n".join("abcdefg"))
    with pytest.raises(DigestError, match=r"labels\.txt"):
        write(models, tmp_path / "out", Settings())
    assert not [path for path in tmp_path.glob("out/*") if not path.name.startswith(".")]


def test_command(packaged, tmp_path):
    models, run = packaged({1: ORT}), CliRunner().invoke
    answer = run(app, ["triton", "write", str(models), "--out", str(tmp_path / "out"), "--format", "json"])
    assert answer.exit_code == 0, answer.output
    report = json.loads(answer.stdout)
    assert [one["name"] for one in report["models"]] == ["tiny", "tiny_classify", "tiny_decode"]
    assert report["findings"] == []
    text = run(app, ["triton", "write", str(models), "--out", str(tmp_path / "gpu"), "--tensorrt"]).stdout
    assert "TensorRT computes in fp32" in text
    assert run(app, ["triton", "write", str(models), "--out", str(tmp_path / "x"), "--cpu", "--cuda"]).exit_code == 2
    assert run(app, ["triton", "write", str(models), "--out", str(tmp_path / "x"), "--instances", "0"]).exit_code == 2
