"""Bodies that would keep everybody else waiting: by what they are, or by what they become. By name: path, body, headers.

They are made where they are sent: together they are half a gigabyte.
"""

import functools
import gzip

MIB = 1 << 20
HEAD = b'{"inputs": [{"name": "images", "datatype": "FP32", "shape": [1, 3, 16, 16], "data": ['


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
    "packed blanks": ("/v2/models/tiny/infer", blanks, {"Content-Encoding": "gzip"}),
    "packed lists": (
        "/v2/models/tiny/infer",
        lambda: gzip.compress(b"[" + b"[]," * (40 * MIB) + b"[]]", 1),
        {"Content-Encoding": "gzip"},
    ),
}
