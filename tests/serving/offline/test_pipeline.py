"""What nobody foresaw ends a job with an error: it never looks complete, and goes on once the fault is gone."""

import threading

import pytest

from headrace.serving.offline import pipeline
from headrace.serving.offline.classifier import Classifier
from headrace.serving.offline.plan import Plan


@pytest.mark.parametrize("stage", ["source", "read", "decode", "collate", "model", "labels"])
def test_a_fault_of_ours_is_never_taken_for_the_end(job, folder, jpegs, monkeypatch, stage):
    calls = []
    before = threading.enumerate()  # other tests' of this process may end later

    def failing(real):
        def call(*arguments):
            calls.append(1)
            if len(calls) > 2:
                raise RuntimeError("a fault of ours")
            return real(*arguments)

        return call

    with monkeypatch.context() as patch:
        if stage == "source":
            members = Plan.members

            def broken(plan, shard):
                for number, member in enumerate(members(plan, shard)):
                    if number == 9:
                        raise RuntimeError("a fault of ours")
                    yield member

            patch.setattr(Plan, "members", broken)
        elif stage in ("read", "collate"):
            name = {"read": "fill", "collate": "collate"}[stage]
            patch.setattr(pipeline, name, failing(getattr(pipeline, name)))
        else:
            name = {"decode": "decode", "model": "scores", "labels": "labels"}[stage]
            patch.setattr(Classifier, name, failing(getattr(Classifier, name)))
        with pytest.raises(RuntimeError, match=r"\Aa fault of ours"):
            job(folder)
    assert not (folder.parent / "out/_summary.json").exists()
    assert not list((folder.parent / "out/.headrace").glob("aside-*"))
    left = [thread for thread in threading.enumerate() if thread.name.startswith(("headrace", "spdl"))]
    assert [thread.name for thread in left if thread not in before] == []
    summary, rows = job(folder)
    assert summary.complete
    assert [row["image"] for row in rows] == sorted(jpegs)
