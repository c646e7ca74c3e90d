"""Requests that hold a made image, in the form in which a server's class takes it: read off its source, else tried in turn."""

from __future__ import annotations

import ast
import base64
import io
import json
import re
from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import Any

import numpy as np

from .making import Maker, photo
from .stage import Stage

SIZE = (256, 256)
ADDRESS = "http://127.0.0.1/image.jpg"
_SMALL = (32, 32)
"""Of an image whose pixels are written out as numbers."""
_IMAGE = re.compile(r"image|img|pic|photo|file|content|data|body|input|instances?$|b64|base64|bytes|buffer|url|path|^x$", re.I)
_HINTS = (
    ("header", r"split\(\s*['\"](,|base64,)|;base64,|partition\(\s*['\"],"),
    ("base64", r"b64decode|decodebytes|a2b_base64"),
    ("hex", r"fromhex|unhexlify"),
    ("upload", r"\.file\b|\.read\(\)|UploadFile"),
    ("address", r"requests\.get|urlopen|urlretrieve|httpx\.|load_image\("),
    ("bytes", r"BytesIO|frombuffer|imdecode|decode_image|decode_jpeg"),
    ("pixels", r"np\.(as)?array|torch\.(as_)?tensor|FloatTensor|fromarray"),
)
"""Forms, and what in a source says that it is taken; one that says more comes before one that says less."""


class Upload:
    """A file as a web framework hands it on: to be read at once, or awaited."""

    def __init__(self, data: bytes, name: str = "image.jpg") -> None:
        self.file, self.filename, self.content_type, self.size = io.BytesIO(data), name, "image/jpeg", len(data)

    def read(self, size: int = -1) -> _Read:
        return _Read(self.file.read(size))

    def seek(self, offset: int) -> None:
        self.file.seek(offset)

    def close(self) -> None: ...


class _Read(bytes):
    """Bytes that may be awaited."""

    def __await__(self) -> Generator[Any, None, bytes]:
        yield from ()
        return bytes(self)


@dataclass(frozen=True)
class Form:
    """A way to write an image: its name, and what makes a value of it anew."""

    name: str
    make: Callable[[], Any]


def forms(stage: Stage, source: str) -> list[Form]:
    """All forms, those that the source speaks of first."""
    made = {
        "base64": lambda: base64.b64encode(jpeg()).decode(),
        "header": lambda: f"data:image/jpeg;base64,{base64.b64encode(jpeg()).decode()}",
        "hex": lambda: jpeg().hex(),
        "upload": lambda: Upload(jpeg()),
        "bytes": lambda: bytearray(jpeg()),
        "address": lambda: ADDRESS,
        "path": lambda: _path(stage),
        "pixels": lambda: np.asarray(photo("image.jpg", _SMALL)).tolist(),
        "image": lambda: photo("image.jpg", SIZE),
        "array": lambda: np.asarray(photo("image.jpg", SIZE)),
    }
    told = [name for name, pattern in _HINTS if re.search(pattern, source)]
    return [Form(name, made[name]) for name in dict.fromkeys([*told, "upload", "bytes", "base64", *made])]


def jpeg() -> bytes:
    file = io.BytesIO()
    photo("image.jpg", SIZE).save(file, "JPEG")
    return file.getvalue()


def _path(stage: Stage) -> str:
    path = stage.made / "image.jpg"
    Maker(stage).file(str(path))
    return str(path)


def keys_of(function: ast.FunctionDef | ast.AsyncFunctionDef | None, number: int = 1) -> list[str]:
    """The constant keys that a function takes out of its argument of that number, those that name an image first."""
    if function is None or len(function.args.args) <= number:
        return []
    held = {function.args.args[number].arg}
    found: dict[str, None] = {}
    for node in ast.walk(function):
        match node:
            case ast.For(target=ast.Name(id=item), iter=of) | ast.comprehension(target=ast.Name(id=item), iter=of):
                held |= {item} if _root(of) in held else set()
            case ast.Assign(targets=[ast.Name(id=item)], value=of) if _root(of) in held:
                held.add(item)
    for node in ast.walk(function):
        match node:
            case ast.Subscript(value=of, slice=ast.Constant(value=str(key))) if _root(of) in held:
                found[key] = None
            case ast.Call(func=ast.Attribute(value=of, attr="get" | "pop"), args=[ast.Constant(value=str(key)), *_]):
                found |= {key: None} if _root(of) in held else {}
            case ast.Compare(left=ast.Constant(value=str(key)), ops=[ast.In() | ast.NotIn()], comparators=[of]):
                found |= {key: None} if _root(of) in held else {}
    return sorted(found, key=lambda key: _IMAGE.search(key) is None)


def is_image_key(key: str) -> bool:
    return _IMAGE.search(key) is not None


def _root(node: ast.AST) -> str | None:
    """The variable that an expression begins with: `data` of `data[0]["x"].file`, `json.loads(data)` and `enumerate(data)`."""
    while True:
        match node:
            case ast.Name(id=name):
                return name
            case ast.Attribute(value=inner) | ast.Subscript(value=inner) | ast.Await(value=inner) | ast.Starred(value=inner):
                node = inner
            case ast.BoolOp(values=[inner, *_]):
                node = inner
            case ast.Call(func=ast.Attribute(value=ast.Name(id="json"), attr="loads"), args=[inner, *_]):
                node = inner
            case ast.Call(func=ast.Name(), args=[inner, *_]):
                node = inner
            case ast.Call(func=ast.Attribute(value=inner)):
                node = inner
            case _:
                return None


def said(answer: Any) -> str:
    """An answer as the rehearsal prints it."""
    try:
        return json.dumps(answer)[:2000]
    except (TypeError, ValueError):
        return f"{answer!s:.2000}"
