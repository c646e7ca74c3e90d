"""The cases of NVIDIA's qa suites L0_lifecycle and L0_shared_memory that tests/serving does not have elsewhere; each test
names its own."""

import contextlib
import os
import signal
import socket
import threading
import uuid
from multiprocessing import shared_memory as python_shared_memory

import numpy as np
import pytest
import tritonclient.grpc as triton_grpc
import tritonclient.http as triton_http
from tritonclient.utils import InferenceServerException

MODULES = {"http": triton_http, "grpc": triton_grpc}
SIZE = 8 * 3 * 16 * 16 * 4


def _input(module, rows: int = 1):
    tensor = module.InferInput("images", [rows, 3, 16, 16], "FP32")
    tensor.set_data_from_numpy(np.full((rows, 3, 16, 16), 0.5, np.float32))
    return tensor


def test_the_same_model_loaded_and_unloaded_by_many(start, repository):
    """L0_lifecycle: test_concurrent_same_model_load_unload_stress, test_concurrent_model_load_unload,
    test_model_availability_on_reload."""
    repository.package("tiny")
    repository.package("still")
    server = start(repository.path, model_control_mode="explicit", load_models=["*"])
    failures: list[Exception] = []
    stop = threading.Event()

    def control(number: int) -> None:
        with triton_grpc.InferenceServerClient(server.grpc) as client:
            for turn in range(8):
                try:
                    (client.load_model if (number + turn) % 2 else client.unload_model)("tiny")
                except InferenceServerException as error:
                    failures.append(error)

    def ask() -> None:
        with triton_grpc.InferenceServerClient(server.grpc) as client:
            while not stop.is_set():
                try:
                    assert client.infer("still", [_input(triton_grpc)]).as_numpy("scores").shape == (1, 7)
                    client.infer("tiny", [_input(triton_grpc)])
                except InferenceServerException as error:
                    if error.status() not in ("StatusCode.NOT_FOUND", "StatusCode.UNAVAILABLE"):
                        failures.append(error)

    threads = [threading.Thread(target=control, args=(number,)) for number in range(4)]
    asking = threading.Thread(target=ask)
    for thread in (*threads, asking):
        thread.start()
    for thread in threads:
        thread.join()
    stop.set()
    asking.join()
    assert [str(failure) for failure in failures] == []
    with triton_grpc.InferenceServerClient(server.grpc) as client:
        client.load_model("tiny")
        assert client.infer("tiny", [_input(triton_grpc)]).as_numpy("scores").shape == (1, 7)
    assert server.stop() == 0, server.output


def test_folders_that_are_no_versions(start, repository):
    """L0_lifecycle: test_parse_ignore_zero_prefixed_version, test_parse_ignore_non_intergral_version,
    test_parse_error_model_no_version."""
    repository.package("tiny")
    repository.package("none")
    for name in ("01", "007", "abc", "1.0", "-1", "1 "):
        (repository.path / "tiny" / name).mkdir()
    os.rename(repository.path / "none" / "1", repository.path / "none" / "01")
    server = start(repository.path)
    with triton_http.InferenceServerClient(server.http) as client:
        assert client.get_model_metadata("tiny")["versions"] == ["1"]
        assert not client.is_model_ready("none")
        for version in ("01", "007", "abc", "1.0", "-1"):
            assert not client.is_model_ready("tiny", version)
            with pytest.raises(InferenceServerException, match="version"):
                client.infer("tiny", [_input(triton_http)], model_version=version)
        index = {entry["name"]: entry for entry in client.get_model_repository_index()}
        assert index["none"]["state"] == "UNAVAILABLE"
        assert index["none"]["reason"]


def test_stopping_with_connections_that_stay(start, models):
    """L0_lifecycle: test_shutdown_with_live_connection: idle ones do not keep the server, whatever they have sent so far."""
    server = start(models, drain_seconds=60.0, head_timeout_seconds=4.0)  # which a connection has that has said nothing yet
    with contextlib.ExitStack() as stack:
        http = stack.enter_context(triton_http.InferenceServerClient(server.http))
        grpc = stack.enter_context(triton_grpc.InferenceServerClient(server.grpc))
        for client, module in ((http, triton_http), (grpc, triton_grpc)):
            assert client.infer("tiny", [_input(module)]).as_numpy("scores").shape == (1, 7)
        for address in (server.http, server.grpc, server.metrics):
            stack.enter_context(socket.create_connection(address.split(":")))
        server.process.send_signal(signal.SIGTERM)
        assert server.process.wait(50) == 0, server.output  # sooner than accepted requests would have been given
    assert "Traceback" not in server.output


@pytest.fixture(scope="module")
def sharing(slow_models, launch):
    with launch(slow_models, shared_memory=True) as server:
        yield server


@pytest.fixture
def memory():
    made = python_shared_memory.SharedMemory(f"t-{uuid.uuid4().hex}", create=True, size=1 << 20)
    yield made
    made.close()
    made.unlink()


@pytest.mark.parametrize("transport", MODULES)
def test_regions_that_reach_out(sharing, memory, transport):
    """L0_shared_memory: test_register_out_of_bound, test_infer_*_out_of_bound, test_infer_integer_overflow,
    test_large_shm_register_offset."""
    module, whole = MODULES[transport], 1 << 20
    with module.InferenceServerClient(getattr(sharing, transport)) as client:
        for size, offset in (
            (whole + 1, 0),
            (whole, 1),
            (1, whole),
            (0, whole + 1),
            (2**63 - 1, 1),
            (1, 2**63 - 1),
            (2**63 - 1, 2**63 - 1),
        ):
            with pytest.raises(InferenceServerException, match="region"):
                client.register_system_shared_memory("r", memory.name, size, offset)
        for key in ("/", "///", "", "headrace-x", "/headrace-x", "sem.x", "../shm/x", f"//{memory.name}"):
            with pytest.raises(InferenceServerException, match="no shared memory object"):
                client.register_system_shared_memory("r", key, 10)
        client.register_system_shared_memory("r", memory.name, whole - 4096, 4096)
        with pytest.raises(InferenceServerException, match="already in manager"):
            client.register_system_shared_memory("r", memory.name, 10)
        tensor = module.InferInput("images", [8, 3, 16, 16], "FP32")
        for size, offset in ((SIZE, whole - 4096 - SIZE + 1), (SIZE, whole), (SIZE, 2**62), (2**62, 0), (2**63 - 1, 2**63 - 1)):
            tensor.set_shared_memory("r", size, offset)
            with pytest.raises(InferenceServerException, match="region|bytes"):
                client.infer("slow", [tensor])
        tensor.set_shared_memory("r", SIZE, whole - 4096 - SIZE)
        assert client.infer("slow", [tensor]).as_numpy("scores").shape == (8, 7)
        client.unregister_system_shared_memory()
        client.unregister_system_shared_memory("r")  # what is not there is gone already


@pytest.mark.parametrize("transport", MODULES)
def test_a_region_that_is_unregistered_while_it_is_used(sharing, memory, transport):
    """L0_shared_memory: TestSharedMemoryUnregister: requests that have begun end well; later ones are told that there is no
    region."""
    module = MODULES[transport]
    images = np.random.default_rng(1).normal(size=(8, 3, 16, 16)).astype(np.float32)
    memory.buf[:SIZE] = images.tobytes()
    tensor, output = module.InferInput("images", [8, 3, 16, 16], "FP32"), module.InferRequestedOutput("scores")
    tensor.set_shared_memory("r", SIZE)
    output.set_shared_memory("r", 8 * 7 * 4, offset=SIZE)
    with (
        module.InferenceServerClient(getattr(sharing, transport)) as client,
        module.InferenceServerClient(getattr(sharing, transport)) as other,
    ):
        client.register_system_shared_memory("r", memory.name, 1 << 20)
        expected = client.infer("slow", [tensor]).as_numpy("scores")
        ended: list = []

        def ask() -> None:
            with module.InferenceServerClient(getattr(sharing, transport)) as own:  # HTTP's belongs to one thread
                try:
                    ended.append(own.infer("slow", [tensor], outputs=[output]))
                except InferenceServerException as error:
                    ended.append(str(error))

        asking = threading.Thread(target=ask)
        asking.start()
        other.unregister_system_shared_memory("r")
        asking.join()
        if isinstance(ended[0], str):  # unregistered before it had begun, or before its outputs were written
            assert "unknown shared memory region" in ended[0]
        else:
            found = np.frombuffer(memory.buf, np.float32, 56, SIZE).copy()
            np.testing.assert_allclose(found.reshape(8, 7), expected)
        with pytest.raises(InferenceServerException, match="unknown shared memory region"):
            client.infer("slow", [tensor])
        status = other.get_system_shared_memory_status()
        assert len(status if transport == "http" else status.regions) == 0
