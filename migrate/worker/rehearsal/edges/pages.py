"""Pages of Streamlit and Gradio, at which nobody looks: an image is uploaded, buttons are pressed, choices stay as they are.

Both libraries are stood in for whether they are installed or not: outside of their servers their widgets answer nothing.
"""

from __future__ import annotations

import contextlib
import functools
import importlib.abc
import importlib.machinery
import io
import os
import re
import shutil
import sys
import types
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from .. import making
from ..making import IMAGES, Maker, photo
from ..silent import Entries
from ..stage import Enough, Stage
from .packages import folders_of

_UNWANTED = re.compile(r"clear|reset|delete|remove|log ?out|back|cancel|retrain|train|stop|another", re.I)
"""Buttons that are not pressed."""
_CLASSES = re.compile(r"\b(class|categor|label)", re.I)
_DECORATORS = re.compile(r"cache|memo|singleton|fragment|dialog")
_PARTS = "streamlit_"
"""What the names of libraries begin with that have further parts for Streamlit's pages."""
_EVENTS = frozenset("change click edit input release select stream submit then upload success load clear".split())  # noqa: SIM905
_PICTURES = frozenset("image imageeditor imagemask paint sketchpad webcam pil".split())  # noqa: SIM905


@contextlib.contextmanager
def stand_in(stage: Stage) -> Iterator[None]:
    maker = Maker(stage)
    page = _streamlit(stage, maker)
    finder = _Finder({"streamlit": page, "gradio": _gradio(stage, maker), _PARTS: _components(stage, page)}, stage.root)
    sys.meta_path.insert(0, finder)
    yield
    sys.meta_path.remove(finder)
    for name in list(finder.found):
        if isinstance(sys.modules.get(name), _Module):
            del sys.modules[name]


class Part:
    """A place of a page, or whatever else such a library gives: what is called on it gives itself, or what is known."""

    def __init__(self, known: dict[str, Any]) -> None:
        self.__dict__["known"] = known

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return self.known.get(name, self)

    def __setattr__(self, name: str, value: Any) -> None: ...

    def __call__(self, *args: Any, **named: Any) -> Any:
        return self

    def __enter__(self) -> Part:
        return self

    def __exit__(self, *_: object) -> None: ...


class _Module(types.ModuleType):
    def __init__(self, name: str, page: Part) -> None:
        super().__init__(name)
        self.__path__: list[str] = []
        self._page = page

    def __getattr__(self, name: str) -> Any:
        return getattr(self._page, name)


class _Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    def __init__(self, pages: dict[str, Part], root: str) -> None:
        self._pages, self._root = pages, root
        self.found: set[str] = set()

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: types.ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if self._page(fullname) is None:
            return None
        self.found.add(fullname)
        return importlib.machinery.ModuleSpec(fullname, self, is_package=True)

    def _page(self, fullname: str) -> Part | None:
        library = fullname.partition(".")[0]
        own = library.startswith(_PARTS) and folders_of(self._root, library)  # the user's streamlit_app.py
        return None if own else self._pages.get(_PARTS if library.startswith(_PARTS) else library)

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> types.ModuleType:
        page = self._page(spec.name)
        assert page is not None
        return _Module(spec.name, page)

    def exec_module(self, module: types.ModuleType) -> None: ...


# -- Streamlit: the script is the page


class _Upload(io.BytesIO):
    """A file as a visitor uploads it."""

    def __init__(self, name: str, data: bytes) -> None:
        super().__init__(data)
        self.name, self.type, self.size, self.file_id = name, "image/jpeg", len(data), "1"


def _streamlit(stage: Stage, maker: Maker) -> Part:
    def upload(label: str = "", type: Any = None, accept_multiple_files: bool = False, *_: Any, **__: Any) -> Any:  # noqa: A002 - their name
        endings = [f".{str(end).lstrip('.')}" for end in ([type] if isinstance(type, str) else type or [])]
        endings.sort(key=lambda end: end.lower() not in IMAGES)
        name = next((f"upload{end}" for end in endings if maker.can(f"upload{end}")), "upload.jpg")
        stage.note("servers", f"{name} was given to the page at {str(label)!r}")
        path = str(stage.made / "uploads" / name)
        if name.lower().endswith(".zip"):
            maker.folder(os.path.splitext(path)[0], flat=False)
            shutil.make_archive(os.path.splitext(path)[0], "zip", os.path.splitext(path)[0])
        else:
            maker.file(path)
        with open(path, "rb") as file:
            made = _Upload(name, file.read())
        return [made] if accept_multiple_files else made

    def chosen(label: Any = "", options: Any = (), index: Any = 0, *_: Any, **__: Any) -> Any:
        offered = list(options)
        return offered[index or 0] if offered else None

    def several(label: Any = "", options: Any = (), default: Any = None, *_: Any, **__: Any) -> list[Any]:
        return list(default) if isinstance(default, list | tuple) else [default] if default is not None else list(options)[:1]

    def number(label: Any = "", min_value: Any = None, max_value: Any = None, value: Any = None, *_: Any, **__: Any) -> Any:
        if value is None and _CLASSES.search(str(label)):  # as many as an upload has
            stage.note("servers", f"{maker.classes} was given to the page at {str(label)!r}")
            return maker.classes
        return next((item for item in (value, min_value) if item is not None and item != "min"), 0)

    def text(label: Any = "", value: Any = "", *_: Any, **__: Any) -> Any:
        return value

    def pressed(label: Any = "", *_: Any, **__: Any) -> bool:
        return not _UNWANTED.search(str(label))

    def parts(spec: Any, *_: Any, **__: Any) -> list[Part]:
        return [page] * (spec if isinstance(spec, int) else len(spec))

    def ended(*_: Any, **__: Any) -> None:
        raise Enough("the page ended itself")

    choices = dict.fromkeys(("selectbox", "radio", "segmented_control", "pills", "select_slider"), chosen)
    known = {"session_state": Entries(), "query_params": {}, "secrets": Entries(), "multiselect": several, "checkbox": text}
    known |= {"toggle": text, "data_editor": lambda data, *_, **__: data, "download_button": lambda *_, **__: False, **choices}
    known |= dict.fromkeys(("file_uploader", "camera_input"), upload) | dict.fromkeys(("text_input", "text_area"), text)
    known |= dict.fromkeys(("button", "form_submit_button"), pressed) | dict.fromkeys(("slider", "number_input"), number)
    known |= dict.fromkeys(("columns", "beta_columns", "tabs"), parts)
    known |= dict.fromkeys(("stop", "rerun", "experimental_rerun", "switch_page"), ended)
    page = _Streamlit(known)
    return page


def _components(stage: Stage, page: Part) -> Part:
    """Libraries of further parts for Streamlit's pages, which want the library's own server: a canvas, a menu, a cropper."""

    def canvas(*_: Any, height: int = 400, width: int = 600, **__: Any) -> types.SimpleNamespace:
        stage.note("servers", "a picture stood on the page's canvas")
        drawn = np.asarray(photo("canvas.png", (height, width), "L"))
        pixels = np.stack([drawn, drawn, drawn, np.full_like(drawn, 255)], axis=-1)
        return types.SimpleNamespace(image_data=pixels, json_data={"objects": [{}], "background": ""})

    return Part(
        {**page.known, "st_canvas": canvas, "option_menu": page.known["selectbox"], "st_cropper": lambda image, **_: image}
    )


class _Streamlit(Part):
    def __getattr__(self, name: str) -> Any:
        return _kept if _DECORATORS.search(name) else super().__getattr__(name)


def _kept(function: Any = None, *_: Any, **__: Any) -> Any:
    """A decorator that keeps what a function gave, with arguments or without."""
    if not callable(function):
        return _kept
    kept: Any = functools.partial(function)
    kept.clear = lambda *_: None
    return functools.update_wrapper(kept, function)


# -- Gradio: functions that are given what components hold


def _gradio(stage: Stage, maker: Maker) -> Part:
    waiting: list[tuple[Callable[..., Any], list[Any]]] = []

    def value(component: Any) -> Any:
        kind = component if isinstance(component, str) else component.kind
        given: dict[str, Any] = {} if isinstance(component, str) else component.given
        if kind.lower() in _PICTURES:
            return _picture(stage, given)
        if kind.lower() in ("dropdown", "radio"):
            first = (given.get("choices") or component.args or [[None]])[0]
            first = first[0] if isinstance(first, list) else first
            stated = given.get("value")
            return stated if stated is not None else first[-1] if isinstance(first, tuple) else first
        known = given.get("value", given.get("default", component.args[0] if kind == "State" and component.args else None))
        blank = {
            "text": "",
            "textbox": "",
            "slider": given.get("minimum", 0),
            "number": 0,
            "checkbox": False,
            "checkboxgroup": [],
        }
        return known if known is not None else blank.get(kind.lower())

    def call(function: Callable[..., Any], inputs: list[Any]) -> None:
        stage.note("servers", "the function of a Gradio page was called with a made image instead of serving")
        sys.stdout.write(f"{function(*map(value, inputs))}\n")

    def launch() -> None:
        stage.served = True
        with_images = [item for item in waiting if any(_is_picture(component) for component in item[1])]
        for function, inputs in with_images or waiting:
            call(function, inputs)
        waiting.clear()

    def interface(fn: Any = None, inputs: Any = None, outputs: Any = None, *_: Any, **__: Any) -> Part:
        waiting.extend((function, _listed(inputs)) for function in _listed(fn) if callable(function))
        return page

    class Component(Part):
        """A component by its class's name, with what it was made of; functions that its events call are kept."""

        def __init__(self, kind: str, args: tuple[Any, ...], given: dict[str, Any]) -> None:
            super().__init__({})
            self.__dict__.update(kind=kind, args=args, given=given)

        def __getattr__(self, name: str) -> Any:
            return self._when if name in _EVENTS else super().__getattr__(name)

        def _when(self, fn: Any = None, inputs: Any = None, *_: Any, **__: Any) -> Any:
            interface(fn, inputs)
            return self

    class Library(Part):
        def __getattr__(self, name: str) -> Any:
            if name in self.known or not name[:1].isupper():
                return super().__getattr__(name)
            return lambda *args, **given: Component(name, args, given)

    def serve(app: Any = None, *_: Any, **__: Any) -> Any:
        launch()
        return app

    def same(*_: Any, **__: Any) -> Part:
        return page

    page: Part = Library({"Interface": interface, "launch": serve, "mount_gradio_app": serve, "Request": type})
    page.known["Error"] = type("Error", (Exception,), {})
    page.known["Progress"] = lambda *_, **__: _Progress({})
    page.known.update(dict.fromkeys(("Blocks", "Examples", "TabbedInterface"), same))
    return page


class _Progress(Part):
    def tqdm(self, items: Any, *_: Any, **__: Any) -> Any:
        return items


def _listed(value: Any) -> list[Any]:
    return list(value) if isinstance(value, list | tuple | set) else [] if value is None else [value]


def _is_picture(component: Any) -> bool:
    return (component if isinstance(component, str) else getattr(component, "kind", "")).lower() in _PICTURES


def _picture(stage: Stage, given: dict[str, Any]) -> Any:
    side = given.get("shape") or stage.learned.get("image", (256, 256))
    kind = given.get("type", "numpy")
    made = making.handed if kind == "pil" else photo
    image = made("image.jpg", (side[1], side[0]), given.get("image_mode", "RGB"))
    if kind == "pil":
        return image
    if kind in ("filepath", "file"):
        path = str(stage.made / "uploads" / "image.png")
        os.makedirs(os.path.dirname(path), exist_ok=True)
        image.save(path)
        return path if kind == "filepath" else open(path, "rb")  # the function reads it
    return np.asarray(image)
