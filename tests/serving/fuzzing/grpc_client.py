"""gRPC calls with bytes for messages, and what came back."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import grpc
from case import GrpcCase, Outcome
from http_client import PATIENCE
from oracle import problems_of_details

_SERVICE = "/inference.GRPCInferenceService/"


def channel(address: str) -> grpc.aio.Channel:
    """A channel with a connection of its own that says everything of an error."""
    options = [("grpc.use_local_subchannel_pool", 1), ("grpc.max_receive_message_length", -1), ("grpc.enable_retries", 0)]
    return grpc.aio.insecure_channel(address, options=options)


async def run(case: GrpcCase, opened: grpc.aio.Channel) -> Outcome:
    """Make a call and judge how it ended."""
    method = case.method if case.method.startswith("/") else _SERVICE + case.method
    received: list[bytes] = []
    try:
        async with asyncio.timeout(PATIENCE):
            if case.stream:
                await _stream(opened, method, case, received)
            else:
                await _unary(opened, method, case, received)
    except TimeoutError:
        return Outcome(problems=[f"no end within {PATIENCE:g} s"])
    except asyncio.CancelledError:
        if case.cancel:
            return Outcome(statuses=["left"])
        raise
    except grpc.aio.AioRpcError as error:
        code = error.code().name
        if error.details() == "Internal error from Core":
            return Outcome(statuses=["left"])  # said by the client's own library, when it writes to a call that has ended
        outcome = Outcome(statuses=[code])
        if code not in case.codes:
            outcome.problems.append(f"{code}: {error.details()!r}")
        outcome.problems += problems_of_details(error.details() or "")
        return outcome
    outcome = Outcome(statuses=["OK"])
    if case.cancel:
        return outcome
    if "OK" not in case.codes:
        outcome.problems.append(f"OK instead of {'/'.join(sorted(case.codes))}")
    elif case.check is not None and (wrong := case.check(received)):
        outcome.problems.append(wrong)
    return outcome


async def _unary(opened: grpc.aio.Channel, method: str, case: GrpcCase, received: list[bytes]) -> None:
    call = opened.unary_unary(method)(case.messages[0], metadata=case.metadata, wait_for_ready=True)
    if case.cancel:
        await asyncio.sleep(0)
        call.cancel()
    received.append(await call)


async def _stream(opened: grpc.aio.Channel, method: str, case: GrpcCase, received: list[bytes]) -> None:
    async def messages() -> AsyncIterator[bytes]:
        for message in case.messages:
            yield message

    call = opened.stream_stream(method)(messages(), metadata=case.metadata, wait_for_ready=True)
    async for message in call:
        received.append(message)
        if case.cancel:
            call.cancel()
