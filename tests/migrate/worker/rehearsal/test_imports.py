import sys

import pytest

from headrace.migrate.worker.rehearsal.imports import Imports, loaded_under, watched_imports


@pytest.fixture
def library(tmp_path, monkeypatch):
    """A library outside of the repository, and a module of the user's."""
    monkeypatch.syspath_prepend(str(tmp_path / "installed"))
    monkeypatch.syspath_prepend(str(tmp_path / "repo"))
    for path, text in {
        "installed/rehearsed_library/__init__.py": "value = 1\n",
        "repo/rehearsed_user.py": "value = 1\n",
    }.items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text)
    yield tmp_path
    for name in ("rehearsed_library", "rehearsed_user"):
        sys.modules.pop(name, None)


def as_it_is(data, path):
    return compile(data, path, "exec")


def test_an_action_waits_for_its_module_and_comes_once(library):
    imports, seen = Imports(), []
    imports.when_imported("rehearsed_library", lambda module: seen.append(module.value))
    with watched_imports(imports, str(library / "repo"), as_it_is):
        assert seen == []
        import rehearsed_library

        assert seen == [1]
        assert type(rehearsed_library.__loader__).__name__ == "SourceFileLoader"
    imports.when_imported("rehearsed_library", lambda module: seen.append("at once"))
    assert seen == [1, "at once"]


def test_only_the_users_modules_are_compiled_by_the_rehearsal(library):
    def doubled(data, path):
        return compile(data.replace(b"1", b"2"), path, "exec")

    with watched_imports(Imports(), str(library / "repo"), doubled):
        import rehearsed_library
        import rehearsed_user
    assert (rehearsed_library.value, rehearsed_user.value) == (1, 2)
    assert rehearsed_user.__file__ == str(library / "repo/rehearsed_user.py")


def test_what_is_not_there_is_still_not_there(library):
    with watched_imports(Imports(), str(library), as_it_is), pytest.raises(ModuleNotFoundError, match="rehearsed_nothing"):
        import rehearsed_nothing  # noqa: F401


def test_modules_that_are_loaded_are_found_with_those_below_them():
    assert {"json", "json.decoder"} <= set(loaded_under(["json", "rehearsed_nothing"]))
    assert not any(name.startswith("jsonschema") for name in loaded_under(["json"]))
    assert loaded_under(["rehearsed_nothing"]) == []
