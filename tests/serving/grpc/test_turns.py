"""Long messages are taken over one at a time, with the loop's other work in between."""

import asyncio

import grpc
import pytest

from headrace.serving.grpc.library import Server
from headrace.serving.grpc.turns import Turns

LONG = bytes(2 << 20)


class Call:
    """As a call's context: `read` waits for the message, then copies it, in one go."""

    def __init__(self, message: bytes, log: list[str], name: str):
        self.arrived: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._message, self._log, self._name = message, log, name

    async def read(self) -> bytes:
        await self.arrived
        self._log.append(self._name)
        return self._message


async def _together(messages: list[bytes]) -> list[str]:
    """The order in which messages that arrived in one moment are copied, and the loop's rounds meanwhile."""
    log: list[str] = []
    turns, calls = Turns(), [Call(message, log, f"{place}") for place, message in enumerate(messages)]
    tasks = [asyncio.ensure_future(turns.read(call)) for call in calls]
    await asyncio.sleep(0)
    for call in calls:
        call.arrived.set_result(None)
    while not all(task.done() for task in tasks):
        await asyncio.sleep(0)
        log.append(".")
    assert [await task for task in tasks] == messages
    return log


def test_between_two_long_messages_the_loop_goes_around():
    log = "".join(asyncio.run(_together([LONG, LONG, LONG]))).strip(".")
    first, second = log.split("1")[0].count("."), log.split("1")[1].count(".")
    assert log[0] == "0"
    assert log[-1] == "2"
    assert min(first, second) >= 7


def test_short_messages_wait_for_nothing():
    assert "".join(asyncio.run(_together([b"a", b"b", b"c"]))).strip(".") == "012"


def test_who_is_canceled_while_waiting_takes_the_message_nevertheless():
    async def run() -> list[str]:
        log: list[str] = []
        turns, calls = Turns(), [Call(LONG, log, name) for name in "abc"]
        tasks = [asyncio.ensure_future(turns.read(call)) for call in calls]
        await asyncio.sleep(0)
        for call in calls:
            call.arrived.set_result(None)
        await asyncio.sleep(0)
        assert log == ["a"]
        tasks[1].cancel()
        with pytest.raises(asyncio.CancelledError):
            await tasks[1]
        assert log == ["a", "b"]
        assert await tasks[2] == LONG
        return log

    assert asyncio.run(run()) == ["a", "b", "c"]


def test_what_fails_or_is_canceled_before_its_message_arrives():
    async def run() -> None:
        turns, failing, canceled = Turns(), Call(b"", [], ""), Call(b"", [], "")
        tasks = [asyncio.ensure_future(turns.read(call)) for call in (failing, canceled)]
        await asyncio.sleep(0)
        failing.arrived.set_exception(ConnectionError("gone"))
        tasks[1].cancel()
        with pytest.raises(ConnectionError, match="gone"):
            await tasks[0]
        with pytest.raises(asyncio.CancelledError):
            await tasks[1]
        assert canceled.arrived.cancelled()

    asyncio.run(run())


def test_the_library_reads_a_message_in_two_steps():
    """`context.read` pauses once, for a future that is done when the message is there, and a handler of streams may answer a
    unary call: what `Turns` leans on."""
    seen: list[object] = []

    async def answer(_, context) -> bytes:
        reading = context.read()
        future = reading.send(None)
        future._asyncio_future_blocking = False
        await future
        with pytest.raises(StopIteration) as ended:
            reading.send(None)
        seen.append(ended.value.value)
        seen.append(await Turns().read(context))
        return b"answer"

    async def run() -> None:
        server = Server(interceptors=[], options=[], unknown=lambda _: (grpc.StatusCode.UNIMPLEMENTED, ""))
        server.add_registered_method_handlers("test.Service", {"Echo": grpc.stream_unary_rpc_method_handler(answer)})
        port = server.add_insecure_port("127.0.0.1:0")
        await server.start()
        async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
            assert await channel.unary_unary("/test.Service/Echo")(b"message", timeout=20) == b"answer"
        await server.stop(1)

    asyncio.run(run())
    assert seen == [b"message", grpc.aio.EOF]
