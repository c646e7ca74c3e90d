"""Where the cache is."""

from pathlib import Path

import pytest

from headrace.runtime.base.cache_folder import cache_folder


@pytest.mark.parametrize(
    ("named", "found"), [("/some/where", Path("/some/where")), ("off", None), ("OFF", None), ("", None), ("0", None)]
)
def test_the_variable_names_it_or_turns_it_off(monkeypatch, named, found):
    monkeypatch.setenv("HEADRACE_CACHE", named)
    assert cache_folder() == found


def test_without_one_it_is_the_users_own(monkeypatch, tmp_path):
    monkeypatch.delenv("HEADRACE_CACHE", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache_folder() == tmp_path / "headrace"
