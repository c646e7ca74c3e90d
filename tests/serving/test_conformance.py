"""The same requests over HTTP (JSON and binary), gRPC and a gRPC stream: the same answers, and the same words for errors."""

import http.client
import json
import struct

import grpc
import numpy as np
import pytest
from tritonclient.grpc import service_pb2 as pb
from tritonclient.grpc import service_pb2_grpc

IMAGES = np.random.default_rng(3).normal(size=(2, 3, 16, 16)).astype(np.float32)
# gRPC's code for each HTTP status.
CODES = {
    400: grpc.StatusCode.INVALID_ARGUMENT,
    404: grpc.StatusCode.NOT_FOUND,
    500: grpc.StatusCode.INTERNAL,
    501: grpc.StatusCode.UNIMPLEMENTED,
    503: grpc.StatusCode.UNAVAILABLE,
}


def tensor(name="images", datatype="FP32", array=IMAGES, shape=None, **parameters):
    return {"name": name, "datatype": datatype, "array": array, "shape": shape or list(array.shape), "parameters": parameters}


def image(photo: bytes, shape=(1, 1)):
    return tensor("IMAGE", "BYTES", np.array([photo], dtype=object), list(shape))


def case(model="tiny", inputs=None, outputs=(), version="", **parameters):
    """One request, tied to no transport."""
    inputs = [tensor()] if inputs is None else inputs
    return {"model": model, "version": version, "inputs": inputs, "outputs": list(outputs), "parameters": parameters}


def wanted(name="scores", **parameters):
    return {"name": name, "parameters": parameters}


def raw(entry) -> bytes:
    if entry["datatype"] == "BYTES":
        return b"".join(struct.pack("<I", len(value)) + value for value in entry["array"].ravel())
    return entry["array"].tobytes()


class Http:
    """Requests as JSON headers, with tensors behind them (binary) or inside."""

    def __init__(self, server, binary: bool):
        self.server, self.binary = server, binary

    def post(self, path: str, body: bytes, headers: dict):
        connection = http.client.HTTPConnection(self.server.http, timeout=30)
        try:
            connection.request("POST", path, body, headers)
            response = connection.getresponse()
            return response.status, dict(response.getheaders()), response.read()
        finally:
            connection.close()

    def infer(self, request):
        inputs, tail = [], b""
        for entry in request["inputs"]:
            given = {"name": entry["name"], "datatype": entry["datatype"], "shape": entry["shape"]}
            if "shared_memory_region" in entry["parameters"]:
                given["parameters"] = entry["parameters"]
            elif self.binary:
                data = raw(entry)
                given["parameters"] = {**entry["parameters"], "binary_data_size": len(data)}
                tail += data
            else:
                values = [v.decode() if isinstance(v, bytes) else v for v in entry["array"].ravel().tolist()]
                given |= {"parameters": entry["parameters"], "data": values}
            inputs.append(given)
        message = {"id": "7", "inputs": inputs, "parameters": request["parameters"]}
        if request["outputs"]:
            message["outputs"] = [
                {"name": o["name"], "parameters": o["parameters"] | ({"binary_data": True} if self.binary else {})}
                for o in request["outputs"]
            ]
        text = json.dumps(message).encode()
        headers = {"Inference-Header-Content-Length": str(len(text))} if self.binary else {}
        version = f"/versions/{request['version']}" if request["version"] else ""
        status, headers, body = self.post(f"/v2/models/{request['model']}{version}/infer", text + tail, headers)
        length = int(headers.get("Inference-Header-Content-Length", headers.get("inference-header-content-length", len(body))))
        answer = json.loads(body[:length])
        if status != 200:
            assert list(answer) == ["error"]
            return CODES[status], answer["error"]
        assert answer["id"] == "7"
        arrays, at = {}, length
        for output in answer["outputs"]:
            size = output.get("parameters", {}).get("binary_data_size")
            if size is None:
                data = output["data"]
                array = np.array([v.encode() for v in data], dtype=object) if output["datatype"] == "BYTES" else np.array(data)
            else:
                array = from_raw(output["datatype"], body[at : at + size])
                at += size
            arrays[output["name"]] = (output["datatype"], array.reshape(output["shape"]))
        return answer["model_name"], answer["model_version"], arrays


def from_raw(datatype: str, data: bytes) -> np.ndarray:
    if datatype != "BYTES":
        return np.frombuffer(data, {"FP32": np.float32}[datatype])
    values = []
    while data:
        size = 4 + struct.unpack("<I", data[:4])[0]
        values.append(data[4:size])
        data = data[size:]
    return np.array(values, dtype=object)


class Grpc:
    """The same as protobuf messages, alone or in a stream."""

    def __init__(self, server, stream: bool):
        self.server, self.stream = server, stream

    def message(self, request):
        message = pb.ModelInferRequest(model_name=request["model"], model_version=request["version"], id="7")
        set_parameters(message.parameters, request["parameters"])
        for entry in request["inputs"]:
            added = message.inputs.add(name=entry["name"], datatype=entry["datatype"], shape=entry["shape"])
            set_parameters(added.parameters, entry["parameters"])
            if "shared_memory_region" not in entry["parameters"]:
                message.raw_input_contents.append(raw(entry))
        for output in request["outputs"]:
            set_parameters(message.outputs.add(name=output["name"]).parameters, output["parameters"])
        return message

    def infer(self, request):
        with grpc.insecure_channel(self.server.grpc) as channel:
            stub = service_pb2_grpc.GRPCInferenceServiceStub(channel)
            if self.stream:
                (answer,) = stub.ModelStreamInfer(iter([self.message(request)]), timeout=30)
                assert answer.infer_response.id == "7"
                if answer.error_message:
                    return None, answer.error_message
                answer = answer.infer_response
            else:
                try:
                    answer = stub.ModelInfer(self.message(request), timeout=30)
                except grpc.RpcError as error:
                    return error.code(), error.details()
        assert answer.id == "7"
        arrays = {
            output.name: (output.datatype, from_raw(output.datatype, data).reshape(list(output.shape)))
            for output, data in zip(answer.outputs, answer.raw_output_contents, strict=True)
        }
        return answer.model_name, answer.model_version, arrays


def set_parameters(target, values):
    for name, value in values.items():
        kind = {bool: "bool_param", int: "int64_param", str: "string_param", float: "double_param"}[type(value)]
        setattr(target[name], kind, value)


TRANSPORTS = {
    "http-json": lambda server: Http(server, False),
    "http-binary": lambda server: Http(server, True),
    "grpc": lambda server: Grpc(server, False),
    "grpc-stream": lambda server: Grpc(server, True),
}


@pytest.fixture(params=TRANSPORTS)
def transport(request, server):
    return TRANSPORTS[request.param](server)


def same(answer, expected):
    assert answer[:2] == expected[:2]
    assert answer[2].keys() == expected[2].keys()
    for name, (datatype, array) in expected[2].items():
        assert answer[2][name][0] == datatype
        if datatype == "BYTES":
            assert answer[2][name][1].tolist() == array.tolist()
        else:
            # JSON carries the shortest decimal of the double that a float is, so that nothing is lost.
            np.testing.assert_array_equal(answer[2][name][1].astype(np.float32), array)


GOOD = {
    "tensors": case(),
    "one row": case(inputs=[tensor(array=IMAGES[:1])]),
    "version named": case(version="1"),
    "output named": case(outputs=[wanted()]),
    "classification": case(outputs=[wanted(classification=3)]),
    "more classes than there are": case(outputs=[wanted(classification=1 << 40)]),
    "priority and timeout": case(priority=1, timeout=20_000_000),
}


@pytest.mark.parametrize("name", GOOD)
def test_answers(transport, server, name):
    same(transport.infer(GOOD[name]), TRANSPORTS["grpc"](server).infer(GOOD[name]))


@pytest.mark.parametrize("kind", [kind for kind in TRANSPORTS if kind != "http-json"])  # an image is no text
def test_images(kind, server, make_photo, reference, labels):
    transport = TRANSPORTS[kind](server)
    photo = make_photo(4)
    request = case("tiny_classify", [image(photo)], [wanted(classification=1)])
    answer = transport.infer(request)
    best = int(np.argmax(reference(photo)[1]))
    assert answer[2]["scores"][1].ravel()[0].decode().endswith(f":{best}:{labels[best]}")
    same(answer, TRANSPORTS["grpc"](server).infer(request))
    code, error = transport.infer(case("tiny_classify", [image(b"no image")]))
    assert code in (grpc.StatusCode.INVALID_ARGUMENT, None)
    assert "not an image" in error


BAD = {
    "unknown model": (404, case("nope")),
    "model not served": (404, case("damaged")),
    "unknown version": (404, case(version="9")),
    "a path for a name": (404, case("..")),
    "no inputs": (400, case(inputs=[])),
    "unknown input": (400, case(inputs=[tensor("other")])),
    "one input too many": (400, case(inputs=[tensor(), tensor("more")])),
    "an input twice": (400, case(inputs=[tensor(), tensor()])),
    "an input without a name": (400, case(inputs=[tensor("")])),
    "65 inputs": (400, case(inputs=[tensor(f"t{n}", array=IMAGES[:1]) for n in range(65)])),
    "wrong datatype": (400, case(inputs=[tensor(datatype="FP64", array=IMAGES.astype(np.float64))])),
    "unknown datatype": (400, case(inputs=[tensor(datatype="FLOAT")])),
    "wrong rank": (400, case(inputs=[tensor(array=IMAGES[0])])),
    "wrong size": (400, case(inputs=[tensor(array=IMAGES[..., :15].copy())])),
    "negative size": (400, case(inputs=[tensor(shape=[-1, 3, 16, 16])])),
    "17 dimensions": (400, case(inputs=[tensor(shape=[2, 3, 16, 16] + [1] * 13)])),
    "no rows": (400, case(inputs=[tensor(array=IMAGES[:0])])),
    "too many rows": (400, case(inputs=[tensor(array=np.repeat(IMAGES, 5, 0))])),
    "unknown output": (400, case(outputs=[wanted("nope")])),
    "an output twice": (400, case(outputs=[wanted(), wanted()])),
    "65 outputs": (400, case(outputs=[wanted(f"o{n}") for n in range(65)])),
    "negative classification": (400, case(outputs=[wanted(classification=-1)])),
    "classification as text": (400, case(outputs=[wanted(classification="3")])),
    "classification as a truth": (400, case(outputs=[wanted(classification=True)])),
    "negative priority": (400, case(priority=-1)),
    "priority as text": (400, case(priority="1")),
    "timeout as a fraction": (400, case(timeout=0.5)),
    "timeout as a truth": (400, case(timeout=True)),
    "no time": (503, case(timeout=1)),
    "a sequence": (501, case(sequence_id=3)),
    "a failing model": (500, case("fragile", [tensor(array=np.full((1, 3, 16, 16), 1e9, np.float32))])),
    "shared memory in": (501, case(inputs=[tensor(shared_memory_region="r", shared_memory_byte_size=8)])),
    "shared memory out": (501, case(outputs=[wanted(shared_memory_region="r", shared_memory_byte_size=8)])),
    "shared memory without a size": (400, case(inputs=[tensor(shared_memory_region="r")])),
    "shared memory by number": (400, case(inputs=[tensor(shared_memory_region=3, shared_memory_byte_size=8)])),
    "shared memory before its begin": (
        400,
        case(inputs=[tensor(shared_memory_region="r", shared_memory_byte_size=8, shared_memory_offset=-8)]),
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_errors(server, name):
    status, request = BAD[name]
    answers = {transport: make(server).infer(request) for transport, make in TRANSPORTS.items()}
    if name == "no time":  # the message says how much time was left
        assert all("cannot answer within" in answer[1] for answer in answers.values()), answers
        answers = {transport: (answer[0], "") for transport, answer in answers.items()}
    expected = answers["grpc"]
    assert expected[0] == CODES[status], answers
    for transport, answer in answers.items():
        assert answer == ((None if transport == "grpc-stream" else CODES[status]), expected[1]), answers


def test_every_method_answers_over_grpc(server):
    """None is left to the generated default, which answers nothing; and what is off says so as over HTTP."""
    with grpc.insecure_channel(server.grpc) as channel:
        stub = service_pb2_grpc.GRPCInferenceServiceStub(channel)
        off = {
            "/v2/systemsharedmemory/region/x/status": lambda: stub.SystemSharedMemoryStatus(
                pb.SystemSharedMemoryStatusRequest(name="x")
            ),
            "/v2/logging": lambda: stub.LogSettings(pb.LogSettingsRequest()),
            "/v2/trace/setting": lambda: stub.TraceSetting(pb.TraceSettingRequest()),
        }
        for path, call in off.items():
            with pytest.raises(grpc.RpcError) as caught:
                call()
            assert caught.value.code() == grpc.StatusCode.UNIMPLEMENTED
            connection = http.client.HTTPConnection(server.http, timeout=30)
            connection.request("GET", path)
            response = connection.getresponse()
            assert response.status == 501
            assert json.loads(response.read())["error"] == caught.value.details()
            connection.close()
