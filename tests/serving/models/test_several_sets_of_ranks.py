"""Two instances of a split model, each a set of processes: what clients see while one set, or both, lack one."""

import re
import signal
import urllib.request

import pytest

from headrace.runtime.artifact.pipeline.splitting import cut_model
from headrace.runtime.artifact.split.splitting import split_model
from headrace.specs import CenterCrop, Preprocessing, Resize
from tests.runtime.artifact.pipeline.models import deep, deep_package
from tests.runtime.artifact.split.models import SIDE, linear, package
from tests.serving.models.asking import Load, ask, ranks_of, until

PREPROCESSING = Preprocessing(
    geometry=(Resize(size=SIDE), CenterCrop(size=(SIDE, SIDE))), mean=(0.5, 0.4, 0.3), std=(0.2, 0.25, 0.3)
)
KINDS = {"rank": ("split.rank", 3), "stage": ("pipeline.stage", 2)}


@pytest.fixture(scope="module")
def folders(once):
    """The models folders of a head over 3 ranks and of a pipeline of 2 stages."""
    return once("several-sets", made)


def made(tmp):
    labels = [f"thing {number}" for number in range(40)]
    head = package(tmp / "head", linear(40), classes=40, labels=labels, preprocessing=PREPROCESSING)
    split_model(head, tmp / "ranks", 3)
    network = deep_package(
        tmp / "deep", deep(width=300, blocks=4, classes=40), name="faces", labels=labels, preprocessing=PREPROCESSING
    )
    cut_model(network, tmp / "stages", 2)
    return {"rank": tmp / "ranks", "stage": tmp / "stages"}


def away(server):
    """How many instances the metrics say are away."""
    text = urllib.request.urlopen(f"http://{server.metrics}/metrics", timeout=60).read().decode()
    (found,) = re.findall(r'^headrace_instances_away\{[^}]*model="faces"[^}]*\} (\S+)', text, re.M)
    return float(found)


@pytest.mark.parametrize(
    ("kind", "number", "frontends"),
    [
        ("rank", signal.SIGKILL, 2),
        # Stages and one process: two pipelines, in test_pipeline_models. Some that stand still: below.
        pytest.param("stage", signal.SIGSTOP, 0, marks=pytest.mark.slow),
        pytest.param("rank", signal.SIGSTOP, 0, marks=pytest.mark.slow),
        pytest.param("stage", signal.SIGKILL, 2, marks=pytest.mark.slow),
    ],
)
def test_no_request_fails_while_the_other_set_is_whole(folders, start, kind, number, frontends):
    program, members = KINDS[kind]
    server = start(folders[kind], frontends=frontends, instances=2)
    assert len(ranks_of(server, program)) == 2 * members
    assert away(server) == 0
    with Load(server, clients=8) as load:
        before = {process.pid for process in ranks_of(server, program)}
        lost = ranks_of(server, program)[1]
        lost.send_signal(number)
        until(lambda: {process.pid for process in ranks_of(server, program)} - before)
        ready = [ask(server, path)[0] for path in ("/v2/health/ready", "/v2/models/faces/ready")]
        until(lambda: away(server) == 0 and len(ranks_of(server, program)) == 2 * members)
        answered = len(load.seen)
        until(lambda: len(load.seen) > answered + 20)
    assert not lost.is_running()
    assert ready == [200, 200]
    assert {status for status, *_ in load.seen} == {200}, [body for status, body, *_ in load.seen if status != 200][:1]
    assert load.are_their_own()
    assert server.stop() == 0


def test_both_sets_lack_one(folders, start):
    """Then the requests are told of it, and the model is not ready, until either is whole."""
    server = start(folders["rank"], instances=2)
    with Load(server, clients=4) as load:
        for process in ranks_of(server)[:2]:  # rank 0 of each
            process.suspend()
        until(lambda: ask(server, "/v2/models/faces/ready")[0] == 503)
        error = ask(server, "/v2/models/faces/ready")[1]["error"]
        until(lambda: ask(server, "/v2/health/ready")[0] == 200)
        answered = len(load.seen)
        until(lambda: len(load.seen) > answered + 20)
    assert "rank 0 of 3 has not moved for 5 s and was ended; it is started again" in error
    assert {status for status, *_ in load.seen} == {200, 503}
    assert {status for status, *_ in load.seen[-4:]} == {200}
    assert load.are_their_own()
