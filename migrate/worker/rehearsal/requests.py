"""Requests that hold a made image, in the form in which a server's class takes it: read off its source, else tried in turn."""

from __future__ import annotations

import ast
import base64
import contextlib
import functools
import inspect
import io
import json
import re
import sys
import textwrap
import typing
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from . import making
from .making import Maker, photo
from .places import is_users
from .stage import Stage

SIZE = (256, 256)
ADDRESS = "http://images.invalid/image.jpg"
"""Of no machine (RFC 6761): whatever fetches it is given a made image."""
_SMALL = (32, 32)
"""Of an image whose pixels are written out as numbers."""
_IMAGE = re.compile(r"image|img|pic|photo|file|content|data|body|input|instances?$|b64|base64|bytes|buffer|url|path|^x$", re.I)
_NAMES_HEADER = re.compile(r"base64,(?=['\"(.\\])|data:image")
_HEADER = re.compile(_NAMES_HEADER.pattern + r"|split\((sep=)?\s*['\"],|partition\(\s*['\"],|\[2[123]:\]")
"""What takes a browser's header off an encoded image, by its words (`import base64, io` is none), its comma or its length."""
_HINTS = (
    ("header", _HEADER.pattern),
    ("base64", r"b64decode|decodebytes|a2b_base64"),
    ("hex", r"fromhex|unhexlify"),
    ("upload", r"\.file\b|\.read\(\)|UploadFile"),
    ("address", r"requests\.get|urlopen|urlretrieve|httpx\.|load_image\("),
    ("bytes", r"BytesIO|frombuffer|imdecode|decode_image|decode_jpeg"),
    ("pixels", r"np\.(as)?array|torch\.(as_)?tensor|FloatTensor|fromarray"),
)
"""Forms, and what in a source says that it is taken; one that says more comes before one that says less."""
_OF_IMAGES = re.compile(
    r"image|img|photo|picture|frame|video|camera|face|\.(files|body)\b|UploadFile|b64decode|imread|imdecode", re.I
)
"""What says of a route that it is for images."""
_OF_ADDRESS = re.compile(r"(^|_)(url|uri|link|address)s?(_|$)|Url\b|URL")
_BODY = re.compile(r"request\.(json|get_json|data)\b|loads\([^)]*request\.(body|data|get_data)\b")
_BOUNDARY = "headrace-made-image"
_KEY = re.compile(r"""(?:[\[(]|[!=]=)\s*["'](\w+)["']""")
"""What may be the name of a part of a request."""
_TAKING = ("get", "getlist", "pop", "setdefault")
REFUSED = 400
"""From this status on a request was not taken."""
FAILING = "failing_routes"
"""Learned: routes that end with an error of their own, where another one came to the model."""


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


ENCODED = frozenset(["header", "base64", "hex", "address"])
"""Forms that are texts, which the name of a parameter does not tell."""


def forms(stage: Stage, source: str) -> list[Form]:
    """All forms, those that the source speaks of first."""
    made = {
        "base64": lambda: base64.b64encode(jpeg(stage)).decode(),
        "header": lambda: f"data:image/jpeg;base64,{base64.b64encode(jpeg(stage)).decode()}",
        "hex": lambda: jpeg(stage).hex(),
        "upload": lambda: Upload(jpeg(stage)),
        "bytes": lambda: bytearray(jpeg(stage)),
        "address": lambda: ADDRESS,
        "path": lambda: _path(stage),
        "pixels": lambda: np.asarray(photo("image.jpg", _SMALL)).tolist(),
        "image": lambda: making.handed("image.jpg", size(stage)),
        "array": lambda: np.asarray(photo("image.jpg", size(stage))),
    }
    return [Form(name, made[name]) for name in dict.fromkeys([*spoken_of(source), "upload", "bytes", "base64", *made])]


def speaks_of_images(route: str, view: Any) -> bool:
    """Whether a route, by its address or by the source of its function, is one for images: it is asked before others."""
    source = ""
    with contextlib.suppress(OSError, TypeError):
        source = inspect.getsource(view)
    return _OF_IMAGES.search(f"{route} {source}") is not None


def spoken_of(source: str) -> list[str]:
    """The names of the forms of which a source speaks."""
    return [name for name, pattern in _HINTS if re.search(pattern, source)]


def size(stage: Stage) -> tuple[int, int]:
    """Of an image in a request: a model for images of one size asks for it where nothing makes them so large."""
    width, height = stage.learned.get("image", SIZE)
    return width, height


def jpeg(stage: Stage) -> bytes:
    """A made image as a file."""
    file = io.BytesIO()
    photo("image.jpg", size(stage)).save(file, "JPEG")
    return file.getvalue()


def _path(stage: Stage) -> str:
    path = stage.made / "image.jpg"
    Maker(stage).file(str(path))
    return str(path)


def keys_of(function: ast.FunctionDef | ast.AsyncFunctionDef | None, number: int = 1) -> list[str]:
    """The constant keys that a function takes out of its argument of that number, those that name an image first."""
    if function is None or len(function.args.args) <= number:
        return []
    return _keys_out_of(function, function.args.args[number].arg)


def _keys_out_of(function: ast.FunctionDef | ast.AsyncFunctionDef, name: str) -> list[str]:
    held = {name}
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


def members_of(function: Any, name: str, kind: Any) -> list[str]:
    """What a function takes for an image out of its argument of that name, which is a table: `data.get("image")`."""
    table = typing.get_origin(kind) or kind
    if table is not Any and not (isinstance(table, type) and issubclass(table, Mapping)):
        return []
    with contextlib.suppress(OSError, TypeError, SyntaxError):
        tree = ast.parse(textwrap.dedent(inspect.getsource(function))).body[0]
        if isinstance(tree, ast.FunctionDef | ast.AsyncFunctionDef):
            return [key for key in _keys_out_of(tree, name) if is_image_key(key)]
    return []


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


# -- what an application asks for


@dataclass(frozen=True)
class Images:
    """How the sources take an image out of a request: uploaded files, form fields and JSON entries by name."""

    files: tuple[str, ...] = ()
    forms: tuple[str, ...] = ()
    entries: tuple[str, ...] = ()
    with_header: bool = False
    """Whether an encoded image begins as a browser's does: `data:image/jpeg;base64,`."""
    offered: tuple[tuple[str, str], ...] = ()
    """Fields and entries that are compared with a list, each with the first of that: `if data["model"] not in MODELS`."""

    def filled(self, names: Iterable[str], text: str) -> dict[str, str]:
        """Fields or entries as they are sent: an image as a text, the address of one, or one of what is offered."""
        offered = dict(self.offered)
        return {name: offered.get(name) or (ADDRESS if _OF_ADDRESS.search(name) else text) for name in names}


def taken(stage: Stage, only: Path | None = None) -> Images:
    """Read off the sources, or one of them: `request.files["file"]`, `"file" in request.files`, `b64decode(data["image"])`, and
    the fields of forms, serializers and tables that hold an image: `picture = forms.ImageField()`."""
    each = [_taken(path) for path in _paths(stage, only)]

    def names(of: str) -> tuple[str, ...]:
        return tuple(dict.fromkeys(name for found in each for name in getattr(found, of)))

    offered = tuple(item for found in each for item in found.offered)
    return Images(names("files"), names("forms"), names("entries"), any(found.with_header for found in each), offered)


def _paths(stage: Stage, only: Path | None = None) -> list[Path]:
    """The files of sources that are the user's: all, or one of them."""
    every = sorted(Path(stage.root).rglob("*.py")) if only is None else [only]
    return [path for path in every if is_users(str(path), stage.root)]


@functools.cache
def _taken(path: Path) -> Images:
    """What one file takes; it is read once, whichever of its views is asked."""
    found: dict[str, dict[str, None]] = {"files": {}, "forms": {}, "entries": {}}
    with_header = False
    offered: dict[str, str] = {}
    with contextlib.suppress(SyntaxError, ValueError):
        tree = ast.parse(path.read_bytes())
        with_header = _NAMES_HEADER.search(path.read_text(encoding="utf-8", errors="replace")) is not None
        bodies, offered, cut = _bodies(tree), _offered(tree), _cut(tree)
        for held, key in _named(tree):
            if re.search(r"request\.(files|FILES)", held):
                found["files"][key] = None
            elif re.search(r"request\.(form|values|POST)", held):
                found["forms"][key] = None
            elif _BODY.search(held) or held.removesuffix(".get") in bodies:
                found["entries"][key] = None
        for call in (node for node in ast.walk(tree) if isinstance(node, ast.Call)):
            if "b64decode" in ast.unparse(call.func):
                found["entries"] |= dict.fromkeys(key for held, key in _named(call) if "request." not in held)
                with_header |= _HEADER.search(ast.unparse(call)) is not None
                with_header |= any(isinstance(node, ast.Name) and node.id in cut for node in ast.walk(call))
        for node in ast.walk(tree):
            match node:
                case ast.Assign(targets=[ast.Name(id=name)], value=ast.Call(func=kind)) if _names_a_file(kind):
                    found["files"][name] = None
    files, forms, entries = (tuple(found[kind]) for kind in ("files", "forms", "entries"))
    return Images(files, forms, entries, with_header, tuple(offered.items()))


def _offered(tree: ast.AST) -> dict[str, str]:
    """The names that are compared with a list of texts, or those of what they are taken from, each with the list's first."""
    assigned = [node for node in ast.walk(tree) if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name)]
    lists = {node.targets[0].id: texts for node in assigned if (texts := _texts(node.value))}  # type: ignore[attr-defined]
    keys = {node.targets[0].id: key for node in assigned for _, key in _named(node.value)}  # type: ignore[attr-defined]
    found: dict[str, str] = {}
    for node in ast.walk(tree):
        match node:
            case ast.Compare(left=left, ops=[ast.In() | ast.NotIn()], comparators=[among]):
                texts = lists.get(among.id, []) if isinstance(among, ast.Name) else _texts(among)
                key = keys.get(left.id) if isinstance(left, ast.Name) else next((key for _, key in _named(left)), None)
                found |= {key: texts[0]} if key is not None and texts else {}
    return found


def _texts(node: ast.expr) -> list[str]:
    items = node.keys if isinstance(node, ast.Dict) else getattr(node, "elts", [])
    texts = [item.value for item in items if isinstance(item, ast.Constant) and isinstance(item.value, str)]
    return texts if len(texts) == len(items) else []


def _bodies(tree: ast.AST) -> set[str]:
    """Variables that hold the JSON of a request: `data = json.loads(request.body)`."""
    assigned = (node for node in ast.walk(tree) if isinstance(node, ast.Assign) and _BODY.search(ast.unparse(node.value)))
    return {target.id for node in assigned for target in node.targets if isinstance(target, ast.Name)}


def _cut(tree: ast.AST) -> set[str]:
    """Variables that hold what follows a browser's header: `text = text.split(",")[1]`, `head, text = text.split(",", 1)`."""
    assigned = (node for node in ast.walk(tree) if isinstance(node, ast.Assign) and _HEADER.search(ast.unparse(node.value)))
    return {part.id for node in assigned for to in node.targets for part in ast.walk(to) if isinstance(part, ast.Name)}


def _names_a_file(kind: ast.expr) -> bool:
    return ast.unparse(kind).rpartition(".")[2] in ("ImageField", "FileField")


def _named(tree: ast.AST) -> Iterator[tuple[str, str]]:
    """What is taken by a constant name out of what: `x["name"]`, `x.get("name")`, `"name" in x`."""
    for node in ast.walk(tree):
        match node:
            case ast.Subscript(value=held, slice=ast.Constant(value=str(key))):
                yield ast.unparse(held), key
            case ast.Call(func=ast.Attribute(attr=how) as held, args=[ast.Constant(value=str(key)), *_]) if how in _TAKING:
                yield ast.unparse(held), key
            case ast.Compare(left=ast.Constant(value=str(key)), ops=[ast.In() | ast.NotIn()], comparators=[held]):
                yield ast.unparse(held), key


@dataclass(frozen=True)
class Body:
    """What is sent, and how that is said: "JSON picture"."""

    name: str
    content_type: str
    data: bytes

    def request(self, path: str, method: str = "POST") -> bytes:
        """With it, all that goes over a connection."""
        lines = [f"{method} {path} HTTP/1.1", "Host: localhost", "Connection: close", f"Content-Type: {self.content_type}"]
        return "\r\n".join([*lines, f"Content-Length: {len(self.data)}", "", ""]).encode() + self.data


def told_back(answer: bytes) -> tuple[int, str]:
    """The status of what came back over a connection, 200 of a handler that gives none, and the text."""
    head, _, text = answer.decode("utf-8", errors="replace").partition("\r\n\r\n")
    return int(head.split(" ")[1]) if " " in head else 200, text


def bodies(stage: Stage) -> Sequence[Body]:
    """The forms of which the sources speak come first."""
    speaks = "\n".join(every_source(stage))
    keys = [key for key in dict.fromkeys(_KEY.findall(speaks)) if is_image_key(key)] or ["image"]
    data = jpeg(stage)
    texts = [form.make() for form in forms(stage, speaks) if form.name in ENCODED]
    plain = [Body("image", "image/jpeg", data)]
    objects = [Body(f"JSON {key}", "application/json", json.dumps({key: text}).encode()) for text in texts for key in keys]
    files = [Body(f"file {key}", f"multipart/form-data; boundary={_BOUNDARY}", _form(key, data)) for key in keys]
    first = [*(files if re.search(r"multipart|\.form\(|\.post\(\)", speaks) else ()), *(objects if "json" in speaks else ())]
    return list(dict.fromkeys([*first, *plain, *files, *objects]))


def every_source(stage: Stage) -> list[str]:
    """Those of the user's."""
    return [path.read_text(encoding="utf-8", errors="replace") for path in _paths(stage)]


def _form(name: str, data: bytes) -> bytes:
    disposition = f'Content-Disposition: form-data; name="{name}"; filename="image.jpg"'
    head = f"--{_BOUNDARY}\r\n{disposition}\r\nContent-Type: image/jpeg\r\n\r\n"
    return head.encode() + data + f"\r\n--{_BOUNDARY}--\r\n".encode()


class Asked:
    """The routes of an application, asked one after the other: the error of one does not keep a server from the others."""

    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        self._first: Exception | None = None

    def ask(self, path: str, request: Callable[[], str]) -> None:
        """Make a request and tell what was answered. An error is kept for the end, unless it is known for the route's own."""
        before = self._stage.count()
        try:
            said = request()
        except Exception as error:  # noqa: BLE001 - whatever the route raises; the first one is raised at the end
            if path not in self._stage.learned.get(FAILING, ()):
                if self._first is None:
                    self._first, self._stage.failed_route = error, path
                return
            said = f"500 {type(error).__name__}: {error}"
            self._stage.note("servers", f"POST {path} ended with an error of its own, as a server answers with 500")
        else:
            self._stage.came_by_route |= self._stage.seen is not None and self._stage.came(before)
        sys.stdout.write(f"POST {path}: {said}\n")

    def end(self) -> None:
        """Raise the first error, if any."""
        if self._first is not None:
            raise self._first
