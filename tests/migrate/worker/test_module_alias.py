"""One module under two names."""

import importlib
import importlib.machinery
import json
import sys

import pytest

from headrace.migrate.worker.module_alias import Alias


@pytest.fixture
def aliased(monkeypatch):
    """Import a name that is another of a module; both are forgotten afterwards."""

    def load(name, of):
        spec = importlib.machinery.ModuleSpec(name, Alias(of))
        finder = type("Finder", (), {"find_spec": staticmethod(lambda full, *_: spec if full == name else None)})
        monkeypatch.setattr(sys, "meta_path", [finder, *sys.meta_path])
        monkeypatch.delitem(sys.modules, name, raising=False)
        return importlib.import_module(name)

    yield load
    sys.modules.pop("other_json", None)


def test_it_is_the_very_module_with_its_own_specification(aliased):
    before = json.__spec__
    assert aliased("other_json", "json") is json
    assert sys.modules["other_json"] is sys.modules["json"]
    assert json.__spec__ is before
    assert json.__spec__.name == "json"
    assert importlib.reload(json) is json


def test_another_name_of_what_is_not_there_is_not_there(aliased):
    with pytest.raises(ModuleNotFoundError, match="no_such_module_anywhere"):
        aliased("other_json", "no_such_module_anywhere")
    assert "other_json" not in sys.modules
