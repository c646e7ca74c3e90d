"""Downloads: whatever a script fetches by an address is made in the form that it is read in, and comes from nowhere.

What an address holds is said by its ending, by the name of the file that the caller is going to write, or by the error of
whoever reads it: then the next attempt gives what that reader wants.
"""

from __future__ import annotations

import contextlib
import email.message
import io
import os
import re
import shutil
import urllib.parse
import urllib.request
import urllib.response
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ..making import WEIGHTS, Maker
from ..places import frames, is_users, of_kind
from ..stage import Stage

_DEFAULT = "labels.txt"
_OF_NAMES = (".txt", ".json")
"""Endings of files that hold names of classes."""
_PATHS: tuple[Any, ...] = (str, os.PathLike)
_KINDS = ((b"\xff\xd8", "image/jpeg"), (b"\x89PNG", "image/png"), (b"{", "application/json"), (b"[", "application/json"))
"""What a server says of what begins so: a script may ask for an image."""
_CALLERS = 3
"""Functions of the user's, from the innermost outwards, whose variables may name the file that is fetched."""
# What reads other bytes than these says so.
_READERS = (
    (r"UnidentifiedImage|cannot identify image|_src\.empty\(\)|imdecode|Could not find a format to read", "image.jpg"),
    (r"UnpicklingError|PytorchStreamReader|invalid load key|Ran out of input|magic number|HeaderTooLarge", "weights.pth"),
    (r"JSONDecodeError", "labels.json"),
    (r"BadZipFile|not a zip file", "data.zip"),
    (r"tarfile\.|ReadError|not a gzip file|BadGzipFile", "data.tar.gz"),
    (r"ParserError|EmptyDataError", "data.csv"),
    (r"SyntaxError: .*<(unknown|string)>|malformed node", "idx_to_labels.txt"),
)


@contextlib.contextmanager
def stand_in(stage: Stage) -> Iterator[None]:
    maker = Maker(stage)
    downloads = _Downloads(stage, maker)
    stage.wrap(urllib.request.OpenerDirector, "open", downloads.opened)
    stage.wrap(urllib.request, "urlretrieve", downloads.retrieved)
    stage.when_imported("torch", lambda torch: stage.wrap(torch.hub, "download_url_to_file", downloads.to_file))
    stage.when_imported("requests.sessions", lambda library: stage.wrap(library.Session, "send", downloads.sent))
    stage.when_imported("httpx", lambda library: _httpx(stage, library, downloads))
    for library in ("gdown", "wget"):
        stage.when_imported(library, lambda module: stage.wrap(module, "download", downloads.by_library))
    for name in ("dataset_download", "competition_download", "model_download", "login"):
        stage.when_imported("kagglehub", lambda module, name=name: stage.wrap(module, name, downloads.by_handle))  # type: ignore[misc]
    for name in ("login", "notebook_login", "interpreter_login"):
        stage.when_imported("huggingface_hub", lambda module, name=name: stage.wrap(module, name, _logged_in(stage)))  # type: ignore[misc]
    for name in ("cached_download", "download_folder"):
        stage.when_imported("gdown", lambda module, name=name: stage.wrap(module, name, downloads.by_library))  # type: ignore[misc]
    yield


def lesson(stage: Stage, error: BaseException) -> bool:
    """Whoever reads what was fetched last, and cannot, says what it should have been."""
    text = f"{type(error).__module__}.{type(error).__name__}: {error}"
    kind = next((kind for pattern, kind in _READERS if re.search(pattern, text)), None)
    known = stage.learned.get("fetched", {})
    unsure = [address for address in reversed(stage.unsure) if address not in known]
    return kind is not None and bool(unsure) and stage.learn("fetched", {**known, unsure[0]: kind})


def _logged_in(stage: Stage) -> Any:
    """Nobody is asked for a token of Hugging Face's, nor is one sent there: nothing is fetched with it."""

    def login(original: Any, *_: Any, **__: Any) -> None:
        stage.note("network", f"huggingface_hub.{original.__name__} logged nobody in")

    return login


def _is_remote(address: str) -> bool:
    """Whether it is another machine's, and something that can be made: code, as torch.hub takes it, cannot."""
    parts = urllib.parse.urlparse(address)
    here = ("localhost", "127.0.0.1", "0.0.0.0", "::1", "testserver", None)  # noqa: S104 - names of this machine
    code = parts.hostname in ("github.com", "api.github.com") and not re.search(r"/(releases|raw|blob)/", parts.path)
    return parts.scheme in ("http", "https", "ftp") and parts.hostname not in here and not code


class _Downloads:
    def __init__(self, stage: Stage, maker: Maker) -> None:
        self.stage = stage
        self.maker = maker

    def content(self, address: str) -> bytes | None:
        """What the address holds; None where it is this machine's."""
        if not _is_remote(address):
            return None
        name = self._name(address)
        path = str(self.stage.made / "fetched" / name)
        self._make(path, name)
        return Path(path).read_bytes()

    def _name(self, address: str) -> str:
        learned = self.stage.learned.get("fetched", {}).get(address)
        if learned is not None:
            return str(learned)
        parts = urllib.parse.urlparse(urllib.parse.unquote(address))
        said = [parts.path, *(value for _, value in urllib.parse.parse_qsl(parts.query))]
        for text in (*said, *self._written()):
            name = os.path.basename(text)
            if name and self.maker.can(name):
                return name
        self.stage.unsure.append(address)
        return _DEFAULT

    def _written(self) -> Iterator[str]:
        """Names of files among the variables of the callers that are the user's: `download(address, destination)`."""
        own = [frame for frame in frames() if is_users(frame.f_code.co_filename, self.stage.root)]
        for frame in own[:_CALLERS]:
            if frame.f_code.co_name != "<module>":
                yield from (os.fspath(value) for _, value in of_kind(frame.f_locals, *_PATHS))

    def _make(self, path: str, name: str) -> None:
        self.maker.file(path)
        edge = "network" if name.lower().endswith((*WEIGHTS, *_OF_NAMES)) else "data"  # nobody's data is not the user's
        self.stage.note(edge, f"{name} was made, not downloaded")

    # -- one for each way of fetching

    def opened(self, original: Any, opener: Any, asked: Any, *args: Any, **named: Any) -> Any:
        address = asked if isinstance(asked, str) else getattr(asked, "full_url", "")
        data = self.content(address)
        return original(opener, asked, *args, **named) if data is None else _Answer(data, address)

    def retrieved(self, original: Any, url: str, filename: Any = None, *args: Any, **named: Any) -> Any:
        if filename is None or not _is_remote(url) or not self.maker.can(os.fspath(filename)):
            return original(url, filename, *args, **named)
        self._make(os.fspath(filename), os.path.basename(filename))
        return filename, _Answer(b"", url).headers

    def to_file(self, original: Any, url: str, dst: str, *args: Any, **named: Any) -> None:
        target = _writable(self.stage, dst)
        cached = _cached(self.stage, url)
        if cached is not None:
            shutil.copyfile(cached, target)
        elif self.maker.can(target):
            self._make(target, os.path.basename(target))
        else:
            data = self.content(url)
            Path(target).write_bytes(data) if data is not None else original(url, dst, *args, **named)

    def by_library(self, original: Any, url: Any = None, output: Any = None, *args: Any, **named: Any) -> Any:
        """gdown and wget: the file is `output`, or `out`, or named like the address, or below a folder of that name."""
        output = str(output or named.get("out") or named.get("path") or "")
        address = str(url or named.get("id") or "file")
        if original.__name__ == "download_folder":
            os.makedirs(output or "data", exist_ok=True)
            return [output or "data"]
        if not output or output.endswith(os.sep) or os.path.isdir(output):
            output = os.path.join(output, os.path.basename(urllib.parse.urlparse(address).path) or "file")
        if self.maker.can(output):
            self._make(output, os.path.basename(output))
        else:
            os.makedirs(os.path.dirname(output) or ".", exist_ok=True)
            Path(output).write_bytes(self.content(address if _is_remote(address) else f"https://{address}") or b"")
        return output

    def by_handle(self, original: Any, handle: Any = "", path: Any = None, *_: Any, **__: Any) -> str | None:
        """kagglehub: the folder of a data set, or a file of it. What was fetched before is in the user's cache, else it is as
        on Kaggle's own machines, and is made when it is read."""
        if original.__name__ == "login":
            return None
        words = [part for part in str(handle).split("/") if part and part != "versions" and not part.isdigit()]
        cache = os.path.expanduser(os.environ.get("KAGGLEHUB_CACHE") or "~/.cache/kagglehub")
        kept = os.path.join(cache, f"{original.__name__.partition('_')[0]}s", *words, "versions")
        versions = sorted(filter(str.isdigit, os.listdir(kept)), key=int) if os.path.isdir(kept) else []
        if not versions:
            self.stage.note("data", f"{handle} was not fetched from Kaggle")
        folder = os.path.join(kept, versions[-1]) if versions else os.path.join("/kaggle/input", *words[-1:])
        return os.path.join(folder, *([path] if path else []))

    def sent(self, original: Any, session: Any, request: Any, *args: Any, **named: Any) -> Any:
        data = self.content(request.url) if request.method in ("GET", "HEAD") else None
        if data is None:
            return original(session, request, *args, **named)
        answer = __import__("requests").Response()
        answer.status_code, answer.reason, answer.url, answer.request = 200, "OK", request.url, request
        answer.headers.update(_headers(data))
        answer.encoding, answer.raw = "utf-8", _Answer(data, request.url)
        return answer


class _Answer(urllib.response.addinfourl):
    """An answer as urllib gives it, with the names that http.client has for the same."""

    def __init__(self, data: bytes, address: str) -> None:
        headers = email.message.Message()
        for name, value in _headers(data).items():
            headers[name] = value
        super().__init__(io.BytesIO(data), headers, address, 200)
        self.reason, self.length, self.msg = "OK", len(data), "OK"

    def getheader(self, name: str, default: str | None = None) -> str | None:
        return str(self.headers.get(name, default))

    def getheaders(self) -> list[tuple[str, str]]:
        return list(self.headers.items())


def _headers(data: bytes) -> dict[str, str]:
    kind = next((kind for begin, kind in _KINDS if data.startswith(begin)), "application/octet-stream")
    return {"Content-Length": str(len(data)), "Content-Type": kind}


def _httpx(stage: Stage, library: Any, downloads: _Downloads) -> None:
    def handle(original: Any, transport: Any, request: Any) -> Any:
        data = downloads.content(str(request.url))
        return original(transport, request) if data is None else library.Response(200, content=data, headers=_headers(data))

    async def handle_async(original: Any, transport: Any, request: Any) -> Any:
        data = downloads.content(str(request.url))
        if data is None:
            return await original(transport, request)
        return library.Response(200, content=data, headers=_headers(data))

    stage.wrap(library.HTTPTransport, "handle_request", handle)
    stage.wrap(library.AsyncHTTPTransport, "handle_async_request", handle_async)


def _writable(stage: Stage, path: str) -> str:
    """The path, or its place among what is made where its own folder, the user's cache, can only be read."""
    folder = os.path.dirname(os.path.abspath(path))
    with contextlib.suppress(OSError):
        os.makedirs(folder, exist_ok=True)
        if os.access(folder, os.W_OK):
            return path
    other = f"{stage.outside}{os.path.abspath(path)}"
    os.makedirs(os.path.dirname(other), exist_ok=True)
    return other


def _cached(stage: Stage, url: str) -> str | None:
    name = os.path.basename(urllib.parse.urlparse(url).path)
    for folder in stage.request.caches:
        for below in ("hub/checkpoints", "checkpoints", "."):
            path = Path(folder, below, name)
            if path.is_file():
                return str(path)
    return None
