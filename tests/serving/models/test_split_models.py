"""A model of several ranks behind real servers: its answers, and what clients see while a rank is away."""

import shutil
import signal

import numpy as np
import pytest
import tritonclient.grpc as grpcclient
import tritonclient.http as httpclient
from tritonclient.utils import InferenceServerException

from headrace.runtime.artifact.artifact import load_artifact
from headrace.runtime.artifact.split.splitting import split_model
from headrace.specs import CenterCrop, Preprocessing, Resize
from tests.runtime.artifact.split.models import SIDE, images, linear, package
from tests.serving.models.asking import Load, ask, infer, photo, ranks_of, until

CLASSES = 1001
PREPROCESSING = Preprocessing(
    geometry=(Resize(size=SIDE), CenterCrop(size=(SIDE, SIDE))), mean=(0.5, 0.4, 0.3), std=(0.2, 0.25, 0.3)
)
LABELS = [f"person {number}" for number in range(CLASSES)]


@pytest.fixture(scope="module")
def folders(once):
    """The models folders of a model as it is, and of the same split over 3 ranks."""
    return once("split-models", made)


def made(tmp):
    whole = package(tmp, linear(CLASSES), classes=CLASSES, labels=LABELS, preprocessing=PREPROCESSING)
    split_model(whole, tmp / "split", 3)
    return whole.parent, tmp / "split"


@pytest.mark.parametrize("frontends", [pytest.param(0, marks=pytest.mark.slow), 2])  # 0: under load, in the loss below
def test_answers_are_those_of_the_whole_model(folders, start, frontends):
    whole, split = folders
    server = start(split, frontends=frontends)
    session = load_artifact(whole / "faces").open()
    try:
        for rows in (1, 2, 5, 16):
            (wanted,) = session.run([images(rows, rows)])
            for module, address in ((httpclient, server.http), (grpcclient, server.grpc)):
                given = infer(module, address, images(rows, rows))
                np.testing.assert_allclose(given, wanted, rtol=0, atol=1e-6 * np.abs(wanted).max())
            best = infer(httpclient, server.http, images(rows, rows), class_count=4).reshape(rows, 4)
            found = [[int(item.decode().split(":")[1]) for item in row] for row in best]
            assert found == np.argsort(-wanted, axis=1, kind="stable")[:, :4].tolist()
    finally:
        session.close()
    beside = start(whole)
    for seed in range(4):
        answers = [ask(one, "/v1/classify/faces?top_k=7", photo(seed)) for one in (server, beside)]
        (status, given, _), (_, wanted, _) = answers
        assert status == 200
        assert [item["label"] for item in given["predictions"]] == [item["label"] for item in wanted["predictions"]]
        for own, known in zip(given["predictions"], wanted["predictions"], strict=True):
            assert own["probability"] == pytest.approx(known["probability"], rel=1e-5)
    ranks = ranks_of(server)
    assert len(ranks) == 3
    assert server.stop() == 0
    assert not any(rank.is_running() for rank in ranks)


@pytest.mark.parametrize(
    ("number", "frontends"),
    [
        # In one way: a stage that is killed, in test_pipeline_models, a rank that is killed and those that stand still, in
        # test_several_sets_of_ranks.
        pytest.param(signal.SIGSTOP, 2, marks=pytest.mark.slow),
        pytest.param(signal.SIGKILL, 0, marks=pytest.mark.slow),
        pytest.param(signal.SIGKILL, 2, marks=pytest.mark.slow),
        pytest.param(signal.SIGSTOP, 0, marks=pytest.mark.slow),
    ],
)
def test_a_lost_rank(folders, start, number, frontends):
    server = start(folders[1], frontends=frontends)
    ready = [ask(server, path)[0] for path in ("/v2/health/ready", "/v2/models/faces/ready", "/v2/models/faces_classify/ready")]
    assert ready == [200, 200, 200]
    with Load(server) as load:
        lost = ranks_of(server)[1]
        lost.send_signal(number)
        until(lambda: ask(server, "/v2/health/ready")[0] == 503)
        status, answer, headers = ask(server, "/v2/models/faces/ready")
        if status != 200:  # it may be back already
            assert status == 503
            assert "rank " in answer["error"]
            assert int(headers["Retry-After"]) > 0
        until(lambda: ask(server, "/v2/health/ready")[0] == 200)
        answered = len(load.seen)
        until(lambda: len(load.seen) > answered + 10)
    assert not lost.is_running()
    assert len(ranks_of(server)) == 3
    assert {status for status, *_ in load.seen} == {200, 503}
    assert {status for status, *_ in load.seen[-4:]} == {200}
    assert load.are_their_own()
    rejected = [(body["error"], headers) for status, body, headers, _ in load.seen if status == 503]
    what = "has ended (signal SIGKILL)" if number == signal.SIGKILL else "has not moved for 5 s and was ended"
    for error, headers in rejected:
        assert "'faces" in error
        assert f" of 3 {what}" in error
        assert int(headers["Retry-After"]) > 0
    (state,) = {row["state"] for row in ask(server, "/v2/repository/index", b"{}")[1]}
    assert state == "READY"
    assert server.stop() == 0


@pytest.mark.slow  # ranks and stages are away in one way (split/members): test_pipeline_models
def test_what_clients_of_grpc_see(folders, start):
    server = start(folders[1])
    with grpcclient.InferenceServerClient(server.grpc) as client:
        assert client.is_model_ready("faces")
        rank = ranks_of(server)[0]
        rank.suspend()  # so that it stays away long enough for all of this
        until(lambda: not client.is_model_ready("faces"))
        assert not client.is_server_ready()
        with pytest.raises(InferenceServerException, match="rank") as error:
            infer(grpcclient, server.grpc, images(1))
        assert error.value.status() == "StatusCode.UNAVAILABLE"
        until(lambda: client.is_model_ready("faces"))
        assert infer(grpcclient, server.grpc, images(1)).shape == (1, CLASSES)


def test_other_models_serve_on(folders, start, tmp_path):
    both = tmp_path / "models"
    both.mkdir()
    for folder in (*folders[1].iterdir(), package(tmp_path / "other", linear(10), name="other")):
        shutil.copytree(folder, both / folder.name)
    server = start(both)
    ranks_of(server)[2].suspend()
    until(lambda: ask(server, "/v2/models/faces/ready")[0] == 503)
    assert ask(server, "/v2/health/ready")[0] == 200
    assert ask(server, "/v2/models/other/ready")[0] == 200
    until(lambda: ask(server, "/v2/models/faces/ready")[0] == 200)


@pytest.mark.parametrize("frontends", [pytest.param(0, marks=pytest.mark.slow), 2])  # 0: stages, in test_pipeline_models
def test_no_rank_outlives_a_killed_server(folders, start, frontends):
    server = start(folders[1], frontends=frontends)
    ranks = ranks_of(server)
    assert len(ranks) == 3
    ranks[1].suspend()
    server.process.kill()
    until(lambda: not any(rank.is_running() for rank in ranks))


@pytest.mark.slow  # likewise
def test_a_killed_engine_comes_back_with_its_ranks(folders, start):
    server = start(folders[1], frontends=1)
    ranks = ranks_of(server)
    (engine,) = server.children("engine")
    engine.kill()
    until(lambda: not any(rank.is_running() for rank in ranks))
    until(lambda: ask(server, "/v2/health/ready")[0] == 200)
    assert len(ranks_of(server)) == 3
    assert ask(server, "/v1/classify/faces", photo(1))[0] == 200


@pytest.mark.slow  # likewise
def test_a_server_ends_in_order_while_a_rank_is_stopped(folders, start):
    server = start(folders[1])
    ranks = ranks_of(server)
    ranks[0].suspend()
    assert server.stop() == 0
    assert not any(rank.is_running() for rank in ranks)


@pytest.mark.slow  # likewise
def test_load_and_unload(folders, start):
    server = start(folders[1], model_control_mode="explicit", load_models=["*"])
    before = ranks_of(server)
    assert len(before) == 3
    assert ask(server, "/v2/repository/models/faces/unload", b"{}")[0] == 200
    until(lambda: ranks_of(server) == [])
    assert ask(server, "/v2/repository/models/faces/load", b"{}")[0] == 200
    assert len(ranks_of(server)) == 3
    assert ask(server, "/v1/classify/faces", photo(1))[0] == 200
