"""What a worker hears while it captures."""

import threading
import time

import pytest

from headrace.errors import MigrateError
from headrace.migrate.named.told_later import read_told, tell
from headrace.specs import CenterCrop, Preprocessing, Resize

FOUND = Preprocessing(geometry=(Resize(size=20), CenterCrop(size=(16, 16))), mean=(0.5, 0.4, 0.3), std=(0.2, 0.25, 0.3))


def test_it_is_waited_for(tmp_path):
    path = tmp_path / "told.json"
    teller = threading.Thread(target=lambda: (time.sleep(0.2), tell(path, FOUND, ["a note"])))
    teller.start()
    assert read_told(path, 30) == (FOUND, ["a note"])
    teller.join()
    assert [file.name for file in tmp_path.iterdir()] == ["told.json"]


def test_that_there_is_none_is_told_too(tmp_path):
    tell(tmp_path / "told.json", None, [])
    assert read_told(tmp_path / "told.json", 1) == (None, [])


def test_nobody_waits_for_ever(tmp_path):
    with pytest.raises(MigrateError, match="nobody said within 0 s"):
        read_told(tmp_path / "told.json", 0.05)
