"""The route of an application that a package can answer in its place: path, how an image is sent there, and the answer's form.

`headrace migrate` writes them into `headrace.json` as "routes", each proved against the application itself; `headrace serve
--keep-routes` reads them. Both hold a path to the same rule here.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Self

from .answer_template import Node
from .template_json import MOST_CHARACTERS, template_from_json, template_to_json

MOST_ROUTES = 16
MOST_TABLES = 4
_MOST_PATH = 200
_PATH = re.compile(r"(/[A-Za-z0-9_~-][A-Za-z0-9._~-]*)+/?", re.ASCII)
# What the server answers itself begins so; serving/protocol/routes.py is held to this by a test.
RESERVED = (
    *("v2", "ping", "invocations", "vertex", "console", "docs", "openapi.json", "metrics"),
    *("v1/classify", "v1/embed", "v1/models", "v1/figures", "v1/history", "v1/plan", "v1/preprocess", "v1/kept"),
)
_NAME = re.compile(r"[^\x00-\x1f\x7f\"\\\r\n]{1,100}")

ImageKind = Literal["file", "body", "json"]
_KINDS: tuple[ImageKind, ...] = ("file", "body", "json")


def why_no_path(path: object) -> str | None:
    """Why a path cannot be that of a kept route; None where it can."""
    if not isinstance(path, str) or len(path) > _MOST_PATH or not _PATH.fullmatch(path):
        return "only paths of letters, digits, '.', '_', '~' and '-' between slashes are kept, none that begins with a dot"
    own = next((begin for begin in RESERVED if f"{path}/".startswith(f"/{begin}/")), None)
    return None if own is None else f"Headrace answers at /{own} itself"


@dataclass(frozen=True, kw_only=True)
class ImageForm:
    """How a request holds its image: as the file `name` of a multipart form, as its body, or as base64 in the member `name` of
    a JSON object."""

    kind: ImageKind
    name: str = ""

    def __str__(self) -> str:
        where = {"file": f"the file {self.name!r} of a form", "json": f"base64 in {self.name!r} of a JSON object"}
        return where.get(self.kind, "the body")


@dataclass(frozen=True, kw_only=True)
class KeptRoute:
    """One route, which takes POST. `tables` name the classes beside the labels; `proved` is on how many images it was, and
    `source` the place of the application's function."""

    path: str
    image: ImageForm
    template: Node
    tables: tuple[tuple[str, ...], ...] = ()
    proved: int = 0
    source: str = ""

    def to_json(self) -> dict[str, Any]:
        return {
            "path": self.path,
            "image": {"kind": self.image.kind, "name": self.image.name},
            "template": template_to_json(self.template),
            "tables": [list(table) for table in self.tables],
            "proved": self.proved,
            "source": self.source,
        }

    @classmethod
    def from_json(cls, data: Any, *, classes: int, labeled: bool) -> Self:
        """The route of a model with so many classes, which labels name or not. Raises ValueError saying what is wrong with
        it."""
        if not isinstance(data, Mapping) or set(data) != {"path", "image", "template", "tables", "proved", "source"}:
            raise ValueError("a route must have path, image, template, tables, proved and source")
        if why := why_no_path(data["path"]):
            raise ValueError(f"{str(data['path'])[:100]!r} cannot be a route's path: {why}")
        tables = _tables(data["tables"], classes)
        if type(data["proved"]) is not int or data["proved"] < 1:
            raise ValueError("a route must say on how many images it was proved")
        if not isinstance(data["source"], str) or len(data["source"]) > MOST_CHARACTERS:
            raise ValueError("the source of a route must be a text")
        return cls(
            path=data["path"],
            image=_image(data["image"]),
            template=template_from_json(data["template"], classes=classes, tables=len(tables), labeled=labeled),
            tables=tables,
            proved=data["proved"],
            source=data["source"],
        )


def routes_from_json(data: Any, *, classes: int, labeled: bool) -> tuple[KeptRoute, ...]:
    """The routes of a package. Raises ValueError."""
    if not isinstance(data, list) or len(data) > MOST_ROUTES:
        raise ValueError(f"routes must be a list of {MOST_ROUTES} at most")
    routes = tuple(KeptRoute.from_json(item, classes=classes, labeled=labeled) for item in data)
    if len({route.path for route in routes}) != len(routes):
        raise ValueError("two routes have one path")
    return routes


def _image(data: Any) -> ImageForm:
    if not isinstance(data, Mapping) or set(data) != {"kind", "name"} or data["kind"] not in _KINDS:
        raise ValueError(f"the image of a route must have a name and a kind, one of {', '.join(_KINDS)}")
    name = data["name"]
    if not isinstance(name, str) or (data["kind"] == "body") != (name == "") or (name and not _NAME.fullmatch(name)):
        raise ValueError("the image of a route has a name of up to 100 printable characters, unless it is the body")
    return ImageForm(kind=data["kind"], name=name)


def _tables(data: Any, classes: int) -> tuple[tuple[str, ...], ...]:
    if not isinstance(data, list) or len(data) > MOST_TABLES:
        raise ValueError(f"the tables of a route must be a list of {MOST_TABLES} at most")
    return tuple(_table(table, classes) for table in data)


def _table(data: Any, classes: int) -> tuple[str, ...]:
    texts: Sequence[Any] = data if isinstance(data, list) else ()
    if len(texts) != classes or not all(isinstance(text, str) and len(text) <= MOST_CHARACTERS for text in texts):
        raise ValueError(f"a table of a route must hold a text for each of the {classes} classes")
    return tuple(texts)
