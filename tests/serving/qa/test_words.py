"""What programs written for Triton look for in an error's text: NVIDIA's client examples and qa suites compare these words."""

import numpy as np
import pytest
import tritonclient.grpc as triton_grpc
import tritonclient.http as triton_http
from tritonclient.utils import InferenceServerException


def _input(module, *, name="images", datatype="FP32", shape=(1, 3, 16, 16)):
    tensor = module.InferInput(name, list(shape), datatype)
    tensor.set_data_from_numpy(np.zeros(shape, {"FP32": np.float32, "FP64": np.float64}[datatype]))
    return tensor


def _said(call, *arguments, **options) -> str:
    with pytest.raises(InferenceServerException) as caught:
        call(*arguments, **options)
    return caught.value.message()


@pytest.mark.parametrize("module", [triton_http, triton_grpc], ids=["http", "grpc"])
def test_words_of_triton(server, module):
    with module.InferenceServerClient(server.http if module is triton_http else server.grpc) as client:
        # simple_{http,grpc}_health_metadata.py and simple_http_infer_client.py, the last by startswith
        unknown = "Request for unknown model: 'wrong' is not found"
        assert _said(client.get_model_metadata, "wrong").startswith(unknown)
        assert _said(client.infer, "wrong", [_input(module)]).startswith(unknown)
        version = "Request for unknown model: 'tiny' version 9 is not found"
        assert _said(client.infer, "tiny", [_input(module)], model_version="9").startswith(version)
        damaged = "Request for unknown model: 'damaged' has no available versions"
        assert _said(client.infer, "damaged", [_input(module)]).startswith(damaged)
        # infer_request.cc of Triton's core
        more = [_input(module), _input(module, name="more")]
        assert _said(client.infer, "tiny", more).startswith("unexpected inference input 'more' for model 'tiny'")
        wanted = [module.InferRequestedOutput("more")]
        said = _said(client.infer, "tiny", [_input(module)], outputs=wanted)
        assert said.startswith("unexpected inference output 'more' for model 'tiny'")
        double = _said(client.infer, "tiny", [_input(module, datatype="FP64")])
        assert double == "inference input 'images' data-type is 'FP64', but model 'tiny' expects 'FP32'"
        small = _said(client.infer, "tiny", [_input(module, shape=(1, 3, 16, 15))])
        assert small == "unexpected shape for input 'images' for model 'tiny'. Expected [-1, 3, 16, 16], got [1, 3, 16, 15]"
        assert "inference request batch-size must be" in _said(client.infer, "tiny", [_input(module, shape=(9, 3, 16, 16))])


@pytest.mark.parametrize("module", [triton_http, triton_grpc], ids=["http", "grpc"])
def test_words_of_model_control(start, repository, module):
    """simple_{http,grpc}_model_control.py."""
    repository.package("tiny")
    server = start(repository.path, model_control_mode="explicit", load_models=["*"])
    with module.InferenceServerClient(server.http if module is triton_http else server.grpc) as client:
        missing = "failed to load 'wrong_model_name', failed to poll from model repository"
        assert _said(client.load_model, "wrong_model_name").startswith(missing)
        wrong = '"parameters": {"config": {{"max_batch_size": "16"}}}'
        assert _said(client.load_model, "tiny", config=wrong).startswith("failed to load 'tiny'")
        client.load_model("tiny", config='{"max_batch_size":"4"}')
        config = client.get_model_config("tiny")
        assert (config["max_batch_size"] if module is triton_http else config.config.max_batch_size) == 4
