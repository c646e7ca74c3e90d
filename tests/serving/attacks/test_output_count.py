"""More outputs than anybody needs (CVE-2026-24146): their number is bounded before anything is made for each."""

import json

import grpc
import pytest
from tritonclient.grpc import service_pb2 as pb
from tritonclient.grpc import service_pb2_grpc


@pytest.mark.parametrize("field", ["inputs", "outputs"])
def test_countless_tensors(target, request_to, field):
    tensor = {"name": "images", "datatype": "FP32", "shape": [1, 3, 16, 16], "data": [0.0] * 768}
    many = [{**tensor, "name": f"t{number}", "data": []} for number in range(5_000)]
    message = {"inputs": [tensor], field: many}
    status, body = request_to(target.http, "POST", "/v2/models/tiny/infer", json.dumps(message).encode())
    assert status == 400
    assert b"at most 64" in body
    request = pb.ModelInferRequest(model_name="tiny", raw_input_contents=[bytes(3072)])
    request.inputs.add(name="images", datatype="FP32", shape=[1, 3, 16, 16])
    added = getattr(request, field)
    for number in range(5_000):
        added.add(name=f"t{number}")
    with grpc.insecure_channel(target.grpc) as channel, pytest.raises(grpc.RpcError, match="at most 64"):
        service_pb2_grpc.GRPCInferenceServiceStub(channel).ModelInfer(request, timeout=30)


def test_countless_classes_and_parameters(target, request_to):
    tensor = {"name": "images", "datatype": "FP32", "shape": [1, 3, 16, 16], "data": [0.0] * 768}
    output = {"name": "scores", "parameters": {"classification": 2**62}}
    status, body = request_to(
        target.http, "POST", "/v2/models/tiny/infer", json.dumps({"inputs": [tensor], "outputs": [output]}).encode()
    )
    assert status == 200
    assert json.loads(body)["outputs"][0]["shape"] == [1, 7]
    many = {f"p{number}": number for number in range(5_000)}
    message = {"inputs": [{**tensor, "parameters": many}], "parameters": many}
    status, _ = request_to(target.http, "POST", "/v2/models/tiny/infer", json.dumps(message).encode())
    assert status in (200, 400)
