"""Messages of the library's own services, which cannot be read."""

import grpc
import pytest


@pytest.mark.parametrize("data", [b"\xff\xff\xff", b"\x0a\x09x", b"\x0b"])
def test_a_message_that_cannot_be_read_is_the_clients_error(server, data):
    """Health and reflection: the library would call these a failure of the server, with a traceback in the log for each."""
    before = len(server.output)
    channel = grpc.insecure_channel(server.grpc)
    calls = [
        lambda: channel.unary_unary("/grpc.health.v1.Health/Check")(data, timeout=20),
        lambda: list(channel.unary_stream("/grpc.health.v1.Health/Watch")(data, timeout=20)),
        lambda: list(
            channel.stream_stream("/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo")(iter([data]), timeout=20)
        ),
    ]
    for call in calls:
        with pytest.raises(grpc.RpcError) as caught:
            call()
        assert (caught.value.code(), caught.value.details()) == (grpc.StatusCode.INVALID_ARGUMENT, "the message is not valid")
    assert server.output[before:] == ""
    channel.close()
