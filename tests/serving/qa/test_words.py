"""What programs written for Triton look for in an error's text: NVIDIA's client examples and qa suites compare these words."""

import re

import numpy as np
import pytest
import tritonclient.grpc as triton_grpc
import tritonclient.http as triton_http
import tritonclient.utils.shared_memory as shm
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
        # L0_grpc: test_duplicate_output_names_rejected
        twice = _said(client.infer, "tiny", [_input(module)], outputs=[module.InferRequestedOutput("scores")] * 2)
        assert "output 'scores' already exists in request" in twice
        # L0_http's python_http_aio_test.py: test_load_model, test_unload_model
        for control in (client.load_model, client.unload_model):
            assert "explicit model load / unload is not allowed if polling is enabled" in _said(control, "tiny")


def test_inputs_that_are_missing(server):
    """L0_input_validation: test_input_validation_required_empty."""
    with triton_grpc.InferenceServerClient(server.grpc) as client:
        said = _said(client.infer, "tiny", [])
    assert said == (
        "expected 1 inputs but got 0 inputs for model 'tiny'. Got input(s) [], but missing required input(s) ['images']. "
        "Please provide all required input(s)."
    )


@pytest.mark.parametrize("module", [triton_http, triton_grpc], ids=["http", "grpc"])
def test_shared_memory_that_is_off(server, module):
    """L0_shared_memory: test_client_shm_disabled_by_default: there are no regions, and that may be asked."""
    with module.InferenceServerClient(server.http if module is triton_http else server.grpc) as client:
        status = client.get_system_shared_memory_status()
        assert len(status if module is triton_http else status.regions) == 0
        disabled = "Client shared memory is disabled"
        assert disabled in _said(client.register_system_shared_memory, "dummy_data", "/dummy_data", 8)
        assert disabled in _said(client.unregister_system_shared_memory, "dummy_data")
        assert disabled in _said(client.get_system_shared_memory_status, "dummy_data")


@pytest.mark.parametrize("module", [triton_http, triton_grpc], ids=["http", "grpc"])
def test_words_of_shared_memory(launch, models, module):
    """L0_shared_memory: test_register_out_of_bound, test_reregister_after_register, test_infer_..._out_of_bound."""
    with launch(models, shared_memory=True) as server:
        address = server.http if module is triton_http else server.grpc
        with module.InferenceServerClient(address) as client:
            handle = shm.create_shared_memory_region("words", "/words_of_triton", 64)
            try:
                for size in (0, 65):
                    said = _said(client.register_system_shared_memory, "words", "/words_of_triton", size)
                    assert re.search("failed to register shared memory region.*invalid args", said)
                client.register_system_shared_memory("words", "/words_of_triton", 64)
                again = _said(client.register_system_shared_memory, "words", "/words_of_triton", 64)
                assert "shared memory region 'words' already in manager" in again
                for offset, wrong in ((64, "Invalid offset for"), (1, "Invalid offset + byte size for")):
                    scores = module.InferRequestedOutput("scores")
                    scores.set_shared_memory("words", 64, offset=offset)
                    said = _said(client.infer, "tiny", [_input(module)], outputs=[scores])
                    assert said.startswith(f"{wrong} shared memory region")
            finally:
                shm.destroy_shared_memory_region(handle)


@pytest.mark.parametrize("module", [triton_http, triton_grpc], ids=["http", "grpc"])
def test_log_settings_at_the_start(launch, models, module):
    """L0_logging: test_{http,grpc}_get_settings, test_{http,grpc}_update_settings."""
    with (
        launch(models, allow_settings=True) as server,
        module.InferenceServerClient(server.http if module is triton_http else server.grpc) as client,
    ):
        settings = client.get_log_settings()
        form = settings["log_format"] if module is triton_http else settings.settings["log_format"].string_param
        assert form == "default"
        said = _said(client.update_log_settings, {"log_file": "log_file.log"})
        assert "log file location can not be updated through network protocol" in said


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
        # L0_lifecycle: test_model_control_fail, test_config_override
        policy = '{"version_policy": {"specific": {"versions": [5]}}}'
        assert "load failed for model 'tiny'" in _said(client.load_model, "tiny", config=policy)
        client.load_model("tiny", config='{"max_batch_size":"4"}')
        config = client.get_model_config("tiny")
        assert (config["max_batch_size"] if module is triton_http else config.config.max_batch_size) == 4
