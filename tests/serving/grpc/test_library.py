"""What this server leans on in grpcio beyond its documents; pyproject.toml bounds the versions by these tests."""

import asyncio

import grpc
import grpc.aio
import pytest

from headrace.serving.grpc.library import Server


async def _echo(data: bytes, context) -> bytes:
    return data


async def _stream(messages, context):
    async for data in messages:
        yield data


HANDLERS = {
    "Echo": grpc.unary_unary_rpc_method_handler(_echo),
    "Stream": grpc.stream_stream_rpc_method_handler(_stream),
}


async def _ask() -> list:
    """One call of each kind, calls of unknown methods among them, and what came of each."""
    seen: list = []

    def unknown(metadata) -> tuple[grpc.StatusCode, str]:
        seen.append(dict(metadata).get("x"))
        return grpc.StatusCode.PERMISSION_DENIED, "not this"

    server = Server(interceptors=[], options=[("grpc.max_receive_message_length", 100)], unknown=unknown)
    server.add_registered_method_handlers("test.Service", HANDLERS)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    answers: list = [seen]
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
        for _ in range(2):
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await channel.unary_unary("/test.Service/Nothing")(b"", metadata=(("x", "y"),), timeout=20)
            answers.append((caught.value.code(), caught.value.details()))
            answers.append(await channel.unary_unary("/test.Service/Echo")(b"a", timeout=20))
            call = channel.stream_stream("/test.Service/Stream")(iter([b"b", b"c"]), timeout=20)
            answers.append([data async for data in call])
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await channel.unary_unary("/test.Service/Echo")(bytes(101), timeout=20)
        answers.append(caught.value.code())
    await server.stop(1)
    return answers


def test_calls_of_unknown_methods_never_reach_the_library_s_loop():
    """`AioServer._request_call` is looked up on the object, so that an override of it is what the loop waits for; a
    `_ServicerContext` of what it returns ends the call; and `Server` is made of what it is made of here."""
    answers = asyncio.run(_ask())
    denied = (grpc.StatusCode.PERMISSION_DENIED, "not this")
    echoes = [denied, b"a", [b"b", b"c"]]
    assert answers == [["y", "y"], *echoes, *echoes, grpc.StatusCode.RESOURCE_EXHAUSTED]
