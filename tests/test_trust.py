"""Trust is given by word only: by the flag, or by a variable that says exactly 1."""

import pytest

from headrace.trust import VARIABLE, is_trusted


@pytest.mark.parametrize(("value", "trusted"), [(None, False), ("", False), ("0", False), ("true", False), ("1", True)])
def test_the_variable_says_one(monkeypatch: pytest.MonkeyPatch, value: str | None, trusted: bool) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    if value is not None:
        monkeypatch.setenv(VARIABLE, value)
    assert is_trusted() is trusted
    assert is_trusted(True)
