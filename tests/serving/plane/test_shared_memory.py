"""Tensors in system shared memory with the real clients, and everything that can be wrong with a region."""

import asyncio
import contextlib
import os
import threading
import uuid
from multiprocessing import shared_memory as python_shared_memory
from pathlib import Path

import numpy as np
import pytest
import tritonclient.grpc as triton_grpc
import tritonclient.grpc.aio as triton_grpc_aio
import tritonclient.http as triton_http
import tritonclient.http.aio as triton_http_aio
import tritonclient.utils.shared_memory as shm
from tritonclient.utils import InferenceServerException, serialize_byte_tensor

from headrace.errors import InputError, NotFoundError, RequestError, TooLargeError
from headrace.serving.plane.shared_memory import SharedMemory
from headrace.serving.protocol.messages import InferenceRequest, RequestedOutput, SharedInput, SharedPlace, Tensor

MODULES = {"http": triton_http, "grpc": triton_grpc}
SHAPE = (2, 3, 16, 16)
SIZE, SCORES = 2 * 3 * 16 * 16 * 4, 2 * 7 * 4


@pytest.fixture
def make():
    """Shared memory objects of one's own, removed afterwards: make(size) -> (key, object)."""
    with contextlib.ExitStack() as stack:

        def begin(size: int, prefix="t"):
            made = python_shared_memory.SharedMemory(f"{prefix}-{uuid.uuid4().hex}", create=True, size=size)
            stack.callback(made.unlink)
            stack.callback(made.close)
            return made.name, made

        yield begin


@pytest.fixture(scope="module")
def sharing(models, launch):
    with launch(models, shared_memory=True) as server:
        yield server


@pytest.fixture(params=MODULES)
def client(request, sharing):
    with MODULES[request.param].InferenceServerClient(getattr(sharing, request.param)) as opened:
        opened.module = MODULES[request.param]
        yield opened
        opened.unregister_system_shared_memory()


def _images(seed=0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=SHAPE).astype(np.float32)


def test_tensors_in_and_out(client, scores_of):
    handle = shm.create_shared_memory_region("both", f"t-{uuid.uuid4().hex}", 64 + SIZE + SCORES)
    try:
        images = _images()
        shm.set_shared_memory_region(handle, [images], offset=64)
        client.register_system_shared_memory("both", handle._shm_key, 64 + SIZE + SCORES - 32, offset=32)
        tensor = client.module.InferInput("images", SHAPE, "FP32")
        tensor.set_shared_memory("both", SIZE, offset=32)
        output = client.module.InferRequestedOutput("scores")
        output.set_shared_memory("both", SCORES, offset=32 + SIZE)
        result = client.infer("tiny", [tensor], outputs=[output])
        described = result.get_output("scores")
        shape = described["shape"] if isinstance(described, dict) else list(described.shape)
        assert shape == [2, 7]
        scores = shm.get_contents_as_numpy(handle, np.float32, [2, 7], offset=64 + SIZE)
        np.testing.assert_allclose(scores, scores_of(images), rtol=1e-4, atol=1e-5)
        # An input from shared memory, with the answer in the response.
        sent = client.infer("tiny", [tensor]).as_numpy("scores")
        np.testing.assert_array_equal(sent, scores)
    finally:
        shm.destroy_shared_memory_region(handle)


def test_images(client, make, make_photo, reference):
    photos = [make_photo(1), make_photo(2)]
    data = serialize_byte_tensor(np.array(photos, dtype=object)).item()
    key, memory = make(len(data) + SCORES)
    memory.buf[: len(data)] = data
    client.register_system_shared_memory("image", key, len(data) + SCORES)
    tensor = client.module.InferInput("IMAGE", [2, 1], "BYTES")
    tensor.set_shared_memory("image", len(data))
    output = client.module.InferRequestedOutput("scores")
    output.set_shared_memory("image", SCORES, offset=len(data))
    client.infer("tiny_classify", [tensor], outputs=[output])
    scores = np.frombuffer(bytes(memory.buf[len(data) : len(data) + SCORES]), np.float32).reshape(2, 7)
    np.testing.assert_allclose(scores, [reference(photo)[1] for photo in photos], rtol=1e-3, atol=1e-4)
    labels = client.infer("tiny_classify", [tensor], outputs=[client.module.InferRequestedOutput("scores", class_count=1)])
    assert [int(text.split(b":")[1]) for text in labels.as_numpy("scores").ravel()] == np.argmax(scores, 1).tolist()


def test_regions_are_those_of_both_transports(sharing, make):
    key, _ = make(100)
    with (
        triton_http.InferenceServerClient(sharing.http) as http,
        triton_grpc.InferenceServerClient(sharing.grpc) as grpc,
    ):
        assert "system_shared_memory" in http.get_server_metadata()["extensions"]
        assert http.get_system_shared_memory_status() == []
        http.register_system_shared_memory("a", key, 60, offset=40)
        grpc.register_system_shared_memory("b c/ä", key, 100)
        expected = {
            "a": {"name": "a", "key": key, "offset": 40, "byte_size": 60},
            "b c/ä": {"name": "b c/ä", "key": key, "offset": 0, "byte_size": 100},
        }
        assert {region["name"]: region for region in http.get_system_shared_memory_status()} == expected
        status = grpc.get_system_shared_memory_status()
        assert {n: (r.key, r.offset, r.byte_size) for n, r in status.regions.items()} == {
            n: (r["key"], r["offset"], r["byte_size"]) for n, r in expected.items()
        }
        assert http.get_system_shared_memory_status("a") == [expected["a"]]
        for client in (http, grpc):
            with pytest.raises(InferenceServerException, match="unknown shared memory region 'nope'"):
                client.get_system_shared_memory_status("nope")
            with pytest.raises(InferenceServerException, match="already in manager"):
                client.register_system_shared_memory("a", key, 10)
            with pytest.raises(InferenceServerException, match="CUDA shared memory is not supported"):
                client.register_cuda_shared_memory("c", b"eA==", 0, 10)
            client.unregister_cuda_shared_memory()  # as clients of Triton do before anything else
            client.unregister_cuda_shared_memory("c")
        assert http.get_cuda_shared_memory_status() == []
        assert not grpc.get_cuda_shared_memory_status().regions
        grpc.unregister_system_shared_memory("a")
        grpc.unregister_system_shared_memory("a")
        assert [region["name"] for region in http.get_system_shared_memory_status()] == ["b c/ä"]
        http.unregister_system_shared_memory()
        assert not grpc.get_system_shared_memory_status().regions


def test_asyncio_clients(sharing, make, scores_of):
    images = _images(5)
    key, memory = make(SIZE)
    memory.buf[:SIZE] = images.tobytes()

    async def work():
        for module, address in ((triton_http_aio, sharing.http), (triton_grpc_aio, sharing.grpc)):
            async with module.InferenceServerClient(address) as client:
                await client.register_system_shared_memory("async", key, SIZE)
                tensor = module.InferInput("images", list(SHAPE), "FP32")
                tensor.set_shared_memory("async", SIZE)
                results = await asyncio.gather(*(client.infer("tiny", [tensor]) for _ in range(8)))
                for result in results:
                    np.testing.assert_allclose(result.as_numpy("scores"), scores_of(images), rtol=1e-4, atol=1e-5)
                await client.unregister_system_shared_memory("async")

    asyncio.run(work())


def test_requests_that_do_not_fit_their_region(client, make):
    key, _ = make(SIZE)
    client.register_system_shared_memory("r", key, SIZE)
    for (region, size, offset), says in (
        (("nope", SIZE, 0), "unknown shared memory region 'nope'"),
        (("r", SIZE, 1), "do not lie within"),
        (("r", SIZE + 4, 0), "do not lie within"),
        (("r", SIZE, (1 << 63) - SIZE), "do not lie within"),
        (("r", SIZE - 4, 0), f"takes {SIZE} bytes"),
    ):
        tensor = client.module.InferInput("images", SHAPE, "FP32")
        tensor.set_shared_memory(region, size, offset)
        with pytest.raises(InferenceServerException, match=says):
            client.infer("tiny", [tensor])
    images = client.module.InferInput("images", SHAPE, "FP32")
    images.set_data_from_numpy(_images())
    for (region, size, offset), says in (
        (("nope", SCORES, 0), "unknown shared memory region 'nope'"),
        (("r", SCORES - 1, 0), f"has {SCORES} bytes; its place"),
        (("r", SCORES, SIZE), "do not lie within"),
    ):
        output = client.module.InferRequestedOutput("scores")
        output.set_shared_memory(region, size, offset)
        with pytest.raises(InferenceServerException, match=says):
            client.infer("tiny", [images], outputs=[output])


def test_a_region_that_shrinks_fails_its_request_and_nothing_else(client, make, sharing):
    key, memory = make(SIZE + SCORES)
    client.register_system_shared_memory("r", key, SIZE + SCORES)
    tensor = client.module.InferInput("images", SHAPE, "FP32")
    tensor.set_shared_memory("r", SIZE)
    output = client.module.InferRequestedOutput("scores")
    output.set_shared_memory("r", SCORES, offset=SIZE)
    assert client.infer("tiny", [tensor], outputs=[output])
    os.ftruncate(memory._fd, SIZE)
    with pytest.raises(InferenceServerException, match="became smaller"):
        client.infer("tiny", [tensor], outputs=[output])
    os.ftruncate(memory._fd, 0)
    with pytest.raises(InferenceServerException, match="became smaller"):
        client.infer("tiny", [tensor])
    assert os.fstat(memory._fd).st_size == 0
    os.ftruncate(memory._fd, SIZE + SCORES)
    assert client.infer("tiny", [tensor], outputs=[output])
    assert sharing.process.poll() is None


def test_shrinking_at_any_moment_kills_nothing(client, make, sharing):
    """A mapped region would end the server with SIGBUS here."""
    key, memory = make(SIZE + SCORES)
    client.register_system_shared_memory("r", key, SIZE + SCORES)
    tensor = client.module.InferInput("images", SHAPE, "FP32")
    tensor.set_shared_memory("r", SIZE)
    output = client.module.InferRequestedOutput("scores")
    output.set_shared_memory("r", SCORES, offset=SIZE)
    stop = threading.Event()

    def shake() -> None:
        while not stop.is_set():
            os.ftruncate(memory._fd, 0)
            os.ftruncate(memory._fd, SIZE + SCORES)

    thread = threading.Thread(target=shake)
    thread.start()
    answered = 0
    try:
        for _ in range(150):
            try:
                client.infer("tiny", [tensor], outputs=[output])
                answered += 1
            except InferenceServerException as error:
                assert "became smaller" in str(error)  # noqa: PT017
    finally:
        stop.set()
        thread.join()
    assert sharing.process.poll() is None
    assert client.is_server_ready()


# Without a server.


@pytest.fixture
def memory():
    return SharedMemory(limit=1000)


def test_reading_and_writing(memory, make):
    key, region = make(64)
    region.buf[:] = bytes(range(64))
    memory.register("r", key, 32, 8)
    memory.register("slash", f"/{key}", 64)
    tensor = memory.read(SharedInput("x", "UINT8", [2, 2], SharedPlace("r", 4, 4)))
    assert tensor.data.tolist() == [[12, 13], [14, 15]]
    written = memory.write(Tensor("y", "UINT8", np.array([1, 2], np.uint8)), SharedPlace("r", 0, 20))
    assert written.place == SharedPlace("r", 0, 2)
    assert bytes(region.buf[7:11]) == bytes([7, 1, 2, 10])


def test_a_region_outlives_its_name_while_it_is_used(memory, make):
    key, region = make(8)
    region.buf[:8] = bytes(range(8))
    memory.register("r", key, 8)
    held = memory._find("r")
    memory.unregister("r")
    assert held.read(0, 8) == bytes(range(8))
    held.write(0, b"x")
    with pytest.raises(NotFoundError):
        memory.status("r")


def _open_blocks() -> int:
    """Descriptors of this process that are of shared memory: other tests' threads may still close files of theirs."""
    count = 0
    for number in os.listdir("/proc/self/fd"):
        with contextlib.suppress(FileNotFoundError):
            count += os.readlink(f"/proc/self/fd/{number}").startswith("/dev/shm")
    return count


def test_no_file_is_left_open(memory, make):
    key, _ = make(8)
    before = _open_blocks()
    for number in range(20):
        memory.register(str(number), key, 8)
        memory.write(Tensor("y", "UINT8", np.zeros(8, np.uint8)), SharedPlace(str(number), 0, 8))
    for _ in range(20):
        with pytest.raises(InputError):
            memory.register("0", key, 8)
        with pytest.raises(InputError):
            memory.register("big", key, 1 << 40)
    assert _open_blocks() == before + 40
    memory.unregister()
    assert _open_blocks() == before


def test_at_most_so_many_regions(memory, make):
    key, _ = make(8)
    for number in range(256):
        memory.register(str(number), key, 8)
    with pytest.raises(InputError, match="256"):
        memory.register("more", key, 8)


def test_objects_of_clients_that_are_gone_do_not_keep_others_out(memory, make):
    """They were unlinked, and nobody unregisters them."""
    kept, _ = make(8)
    gone, _ = make(8)
    memory.register("kept", kept, 8)
    for number in range(255):
        memory.register(str(number), gone, 8)
    before = _open_blocks()
    path = Path(f"/dev/shm/{gone.lstrip('/')}")
    path.unlink()
    path.touch()  # another object of that name, which the fixture removes
    memory.register("more", kept, 8)
    assert [region["name"] for region in memory.status()] == ["kept", "more"]
    assert _open_blocks() == before - 254


@pytest.mark.parametrize(
    ("name", "size", "offset"),
    [
        ("", 8, 0),
        ("x" * 257, 8, 0),
        ("a\nb", 8, 0),
        ("r", 0, 0),
        ("r", -1, 0),
        ("r", 8, -1),
        ("r", 9, 0),
        ("r", 1, 8),
        ("r", (1 << 63) - 1, (1 << 63) - 1),
        ("r", 1 << 63, 0),
        ("r", 8.0, 0),
        ("r", "8", 0),
        ("r", None, 0),
        ("r", True, 0),
        ("r", 8, False),
        ("r", 8, None),
    ],
)
def test_registrations_that_are_refused(memory, make, name, size, offset):
    key, _ = make(8)
    with pytest.raises(InputError):
        memory.register(name, key, size, offset)
    assert memory.status() == []


def test_what_a_request_may_name(memory, make):
    key, _ = make(4096)
    memory.register("r", key, 4096)

    def size(inputs=(), outputs=()):
        request = InferenceRequest(inputs=[])
        request.shared_inputs = [SharedInput(f"x{n}", "UINT8", [place.byte_size], place) for n, place in enumerate(inputs)]
        request.outputs = [RequestedOutput(f"y{n}", place=place) for n, place in enumerate(outputs)]
        return memory.size(request)

    assert size([SharedPlace("r", 0, 400), SharedPlace("r", 0, 600)], [SharedPlace("r", 0, 10)]) == 1000
    assert size(outputs=[SharedPlace("r", 0, 10), SharedPlace("r", 10, 10)]) == 0
    with pytest.raises(TooLargeError, match="1,001"):
        size([SharedPlace("r", 0, 401), SharedPlace("r", 0, 600)])
    for overlapping in ((SharedPlace("r", 0, 11), SharedPlace("r", 10, 10)), (SharedPlace("r", 5, 5),) * 2):
        with pytest.raises(InputError, match="overlap"):
            size(outputs=overlapping)
    for outside in (SharedPlace("r", 0, 4097), SharedPlace("r", 4096, 1), SharedPlace("r", 1 << 62, 1 << 62)):
        with pytest.raises(RequestError, match="do not lie within"):
            size([outside])
        with pytest.raises(RequestError, match="do not lie within"):
            size(outputs=[outside])


def test_inputs_need_no_right_to_write(memory, make):
    key, region = make(8)
    os.fchmod(region._fd, 0o400)
    memory.register("r", key, 8)
    assert memory.read(SharedInput("x", "UINT8", [8], SharedPlace("r", 0, 8))).data.tolist() == [0] * 8
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.pwrite(memory._find("r")._reader, b"x", 0)
    if os.geteuid():  # root may write everything
        with pytest.raises(InputError, match="may not be written"):
            memory.write(Tensor("y", "UINT8", np.zeros(8, np.uint8)), SharedPlace("r", 0, 8))
