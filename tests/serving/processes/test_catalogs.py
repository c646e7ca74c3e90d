"""What an engine tells its front ends of its models: each model once, and changes that follow each other together. Hundreds of
models cost the square of their number otherwise, and a server of 300 did not become ready."""

import asyncio
import contextlib
import socket
import threading

import pytest

from headrace.runtime.base.anonymous_memory import create_memory, map_memory
from headrace.serving.config import ServeConfig
from headrace.serving.processes import messages
from headrace.serving.processes.channel import Channel
from headrace.serving.processes.control import ControlLink
from headrace.serving.processes.engine import Engine
from headrace.serving.processes.remote import RemoteRepository

MODELS = 12


class Supervised:
    """An engine in this process, as a supervisor starts it, and what a front end is sent by it."""

    def __init__(self, config: ServeConfig):
        self.link, theirs = ControlLink.pair()
        self.engine = Engine(config, ControlLink(theirs), None)
        self.running = asyncio.create_task(self.engine.run())
        self.catalogs: list[messages.Catalog] = []
        self.link.listen(lambda *_: None)

    def front_end(self) -> socket.socket:
        here, there = socket.socketpair()
        memory = create_memory(1 << 20)
        self.link.send(messages.Connect(), (there.fileno(), memory))
        there.close()
        return here

    def listener(self) -> Channel:
        def received(message: messages.Message) -> None:
            if isinstance(message, messages.Catalog):
                self.catalogs.append(message)
                channel.send(messages.Seen(message.serial))

        channel = Channel(self.front_end(), received)
        return channel


@contextlib.asynccontextmanager
async def supervised(repository, **options):
    config = ServeConfig.of(models=repository.path, frontends=1, http_port=0, grpc_port=0, metrics_port=0, **options)
    started = Supervised(config)
    try:
        yield started
    finally:
        started.link.send(messages.Stop())
        async with asyncio.timeout(60):
            await started.running


async def until(condition):
    async with asyncio.timeout(60):
        while not condition():
            await asyncio.sleep(0.01)


@pytest.fixture
def many(repository):
    for number in range(MODELS):
        repository.package(f"m{number:02}", scale=1.0 + number)
    return repository


def test_each_model_is_described_once(many):
    async def scenario():
        async with supervised(many) as started:
            started.listener()
            await until(lambda: started.catalogs and started.catalogs[-1].loaded)
            described = [model.number for catalog in started.catalogs for model in catalog.models]
            assert sorted(described) == sorted(started.catalogs[-1].numbers)
            assert len(described) == 3 * MODELS
            late = len(started.catalogs)
            started.listener()
            await until(lambda: len(started.catalogs) >= late + 2)  # one for either
            assert sorted(len(catalog.models) for catalog in started.catalogs[late:]) == [0, 3 * MODELS]

    asyncio.run(scenario())


def test_a_model_that_comes_back_is_described_again(many):
    def last(started):
        return started.catalogs[-1]

    async def scenario():
        async with supervised(many, model_control_mode="explicit", load_models=("*",)) as started:
            channel = started.listener()
            await until(lambda: started.catalogs and last(started).loaded)
            known = set(last(started).numbers)
            channel.send(messages.UnloadModel(1, "m03", dependents=True))
            await until(lambda: len(last(started).numbers) == 3 * (MODELS - 1))
            channel.send(messages.LoadModel(2, "m03", None))
            await until(lambda: len(last(started).numbers) == 3 * MODELS)
            fresh = set(last(started).numbers) - known
            told = {one.number: one.name for catalog in started.catalogs for one in catalog.models if one.number not in known}
            assert {told[number] for number in fresh} == {"m03", "m03_decode", "m03_classify"}

    asyncio.run(scenario())


def test_changes_that_follow_each_other_are_announced_together(many):
    async def scenario():
        async with supervised(many) as started:
            started.listener()
            await until(lambda: started.catalogs and started.catalogs[-1].loaded)
            before = len(started.catalogs)
            changes = threading.Thread(target=lambda: [started.engine._on_change() for _ in range(1000)])
            changes.start()
            changes.join()
            await until(lambda: len(started.catalogs) > before)
            await asyncio.sleep(0.3)
            assert 1 <= len(started.catalogs) - before <= 20

    asyncio.run(scenario())


def test_front_ends_know_all_of_them_by_what_they_were_told_when(many):
    async def scenario():
        async with supervised(many, model_control_mode="explicit", load_models=("*",)) as started:
            config = ServeConfig.of(models=many.path, frontends=1)
            remote = RemoteRepository(config)
            remote.connect(started.front_end(), map_memory(create_memory(1 << 20)))
            await until(lambda: remote.ready and len(remote.ready_models()) == 3 * MODELS)
            kept = remote.get("m05")
            await remote.unload_model("m03", dependents=True)
            assert len(remote.ready_models()) == 3 * (MODELS - 1)
            await remote.load_model("m03")
            assert len(remote.ready_models()) == 3 * MODELS
            assert remote.get("m05") is kept
            assert remote.get("m03_classify").target is remote.get("m03")

    asyncio.run(scenario())
