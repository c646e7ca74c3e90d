import os
import shutil
import signal
import threading

import numpy as np
import onnx
import psutil
import pytest
from onnx import TensorProto, helper, numpy_helper

from headrace.errors import BackendError, RankLostError
from headrace.runtime.artifact.artifact import load_artifact
from headrace.runtime.artifact.manifest import digest
from headrace.runtime.artifact.pipeline.mesh import PipelineMesh, Stage
from headrace.runtime.artifact.pipeline.splitting import cut_model
from headrace.runtime.artifact.pipeline.stages import Stages
from headrace.runtime.artifact.split import members
from tests.runtime.artifact.pipeline.models import deep, deep_package
from tests.runtime.artifact.split.models import images
from tests.runtime.artifact.waiting import until


@pytest.mark.parametrize("number", [0, 1, 2])
def test_a_killed_stage_is_named_and_comes_back(sessions, number):
    whole, pipeline = sessions
    changes = []
    pipeline.ranks.on_change = lambda: changes.append(pipeline.ranks.trouble)
    others = {pid for index, pid in enumerate(pipeline.ranks.pids) if index != number}
    os.kill(pipeline.ranks.pids[number], signal.SIGKILL)
    until(lambda: changes)
    assert changes[0] == f"stage {number} of 3 has ended (signal SIGKILL); it is started again"
    with pytest.raises(RankLostError, match=f"stage {number} of 3 has ended"):
        pipeline.run([images(1)])
    until(lambda: not pipeline.ranks.trouble)
    until(lambda: changes[-1] == "")
    assert others < set(pipeline.ranks.pids), "the others stay"
    for own, wanted in zip(pipeline.run([images(3)]), whole.run([images(3)]), strict=True):
        assert np.allclose(own, wanted, atol=1e-5)


# The one in the middle has neighbors on both sides; that each is watched: above.
@pytest.mark.parametrize("number", [pytest.param(0, marks=pytest.mark.slow), 1, pytest.param(2, marks=pytest.mark.slow)])
def test_a_stopped_stage_is_ended_in_the_middle_of_requests(sessions, monkeypatch, number):
    monkeypatch.setattr(members, "_HUNG_SECONDS", 1.5)
    whole, pipeline = sessions
    os.kill(pipeline.ranks.pids[number], signal.SIGKILL)  # so that the limit is the one above
    until(lambda: pipeline.ranks.trouble)
    until(lambda: not pipeline.ranks.trouble)
    pid = pipeline.ranks.pids[number]
    os.kill(pid, signal.SIGSTOP)
    errors = []

    def ask():
        try:
            pipeline.twin().run([images(16)])
        except RankLostError as error:
            errors.append(str(error))

    threads = [threading.Thread(target=ask) for _ in range(12)]  # more than there are slots
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert errors == [f"stage {number} of 3 has not moved for 1.5 s and was ended; it is started again"] * 12
    assert not psutil.pid_exists(pid)
    until(lambda: not pipeline.ranks.trouble)
    assert np.allclose(pipeline.run([images(3)])[0], whole.run([images(3)])[0], atol=1e-5)


def test_every_answer_is_its_own_while_stages_are_killed(sessions):
    """Every call ends, in the right answer or with the name of a stage."""
    whole, pipeline = sessions
    outcomes, done = [], threading.Event()

    def ask(seed):
        rows = 1 + seed % 5
        wanted = whole_answers[seed]
        session = pipeline.twin()
        while not done.is_set():
            try:
                given = session.run([images(rows, seed)])
                outcomes.append(all(np.allclose(own, value, atol=1e-5) for own, value in zip(given, wanted, strict=True)))
            except RankLostError as error:
                outcomes.append(str(error))

    whole_answers = [whole.run([images(1 + seed % 5, seed)]) for seed in range(8)]
    threads = [threading.Thread(target=ask, args=(seed,)) for seed in range(8)]
    for thread in threads:
        thread.start()
    for number in (0, 1, 2, 1, 2, 0):
        until(lambda: not pipeline.ranks.trouble)
        answered = outcomes.count(True)
        until(lambda answered=answered: outcomes.count(True) > answered + 20)
        os.kill(pipeline.ranks.pids[number], signal.SIGKILL)
        until(lambda: pipeline.ranks.trouble)
    until(lambda: not pipeline.ranks.trouble)
    done.set()
    for thread in threads:
        thread.join(120)
        assert not thread.is_alive()
    assert False not in outcomes
    lost = {outcome for outcome in outcomes if outcome is not True}
    assert lost
    assert all(why.startswith("stage ") and "has ended (signal SIGKILL)" in why for why in lost)


def test_two_stages_lost_at_once(sessions):
    whole, pipeline = sessions
    for _ in range(3):
        for pid in pipeline.ranks.pids[::2]:
            os.kill(pid, signal.SIGKILL)
        until(lambda: pipeline.ranks.trouble)
        until(lambda: not pipeline.ranks.trouble)
        assert np.allclose(pipeline.run([images(2)])[0], whole.run([images(2)])[0], atol=1e-5)


def test_descriptors_and_threads_do_not_grow_with_losses(sessions):
    pipeline = sessions[1]

    def lose():
        os.kill(pipeline.ranks.pids[1], signal.SIGKILL)
        until(lambda: pipeline.ranks.trouble)
        until(lambda: not pipeline.ranks.trouble)
        pipeline.run([images(2)])

    def counted():
        of_stages = [psutil.Process(pid).num_fds() for pid in pipeline.ranks.pids[::2]]
        return [len(os.listdir("/proc/self/fd")), threading.active_count(), *of_stages]

    lose()
    until(lambda: "headrace-pipeline" in {thread.name for thread in threading.enumerate()})
    before = counted()
    for _ in range(4):
        lose()
    until(lambda: all(now <= then for now, then in zip(counted(), before, strict=True)))


def test_a_stage_does_not_come_back_with_another_model(tmp_path):
    folder = cut_model(deep_package(tmp_path / "a"), tmp_path / "out", 2).path
    other = cut_model(deep_package(tmp_path / "b", deep(seed=2)), tmp_path / "other", 2).path
    session = load_artifact(folder).open()
    try:
        shutil.rmtree(folder)
        shutil.copytree(other, folder)
        os.kill(session.ranks.pids[1], signal.SIGKILL)
        until(lambda: "stage-1.onnx is not the file that was loaded" in session.ranks.trouble)
        with pytest.raises(RankLostError, match="load the model again"):
            session.run([images(1)])
    finally:
        session.close()


def test_stages_compute_different_batches_at_a_time(tmp_path):
    """While the last stage is stopped, the ones before it go on with the next batches, until they find no room."""
    folder = cut_model(deep_package(tmp_path), tmp_path / "out", 2).path
    session = load_artifact(folder).open()
    try:
        session.run([images(4)])
        os.kill(session.ranks.pids[1], signal.SIGSTOP)
        errors = []

        def ask():
            try:
                session.twin().run([images(4)])
            except RankLostError as error:
                errors.append(error)

        threads = [threading.Thread(target=ask) for _ in range(10)]
        for thread in threads:
            thread.start()
        until(lambda: (first := session.ranks.shares()[0]) and first["blocked"] > 0)
        assert session.ranks.totals()[0].blocked > 0
        for thread in threads:
            thread.join(60)
        assert len(errors) == 10
    finally:
        session.close()


@pytest.fixture
def pairs(tmp_path):
    """Two stages by hand, of which the second takes an even number of rows alone: [rows, 2] * 2 as [rows / 2, 4]."""
    hop = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", 2])
    given = helper.make_tensor_value_info("images", TensorProto.FLOAT, ["batch", 2])
    gives = helper.make_tensor_value_info("scores", TensorProto.FLOAT, ["pairs", 4])
    graphs = [
        helper.make_graph([helper.make_node("Add", ["images", "images"], ["x"])], "first", [given], [hop]),
        helper.make_graph(
            [helper.make_node("Reshape", ["x", "shape"], ["scores"])],
            "second",
            [hop],
            [gives],
            [numpy_helper.from_array(np.int64([-1, 4]), "shape")],
        ),
    ]
    stages = []
    for number, graph in enumerate(graphs):
        file = f"stage-{number}.onnx"
        onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9), tmp_path / file)
        found = digest(tmp_path / file, inside=tmp_path)
        stages.append(Stage(file=file, gives=(["x"], ["scores"])[number], digest=found))
    made = Stages(tmp_path, PipelineMesh(takes=("images",), stages=tuple(stages)), backend="onnxruntime", threads=1)
    yield made
    made.close()


def test_a_batch_that_fails_in_the_middle_fails_alone(pairs):
    outcomes = {}

    def ask(rows):
        for _ in range(30):
            value = np.full((rows, 2), rows, np.float32)
            try:
                (given,) = pairs.compute([value])
                outcomes.setdefault(rows, set()).add((given.shape, bool((given == 2 * rows).all())))
            except BackendError as error:
                outcomes.setdefault(rows, set()).add(str(error)[:12])

    threads = [threading.Thread(target=ask, args=(rows,)) for rows in (1, 2, 3, 4, 7, 8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
        assert not thread.is_alive()
    assert outcomes == {rows: {"stage 1 of 2"} if rows % 2 else {((rows // 2, 4), True)} for rows in (1, 2, 3, 4, 7, 8)}


def test_outputs_are_the_callers_own(pairs):
    first = pairs.compute([np.ones((2, 2), np.float32)])[0]
    first *= 7
    assert (pairs.compute([np.ones((2, 2), np.float32)])[0] == 2).all()
    assert first.flags.writeable
    assert (first == 14).all()


def test_closing_answers_those_that_wait(pairs):
    pid = pairs.pids[1]
    os.kill(pid, signal.SIGSTOP)
    errors = []

    def ask():
        try:
            pairs.compute([np.ones((2, 2), np.float32)])
        except RankLostError as error:
            errors.append(str(error))

    threads = [threading.Thread(target=ask) for _ in range(9)]
    for thread in threads:
        thread.start()
    until(lambda: len(pairs._waiting) == 9)
    pairs.close()
    for thread in threads:
        thread.join(60)
    assert errors == ["the session was closed"] * 9
    assert not psutil.pid_exists(pid)
    with pytest.raises(BackendError, match="closed"):
        pairs.compute([np.ones((2, 2), np.float32)])


def test_the_layers_lie_in_the_stages_alone(tmp_path):
    """Each stage has its share of the weights, and the process of the session none."""
    width, blocks = 1200, 8
    folder = cut_model(deep_package(tmp_path, deep(width=width, blocks=blocks)), tmp_path / "out", 2).path
    before = psutil.Process().memory_full_info().uss
    session = load_artifact(folder).open()
    try:
        session.run([images(1)])
        taken = psutil.Process().memory_full_info().uss - before
        stages = [psutil.Process(pid).memory_full_info().uss for pid in session.ranks.pids]
        small = load_artifact(cut_model(deep_package(tmp_path / "small"), tmp_path / "out-small", 2).path).open()
        try:
            empty = psutil.Process(small.ranks.pids[0]).memory_full_info().uss
        finally:
            small.close()
    finally:
        session.close()
    weights = blocks * width * width * 4
    assert taken < 0.3 * weights
    assert all(0.3 * weights < one - empty < 0.9 * weights for one in stages)
