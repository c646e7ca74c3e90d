"""The messages against tritonclient's generated ones, which are another copy of Triton's own description."""

import subprocess
import sys

import pytest
from google.protobuf import text_format
from tritonclient.grpc import model_config_pb2, service_pb2

from headrace.runtime.artifact.triton_messages import POOL, model_config, service

PAIRS = [(model_config, model_config_pb2), (service, service_pb2)]


def fields(message):
    """Name -> number, type and label of a message's fields, and of those of the messages inside it."""
    found = {field.full_name: (field.number, field.type, field.is_repeated) for field in message.fields}
    for inner in message.nested_types:
        found |= fields(inner)
    return found


@pytest.mark.parametrize(("own", "theirs"), PAIRS, ids=["model_config", "service"])
def test_every_field_is_theirs(own, theirs):
    """They may have learned more since."""
    for name, message in own.DESCRIPTOR.message_types_by_name.items():
        assert fields(message).items() <= fields(theirs.DESCRIPTOR.message_types_by_name[name]).items()
        assert getattr(own, name).DESCRIPTOR is message


def test_methods_take_and_give_the_same_messages():
    def described(module):
        methods = module.DESCRIPTOR.services_by_name["GRPCInferenceService"].methods
        return {method.name: (method.input_type.full_name, method.output_type.full_name) for method in methods}

    assert described(service).items() <= described(service_pb2).items()


def test_bytes_of_one_are_read_by_the_other():
    request = service.ModelInferRequest(model_name="tiny", id="1")
    request.inputs.add(name="images", datatype="FP32", shape=[1, 2]).parameters["priority"].int64_param = 3
    request.raw_input_contents.append(b"12345678")
    read = service_pb2.ModelInferRequest.FromString(request.SerializeToString())
    assert text_format.MessageToString(read) == text_format.MessageToString(request)
    assert service.ModelInferRequest.FromString(read.SerializeToString()) == request


def test_enums_and_their_values_are_named():
    assert model_config.DataType.Value("TYPE_FP32") == model_config_pb2.DataType.Value("TYPE_FP32")
    assert model_config.DataType.Name(model_config.TYPE_STRING) == "TYPE_STRING"
    assert model_config.ModelInstanceGroup.KIND_AUTO == model_config_pb2.ModelInstanceGroup.KIND_AUTO
    with pytest.raises(AttributeError, match=r"grpc_service.proto has no Nothing"):
        _ = service.Nothing
    assert POOL.FindMessageTypeByName("inference.ModelConfig") is model_config.ModelConfig.DESCRIPTOR


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_both_may_be_imported_into_one_process(order):
    lines = ["import headrace.runtime.artifact.triton_messages", "import tritonclient.grpc.service_pb2"]
    subprocess.run([sys.executable, "-c", "\n".join(lines[number] for number in order)], check=True)
