import json
import threading

import numpy as np
import psutil
import pytest

from headrace.errors import BackendError
from headrace.runtime.artifact.agreement import best_classes
from headrace.runtime.artifact.artifact import load_artifact
from headrace.runtime.artifact.parity import SCORES
from headrace.runtime.artifact.split.session import SplitSession
from headrace.runtime.artifact.split.splitting import split_model
from headrace.runtime.base.session import Target
from tests.runtime.artifact.split.by_hand import exchange
from tests.runtime.artifact.split.models import images, linear, package


@pytest.mark.parametrize("rows", [1, 2, 5, 16, 33])
def test_answers_are_those_of_one_process(sessions, rows):
    whole, split = sessions
    given = [images(rows, seed=rows)]
    (wanted,) = whole.run(given)
    (scores,) = split.run(given)
    assert scores.shape == wanted.shape
    assert scores.dtype == np.float32
    np.testing.assert_allclose(scores, wanted, rtol=0, atol=1e-6 * np.abs(wanted).max())
    for count in (1, 5, 400, 1001):
        classes, probabilities = split.best(given, count)
        known, likely = best_classes(SCORES, wanted, count)
        np.testing.assert_array_equal(classes, known)
        np.testing.assert_allclose(probabilities, likely, rtol=1e-5)
    assert split.best(given, 1001)[1].sum(axis=1) == pytest.approx(1)


def test_outputs_are_the_callers_own(sessions):
    _, split = sessions
    first = split.run([images(2)])[0]
    kept = first.copy()
    first *= 2
    assert np.array_equal(split.run([images(2)])[0], kept)


def test_threads_take_turns(sessions):
    whole, split = sessions
    wanted = [whole.run([images(3, seed)])[0] for seed in range(4)]
    found = [[] for _ in wanted]

    def ask(seed):
        found[seed] = [split.run([images(3, seed)])[0] for _ in range(20)]

    threads = [threading.Thread(target=ask, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for own, answers in zip(wanted, found, strict=True):
        assert len(answers) == 20
        assert all(np.allclose(answer, own, atol=1e-5) for answer in answers)


@pytest.mark.parametrize("ranks", [2, 4])
def test_equal_scores_in_several_parts(tmp_path, ranks):
    folder, _ = split_model(package(tmp_path, linear(10, ties=True), classes=10), tmp_path / "out", ranks)
    session = load_artifact(folder).open()
    try:
        given = [images(7)]
        (scores,) = session.run(given)
        for count in (1, 4, 5, 10):
            np.testing.assert_array_equal(session.best(given, count)[0], best_classes(SCORES, scores, count)[0])
    finally:
        session.close()


def test_nothing_is_left_of_a_closed_session(thirds):
    session = load_artifact(thirds[1]).open()
    pids = session.ranks.pids
    assert len(pids) == 3
    assert all(map(psutil.pid_exists, pids))
    session.close()
    session.close()
    assert not any(map(psutil.pid_exists, pids))
    with pytest.raises(BackendError, match="closed"):
        session.run([images(1)])


@pytest.mark.parametrize(
    ("part", "other", "why"),
    [
        ("part-1.onnx", "part-0.onnx", "no graph from float32 features to the scores of 334 classes"),
        ("part-2.onnx", "trunk.onnx", "no graph from float32 features"),
        ("part-2.onnx", "headrace.json", "cannot be loaded"),
    ],
)
def test_a_graph_that_is_no_part_is_rejected(thirds, tmp_path, part, other, why):
    folder, _ = split_model(thirds[0], tmp_path, 3)
    exchange(folder, part, other)
    before = set(psutil.Process().children(recursive=True))
    with pytest.raises(BackendError, match=rf"rank {part[5]} of 3 cannot begin: .*{why}") as raised:
        load_artifact(folder).open()
    assert "started again" not in str(raised.value), "nobody does: it was not loaded"
    assert set(psutil.Process().children(recursive=True)) <= before


def test_a_trunk_that_gives_something_else_is_rejected(thirds, tmp_path):
    folder, _ = split_model(thirds[0], tmp_path, 3)
    version = folder / "1"
    (version / "trunk.onnx").write_bytes((thirds[0] / "1/model.onnx").read_bytes())
    session = SplitSession(version, load_mesh(version, thirds[1]), Target(threads=1), backend="onnxruntime")
    try:
        with pytest.raises(BackendError, match=r"features are float32\[1, 1001\]"):
            session.run([images(1)])
    finally:
        session.close()


def load_mesh(version, like):
    content = json.loads((version / "headrace.json").read_text())
    artifact = load_artifact(like)
    return type(artifact.mesh).from_json(
        content["mesh"], digests=content["digests"], signature=artifact.signature, task=artifact.task
    )


@pytest.mark.parametrize("target", [Target(device="cuda"), Target(batch=4)])
def test_what_it_cannot_do_is_an_error(thirds, target):
    artifact = load_artifact(thirds[1])
    with pytest.raises(BackendError, match="on CPUs"):
        SplitSession(artifact.path, artifact.mesh, target, backend="onnxruntime")
