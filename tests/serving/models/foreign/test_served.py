"""A repository of foreign models under `headrace serve`, asked by Triton's own clients."""

import json
import threading
import time

import httpx
import numpy as np
import pytest
import tritonclient.grpc as triton_grpc
import tritonclient.http as triton_http
from onnx import TensorProto, helper
from tritonclient.utils import InferenceServerException

from headrace.serving.protocol.codec import binary_to_tensor

INT32, STRING, FLOAT = TensorProto.INT32, TensorProto.STRING, TensorProto.FLOAT
PAIR = [(name, INT32, ("batch", 16)) for name in ("INPUT0", "INPUT1", "OUTPUT0", "OUTPUT1")]


@pytest.fixture
def served(foreign, start):
    """NVIDIA's `simple` as their example has it, strings, labels, no batch, two versions, an ensemble, and what is refused."""
    foreign.onnx(
        "simple",
        [
            helper.make_node("Add", ["INPUT0", "INPUT1"], ["OUTPUT0"]),
            helper.make_node("Sub", ["INPUT0", "INPUT1"], ["OUTPUT1"]),
        ],
        PAIR[:2],
        PAIR[2:],
    )
    tensors = "".join(
        f'{side} {{ name: "{name}" data_type: TYPE_INT32 dims: [ 16 ] }}'
        for side, names in (("input", PAIR[:2]), ("output", PAIR[2:]))
        for name, _, _ in names
    )
    foreign.config("simple", f'name: "simple" platform: "onnxruntime_onnx" max_batch_size: 8 {tensors}')
    foreign.copy("text", STRING)
    foreign.add("plain", shape=(2, 3))
    foreign.config(
        "plain",
        'output { name: "y" data_type: TYPE_FP32 dims: [ 2, 3 ] label_filename: "labels.txt" }',
    )
    (foreign.root / "plain" / "labels.txt").write_text("a\nb\nc\nd\ne\nf\n")
    for version in (1, 2, 3):
        foreign.add("many", float(version), version=version)
    foreign.config("many", "max_batch_size: 4 version_policy { specific { versions: [ 1, 3 ] } }")
    foreign.ensemble("twice", [("many", {"x": "x"}, {"y": "z"}), ("many", {"x": "z"}, {"y": "y"})], batch=4)
    (foreign.folder("python") / "model.py").write_text("raise SystemExit")
    foreign.config("python", 'backend: "python"')
    foreign.folder("torch").joinpath("model.pt").write_bytes(b"code")
    before = {path: path.stat().st_mtime_ns for path in foreign.root.rglob("*")}
    server = start(foreign.root, model_control_mode="explicit", load_models=("*",))
    yield server
    assert {path: path.stat().st_mtime_ns for path in foreign.root.rglob("*")} == before
    assert server.stop() == 0


def client_of(served, module):
    return module.InferenceServerClient(served.http if module is triton_http else served.grpc)


def given(module, name, array, kind):
    tensor = module.InferInput(name, list(array.shape), kind)
    tensor.set_data_from_numpy(array)
    return tensor


@pytest.mark.parametrize("module", [triton_http, triton_grpc])
def test_by_either_protocol(served, module):
    client = client_of(served, module)
    a, b = (np.random.default_rng(seed).integers(-99, 99, (3, 16)).astype(np.int32) for seed in (1, 2))
    found = client.infer("simple", [given(module, "INPUT1", b, "INT32"), given(module, "INPUT0", a, "INT32")])
    np.testing.assert_array_equal(found.as_numpy("OUTPUT0"), a + b)
    np.testing.assert_array_equal(found.as_numpy("OUTPUT1"), a - b)

    words = np.array([[b"", "é".encode()], [b"b" * 100_000, b"d"]], object)
    assert client.infer("text", [given(module, "x", words, "BYTES")]).as_numpy("y").tolist() == words.tolist()

    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    np.testing.assert_array_equal(client.infer("plain", [given(module, "x", x, "FP32")]).as_numpy("y"), x + 1)
    best = client.infer("plain", [given(module, "x", x, "FP32")], outputs=[module.InferRequestedOutput("y", class_count=2)])
    assert best.as_numpy("y").tolist() == [b"6.000000:5:f", b"5.000000:4:e"]

    rows = np.zeros((2, 4), np.float32)
    for version, add in (("", 3), ("3", 3), ("1", 1)):
        many = client.infer("many", [given(module, "x", rows, "FP32")], model_version=version)
        assert many.as_numpy("y").tolist() == (rows + add).tolist()
    with pytest.raises(InferenceServerException, match="version 2 is not found"):
        client.infer("many", [given(module, "x", rows, "FP32")], model_version="2")
    assert client.infer("twice", [given(module, "x", rows, "FP32")]).as_numpy("y").tolist() == (rows + 6).tolist()
    with pytest.raises(InferenceServerException, match=r"Expected \[-1, 4\], got \[2, 5\]"):
        client.infer("twice", [given(module, "x", np.zeros((2, 5), np.float32), "FP32")])


def test_what_they_say_of_themselves(served):
    client = client_of(served, triton_http)
    assert client.get_model_metadata("simple") == {
        "name": "simple",
        "versions": ["1"],
        "platform": "onnxruntime_onnx",
        "inputs": [{"name": name, "datatype": "INT32", "shape": [-1, 16]} for name in ("INPUT0", "INPUT1")],
        "outputs": [{"name": name, "datatype": "INT32", "shape": [-1, 16]} for name in ("OUTPUT0", "OUTPUT1")],
    }
    assert client.get_model_metadata("plain")["inputs"][0]["shape"] == [2, 3]
    assert client.get_model_config("text")["input"][0] | {"data_type": "TYPE_STRING", "dims": ["2"]}
    assert client.get_model_config("text")["max_batch_size"] == 4
    index = {(row["name"], row["version"]): row for row in client.get_model_repository_index()}
    assert {key for key, row in index.items() if row["state"] == "READY"} == {
        ("simple", "1"), ("text", "1"), ("plain", "1"), ("many", "1"), ("many", "3"), ("twice", "1"),
    }  # fmt: skip
    assert "export the model to ONNX" in index["python", "1"]["reason"]
    assert "--trust-repository" in index["torch", "1"]["reason"]
    rows = httpx.get(f"{served.url}/v2/models/stats").json()["model_stats"]
    assert {row["name"] for row in rows} == {"simple", "text", "plain", "many", "twice"}
    assert httpx.get(f"http://{served.metrics}/metrics").status_code == 200


def test_in_json_and_raw(served):
    body = {"inputs": [{"name": "x", "datatype": "BYTES", "shape": [1, 2], "data": ["a", "ü"]}]}
    answer = httpx.post(f"{served.url}/v2/models/text/infer", json=body).json()
    assert answer["outputs"] == [{"name": "y", "datatype": "BYTES", "shape": [1, 2], "data": ["a", "ü"]}]
    raw = httpx.post(
        f"{served.url}/v2/models/plain/infer",
        content=np.ones((2, 3), np.float32).tobytes(),
        headers={"Inference-Header-Content-Length": "0"},
    )
    size = int(raw.headers["Inference-Header-Content-Length"])
    assert np.frombuffer(raw.content[size:], np.float32).tolist() == [2.0] * 6
    bad = httpx.post(f"{served.url}/v2/models/text/infer", content=b"x", headers={"Inference-Header-Content-Length": "0"})
    assert bad.status_code == 400
    images = httpx.post(f"{served.url}/v2/models/plain/classify", content=b"x")
    assert images.status_code in (400, 404, 405, 501)


def test_loading_and_unloading(served, foreign):
    client = client_of(served, triton_http)
    x = given(triton_http, "x", np.zeros((1, 4), np.float32), "FP32")
    client.load_model("many", config=json.dumps({"max_batch_size": 2, "version_policy": {"specific": {"versions": [2]}}}))
    assert client.infer("many", [x]).as_numpy("y")[0, 0] == 2
    client.unload_model("many")
    with pytest.raises(InferenceServerException, match="its step 'many' is not served"):
        client.infer("twice", [x])
    client.load_model("twice")
    assert client.infer("twice", [x]).as_numpy("y")[0, 0] == 6
    with pytest.raises(InferenceServerException, match="input 'x' is declared"):
        client.load_model("many", config=json.dumps({"input": [{"name": "x", "data_type": "TYPE_FP32", "dims": [9]}]}))
    assert client.infer("twice", [x]).as_numpy("y")[0, 0] == 6


def test_strings_without_end_hold_nobody_up(served):
    """Four million empty ones are read beside the event loop, and refused for their shape; more are too many."""
    count = 1 << 22
    begin = time.monotonic()
    binary_to_tensor("x", "BYTES", [count], bytes(4 * count))
    reading = time.monotonic() - begin
    worst = []
    for _ in range(3):
        done, delays = threading.Event(), []
        watcher = threading.Thread(target=_watch, args=(served.url, done, delays))
        watcher.start()
        try:
            answer = _post_empty_strings(served.url, count)
        finally:
            done.set()
            watcher.join()
        assert answer.status_code == 400
        assert "Expected [-1, 2]" in answer.json()["error"]
        worst.append(max(delays))
        if worst[-1] < reading / 2:
            break
    assert min(worst) < reading / 2  # who waits for the loop waits for the whole of it
    answer = _post_empty_strings(served.url, count + 1)
    assert (answer.status_code, "this server takes at most 4,194,304" in answer.json()["error"]) == (400, True)


def _post_empty_strings(url, count):
    tensor = {"name": "x", "datatype": "BYTES", "shape": [count], "parameters": {"binary_data_size": 4 * count}}
    text = json.dumps({"inputs": [tensor]}).encode()
    length = {"Inference-Header-Content-Length": str(len(text))}
    return httpx.post(f"{url}/v2/models/text/infer", content=text + bytes(4 * count), headers=length, timeout=300)


def _watch(url, done, delays):
    with httpx.Client(timeout=300) as client:
        while not done.is_set():
            begin = time.monotonic()
            assert client.get(f"{url}/v2/health/live").status_code == 200
            delays.append(time.monotonic() - begin)
            time.sleep(0.01)
