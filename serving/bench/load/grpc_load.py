"""gRPC load: a channel and a thread per connection, messages serialized once and answers read after the clock has stopped."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable
from typing import Any
from urllib.parse import parse_qs

from ....errors import BenchError
from .load import LoadRequest, LoadResult, Tally, read_images, tally_for

RECONNECT_SECONDS = 0.25
RECONNECT_ATTEMPTS = 20
_INFER = "/inference.GRPCInferenceService/ModelInfer"
_METADATA = "/inference.GRPCInferenceService/ModelMetadata"
# UNAVAILABLE is what an overloaded server says, and also what gRPC itself says of a connection that is no more, in such words.
_BROKEN = re.compile(
    r"socket closed|stream removed|failed to connect|connection (reset|refused|attempt)|broken pipe|goaway|recvmsg|sendmsg"
    r"|keepalive|transport closed|name resolution|too_many_pings|channel closed",
    re.IGNORECASE,
)


def prepare(request: LoadRequest) -> Callable[[float], LoadResult]:
    """Ask what the model takes, and serialize everything; what is returned sends it, beginning at that monotonic moment.

    Raises BenchError when the model cannot be asked or takes no images.
    """
    import grpc

    from ....runtime.artifact.triton_messages import service as pb

    address, model = f"{request.parts.hostname}:{request.parts.port or 8001}", request.parts.path[1:]
    images = read_images(request)
    with grpc.insecure_channel(address) as channel:
        try:
            ask = channel.unary_unary(_METADATA, pb.ModelMetadataRequest.SerializeToString, pb.ModelMetadataResponse.FromString)
            found = ask(pb.ModelMetadataRequest(name=model), timeout=request.timeout_seconds, wait_for_ready=True)
        except grpc.RpcError as error:
            raise BenchError(f"the server at {address} does not describe model {model}: {error.details()}") from error
    if [tensor.datatype for tensor in found.inputs] != ["BYTES"] or not found.outputs:
        raise BenchError(f"model {model} does not take images; its _classify companion does")
    count = int(parse_qs(request.parts.query).get("k", ["5"])[0])
    messages = []
    for image in images:
        message = pb.ModelInferRequest(model_name=model)
        message.inputs.add(name=found.inputs[0].name, datatype="BYTES", shape=[1, 1])
        message.raw_input_contents.append(len(image).to_bytes(4, "little") + image)
        message.outputs.add(name=found.outputs[0].name).parameters["classification"].int64_param = count
        messages.append(message.SerializeToString())
    return lambda start: _drive(request, address, messages, start)


def top1(body: bytes) -> int:
    """The index of the first class in an answer. Raises ValueError when there is none."""
    from google.protobuf.message import DecodeError

    from ....runtime.artifact.triton_messages import service as pb

    try:
        contents = pb.ModelInferResponse.FromString(body).raw_output_contents[0]
        length = int.from_bytes(contents[:4], "little")
        return int(contents[4 : 4 + length].decode().split(":")[1])  # value:index[:label]
    except (DecodeError, IndexError, ValueError) as error:
        raise ValueError(f"no classes in the answer: {body[:200]!r}") from error


def _drive(request: LoadRequest, address: str, messages: list[bytes], start: float) -> LoadResult:
    tally, lock = tally_for(request, messages, start), threading.Lock()
    connections = [_Connection(request, address, tally, lock) for _ in range(request.connections)]
    time.sleep(max(0.0, start - time.monotonic()))
    busy = time.process_time()
    for connection in connections:
        connection.start()
    for connection in connections:
        connection.join()
    seconds = (time.monotonic() if request.kind == "once" else tally.end) - tally.begin
    return tally.result(seconds=seconds, busy=time.process_time() - busy, read=top1)


class _Connection(threading.Thread):
    """One channel with a TCP connection of its own, and the thread that sends on it, one request at a time."""

    def __init__(self, request: LoadRequest, address: str, tally: Tally, lock: threading.Lock) -> None:
        super().__init__(daemon=True)
        self._request, self._address, self._tally, self._lock = request, address, tally, lock

    def run(self) -> None:
        import grpc

        options = [("grpc.use_local_subchannel_pool", 1), ("grpc.max_receive_message_length", -1)]
        broken = 0
        with grpc.insecure_channel(self._address, options=options) as channel:
            call = channel.unary_unary(_INFER)  # bytes in, bytes out
            while broken < RECONNECT_ATTEMPTS:
                with self._lock:
                    due = self._tally.arrivals.next_start(time.monotonic())
                if due is None:
                    return
                time.sleep(max(0.0, due - time.monotonic()))
                with self._lock:
                    image = self._tally.next_image()
                try:
                    answer = call(self._tally.messages[image], timeout=self._request.timeout_seconds)
                except grpc.RpcError as error:
                    broken = broken + 1 if self._failed(error, due, time.monotonic()) else 0
                    if broken:
                        time.sleep(RECONNECT_SECONDS)
                else:
                    broken, now = 0, time.monotonic()
                    with self._lock:
                        self._tally.answered(image, due, now, answer)

    def _failed(self, error: Any, due: float, now: float) -> bool:
        """Count a call that was not answered; returns whether the connection is to blame."""
        code, details = error.code().name, error.details() or ""
        broken = code == "UNAVAILABLE" and not error.trailing_metadata() and bool(_BROKEN.search(details))
        with self._lock:
            if broken:
                self._tally.failed("connection", details)
            elif code in ("UNAVAILABLE", "RESOURCE_EXHAUSTED"):
                self._tally.rejected(code, details, due, now)
            else:
                self._tally.failed("timeout" if code == "DEADLINE_EXCEEDED" else code, details)
        return broken
