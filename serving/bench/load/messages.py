"""An image as the request that a service takes, rendered to the bytes of HTTP/1.1."""

from __future__ import annotations

import base64
import json
import struct
from typing import Any, Literal
from urllib.parse import urlsplit

Encoding = Literal["body", "form", "v2", "v2-binary"]
"""How an image travels: as the body itself, as the file `image` of a form (`form`), as base64 in the JSON of the Open Inference
Protocol (`v2`), or as its binary extension has it (`v2-binary`); the last two as the BYTES tensor `image` of shape [1, 1]."""
CONTENT_TYPES = {".jpg": "image/jpeg", ".jpeg": "image/jpeg", ".png": "image/png", ".webp": "image/webp", ".bmp": "image/bmp"}
_BOUNDARY = "headrace-7MA4YWxkTrZu0gW"


def message(url: str, image: bytes, suffix: str, encoding: Encoding = "body", *, field: str = "image") -> bytes:
    """The whole request, head and body, of an encoded image whose file name ends in `suffix`."""
    parts = urlsplit(url)
    target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    headers, body = encoded(image, CONTENT_TYPES.get(suffix.lower(), "application/octet-stream"), encoding, field)
    lines = {"Host": parts.netloc, **headers, "Content-Length": str(len(body))}
    head = "".join(f"{name}: {value}\r\n" for name, value in lines.items())
    return f"POST {target} HTTP/1.1\r\n{head}\r\n".encode("ascii") + body


def encoded(image: bytes, kind: str, encoding: Encoding, field: str) -> tuple[dict[str, str], bytes]:
    """The headers and the body of a request with an encoded image of that content type."""
    if encoding == "form":
        head = (
            f'--{_BOUNDARY}\r\nContent-Disposition: form-data; name="{field}"; filename="image"\r\nContent-Type: {kind}\r\n\r\n'
        )
        body = head.encode() + image + f"\r\n--{_BOUNDARY}--\r\n".encode()
        return {"Content-Type": f"multipart/form-data; boundary={_BOUNDARY}"}, body
    tensor: dict[str, Any] = {"name": field, "shape": [1, 1], "datatype": "BYTES"}
    if encoding == "v2":
        tensor |= {"parameters": {"content_type": "base64"}, "data": [base64.b64encode(image).decode()]}
        return {"Content-Type": "application/json"}, json.dumps({"inputs": [tensor]}).encode()
    if encoding == "v2-binary":
        element = struct.pack("<I", len(image)) + image
        header = json.dumps({"inputs": [{**tensor, "parameters": {"binary_data_size": len(element)}}]}).encode()
        headers = {"Content-Type": "application/octet-stream", "Inference-Header-Content-Length": str(len(header))}
        return headers, header + element
    return {"Content-Type": kind}, image
