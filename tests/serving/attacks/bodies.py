"""Bodies that would keep everybody else waiting: by what they are, or by what they become. By name: path, body, headers.

They are made where they are sent: together they are half a gigabyte.
"""

import functools
import gzip

MIB = 1 << 20
HEAD = b'{"inputs": [{"name": "images", "datatype": "FP32", "shape": [1, 3, 16, 16], "data": ['


def varint(value: int) -> bytes:
    out = b""
    while value > 0x7F:
        out += bytes([value & 0x7F | 0x80])
        value >>= 7
    return out + bytes([value])


def field(number: int, content: bytes) -> bytes:
    """A field of protobuf's wire format that has a length."""
    return varint(number << 3 | 2) + varint(len(content)) + content


@functools.cache
def blanks() -> bytes:
    return gzip.compress(b" " * (127 * MIB) + b"{}")


BODIES = {
    "empty lists for the index": ("/v2/repository/index", lambda: b"[" + b"[]," * MIB + b"[]]", {}),
    "empty lists for a control call": ("/v2/repository/models/tiny/unload", lambda: b"[" + b"[]," * MIB + b"[]]", {}),
    "blanks for the index": ("/v2/repository/index", lambda: b" " * (60 * MIB) + b"{}", {}),
    "empty lists": ("/v2/models/tiny/infer", lambda: b"[" + b"[]," * (20 * MIB) + b"[]]", {}),
    "numbers": ("/v2/models/tiny/infer", lambda: HEAD + b"1.5," * (15 * MIB) + b"1]}]}", {}),
    "members": ("/v2/models/tiny/infer", lambda: b"{" + b'"a":1,' * (10 * MIB) + b'"a":1}', {}),
    "a string": ("/v2/models/tiny/infer", lambda: b'{"id": "' + b"x" * (60 * MIB) + b'"}', {}),
    "a string with no end": ("/v2/models/tiny/infer", lambda: b'"' + b"\\x" * (30 * MIB), {}),
    "blanks": ("/v2/models/tiny/infer", lambda: b" " * (60 * MIB) + b"{}", {}),
    "blanks before a head that is cut": (
        "/v2/models/tiny/infer",
        lambda: b" " * (60 * MIB) + b"[x",
        {"Inference-Header-Content-Length": str(60 * MIB + 1)},
    ),
    "one long image in base64": (
        "/v1/models/tiny:predict",
        lambda: b'{"instances":[{"b64":"' + b"A" * (60 * MIB) + b'"}]}',
        {},
    ),
    "packed blanks": ("/v2/models/tiny/infer", blanks, {"Content-Encoding": "gzip"}),
    "packed lists": (
        "/v2/models/tiny/infer",
        lambda: gzip.compress(b"[" + b"[]," * (40 * MIB) + b"[]]", 1),
        {"Content-Encoding": "gzip"},
    ),
}

# Messages of ModelInfer, as bytes: field 1 is the model, 5 an input, whose field 5 has its contents, 7 raw contents.
# Just shorter than the longest that is taken; one longer is refused before it is put together.
LONGEST = 31 * MIB
MESSAGES = {
    "numbers of a byte": lambda: field(1, b"tiny") + field(5, field(5, field(3, b"\1" * (LONGEST)))),
    "truths": lambda: field(1, b"tiny") + field(5, field(5, field(1, b"\1" * (LONGEST)))),
    "a shape without end": lambda: field(1, b"tiny") + field(5, field(3, b"\1" * (LONGEST))),
    "empty inputs": lambda: field(1, b"tiny") + field(5, b"") * (LONGEST // 2),
    "empty parameters": lambda: field(1, b"tiny") + field(5, field(4, b"") * (LONGEST // 2)),
    "empty contents": lambda: field(1, b"tiny") + field(7, b"") * (LONGEST // 2),
    "fields that nobody knows": lambda: field(1, b"tiny") + field(15, b"") * (LONGEST // 2),
    "floats": lambda: field(1, b"tiny") + field(5, field(2, b"FP32") + field(5, field(6, bytes(LONGEST)))),
    "more than is taken": lambda: field(1, b"tiny") + field(7, bytes(60 * MIB)),
}
