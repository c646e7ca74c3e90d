"""The repository without a server: what is in use is not closed, and what it publishes is whole at any time."""

import contextlib
import threading
import time

import numpy as np
import pytest

from headrace.errors import ArtifactError, InputError, NotFoundError, OverloadedError, UnsupportedError
from headrace.serving.config import ServeConfig
from headrace.serving.models import model_group
from headrace.serving.models.model_group import version_signature
from headrace.serving.models.repository import ModelRepository

IMAGES = np.zeros((1, 3, 16, 16), np.float32)


@pytest.fixture
def opened(repository):
    """Open `repository` as a server would; closed at the end."""
    made = []

    def begin(mode="explicit", load=True, **config) -> ModelRepository:
        settings = {"instances": 1, "threads": 1, "model_control_mode": mode, **config}
        made.append(ModelRepository(ServeConfig.of(models=repository.path, **settings)))
        if load:
            made[-1].load()
        return made[-1]

    yield begin
    for each in made:
        each.close()


def _until(condition) -> None:
    end = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.005)


def test_a_model_that_is_in_use_is_closed_after_that(opened, repository):
    repository.package("tiny")
    models = opened(load_models=("tiny",))
    with models.use("tiny_classify") as companion:
        old = companion.target
        repository.add("tiny", 2, scale=2)
        models.start_load("tiny").result(60)
        assert models.get("tiny").version == "2"
        assert models.get("tiny_classify").target is models.get("tiny")
        ticket = old.batcher.admit(1, timeout=30)  # what comes late to the old version still gets in
        old.batcher.submit(ticket, [IMAGES])
        assert ticket.future.result(30)[0].shape == (1, 7)
        assert any(thread.name == "headrace-drain-tiny" for thread in threading.enumerate())
    _until(lambda: not any(thread.name == "headrace-drain-tiny" for thread in threading.enumerate()))
    with pytest.raises(OverloadedError, match="shutting down"):
        old.batcher.admit(1, timeout=30)


def test_whoever_comes_between_look_up_and_switch_gets_the_new_one(opened, repository):
    repository.package("tiny")
    models = opened(load_models=("tiny",))
    found, get = [], models.get

    def slow_get(name, version="", **given):
        model = get(name, version)
        if not found:
            found.append(model)
            repository.add("tiny", 2, scale=2)
            models.start_load("tiny").result(60)
            _until(lambda: not model.leases.acquire())
        return model

    models.get = slow_get
    with models.use("tiny") as model:
        assert (found[0].version, model.version) == ("1", "2")


def test_a_load_that_an_unload_follows_at_once_has_succeeded(opened, repository):
    repository.package("tiny")
    models = opened()
    group = models._groups["tiny"]
    load = group.load

    def load_and_lose(*given, **named):
        reasons = load(*given, **named)
        assert models.get("tiny").version == "1"
        models.start_unload("tiny").result(60)
        return reasons

    group.load = load_and_lose
    models.start_load("tiny").result(60)
    assert models.index(ready_only=True) == []


def test_whoever_listens_hears_of_every_change_before_anything_is_closed(repository):
    repository.package("tiny")
    seen = []

    def listen() -> None:
        serving = [model.version for model in models.ready_models() if model.name == "tiny"]
        seen.append((serving, held[0].batcher.admit(1, timeout=9).future.cancel() if held else None))

    held: list = []
    models = None
    models = ModelRepository(
        ServeConfig.of(models=repository.path, instances=1, threads=1, model_control_mode="explicit", load_models=("tiny",)),
        on_change=lambda: listen() if models else None,
    )
    models.load()
    with models.use("tiny") as model:
        held.append(model)
        repository.add("tiny", 2, scale=2)
        models.start_load("tiny").result(60)
        assert seen[-1] == (["2"], True)
    held.clear()
    models.start_unload("tiny").result(60)
    models.close()
    assert [serving for serving, _ in seen if serving] == sorted(serving for serving, _ in seen if serving)
    assert seen[-1][0] == []


def test_counters_of_a_version_that_is_loaded_again_go_on(opened, repository):
    repository.package("tiny")
    models = opened(load_models=("*",))
    before = models.get("tiny")
    ticket = before.batcher.admit(1, timeout=30)
    before.batcher.submit(ticket, [IMAGES])
    ticket.future.result(30)
    repository.package("tiny", scale=2)
    models.start_load("tiny").result(60)
    assert models.get("tiny") is not before
    assert models.get("tiny").statistics.snapshot()["inference_count"] == 1
    assert models.get("tiny_classify").statistics is not models.get("tiny").statistics


def test_what_did_not_change_is_not_loaded_again(opened, repository):
    repository.package("tiny")
    models = opened(load_models=("tiny",))
    before = models.get("tiny")
    repository.configure("tiny", "version_policy { latest { num_versions: 3 } }")
    models.start_load("tiny").result(60)
    assert models.get("tiny") is before
    repository.configure("tiny", "default_model_filename: 'model.onnx'")
    models.start_load("tiny").result(60)
    assert models.get("tiny") is not before


def test_a_load_from_the_outside_waits_for_the_first(repository, opened):
    repository.package("tiny")
    models = opened(load=False, load_models=("tiny",))
    with pytest.raises(OverloadedError, match="still loading"):
        models.get("tiny_classify")
    assert not models.ready
    assert [row["state"] for row in models.index()] == ["LOADING"] * 3
    models.load()
    assert models.ready
    assert models.index(ready_only=True) == models.index()


@pytest.mark.parametrize("again", [False, True])
def test_a_version_is_being_loaded_until_it_serves(repository, opened, monkeypatch, again):
    """Whatever has the snapshot renewed between its opening and its switch, who asks then is to wait."""
    repository.package("tiny")
    models = opened(load=again, load_models=("tiny",))
    if again:
        models.start_unload("tiny").result(60)
    seen = []

    def sign(*args):
        models._groups["tiny"]._renew()
        seen.append({row["state"] for row in models.index() if row["name"] == "tiny"})
        return version_signature(*args)

    monkeypatch.setattr(model_group, "version_signature", sign)
    models.start_load("tiny").result(60) if again else models.load()
    assert seen[-1] == {"LOADING"}
    assert len(seen) >= 2
    assert models.get("tiny").version == "1"
    if not again:
        assert all(states == {"LOADING"} for states in seen), seen


def test_models_are_opened_side_by_side(repository, opened):
    for name in ("a", "b"):
        repository.package(name)
    both = threading.Barrier(2)
    ready = []

    def progress(line: str) -> None:
        if "loading version" in line:
            both.wait(60)  # which raises where one waits for the other
        if "is ready" in line:
            ready.append(line)

    opened(mode="none", load=False).load(progress)
    assert len(ready) == 2


def test_while_it_is_measured_a_model_answers_and_is_not_ready(repository, opened):
    repository.package("tiny")
    models, seen = opened("none", load=False), []

    def look() -> None:
        with contextlib.suppress(OverloadedError), models.use("tiny") as model:
            if not seen:
                with pytest.raises(OverloadedError, match="still loading"):
                    models.get("tiny")
                seen.append((model, models.ready, {row["state"] for row in models.index()}))

    with models.notifications.listening(look):
        models.load()
    model, ready, states = seen[0]
    assert (ready, states) == (False, {"LOADING"})
    assert models.ready
    assert models.get("tiny") is not model
    assert not model.leases.acquire()  # closed, once the one in its place was there
    assert models.get("tiny").statistics is model.statistics


def test_wrong_set_ups(repository, opened):
    with pytest.raises(ArtifactError, match="holds no models"):
        opened("none")
    repository.package("tiny")
    with pytest.raises(ArtifactError, match="no model 'nope' to load; it has tiny, tiny_classify, tiny_decode"):
        opened(load_models=("nope",))
    with pytest.raises(ValueError, match="--model-control-mode must be one of"):
        opened("on")
    with pytest.raises(ValueError, match="--load-model needs"):
        opened("poll", load_models=("tiny",))
    with pytest.raises(ValueError, match="--repository-poll-secs"):
        opened("poll", repository_poll_seconds=0)
    with pytest.raises(UnsupportedError, match="--model-control-mode explicit"):
        opened("none").start_load("tiny")


def test_a_server_that_stops_begins_nothing_new(repository, opened):
    repository.package("tiny")
    models = opened()
    models.drain()
    with pytest.raises(OverloadedError, match="shutting down"):
        models.start_load("tiny")
    assert not models.ready
    with pytest.raises(NotFoundError):
        models.get("tiny")


@pytest.mark.parametrize(("times", "serves"), [(2, "2"), (1000, "1")])
def test_a_folder_that_changes_while_it_is_read_is_read_again(opened, repository, times, serves):
    repository.package("tiny")
    lines = []

    def progress(line: str) -> None:
        if "loading version 2" in line:
            lines.append(line)
            if len(lines) <= times:
                (repository.path / "tiny" / "2" / "note").write_text("x" * len(lines))

    models = opened(load=False, load_models=("tiny",))
    models.load(progress)
    repository.add("tiny", 2, scale=2)
    if serves == "2":
        models.start_load("tiny").result(60)
        assert len(lines) == times + 1
    else:
        with pytest.raises(InputError, match="changes while it is read; write a version into another folder, and rename"):
            models.start_load("tiny").result(60)
    assert models.get("tiny").version == serves
