"""A pipeline behind real servers: its answers, its shares, and what clients see while a stage is away."""

import json
import os
import signal
import threading
import urllib.request
from itertools import pairwise
from pathlib import Path

import numpy as np
import psutil
import pytest
import tritonclient.grpc as grpcclient
import tritonclient.http as httpclient
from tritonclient.utils import InferenceServerException

from headrace.runtime.artifact.artifact import load_artifact
from headrace.runtime.artifact.pipeline.splitting import cut_model
from headrace.specs import CenterCrop, Preprocessing, Resize
from tests.runtime.artifact.pipeline.models import deep, deep_package
from tests.runtime.artifact.split.models import SIDE, images
from tests.serving.models.asking import Load, ask, infer, photo, ranks_of, until

CLASSES, STAGES = 40, 3
PREPROCESSING = Preprocessing(
    geometry=(Resize(size=SIDE), CenterCrop(size=(SIDE, SIDE))), mean=(0.5, 0.4, 0.3), std=(0.2, 0.25, 0.3)
)
LABELS = [f"thing {number}" for number in range(CLASSES)]


@pytest.fixture(scope="module")
def folders(once):
    """The models folders of a model as it is, and of the same as a pipeline of 3 stages."""
    return once("pipeline-models", made)


def made(tmp):
    model = deep(width=96, blocks=12, classes=CLASSES)
    whole = deep_package(tmp, model, name="faces", labels=LABELS, preprocessing=PREPROCESSING)
    cut_model(whole, tmp / "pipeline", STAGES)
    return whole.parent, tmp / "pipeline"


def stages_of(server):
    return ranks_of(server, "pipeline.stage")


@pytest.mark.parametrize("frontends", [pytest.param(0, marks=pytest.mark.slow), 2])  # 0: under load, in the losses below
def test_answers_are_those_of_the_whole_model(folders, start, frontends):
    before = set(os.listdir("/dev/shm"))
    whole, pipeline = folders
    server = start(pipeline, frontends=frontends)
    session = load_artifact(whole / "faces").open()
    try:
        for rows in (1, 2, 5, 16):
            (wanted,) = session.run([images(rows, rows)])
            for module, address in ((httpclient, server.http), (grpcclient, server.grpc)):
                given = infer(module, address, images(rows, rows))
                np.testing.assert_allclose(given, wanted, rtol=0, atol=1e-6 * np.abs(wanted).max())
    finally:
        session.close()
    beside = start(whole)
    for seed in range(4):
        (status, given, _), (_, wanted, _) = (ask(one, "/v1/classify/faces?top_k=7", photo(seed)) for one in (server, beside))
        assert status == 200
        assert [item["label"] for item in given["predictions"]] == [item["label"] for item in wanted["predictions"]]
    stages = stages_of(server)
    assert len(stages) == STAGES
    assert server.stop() == 0
    assert not any(stage.is_running() for stage in stages)
    left = set(os.listdir("/dev/shm")) - before  # what other tests put there comes and goes
    until(lambda: left.isdisjoint(os.listdir("/dev/shm")))


# In one process each is killed in turn below, and a stopped one is what clients of gRPC see; behind front ends one that stands
# still is a rank, in test_split_models. Each number stopped by itself: runtime/artifact/pipeline/test_stages.
@pytest.mark.parametrize(("lost", "frontends"), [*(pytest.param(lost, 0, marks=pytest.mark.slow) for lost in range(3)), (1, 2)])
@pytest.mark.parametrize("number", [signal.SIGKILL, pytest.param(signal.SIGSTOP, marks=pytest.mark.slow)])
def test_a_lost_stage(folders, start, frontends, number, lost):
    server = start(folders[1], frontends=frontends)
    assert [ask(server, f"/v2/{path}/ready")[0] for path in ("health", "models/faces", "models/faces_classify")] == [200] * 3
    with Load(server, clients=8) as load:
        stage = stages_of(server)[lost]
        stage.send_signal(number)
        until(lambda: ask(server, "/v2/health/ready")[0] == 503)
        status, answer, headers = ask(server, "/v2/models/faces/ready")
        if status != 200:  # it may be back already
            assert status == 503
            assert "stage " in answer["error"]
            assert int(headers["Retry-After"]) > 0
        until(lambda: ask(server, "/v2/health/ready")[0] == 200)
        answered = len(load.seen)
        until(lambda: len(load.seen) > answered + 20)
    assert not stage.is_running()
    assert len(stages_of(server)) == STAGES
    assert {status for status, *_ in load.seen} == {200, 503}
    assert {status for status, *_ in load.seen[-8:]} == {200}
    assert load.are_their_own()
    what = "has ended (signal SIGKILL)" if number == signal.SIGKILL else "has not moved for 5 s and was ended"
    rejected = [(body["error"], headers) for status, body, headers, _ in load.seen if status == 503]
    for error, headers in rejected:
        assert "'faces" in error
        assert f": stage {lost} of {STAGES} {what}; it is started again" in error
        assert int(headers["Retry-After"]) > 0
    assert server.stop() == 0


@pytest.mark.slow  # each in turn without a server: runtime/artifact/pipeline/test_stages; one behind a server: above
def test_every_stage_is_lost_in_turn_under_load(folders, start):
    server = start(folders[1])
    with Load(server, clients=8) as load:
        for lost in (2, 0, 1):
            before = {stage.pid for stage in stages_of(server)}
            stages_of(server)[lost].kill()
            until(lambda before=before: {stage.pid for stage in stages_of(server)} - before)
            until(lambda: ask(server, "/v2/health/ready")[0] == 200)
            answered = len(load.seen)
            until(lambda answered=answered: len(load.seen) > answered + 10)
    assert {status for status, *_ in load.seen} == {200, 503}
    assert load.are_their_own()


def test_what_clients_of_grpc_see(folders, start):
    server = start(folders[1])
    with grpcclient.InferenceServerClient(server.grpc) as client:
        assert client.is_model_ready("faces")
        stages_of(server)[1].suspend()  # so that it stays away long enough for all of this
        until(lambda: not client.is_model_ready("faces"))
        assert not client.is_server_ready()
        with pytest.raises(InferenceServerException, match="stage 1 of 3") as error:
            infer(grpcclient, server.grpc, images(1))
        assert error.value.status() == "StatusCode.UNAVAILABLE"
        until(lambda: client.is_model_ready("faces"))
        assert infer(grpcclient, server.grpc, images(1)).shape == (1, CLASSES)


@pytest.mark.parametrize("frontends", [pytest.param(0, marks=pytest.mark.slow), 1])  # the engine does it, in either
def test_batches_are_in_several_stages_at_a_time(folders, start, frontends, monkeypatch):
    """While there is load the stages are busy for more of the time, all together, than one of them could be."""
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[1] / "waiting_stages"))
    monkeypatch.setenv("STAGES_WAIT", "0.1 0.1 0.15")  # the last one longest: those before it are blocked
    server = start(folders[1], frontends=frontends)

    def shares():
        (model,) = (model for model in json.loads(_get(server, "/v1/figures"))["models"] if model["name"] == "faces")
        (stages,) = model["stages"]
        return model, stages

    until(lambda: all(shares()[1]))
    model, idle = shares()
    assert model["instances"] == 1
    assert [sum(one.values()) for one in idle] == pytest.approx([1.0] * STAGES, abs=1e-3)
    overlapped, done = [], threading.Event()

    def press():
        while not done.is_set():
            infer(httpclient, server.http, images(16))

    clients = [threading.Thread(target=press) for _ in range(6)]
    for client in clients:
        client.start()
    try:
        until(lambda: overlapped.append(shares()[1]) or _together(overlapped[-1]) > 1.5)
        until(lambda: any(one["blocked"] > 0 for one in shares()[1] if one))
    finally:
        done.set()
        for client in clients:
            client.join()
    scraped = urllib.request.urlopen(f"http://{server.metrics}/metrics", timeout=60).read().decode()
    lines = [line for line in scraped.splitlines() if line.startswith("headrace_stage_share{")]
    assert len(lines) == 3 * STAGES
    assert all(f'stage="{number}"' in scraped for number in range(STAGES))
    assert f'headrace_instances{{model="faces",version="1"}} {STAGES + 1}.0' in scraped


def _together(shares):
    return sum(one["busy"] for one in shares if one)


def _get(server, path):
    with urllib.request.urlopen(f"{server.url}{path}", timeout=60) as answer:
        return answer.read()


# Behind front ends, where an engine stands between: ranks, which end in the same way (split/members), in test_split_models.
@pytest.mark.parametrize("frontends", [0, pytest.param(2, marks=pytest.mark.slow)])
def test_no_stage_outlives_a_killed_server(folders, start, frontends):
    server = start(folders[1], frontends=frontends)
    stages = stages_of(server)
    assert len(stages) == STAGES
    stages[1].suspend()
    server.process.kill()
    until(lambda: not any(stage.is_running() for stage in stages))


def test_a_killed_engine_comes_back_with_its_stages(folders, start):
    server = start(folders[1], frontends=1)
    stages = stages_of(server)
    (engine,) = server.children("engine")
    engine.kill()
    until(lambda: not any(stage.is_running() for stage in stages))
    until(lambda: ask(server, "/v2/health/ready")[0] == 200)
    assert len(stages_of(server)) == STAGES
    assert ask(server, "/v1/classify/faces", photo(1))[0] == 200


@pytest.mark.parametrize(
    "stopped", [0, *(pytest.param(one, marks=pytest.mark.slow) for one in (None, 2))]
)  # 0: likewise, or harder
def test_a_server_ends_in_order_while_requests_are_in_the_pipe(folders, start, stopped):
    server = start(folders[1])
    stages = stages_of(server)
    outcomes = []

    def press():
        while True:
            try:
                outcomes.append(ask(server, "/v1/classify/faces", photo(1))[0])
            except OSError:  # the server is gone
                return

    clients = [threading.Thread(target=press) for _ in range(6)]
    for client in clients:
        client.start()
    until(lambda: len(outcomes) > 10)
    if stopped is not None:
        stages[stopped].suspend()
    assert server.stop() == 0
    for client in clients:
        client.join(60)
        assert not client.is_alive()
    assert not any(stage.is_running() for stage in stages)
    assert set(outcomes) <= {200, 503}


@pytest.mark.slow  # members of a set are away in one way: test_several_sets_of_ranks
def test_two_instances_are_two_pipelines(folders, start):
    server = start(folders[1], instances=2)
    first, second = stages_of(server)[::2], stages_of(server)[1::2]
    assert len(second) == STAGES
    with Load(server, clients=8) as load:
        first[0].kill()
        until(lambda: first[0] not in stages_of(server) and len(stages_of(server)) == 2 * STAGES)
        assert ask(server, "/v2/models/faces/ready")[0] == 200  # as it was meanwhile: test_several_sets_of_ranks.py
    assert {status for status, *_ in load.seen} == {200}, [body for status, body, *_ in load.seen if status != 200][:1]
    assert load.are_their_own()
    assert all(stage.is_running() for stage in second)


def test_load_and_unload(folders, start):
    server = start(folders[1], model_control_mode="explicit", load_models=["*"])
    assert len(stages_of(server)) == STAGES
    assert ask(server, "/v2/repository/models/faces/unload", b"{}")[0] == 200
    until(lambda: stages_of(server) == [])
    for _ in range(2):  # the second time beside the first
        assert ask(server, "/v2/repository/models/faces/load", b"{}")[0] == 200
        until(lambda: len(stages_of(server)) == STAGES)
    assert ask(server, "/v1/classify/faces", photo(1))[0] == 200


def test_memory_is_bounded_under_load(folders, start):
    """Slots are as large as the largest batch needs, and there are two at each hop: none is added for batches that come."""
    server = start(folders[1])
    processes = [psutil.Process(server.process.pid), *stages_of(server)]
    shared = []
    for seconds in range(3):
        with Load(server, clients=12):
            pass
        for rows in (16, 1, 16):
            infer(httpclient, server.http, images(rows, seconds))
        shared.append([process.memory_info().shared for process in processes])
    for before, after in pairwise(shared):
        assert all(last <= first + (4 << 20) for first, last in zip(before, after, strict=True))
