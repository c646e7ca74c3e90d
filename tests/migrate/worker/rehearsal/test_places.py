import contextlib
import os
import sys
from pathlib import Path

import numpy as np
import pytest

from headrace.migrate.worker.rehearsal.places import (
    called_by_user,
    expects_absence,
    failed_at,
    is_users,
    kept_at,
    of_kind,
    shape_of,
    user_place,
)


def test_the_users_are_the_files_below_the_root_but_not_what_is_installed_there():
    assert is_users("/repo/a.py", "/repo")
    assert is_users("/repo/deep/a.py", "/repo/")
    assert not is_users("/repository/a.py", "/repo")
    assert not is_users("/repo/.venv/lib/python3.11/site-packages/torch/a.py", "/repo")


def test_the_innermost_line_of_the_user_is_the_place(tmp_path):
    code = compile("def a(ask):\n    return ask()\nfound = a(ask)\n", str(tmp_path / "main.py"), "exec")
    names = {"ask": lambda: (user_place(str(tmp_path)), called_by_user(str(tmp_path)))}
    exec(code, names)
    assert names["found"] == ("main.py:2", False)  # the caller is this test, called by the user
    assert user_place(os.path.join(tmp_path, "elsewhere")) is None


def test_an_error_is_placed_at_the_users_line(tmp_path):
    code = compile("import json\n\njson.loads('{')\n", str(tmp_path / "main.py"), "exec")
    with pytest.raises(ValueError, match="Expecting") as caught:
        exec(code, {})
    assert failed_at(caught.value, str(tmp_path)) == "main.py:3"
    assert failed_at(caught.value, "/elsewhere") is None


class Lazy:
    """As Django's settings are: whoever asks what they are wakes them."""

    @property
    def __class__(self):
        raise RuntimeError("woken")

    def __getattr__(self, name):
        raise RuntimeError("woken")


def test_what_is_lazy_sleeps_on():
    names = {"settings": Lazy(), "text": "a", "path": Path("b"), "yes": True}
    assert list(of_kind(names, str)) == [("text", "a")]
    assert list(of_kind(names, Path)) == [("path", Path("b"))]
    assert list(of_kind(names, int)) == [("yes", True)]
    assert [shape_of(value) for value in (Lazy(), np.zeros((2, 3)), "a")] == [None, (2, 3), None]


@pytest.mark.parametrize(
    ("path", "script", "found"),
    [
        ("./digits/weights/net.pt", "", "weights/net.pt"),
        ("digits/net.pt", "torch.load('./digits/weights/net.pt')", "net.pt"),  # which tells whose folder digits is
        ("digits/net.pt", "torch.load('digits/net.pt')", None),  # of another training, perhaps
        ("digits/net.pt", "torch.load('other_digits/weights/net.pt')", None),
        ("weights/net.pth", "", None),
        ("runs/digits/weights/net.pt", "", None),  # of another of the runs, perhaps
        ("/home/me/digits/weights/net.pt", "", "weights/net.pt"),
        ("C:\\Users\\me\\digits\\weights\\net.pt", "", "weights/net.pt"),
        ("/home/me/net.pt", "", None),
        ("/data/other/weights", "", None),
    ],
)
def test_a_path_of_the_authors_machine_leads_to_what_the_repository_has(tmp_path, path, script, found):
    (tmp_path / "weights").mkdir()
    for name in ("net.pt", "weights/net.pt"):
        (tmp_path / name).write_text("")
    kept = kept_at(str(tmp_path), path, script, lambda folder: False)
    assert kept == (None if found is None else str(tmp_path / found))
    if not os.path.isabs(path):
        assert kept_at(str(tmp_path), str(tmp_path / path), script, lambda folder: False) == kept or ":" in path


def test_a_folder_of_the_path_that_was_made_is_not_there(tmp_path):
    for folder in ("weights", "digits"):
        (tmp_path / folder).mkdir()
    (tmp_path / "weights/net.pt").write_text("")
    found = [kept_at(str(tmp_path), "digits/weights/net.pt", "", lambda folder, made=made: made) for made in (True, False)]
    assert found == [str(tmp_path / "weights/net.pt"), None]


@pytest.mark.parametrize(
    ("handler", "copes"),
    [("pass", False), ("time.sleep(1)", False), ("break", True), ("return None", True), ("raise", False)],
)
def test_what_tries_again_does_not_cope_without_a_file(tmp_path, handler, copes):
    tried = f"        try:\n            return open('x')\n        except Exception:\n            {handler}\n"
    source = f"def f(open):\n    while True:\n{tried}"
    path = tmp_path / "retry.py"
    path.write_text(source)
    names: dict = {}
    exec(compile(source, str(path), "exec"), names)
    asked = []

    def opened(name):
        asked.append(expects_absence(sys._getframe(1)))
        raise KeyboardInterrupt

    with contextlib.suppress(KeyboardInterrupt):
        names["f"](opened)
    assert asked == [copes]
