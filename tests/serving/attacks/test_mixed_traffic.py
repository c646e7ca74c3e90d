"""Clients of every manner at once, while models come and go: answers are their own images', and counts are what clients saw."""

import asyncio
import contextlib
import json
import random
import struct
from collections import Counter

import grpc
import numpy as np
import pytest
from tritonclient.grpc import service_pb2 as pb
from tritonclient.grpc import service_pb2_grpc

SECONDS = 6.0
# What is answered of a model that is not there, or is still loading.
_AWAY = (404, 503, grpc.StatusCode.NOT_FOUND, grpc.StatusCode.UNAVAILABLE)
WAYS = ("whole", "chunked", "expect", "slow", "pipelined", "leaves", "goes", "call", "stream", "cancels", "deadline")


class Traffic:
    """Open-loop traffic of a seed: requests come by chance and in bursts, whatever became of those before."""

    def __init__(self, server, images, known, seed: int) -> None:
        self._server, self._random = server, random.Random(seed)
        self._images, self._known = images, known
        self.answered: Counter[str] = Counter()
        self.given_up: Counter[str] = Counter()
        self.wrong: list[object] = []

    async def run(self, control) -> None:
        channels = [grpc.aio.insecure_channel(self._server.grpc) for _ in range(2)]
        self._stubs = [service_pb2_grpc.GRPCInferenceServiceStub(channel) for channel in channels]
        end, running = asyncio.get_running_loop().time() + SECONDS, set()
        controlling = asyncio.create_task(control())
        while asyncio.get_running_loop().time() < end:
            for _ in range(self._random.randint(8, 30) if self._random.random() < 0.05 else 1):
                model = "comes" if self._random.random() < 0.2 else "stays"
                task = asyncio.create_task(self._one(self._random.choice(WAYS), model))
                running.add(task)
                task.add_done_callback(running.discard)
            await asyncio.sleep(self._random.expovariate(40))
        controlling.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await controlling
        _, hanging = await asyncio.wait(running, timeout=60) if running else (set(), set())
        assert not hanging
        for channel in channels:
            await channel.close()

    async def _one(self, way: str, model: str) -> None:
        number = self._random.randrange(len(self._images))
        try:
            if way in ("call", "stream", "cancels", "deadline"):
                await self._call(way, model, number)
            else:
                await self._http(way, model, number)
        except (OSError, EOFError, TimeoutError, LookupError, ValueError, grpc.aio.BaseError) as error:
            self.wrong.append((way, model, repr(error)))

    def _judge(self, way: str, model: str, number: int, status: object, scores: object) -> None:
        if status == 200:
            self.answered[model] += 1
            if np.abs(np.asarray(scores) - self._known[number]).max() > 1e-3:
                self.wrong.append((way, model, number, scores))
        elif not (model == "comes" and status in _AWAY):
            self.wrong.append((way, model, status, scores))

    async def _http(self, way: str, model: str, number: int) -> None:
        numbers = [number, *self._random.choices(range(len(self._images)), k=5)] if way == "pipelined" else [number]
        reader, writer = await asyncio.open_connection(*self._server.http.split(":"))
        head = f"POST /v1/classify/{model}?k=7 HTTP/1.1\r\nHost: localhost\r\nX-Odd: \xe4\r\n"
        for each in numbers:
            image = self._images[each]
            length = f"Content-Length: {len(image)}\r\n"
            if way == "chunked":
                writer.write(f"{head}Transfer-Encoding: chunked\r\nTrailer: X-Sum\r\n\r\n".encode("latin-1"))
                for at in range(0, len(image), 1000):
                    writer.write(b"%x;a=b\r\n%b\r\n" % (len(image[at : at + 1000]), image[at : at + 1000]))
                writer.write(b"0\r\nX-Sum: 1\r\n\r\n")
            elif way == "expect":
                writer.write(f"{head}{length}Expect: 100-continue\r\n\r\n".encode("latin-1"))
                if b" 100 " not in (begin := await reader.readuntil(b"\r\n\r\n")):
                    self._judge(way, model, each, int(begin.split()[1]), begin)
                    break
                writer.write(image)
            elif way == "slow":
                writer.write(f"{head}{length}\r\n".encode("latin-1"))
                for at in range(0, len(image), len(image) // 4):
                    writer.write(image[at : at + len(image) // 4])
                    await asyncio.sleep(self._random.random() / 10)
            else:
                writer.write(f"{head}{length}\r\n".encode("latin-1") + (image[: len(image) // 2] if way == "leaves" else image))
        else:
            if way in ("leaves", "goes"):
                await writer.drain()
                await asyncio.sleep(self._random.random() / 50)
                self.given_up[model] += way == "goes"
                numbers = []
            for each in numbers:
                self._judge(way, model, each, *await asyncio.wait_for(_answer(reader), 60))
        writer.transport.abort()

    async def _call(self, way: str, model: str, number: int) -> None:
        stub = self._random.choice(self._stubs)
        if way == "stream":
            asked = self._random.choices(range(len(self._images)), k=5)

            async def messages():
                for place, each in enumerate(asked):
                    yield self._message(model, each, str(place))

            async for part in stub.ModelStreamInfer(messages(), timeout=60):
                answer = part.infer_response
                status = grpc.StatusCode.NOT_FOUND if part.error_message else 200
                self._judge(way, model, asked[int(answer.id)], status, part.error_message or _scores(answer))
            return
        seconds = self._random.choice((0.002, 0.01)) if way == "deadline" else 60
        call = stub.ModelInfer(self._message(model, number), timeout=seconds)
        if way == "cancels":
            await asyncio.sleep(self._random.random() / 50)
            if call.cancel():
                self.given_up[model] += 1
                return
        try:
            self._judge(way, model, number, 200, _scores(await call))
        except grpc.aio.AioRpcError as error:
            late = (grpc.StatusCode.DEADLINE_EXCEEDED, grpc.StatusCode.UNAVAILABLE)
            if way == "deadline" and error.code() in late:
                self.given_up[model] += 1
            else:
                self._judge(way, model, number, error.code(), error.details())

    def _message(self, model: str, number: int, name: str = ""):
        image = self._images[number]
        message = pb.ModelInferRequest(model_name=f"{model}_classify", id=name)
        message.inputs.add(name="IMAGE", datatype="BYTES", shape=[1, 1])
        message.raw_input_contents.append(struct.pack("<I", len(image)) + image)
        return message


async def _answer(reader) -> tuple[int, object]:
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").lower()
    body = json.loads(await reader.readexactly(int(head.split("content-length: ")[1].split("\r\n")[0])))
    if (status := int(head.split()[1])) != 200:
        return status, body
    found = {each["index"]: each["probability"] for each in body["predictions"]}
    return status, [found[index] for index in range(7)]


def _scores(answer) -> np.ndarray:
    return _softmax(np.frombuffer(answer.raw_output_contents[0], np.float32))


def _softmax(scores: np.ndarray) -> np.ndarray:
    exponents = np.exp(scores - scores.max())
    return exponents / exponents.sum()


@pytest.mark.parametrize("frontends", [0, 1])
def test_every_answer_is_right_and_counted(repository, launch, make_photo, reference, request_to, frontends):
    for name in ("stays", "comes"):
        repository.package(name)
    images = [make_photo(seed, (40 + 7 * seed, 30 + 5 * seed)) for seed in range(12)] + [make_photo(12, (1200, 900))]
    known = [_softmax(reference(image)[1]) for image in images]
    options = {"model_control_mode": "explicit", "load_models": ["*"], "frontends": frontends}
    with launch(repository.path, **options) as server:
        traffic = Traffic(server, images, known, seed=frontends)

        async def control() -> None:
            while True:
                for word in ("unload", "load"):
                    path = f"/v2/repository/models/comes/{word}"
                    status, body = await asyncio.to_thread(request_to, server.http, "POST", path, b"{}")
                    assert status == 200, body
                    await asyncio.sleep(0.2)

        asyncio.run(traffic.run(control))
        assert not traffic.wrong, traffic.wrong[:5]
        assert traffic.answered["stays"] > 50
        assert traffic.answered["comes"] > 5
        _, body = request_to(server.http, "GET", "/v2/models/stays/stats")
        counted = json.loads(body)["model_stats"][0]["inference_stats"]["success"]["count"]
        assert traffic.answered["stays"] <= counted <= traffic.answered["stays"] + traffic.given_up["stays"]
