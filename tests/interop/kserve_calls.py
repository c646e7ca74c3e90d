"""What `kserve_client.py` has KServe's client do, in a Python that has it: a line of JSON for each call."""

import asyncio
import inspect
import json
import sys

import numpy as np
from kserve import InferenceGRPCClient, InferenceRESTClient, InferInput, InferRequest, RESTConfig
from kserve.protocol.infer_type import RequestedOutput

FIRST = np.arange(32, dtype=np.int32).reshape(2, 16)
SECOND = np.full((2, 16), 3, np.int32)


def request(*, binary: bool, model: str = "simple", outputs: bool | None = None) -> InferRequest:
    tensors = []
    for name, values in (("INPUT0", FIRST), ("INPUT1", SECOND)):
        tensor = InferInput(name=name, shape=list(values.shape), datatype="INT32")
        tensor.set_data_from_numpy(values, binary_data=binary)
        tensors.append(tensor)
    asked = None
    if outputs is not None:
        asked = [RequestedOutput(name=name, parameters={"binary_data": outputs}) for name in ("OUTPUT1", "OUTPUT0")]
    return InferRequest(model_name=model, infer_inputs=tensors, request_id="an-id", request_outputs=asked)


def check(answer: object, *, names: list[str] | None = None) -> None:
    found = {one.name: one.as_numpy() for one in answer.outputs}
    assert names is None or list(found) == names, list(found)
    assert np.array_equal(found["OUTPUT0"], FIRST + SECOND)
    assert np.array_equal(found["OUTPUT1"], FIRST - SECOND)
    assert (answer.model_name, answer.id) == ("simple", "an-id"), (answer.model_name, answer.id)


async def refused(call: object, said: str) -> None:
    try:
        await call
    except Exception as error:  # noqa: BLE001 - each transport has its own
        told = f"{error} {error!r}"
    else:
        told = "it was answered"
    assert said in told, told


class Rest:
    def __init__(self, address: str) -> None:
        self.url = f"http://{address}"
        self.client = InferenceRESTClient(RESTConfig(protocol="v2", timeout=30))

    async def live(self) -> None:
        assert await self.client.is_server_live(self.url) is True

    async def ready(self) -> None:
        assert await self.client.is_server_ready(self.url) is True

    async def model_ready(self) -> None:
        assert await self.client.is_model_ready(self.url, "simple") is True

    async def unknown_model_is_not_ready(self) -> None:
        assert await self.client.is_model_ready(self.url, "nobody") is False

    async def infer_json(self) -> None:
        check(await self.client.infer(self.url, request(binary=False), model_name="simple"))

    async def infer_binary(self) -> None:
        check(await self.client.infer(self.url, request(binary=True), model_name="simple"))

    async def infer_binary_answers(self) -> None:
        asked = request(binary=True, outputs=True)
        check(await self.client.infer(self.url, asked, model_name="simple"), names=["OUTPUT1", "OUTPUT0"])

    async def infer_json_answers(self) -> None:
        check(await self.client.infer(self.url, request(binary=True, outputs=False), model_name="simple"))

    async def infer_of_a_dictionary(self) -> None:
        found = await self.client.infer(self.url, request(binary=False).to_dict(), model_name="simple")
        check(found)

    async def unknown_model_is_an_error(self) -> None:
        await refused(self.client.infer(self.url, request(binary=False, model="nobody"), model_name="nobody"), "404")

    async def many_at_once(self) -> None:
        calls = [self.client.infer(self.url, request(binary=bool(n % 2)), model_name="simple") for n in range(20)]
        for answer in await asyncio.gather(*calls):
            check(answer)


class Grpc:
    def __init__(self, address: str) -> None:
        self.client = InferenceGRPCClient(url=address, timeout=30)

    async def live(self) -> None:
        assert await self.client.is_server_live() is True

    async def ready(self) -> None:
        assert await self.client.is_server_ready() is True

    async def model_ready(self) -> None:
        assert await self.client.is_model_ready("simple") is True

    async def unknown_model_is_not_ready(self) -> None:
        assert await self.client.is_model_ready("nobody") is False

    async def infer_contents(self) -> None:
        check(await self.client.infer(request(binary=False)))

    async def infer_binary(self) -> None:
        check(await self.client.infer(request(binary=True)))

    async def infer_binary_answers(self) -> None:
        check(await self.client.infer(request(binary=True, outputs=True)), names=["OUTPUT1", "OUTPUT0"])

    async def unknown_model_is_an_error(self) -> None:
        await refused(self.client.infer(request(binary=True, model="nobody")), "NOT_FOUND")

    async def many_at_once(self) -> None:
        for answer in await asyncio.gather(*(self.client.infer(request(binary=bool(n % 2))) for n in range(20))):
            check(answer)


async def main(http: str, grpc: str) -> None:
    for kind, address in ((Rest, http), (Grpc, grpc)):
        caller = kind(address)
        for name, call in inspect.getmembers(caller, inspect.iscoroutinefunction):
            try:
                await asyncio.wait_for(call(), 60)
                why = ""
            except Exception as error:  # noqa: BLE001 - what it says is the result
                why = repr(error)[:300]
            print(json.dumps([f"{kind.__name__.lower()} {name}", why]))
        await caller.client.close()


asyncio.run(main(*sys.argv[1:]))
