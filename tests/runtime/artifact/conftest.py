"""A folder of graphs, and what packages it."""

import os

import pytest

from headrace.runtime.artifact.artifact import load_artifact
from headrace.runtime.artifact.parity import ParityRecord
from headrace.runtime.artifact.split import members
from headrace.runtime.artifact.write_artifact import write_artifact
from tests.forked_members import MEMBERS, forked_by
from tests.runtime.artifact.tiny import PREPROCESSING, SIGNATURE, plan, write_onnx
from tests.warm_python import WarmPython


@pytest.fixture(scope="session")
def warm_members():
    warm = WarmPython(MEMBERS)
    yield warm
    warm.close()


@pytest.fixture(scope="module", autouse=True)
def forked_members(warm_members):
    """The processes of split models are forks."""
    with forked_by(warm_members):
        yield


@pytest.fixture(autouse=True)
def soon_again(monkeypatch):
    """What was lost is started again soon, however often: that it is later and later is held by split/test_members.py."""
    monkeypatch.setattr(members, "_LONGEST_DELAY", members._FIRST_DELAY)


@pytest.fixture
def files(tmp_path):
    folder = tmp_path / "files"
    folder.mkdir()
    write_onnx(folder / "model.onnx")
    (folder / "model.pt2").write_bytes(os.urandom(1000))
    return folder


@pytest.fixture
def write(tmp_path, files):
    def write_to(name="tiny", **changes):
        arguments = {
            "files_from": files,
            "signature": SIGNATURE,
            "preprocessing": PREPROCESSING,
            "labels": ["a", "b c", "dé", "e/f", "g"],
            "parity": ParityRecord(status="passed", max_abs=float("inf"), top1_agreement=1.0),
            "plans": [plan()],
            "provenance": {"repository": "somewhere", "factory": "model.py:3"},
        }
        return write_artifact(tmp_path / "models" / name, name=name, **{**arguments, **changes})

    return write_to


@pytest.fixture(scope="module")
def sessions(thirds):
    """A model as it is and in three parts, open: whoever has one killed waits until it is back."""
    opened = [load_artifact(folder).open() for folder in thirds]
    yield opened
    for session in opened:
        session.close()
