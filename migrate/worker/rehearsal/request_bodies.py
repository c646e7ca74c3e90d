"""Bodies of HTTP requests that hold a made image, for what does not declare how it takes one: as it is, in JSON, or as the file
of a form, by the names that the sources speak of."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from .places import is_users
from .requests import ENCODED, forms, is_image_key, jpeg
from .stage import Stage

_BOUNDARY = "headrace-made-image"
_KEY = re.compile(r"""(?:[\[(]|[!=]=)\s*["'](\w+)["']""")


@dataclass(frozen=True)
class Body:
    """What is sent, and how that is said: "JSON picture"."""

    name: str
    content_type: str
    data: bytes


def bodies(stage: Stage) -> Sequence[Body]:
    """The forms of which the sources speak come first."""
    speaks = "\n".join(sources(stage))
    keys = [key for key in dict.fromkeys(_KEY.findall(speaks)) if is_image_key(key)] or ["image"]
    data = jpeg(stage)
    texts = [form.make() for form in forms(stage, speaks) if form.name in ENCODED]
    plain = [Body("image", "image/jpeg", data)]
    objects = [Body(f"JSON {key}", "application/json", json.dumps({key: text}).encode()) for text in texts for key in keys]
    files = [Body(f"file {key}", f"multipart/form-data; boundary={_BOUNDARY}", _form(key, data)) for key in keys]
    first = [*(files if re.search(r"multipart|\.form\(|\.post\(\)", speaks) else ()), *(objects if "json" in speaks else ())]
    return list(dict.fromkeys([*first, *plain, *files, *objects]))


def sources(stage: Stage) -> list[str]:
    """Those of the user's."""
    paths = [path for path in sorted(Path(stage.root).rglob("*.py")) if is_users(str(path), stage.root)]
    return [path.read_text(encoding="utf-8", errors="replace") for path in paths]


def _form(name: str, data: bytes) -> bytes:
    disposition = f'Content-Disposition: form-data; name="{name}"; filename="image.jpg"'
    head = f"--{_BOUNDARY}\r\n{disposition}\r\nContent-Type: image/jpeg\r\n\r\n"
    return head.encode() + data + f"\r\n--{_BOUNDARY}--\r\n".encode()
