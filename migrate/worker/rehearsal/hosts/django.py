"""Django: a project is set up as its manage.py says, and its views are asked about a made image instead of being served."""

from __future__ import annotations

import inspect
import json
import os
import random
import re
import sys
import types
from collections.abc import Callable, Iterator
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from ..places import is_users
from ..requests import REFUSED, Asked, Images, is_image_key, jpeg, taken
from ..route_answers import encoded
from ..stage import Stage
from . import module_file, own_values

LIBRARY = "django"
_SETTINGS = re.compile(r"""DJANGO_SETTINGS_MODULE['"]\s*[,\]]\s*=?\s*['"]([\w.]+)['"]""")
_PREPARES = frozenset([
    "check", "collectstatic", "compilemessages", "createcachetable", "createsuperuser", "flush", "loaddata", "makemigrations",
    "migrate", "runserver", "test", "testserver",
])  # fmt: skip
"""What manage.py is told before it serves, and that it serves; commands of the project's own run as they are."""
_MOST_VIEWS = 16
_TAKEN = "views"
"""Learned: the form in which each view takes an image."""
_NOT_ALLOWED = 405
_FRAMEWORKS = ("django", "rest_framework")


def stand_in(stage: Stage) -> None:
    def manage(original: Any, argv: Any = None, *_: Any, **__: Any) -> None:
        told = [*(sys.argv if argv is None else argv)][1:2]
        if stage.project is not None and (not told or told[0] in _PREPARES):
            call(stage, sys.modules["__main__"])
        else:
            original(argv)

    stage.when_imported(LIBRARY, lambda _: _set_up(stage))
    stage.when_imported("django.core.management", lambda library: stage.wrap(library, "execute_from_command_line", manage))


def hosted(stage: Stage) -> list[Any]:
    """The script, where it defines views of a project that is set up."""
    return [sys.modules["__main__"]] if stage.project is not None and any(map(_is_view, own_values(stage))) else []


def _is_view(value: Any) -> bool:
    if isinstance(value, type):
        return any(item.__module__.startswith(_FRAMEWORKS) and hasattr(item, "as_view") for item in value.__mro__)
    value = inspect.unwrap(value) if callable(value) else None
    return inspect.isfunction(value) and next(iter(inspect.signature(value).parameters), "") == "request"


# -- the project


def _set_up(stage: Stage) -> None:
    """What `manage.py runserver` does before it serves, with a database in memory, without applications that are not here."""
    found = _project(stage)
    if found is None or stage.project is not None:
        return
    stage.project, folder = found
    sys.path.insert(0, folder)
    os.chdir(folder)  # where manage.py is run
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", stage.project)
    import django
    from django.conf import settings

    changed: dict[str, Any] = {
        "DATABASES": {"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"}},
        "DATABASE_ROUTERS": [],
        "ALLOWED_HOSTS": ["*"],
        "SECURE_SSL_REDIRECT": False,
        "CACHES": {"default": {"BACKEND": "django.core.cache.backends.locmem.LocMemCache"}},
        "MIGRATION_MODULES": _NoMigrations(),
    }
    for name in ("INSTALLED_APPS", "MIDDLEWARE"):
        listed = list(getattr(settings, name))
        changed[name] = [item for item in listed if _is_here(stage, item)]
        for item in [item for item in listed if item not in changed[name]]:
            stage.note("libraries", f"{item.partition('.')[0]} is not installed; it was left out of {name}")
    for name, value in changed.items():
        setattr(settings, name, value)
    stage.note("servers", f"Django was set up with {stage.project}, a database in memory in place of its own")
    django.setup()


class _NoMigrations:
    """Tables are made of the models as they are: a project's migrations may not be here."""

    def __contains__(self, application: str) -> bool:
        return True

    def __getitem__(self, application: str) -> None:
        return None


def _is_here(stage: Stage, name: str) -> bool:
    first = name.partition(".")[0]
    return first in sys.modules or find_spec(first) is not None or any(Path(stage.root).rglob(f"{first}/__init__.py"))


def _project(stage: Stage) -> tuple[str, str] | None:
    """The module of the settings, and the folder from which it is imported, as manage.py or the server's entry names it; of
    several the one that is nearest to the script."""
    script = Path(stage.root, stage.request.script)
    files = [path for name in ("manage.py", "wsgi.py", "asgi.py") for path in sorted(Path(stage.root).rglob(name))]
    files = [path for path in files if is_users(str(path), stage.root)]

    def apart(path: Path) -> int:
        return -len(os.path.commonpath([script.parent, path.parent]))

    for path in sorted(files, key=apart):
        for name in _SETTINGS.findall(path.read_text(encoding="utf-8", errors="replace")):
            parts = name.split(".")
            for folder in (path.parent, *path.parent.parents):
                if folder.is_relative_to(stage.root) and any(
                    Path(folder, *parts[:-1], end).exists() for end in (f"{parts[-1]}.py", parts[-1])
                ):
                    return name, str(folder)
    return None


# -- its views


def call(stage: Stage, main: types.ModuleType) -> None:
    """Ask each view of the user's that needs nothing of its path about a made image, as a browser or a program would."""
    stage.served = True
    from django.conf import settings
    from django.core.management import call_command
    from django.utils import crypto

    _is_main(stage, main)
    chosen = random.Random(0)  # noqa: S311 - tokens and names of files are drawn: two runs are to answer alike
    stage.patch(crypto, "secrets", types.SimpleNamespace(choice=chosen.choice, compare_digest=crypto.secrets.compare_digest))
    call_command("migrate", run_syncdb=True, verbosity=0)
    urls = import_module(settings.ROOT_URLCONF)
    views = {path: source for path, view in _views(urls.urlpatterns, "/") if is_users(source := _source(view), stage.root)}
    near = {source: taken(stage, Path(source)) for source in views.values()}
    speaking = {path: source for path, source in views.items() if _speaks_of_an_image(near[source])}
    asked, anywhere = Asked(stage), Images() if speaking else taken(stage)
    for path, source in list((speaking or views).items())[:_MOST_VIEWS]:
        how = near[source] if speaking else anywhere
        asked.ask(path, lambda path=path, how=how: _answer(stage, path, how))  # type: ignore[misc]
    asked.end()


def _speaks_of_an_image(how: Images) -> bool:
    return bool(how.files) or any(map(is_image_key, (*how.forms, *how.entries)))


def _is_main(stage: Stage, main: types.ModuleType) -> None:
    """What imports the script by its name gets the module that ran: its model is made once."""
    path = Path(os.path.realpath(getattr(main, "__file__", "") or ""))
    folder = Path(os.path.realpath(os.getcwd()))
    if path.name == "manage.py" or not path.is_relative_to(folder):
        return
    name = ".".join(path.relative_to(folder).with_suffix("").parts)
    package, _, last = name.rpartition(".")
    if name not in sys.modules and all(map(str.isidentifier, name.split("."))):
        sys.modules[name] = main
        if package:
            setattr(import_module(package), last, main)


def _views(patterns: Any, before: str) -> Iterator[tuple[str, Any]]:
    """The paths without parameters, and what answers there."""
    for item in patterns:
        part = str(item.pattern).lstrip("^").removesuffix("$").removesuffix(r"\Z")
        path = before + part.removeprefix("/")
        if re.search(r"[<(\[\\*+?]", part):
            continue
        if hasattr(item, "url_patterns"):
            yield from _views(item.url_patterns, path)
        else:
            yield path, item.callback


def _source(view: Any) -> str:
    """The file in which a view is defined."""
    kind = getattr(view, "view_class", None) or getattr(view, "cls", None)
    if kind is not None:
        return os.path.realpath(module_file(kind))
    code = getattr(inspect.unwrap(view), "__code__", None)
    return os.path.realpath(code.co_filename) if code is not None else ""


def _answer(stage: Stage, path: str, how: Images) -> str:
    """What the request gets that is taken and comes to a model, else the first one; the next run begins with that one."""
    known = stage.learned.get(_TAKEN, {})
    requests = sorted(_requests(stage, how), key=lambda item: item[0] != known.get(path))
    said, first = "", None
    for form, send in requests:
        before = stage.count()
        try:
            answer = send(_client(), path)
        except Exception as error:  # noqa: BLE001 - another form may be the one; the first error is raised where none is
            first = first or error
            continue
        text = "" if answer.streaming else answer.content.decode(errors="replace")[:2000]
        said = said or f"{answer.status_code} {text}"
        if answer.status_code == _NOT_ALLOWED:
            break
        if answer.status_code < REFUSED and stage.came(before):
            stage.learn(_TAKEN, {**known, path: form})
            stage.note("servers", f"the view of {path} was called with a made image ({form}) instead of being served")
            return f"{answer.status_code} {text}"
    if first is not None:
        raise first
    return said


def _requests(stage: Stage, how: Images) -> Iterator[tuple[str, Callable[[Any, str], Any]]]:
    """Requests with an image in each form that the sources speak of, each with its name, and a few that any view may take."""
    from django.core.files.uploadedfile import SimpleUploadedFile

    text = encoded(jpeg(stage), how.with_header)
    fields = dict(_fields())
    plain = {name: value for name, value in fields.items() if value is not None} | dict.fromkeys(
        [*how.forms, *how.entries], "text"
    )

    def upload(names: list[str]) -> Callable[[Any, str], Any]:
        files = dict.fromkeys(names)
        return lambda client, path: client.post(
            path, plain | {name: SimpleUploadedFile("image.jpg", jpeg(stage), "image/jpeg") for name in files}, follow=True
        )

    def written(names: list[str]) -> dict[str, str]:
        return plain | dict.fromkeys(names, text)

    files = list(dict.fromkeys([*how.files, *(name for name, value in fields.items() if value is None)]))
    named = list(filter(is_image_key, how.entries))
    entries, forms = named or list(how.entries), list(filter(is_image_key, how.forms)) or list(how.forms)
    for names in filter(None, (files, named)):
        yield f"uploaded as {', '.join(names)}", upload(names)
    if entries:
        body = json.dumps(written(entries))
        kind = "application/json"
        yield f"base64 in JSON as {', '.join(entries)}", lambda client, path: client.post(path, body, content_type=kind)
    if forms:
        yield f"base64 as {', '.join(forms)}", lambda client, path: client.post(path, written(forms), follow=True)
    yield "the body", lambda client, path: client.generic("POST", path, jpeg(stage), content_type="image/jpeg")
    if not files:
        yield "uploaded as image, file", upload(["image", "file"])


def _fields() -> Iterator[tuple[str, Any]]:
    """The fields of the user's forms, each with what a person may write there; None for a file."""
    from django import forms

    for kind in _derived(forms.BaseForm):
        if not kind.__module__.startswith("django."):
            for name, field in getattr(kind, "base_fields", {}).items():
                yield name, None if isinstance(field, forms.FileField) else _written(field)


def _written(field: Any) -> str:
    from django import forms

    choices = [str(key) for key, _ in getattr(field, "choices", ()) if key]
    if choices:
        return choices[0]
    if isinstance(field, forms.BooleanField):
        return "on"
    if isinstance(field, forms.EmailField):
        return "user@example.org"
    return "1" if isinstance(field, forms.IntegerField) else "text"


def _derived(kind: type) -> Iterator[type]:
    below: list[type] = kind.__subclasses__()
    for item in below:
        yield item
        yield from _derived(item)


def _client() -> Any:
    """A client that raises what a view raises, and is a user of its own where the project knows users: a view may be for those
    alone."""
    from django.apps import apps
    from django.test import Client

    client = Client(raise_request_exception=True)
    if not apps.is_installed("django.contrib.auth"):
        return client
    from django.contrib.auth import get_user_model

    kind = get_user_model()
    user = kind.objects.first() or kind.objects.create(**{kind.USERNAME_FIELD: "user@example.org"})
    if "rest_framework" in sys.modules:
        from rest_framework.test import APIClient

        client = APIClient(raise_request_exception=True)
        client.force_authenticate(user)
    elif apps.is_installed("django.contrib.sessions"):
        client.force_login(user)
    return client
