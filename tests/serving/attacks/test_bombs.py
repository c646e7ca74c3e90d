"""Small requests that become huge ones: compressed bodies, images of many pixels, metadata that unpacks, endless frames."""

import functools
import gzip
import io
import json
import struct
import zlib

import grpc
import pytest
from PIL import Image, PngImagePlugin
from tritonclient.grpc import service_pb2 as pb
from tritonclient.grpc import service_pb2_grpc


def _chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def _png(width: int, height: int, *chunks: bytes, pixels: bytes = b"") -> bytes:
    header = _chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0))
    return b"\x89PNG\r\n\x1a\n" + header + b"".join(chunks) + _chunk(b"IDAT", zlib.compress(pixels)) + _chunk(b"IEND", b"")


@functools.cache
def _nested() -> bytes:
    return gzip.compress(gzip.compress(bytes(20 << 20), 1), 1)


@pytest.mark.parametrize(("encoding", "wbits"), [("gzip", 31), ("deflate", 15)])
def test_compressed_bodies(target, request_to, encoding, wbits):
    packer = zlib.compressobj(1, wbits=wbits)
    bomb = b"".join(packer.compress(bytes(1 << 20)) for _ in range(160)) + packer.flush()
    assert len(bomb) < 4 << 20
    status, body = request_to(target.http, "POST", "/v2/models/tiny/infer", bomb, {"Content-Encoding": encoding})
    assert status == 413
    assert b"unpacks to more" in body


@pytest.mark.parametrize("encodings", ["gzip, gzip", "deflate,gzip", "br", "zstd", "x-gzip"])
def test_nested_encodings_are_not_unpacked(target, request_to, encodings):
    assert request_to(target.http, "POST", "/v2/models/tiny/infer", _nested(), {"Content-Encoding": encodings})[0] == 501


@pytest.mark.parametrize("compression", [grpc.Compression.Gzip, pytest.param(grpc.Compression.Deflate, marks=pytest.mark.slow)])
def test_compressed_messages(target, compression):
    with grpc.insecure_channel(target.grpc, options=[("grpc.max_send_message_length", -1)]) as channel:
        stub = service_pb2_grpc.GRPCInferenceServiceStub(channel)
        request = pb.ModelInferRequest(model_name="tiny", raw_input_contents=[bytes(80 << 20)])
        with pytest.raises(grpc.RpcError) as caught:
            stub.ModelInfer(request, compression=compression, timeout=60)
        assert caught.value.code() == grpc.StatusCode.RESOURCE_EXHAUSTED
        good = pb.ModelInferRequest(model_name="tiny", raw_input_contents=[bytes(768 * 4)])
        good.inputs.add(name="images", datatype="FP32", shape=[1, 3, 16, 16])
        assert stub.ModelInfer(good, compression=compression, timeout=60).model_name == "tiny"


def test_many_pixels(target, request_to):
    for width, height in ((20_000, 20_000), (0x7FFFFFFF, 1), (1, 0x7FFFFFFF), (0x7FFFFFFF, 0x7FFFFFFF)):
        status, body = request_to(target.http, "POST", "/v1/classify/tiny", _png(width, height))
        assert status == 400, body
    zeros = zlib.compress(bytes(3 * 12_000 * 1_000 + 12_000))
    whole = _png(12_000, 12_000)[:33] + _chunk(b"IDAT", zeros * 1) + _chunk(b"IEND", b"")
    assert request_to(target.http, "POST", "/v1/classify/tiny", whole)[0] == 400


def test_metadata_that_unpacks(target, request_to):
    big = zlib.compress(bytes(100 << 20), 1)
    for chunk in (
        _chunk(b"zTXt", b"Comment\0\0" + big),
        _chunk(b"iCCP", b"icc\0\0" + big),
        _chunk(b"iTXt", b"Comment\0\1\0\0\0" + big),
        _chunk(b"zTXt", b"Comment\0\0" + zlib.compress(bytes(1 << 20))) * 300,
    ):
        pixels = b"".join(b"\0" + bytes(30) for _ in range(10))
        status, _ = request_to(target.http, "POST", "/v1/classify/tiny", _png(10, 10, chunk, pixels=pixels))
        assert status in (200, 400)


def test_parts_without_end(target, request_to):
    """One such request of 60 MiB kept a decoding thread for up to minutes, far beyond its deadline, and took gigabytes."""
    files = {kind: io.BytesIO() for kind in ("JPEG", "GIF")}
    for kind, file in files.items():
        Image.new("L", (20, 20)).save(file, kind)
    jpeg, gif = (file.getvalue() for file in files.values())
    at = 13 + 3 * 2 ** ((gif[10] & 7) + 1)
    for bomb in (
        jpeg[:2] + b"\xff\xe1\x00\x02" * (8 << 20) + jpeg[2:],
        jpeg[:2] + b"\xff" * (32 << 20) + jpeg[2:],
        gif[:at] + b"!\xfe" + b"\x01a" * (16 << 20) + b"\0" + gif[at:],
        _png(10, 10, _chunk(b"abCd", b"") * (2 << 20)),
    ):
        status, body = request_to(target.http, "POST", "/v1/classify/tiny", bomb)
        assert (status, b"too many parts" in body) == (400, True), body


def test_frames_without_end(target, request_to):
    frames = [Image.new("P", (300, 300), number % 256) for number in range(500)]
    data = io.BytesIO()
    frames[0].save(data, "GIF", save_all=True, append_images=frames[1:], loop=0)
    status, body = request_to(target.http, "POST", "/v1/classify/tiny?k=1", data.getvalue())
    assert status in (200, 400), body


def test_a_bomb_inside_a_batch_of_images(target, request_to):
    bomb = _png(20_000, 20_000)
    data = (struct.pack("<I", len(bomb)) + bomb) * 8
    entry = {"name": "IMAGE", "datatype": "BYTES", "shape": [8, 1], "parameters": {"binary_data_size": len(data)}}
    header = json.dumps({"inputs": [entry]}).encode()
    headers = {"Inference-Header-Content-Length": str(len(header))}
    status, body = request_to(target.http, "POST", "/v2/models/tiny_classify/infer", header + data, headers)
    assert status == 400
    assert b"pixels" in body or b"20000" in body


def test_pillow_s_own_guard_is_the_same_for_what_it_opens(target, request_to):
    info = PngImagePlugin.PngInfo()
    info.add_text("Comment", "x" * 100_000, zip=True)
    data = io.BytesIO()
    Image.new("RGB", (20, 20)).save(data, "PNG", pnginfo=info)
    assert request_to(target.http, "POST", "/v1/classify/tiny", data.getvalue())[0] == 200
