"""Calls whose message does not come; what unfinished ones cost: tests/serving/attacks/test_unfinished_messages.py."""

import asyncio
from collections.abc import Awaitable, Callable

import grpc
import pytest

from headrace.serving.grpc.arrivals import Arrivals
from headrace.serving.grpc.library import Server
from headrace.serving.grpc.turns import Turns
from headrace.serving.guard.byte_budget import ByteBudget

LARGEST = 100


async def _served(ask: Callable[[grpc.aio.Channel], Awaitable[None]], budget: ByteBudget, seconds: float) -> list[int]:
    """Ask it; what was to be given back of the memory that ended messages took."""
    given: list[int] = []
    arrivals = Arrivals(budget, Turns(), largest=LARGEST, seconds=seconds, give_back=given.append)

    async def echo(_, context) -> bytes:
        return await arrivals.read(context, "client")

    server = Server(interceptors=[], options=[], unknown=lambda _: (grpc.StatusCode.UNIMPLEMENTED, ""))
    server.add_registered_method_handlers("test.Service", {"Echo": grpc.stream_unary_rpc_method_handler(echo)})
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
        await ask(channel)
        assert await channel.unary_unary("/test.Service/Echo")(b"message", timeout=20) == b"message"
    await server.stop(1)
    assert budget.held == 0
    return given


async def _fails(call: Awaitable[bytes]) -> grpc.StatusCode:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call
    return caught.value.code()


def test_a_call_without_a_message():
    async def ask(channel: grpc.aio.Channel) -> None:
        assert (
            await _fails(channel.stream_unary("/test.Service/Echo")(iter(()), timeout=20)) == grpc.StatusCode.INVALID_ARGUMENT
        )

    assert asyncio.run(_served(ask, ByteBudget(LARGEST), 20)) == []


def test_slow_messages_hold_the_budget_and_give_it_back():
    """Of two that do not come, one fits into the budget. It ends in time, the other at once; a third's client goes."""

    async def ask(channel: grpc.aio.Channel) -> None:
        method = channel.stream_unary("/test.Service/Echo")
        first = method(timeout=60)
        await asyncio.sleep(0.5)
        second = method(timeout=60)
        assert await _fails(second) == grpc.StatusCode.UNAVAILABLE
        assert budget.held == LARGEST
        assert not first.done()
        assert await _fails(first) == grpc.StatusCode.DEADLINE_EXCEEDED
        assert budget.held == 0
        third = method(timeout=60)
        while not budget.held:
            await asyncio.sleep(0.05)
        third.cancel()
        while budget.held:
            await asyncio.sleep(0.05)

    budget = ByteBudget(LARGEST + 50)
    assert asyncio.run(_served(ask, budget, 4.0)) == [LARGEST, LARGEST]
