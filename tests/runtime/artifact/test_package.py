import io
import json
import pickle
import subprocess
import sys

import numpy as np
import pytest
from google.protobuf import text_format
from PIL import Image
from tritonclient.grpc import model_config_pb2

from headrace.errors import ArtifactError
from headrace.runtime.artifact.artifact import load_artifact
from headrace.runtime.artifact.model_config import read_config
from headrace.runtime.artifact.package import place_package, write_package
from headrace.runtime.images.preprocessing import ImageError, image_to_row
from headrace.specs import CenterCrop, Preprocessing, Resize, Signature, TensorSpec

PREPROCESSING = Preprocessing(
    geometry=(Resize(size=20, interpolation="bicubic"), CenterCrop(size=(16, 16))),
    mean=(0.485, 0.456, 0.406),
    std=(0.229, 0.224, 0.225),
    channels="BGR",
)
SIGNATURE = Signature(
    inputs=(TensorSpec(name="images", dtype="float32", shape=("batch", 3, 16, 16)),),
    outputs=(
        TensorSpec(name="logits", dtype="float32", shape=("batch", 3)),
        TensorSpec(name="score", dtype="float32", shape=("batch",)),
    ),
)

TWO_INPUTS = Signature(
    inputs=(SIGNATURE.inputs[0], TensorSpec(name="mask", dtype="int64", shape=("batch",))), outputs=SIGNATURE.outputs
)

# What NVIDIA's stub process offers a Python-backend model, as far as ours uses it.
PB_UTILS = """
class TritonError:
    UNKNOWN, INVALID_ARG = 0, 3
    def __init__(self, message, code=UNKNOWN):
        self.message, self.code = message, code

class Tensor:
    def __init__(self, name, array):
        self._name, self._array = name, array
    def name(self):
        return self._name
    def as_numpy(self):
        return self._array

class InferenceResponse:
    def __init__(self, output_tensors, error=None):
        self.output_tensors, self.error = output_tensors, error

class InferenceRequest:
    def __init__(self, inputs):
        self.inputs = inputs

def get_input_tensor_by_name(request, name):
    return next((tensor for tensor in request.inputs if tensor.name() == name), None)
"""

STUB = """
import pickle, sys
import numpy as np
import triton_python_backend_utils as pb_utils
sys.path.append(sys.argv[1] + "/1")
sys.modules["headrace"] = None
from model import TritonPythonModel
model = TritonPythonModel()
model.initialize({"model_repository": sys.argv[1], "model_version": "1"})
requests = []
for images in pickle.load(open("requests", "rb")):
    array = np.empty((len(images), 1), object)
    array[:, 0] = images
    requests.append(pb_utils.InferenceRequest([pb_utils.Tensor("IMAGE", array)]))
answers = []
for response in model.execute(requests):
    if response.error:
        answers.append((response.error.code, response.error.message))
    else:
        (tensor,) = response.output_tensors
        answers.append((tensor.name(), tensor.as_numpy()))
model.finalize()
pickle.dump(answers, open("answers", "wb"))
"""


@pytest.fixture
def write(tmp_path):
    (tmp_path / "files").mkdir()
    (tmp_path / "files/model.onnx").write_bytes(b"a graph")

    def write_to(**changes):
        arguments = {
            "signature": SIGNATURE,
            "preprocessing": PREPROCESSING,
            "labels": ["x", "y", "z"],
            "parity": {},
            "plans": [],
        }
        arguments |= {"provenance": {}, "files_from": tmp_path / "files", "max_batch_size": 8}
        return write_package(tmp_path / "models/net", name="net", **{**arguments, **changes})

    return write_to


def encoded(height, width, kind="JPEG", seed=0):
    pixels = np.random.default_rng(seed).integers(0, 256, (height, width, 3), dtype=np.uint8)
    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, kind)
    return buffer.getvalue()


def message(folder):
    return text_format.Parse((folder / "config.pbtxt").read_text(), model_config_pb2.ModelConfig())


def names(folder):
    return sorted(entry.name for entry in folder.iterdir())


def test_the_three_folders(write):
    path = write()
    models = path.parent
    assert names(models) == ["net", "net_classify", "net_decode"]
    assert load_artifact(path).preprocessing == PREPROCESSING
    assert names(models / "net_decode/1") == ["model.py", "preprocessing.py", "steps.json"]
    assert (models / "net_classify/labels.txt").read_text() == "x\ny\nz\n"
    assert (models / "net_classify/1").is_dir()


def test_the_configs_are_complete_and_fit_each_other(write):
    """`--disable-auto-complete-config` needs every dimension and type; an ensemble's steps must join exactly."""
    models = write().parent
    net, decode, classify = (read_config(models / name) for name in ("net", "net_decode", "net_classify"))
    assert {config.max_batch_size for config in (net, decode, classify)} == {8}
    assert (net.backend, decode.backend, classify.backend) == ("onnxruntime", "python", "ensemble")
    assert [(tensor.name, tensor.datatype, tensor.shape) for tensor in decode.inputs] == [("IMAGE", "BYTES", (1,))]
    assert decode.inputs == classify.inputs
    assert decode.outputs == net.inputs
    assert [tensor.name for tensor in classify.outputs] == [tensor.name for tensor in net.outputs]
    assert classify.outputs[0].label_filename == net.outputs[0].label_filename == "labels.txt"
    steps = message(models / "net_classify").ensemble_scheduling.step
    assert [step.model_name for step in steps] == ["net_decode", "net"]
    assert dict(steps[0].input_map) == {"IMAGE": "IMAGE"}
    assert dict(steps[1].output_map) == {"logits": "logits", "score": "score"}
    assert list(steps[0].output_map) == ["images"] == list(steps[1].input_map)
    assert set(steps[0].output_map.values()) == set(steps[1].input_map.values())
    assert not message(models / "net_classify").HasField("dynamic_batching")
    assert message(models / "net_decode").instance_group[0].kind == model_config_pb2.ModelInstanceGroup.KIND_CPU


def test_the_decode_model_computes_what_preprocessing_computes(write, tmp_path):
    """Run as Triton's stub runs it: another process, no Headrace, the real model.py. The stand-in is NVIDIA's part."""
    models = write().parent
    good = [encoded(40, 30), encoded(21, 64, "PNG", 1), encoded(9, 5, "BMP", 2)]
    requests = [good[:2], [b"not an image"], good[2:], [good[0], good[1][:300]], []]
    (tmp_path / "requests").write_bytes(pickle.dumps(requests))
    (tmp_path / "triton_python_backend_utils.py").write_text(PB_UTILS)
    (tmp_path / "stub.py").write_text(STUB)
    subprocess.run([sys.executable, "stub.py", models / "net_decode"], cwd=tmp_path, check=True, timeout=60)
    answers = pickle.loads((tmp_path / "answers").read_bytes())
    steps = json.loads(json.dumps(PREPROCESSING.to_json()["steps"]))
    for (name, rows), images in zip((answers[0], answers[2]), (good[:2], good[2:]), strict=True):
        assert name == "images"
        assert rows.dtype == np.float32
        np.testing.assert_array_equal(rows, np.stack([image_to_row(data, steps) for data in images]))
    assert answers[1][0] == 3
    assert "not an image" in answers[1][1]
    assert answers[3][0] == 3
    with pytest.raises(ImageError) as here:
        image_to_row(good[1][:300], steps)
    assert answers[3][1] == str(here.value)
    assert answers[4][1].shape == (0, 3, 16, 16)


def test_without_labels_no_file_is_named(write):
    models = write(labels=None).parent
    assert not (models / "net_classify/labels.txt").exists()
    assert read_config(models / "net_classify").outputs[0].label_filename == ""
    assert read_config(models / "net").outputs[0].label_filename == ""


def test_without_preprocessing_an_earlier_ensemble_goes_away(write):
    models = write().parent
    write(preprocessing=None)
    assert names(models) == ["net"]


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"preprocessing": Preprocessing(geometry=(Resize(size=(16, 17)),))}, r"\(16, 17\); the model takes \(16, 16\)"),
        ({"preprocessing": Preprocessing(mode="L", mean=(0.0,), std=(1.0,), channels="L")}, "rows of 1 channels"),
        ({"labels": ["one"]}, "1 labels for an output of 3 classes"),
        ({"signature": TWO_INPUTS}, "2 inputs cannot be fed from one image"),
    ],
)
def test_a_failure_leaves_all_three_as_they_were(write, changes, text):
    models = write().parent
    before = {path: path.read_bytes() for path in models.rglob("*") if path.is_file()}
    with pytest.raises(ArtifactError, match=text):
        write(**changes)
    assert {path: path.read_bytes() for path in models.rglob("*") if path.is_file()} == before
    assert names(models) == ["net", "net_classify", "net_decode"]


def test_a_helper_folder_that_is_no_model_is_not_replaced(write, tmp_path):
    (tmp_path / "models/net_decode").mkdir(parents=True)
    (tmp_path / "models/net_decode/notes.txt").write_text("mine")
    with pytest.raises(ArtifactError, match="net_decode exists and holds no model"):
        write()
    assert names(tmp_path / "models") == ["net_decode"]


@pytest.mark.parametrize("folder", ["net", "net_decode", "net_classify"])
def test_models_that_someone_else_wrote_are_not_replaced(write, tmp_path, folder):
    """Another's Triton model of that name, or of a companion's, with weights that are nowhere else."""
    made = write().parent.rename(tmp_path / "made")
    theirs = tmp_path / "models" / folder
    (theirs / "1").mkdir(parents=True)
    (theirs / "1" / "model.onnx").write_bytes(b"weights")
    (theirs / "config.pbtxt").write_text(f'name: "{folder}" backend: "onnxruntime"')
    for attempt in (write, lambda: place_package(made, theirs.parent, "net")):
        with pytest.raises(ArtifactError, match="holds a model that Headrace did not write; it is left as it is"):
            attempt()
        assert [path.name for path in theirs.parent.iterdir()] == [folder]
        assert (theirs / "1" / "model.onnx").read_bytes() == b"weights"


def test_a_package_made_elsewhere_takes_the_place_of_the_one_before(write, tmp_path):
    made, out = write().parent, tmp_path / "out"
    (out / "other").mkdir(parents=True)
    (out / "other/config.pbtxt").write_text("mine")
    assert place_package(made, out, "net") == out / "net"
    assert names(out) == ["net", "net_classify", "net_decode", "other"]
    load_artifact(out / "net")
    write(preprocessing=None, labels=None)  # its companions are gone, and those of before would no longer be true
    place_package(made, out, "net")
    assert names(out) == ["net", "other"]
    assert load_artifact(out / "net").labels is None
    assert (out / "other/config.pbtxt").read_text() == "mine"
    (out / "net/config.pbtxt").unlink()
    with pytest.raises(ArtifactError, match="holds no model"):
        place_package(made, out, "net")
