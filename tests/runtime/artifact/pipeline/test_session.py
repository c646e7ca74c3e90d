import os
import threading

import numpy as np
import psutil
import pytest

from headrace.errors import ArtifactError, BackendError
from headrace.runtime.artifact.artifact import load_artifact
from headrace.runtime.artifact.pipeline.session import PipelineSession
from headrace.runtime.artifact.pipeline.splitting import cut_model
from headrace.runtime.base.session import Target
from tests.runtime.artifact.split.by_hand import exchange
from tests.runtime.artifact.split.models import images


@pytest.mark.parametrize("rows", [33, 1, 2, 5, 16])
def test_answers_are_those_of_one_process(sessions, rows):
    whole, pipeline = sessions
    wanted, given = (session.run([images(rows, rows)]) for session in (whole, pipeline))
    assert len(given) == len(wanted) == 2
    for own, value in zip(given, wanted, strict=True):
        assert (own.shape, own.dtype) == (value.shape, value.dtype)
        np.testing.assert_allclose(own, value, rtol=0, atol=1e-6 * np.abs(value).max())


def test_threads_overlap_and_get_their_own(sessions):
    whole, pipeline = sessions
    wanted = [whole.run([images(1 + seed % 4, seed)]) for seed in range(16)]
    found = [[] for _ in wanted]

    def ask(seed):
        session = pipeline.twin()
        found[seed] = [session.run([images(1 + seed % 4, seed)]) for _ in range(40)]
        session.close()

    threads = [threading.Thread(target=ask, args=(seed,)) for seed in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for own, answers in zip(wanted, found, strict=True):
        assert len(answers) == 40
        assert all(np.allclose(one, value, atol=1e-5) for answer in answers for one, value in zip(answer, own, strict=True))


def test_stages_end_with_the_last_of_the_twins(thirds):
    session = load_artifact(thirds[1]).open()
    assert session.in_flight == 4
    pids = session.ranks.pids
    twin = session.twin()
    session.close()
    session.close()
    assert all(map(psutil.pid_exists, pids))
    assert len(twin.run([images(2)])[0]) == 2
    with pytest.raises(BackendError, match="closed"):
        session.run([images(1)])
    last = twin.twin()
    twin.close()
    assert len(last.run([images(2)])[0]) == 2
    last.close()
    assert not any(map(psutil.pid_exists, pids))
    with pytest.raises(BackendError, match="closed"):
        last.run([images(1)])
    with pytest.raises(BackendError, match="closed"):
        last.twin().run([images(1)])


def test_threads_are_shared(thirds):
    artifact = load_artifact(thirds[1])
    session = PipelineSession(artifact.path, artifact.mesh, Target(threads=7), backend="onnxruntime")
    try:
        assert [start["threads"] for start in session.ranks._starts] == [2, 2, 2]
    finally:
        session.close()


@pytest.mark.parametrize("target", [Target(device="cuda"), Target(batch=4)])
def test_what_it_cannot_do_is_an_error(thirds, target):
    artifact = load_artifact(thirds[1])
    with pytest.raises(BackendError, match="on CPUs"):
        PipelineSession(artifact.path, artifact.mesh, target, backend="onnxruntime")


def test_without_memory_that_has_no_name_it_is_an_error(thirds, monkeypatch):
    monkeypatch.delattr(os, "memfd_create")
    with pytest.raises(BackendError, match="on Linux"):
        load_artifact(thirds[1]).open()


@pytest.mark.parametrize(
    ("part", "other", "why"),
    [
        ("stage-1.onnx", "stage-0.onnx", "stage 1 of 3 cannot begin: .*takes 'images', which no stage before it gives"),
        ("stage-0.onnx", "stage-2.onnx", "stage 0 of 3 cannot begin: .*which no stage before it gives"),
        ("stage-2.onnx", "headrace.json", "stage 2 of 3 cannot begin: .*cannot be loaded"),
    ],
)
def test_a_graph_that_is_no_such_stage_is_rejected(thirds, tmp_path, part, other, why):
    folder = cut_model(thirds[0], tmp_path, 3).path
    exchange(folder, part, other)
    before = set(psutil.Process().children(recursive=True))
    with pytest.raises(BackendError, match=why) as raised:
        load_artifact(folder).open()
    assert "started again" not in str(raised.value), "nobody does: it was not loaded"
    assert set(psutil.Process().children(recursive=True)) <= before


def test_a_stage_whose_file_was_changed_is_not_loaded(thirds, tmp_path):
    folder = cut_model(thirds[0], tmp_path, 2).path
    with (folder / "1/stage-1.onnx").open("ab") as file:
        file.write(b"x")
    with pytest.raises(ArtifactError, match="is not the file that was written"):
        load_artifact(folder)
