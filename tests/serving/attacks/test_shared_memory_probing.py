"""Shared memory that is not the client's (CVE-2025-23319, -23320, -23334): keys neither reveal nor open anything."""

import os
import uuid
from multiprocessing import shared_memory
from pathlib import Path

import numpy as np
import pytest
import tritonclient.grpc as triton_grpc
import tritonclient.http as triton_http
from tritonclient.utils import InferenceServerException

MODULES = {"http": triton_http, "grpc": triton_grpc}
FOLDER = Path("/dev/shm")
REFUSED = "there is no shared memory object of that key that this server may read"


@pytest.fixture(params=MODULES)
def client(request, target):
    with MODULES[request.param].InferenceServerClient(getattr(target, request.param)) as opened:
        opened.module = MODULES[request.param]
        yield opened
        opened.unregister_system_shared_memory()


@pytest.fixture
def planted():
    """Things in the folder of shared memory that are no client's business, by name."""
    unique = uuid.uuid4().hex
    paths = {kind: FOLDER / f"{kind}-{unique}" for kind in ("link", "fifo", "folder")}
    paths["semaphore"] = FOLDER / f"sem.{unique}"
    paths["own"] = FOLDER / f"headrace-{unique}"
    paths["link"].symlink_to("/etc/passwd")
    os.mkfifo(paths["fifo"])
    paths["folder"].mkdir()
    for name in ("semaphore", "own"):
        paths[name].write_bytes(bytes(64))
    yield paths
    paths.pop("folder").rmdir()
    for path in paths.values():
        path.unlink()


def _refusal(client, key) -> str:
    with pytest.raises(InferenceServerException) as caught:
        client.register_system_shared_memory("probe", key, 1)
    return caught.value.message()


def test_every_key_is_refused_in_the_same_words(client, planted):
    keys = [
        "nope",
        "",
        "/",
        "..",
        "/..",
        ".",
        "../etc/passwd",
        "/etc/passwd",
        "//etc/passwd",
        "../../etc/passwd",
        f"x/../{planted['own'].name}",
        f"./{planted['own'].name}",
        f"/{planted['link'].name}",
        "a" * 300,
        "nope\n",
        "null\0byte",
        "é",
        "/proc/self/mem",
        "/dev/mem",
        *(path.name for path in planted.values()),
    ]
    for key in keys:
        assert _refusal(client, key) == f"region 'probe': {REFUSED}", key


def test_only_the_registered_bytes_are_reached(client):
    """The rest of an object stays out of reach, whatever offsets say."""
    memory = shared_memory.SharedMemory(f"t-{uuid.uuid4().hex}", create=True, size=8192)
    try:
        size = 3 * 16 * 16 * 4
        memory.buf[:] = b"\x7f" * len(memory.buf)
        client.register_system_shared_memory("part", memory.name, size, offset=64)
        for place in ((size, -1), (size, 1), (size, (1 << 64) - 64), (size, -64), ((1 << 64) - 1, 0), (-size, 0)):
            tensor = client.module.InferInput("images", [1, 3, 16, 16], "FP32")
            try:
                tensor.set_shared_memory("part", *place)
                client.infer("tiny", [tensor])
            except (InferenceServerException, ValueError) as error:
                assert "part" in str(error) or "non-negative" in str(error) or "range" in str(error), error  # noqa: PT017
            else:
                raise AssertionError(f"{place} was taken")
        images = client.module.InferInput("images", [1, 3, 16, 16], "FP32")
        images.set_data_from_numpy(np.zeros((1, 3, 16, 16), np.float32))
        output = client.module.InferRequestedOutput("scores")
        output.set_shared_memory("part", 28, offset=size - 27)
        with pytest.raises(InferenceServerException, match="do not lie within"):
            client.infer("tiny", [images], outputs=[output])
        assert bytes(memory.buf[:]) == b"\x7f" * len(memory.buf)
    finally:
        memory.close()
        memory.unlink()


def test_no_error_names_a_region_of_the_server(client, target):
    """The lesson of CVE-2025-23319: an error about too large an input told the name of an internal region."""
    tensor = client.module.InferInput("images", [9, 3, 16, 16], "FP32")
    tensor.set_data_from_numpy(np.zeros((9, 3, 16, 16), np.float32))
    errors = []
    for call in (
        lambda: client.infer("tiny", [tensor]),
        lambda: client.get_system_shared_memory_status("headrace"),
        lambda: client.register_system_shared_memory("probe", "headrace", 1 << 62),
        lambda: client.infer("fragile", [tensor]),
    ):
        with pytest.raises(InferenceServerException) as caught:
            call()
        errors.append(caught.value.message())
    for error in errors:
        assert "/dev" not in error
        assert str(target.process.pid) not in error
