import os
import shutil
import signal
import threading

import numpy as np
import psutil
import pytest

from headrace.errors import RankLostError
from headrace.runtime.artifact.artifact import load_artifact
from headrace.runtime.artifact.split import members as module
from headrace.runtime.artifact.split.splitting import split_model
from tests.runtime.artifact.split.models import images, linear, package
from tests.runtime.artifact.waiting import until


@pytest.mark.parametrize("number", [0, 2])
def test_a_killed_rank_is_named_and_comes_back(sessions, number):
    whole, split = sessions
    changes = []
    split.ranks.on_change = lambda: changes.append(split.ranks.trouble)
    os.kill(split.ranks.pids[number], signal.SIGKILL)
    until(lambda: changes)
    assert changes[0] == f"rank {number} of 3 has ended (signal SIGKILL); it is started again"
    with pytest.raises(RankLostError, match=f"rank {number} of 3 has ended"):
        split.run([images(1)])
    until(lambda: not split.ranks.trouble)
    until(lambda: changes[-1] == "")
    assert np.allclose(split.run([images(3)])[0], whole.run([images(3)])[0], atol=1e-5)


def test_a_stopped_rank_is_ended_in_the_middle_of_a_request(sessions, monkeypatch):
    monkeypatch.setattr(module, "_HUNG_SECONDS", 1.5)
    whole, split = sessions
    os.kill(split.ranks.pids[0], signal.SIGKILL)  # so that the limit is the one above
    until(lambda: split.ranks.trouble)
    until(lambda: not split.ranks.trouble)
    pid = split.ranks.pids[0]
    os.kill(pid, signal.SIGSTOP)
    with pytest.raises(RankLostError, match=r"rank 0 of 3 has not moved for 1\.5 s and was ended"):
        split.run([images(16)])
    assert not psutil.pid_exists(pid)
    until(lambda: not split.ranks.trouble)
    assert np.allclose(split.run([images(3)])[0], whole.run([images(3)])[0], atol=1e-5)


def test_no_request_waits_for_ever_while_ranks_are_killed(sessions):
    """Every call ends, in the right answer or with the name of a rank."""
    whole, split = sessions
    (wanted,) = whole.run([images(4)])
    outcomes = []
    done = threading.Event()

    def ask():
        while not done.is_set():
            try:
                outcomes.append(bool(np.allclose(split.run([images(4)])[0], wanted, atol=1e-5)))
            except RankLostError as error:
                outcomes.append(str(error))

    threads = [threading.Thread(target=ask) for _ in range(3)]
    for thread in threads:
        thread.start()
    for number in (0, 1, 2, 1):
        until(lambda: not split.ranks.trouble)
        os.kill(split.ranks.pids[number], signal.SIGKILL)
        until(lambda: split.ranks.trouble)
    until(lambda: not split.ranks.trouble)
    done.set()
    for thread in threads:
        thread.join(120)
        assert not thread.is_alive()
    assert False not in outcomes
    assert True in outcomes
    lost = {outcome for outcome in outcomes if outcome is not True}
    assert lost
    assert all(why.startswith("rank ") and "has ended (signal SIGKILL)" in why for why in lost)


def test_a_rank_does_not_come_back_with_another_model(tmp_path):
    folder, _ = split_model(package(tmp_path / "a", linear(10), classes=10), tmp_path / "out", 2)
    other, _ = split_model(package(tmp_path / "b", linear(10, ties=True), classes=10), tmp_path / "other", 2)
    session = load_artifact(folder).open()
    try:
        shutil.rmtree(folder)
        shutil.copytree(other, folder)
        os.kill(session.ranks.pids[1], signal.SIGKILL)
        until(lambda: "part-1.onnx is not the file that was loaded" in session.ranks.trouble)
        with pytest.raises(RankLostError, match="load the model again"):
            session.run([images(1)])
    finally:
        session.close()


def test_the_parts_lie_in_the_ranks_alone(tmp_path):
    classes, width = 300_000, 24
    folder, _ = split_model(package(tmp_path, linear(classes), classes=classes), tmp_path / "out", 2)
    session = load_artifact(folder).open()
    try:
        session.best([images(1)], 5)
        head = classes * (width + 1) * 4
        own = [psutil.Process(pid).memory_full_info().uss for pid in session.ranks.pids]
        small = package(tmp_path / "small", linear(10), classes=10)
        bare = load_artifact(split_model(small, tmp_path / "out-small", 2)[0]).open()
        try:
            empty = psutil.Process(bare.ranks.pids[0]).memory_full_info().uss
        finally:
            bare.close()
        for taken in own:
            assert 0.4 * head < taken - empty < 0.8 * head
    finally:
        session.close()
