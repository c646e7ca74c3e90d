"""Who waits at a queue is told to the clock of their stage, and only while they wait."""

import asyncio

from spdl.pipeline import AsyncQueue, PipelineBuilder

from headrace.serving.offline.queues import Queues, WatchedQueue
from headrace.serving.offline.stages import StageClock


def test_those_who_wait_are_starved_or_blocked():
    before, behind = StageClock(1), StageClock(1)

    async def use():
        queue = WatchedQueue(None, buffer_size=1, ends=(before, behind))
        await queue.put(1)
        assert queue.fill() == (1, 1)
        assert await queue.get() == 1
        assert (before.read().blocked, behind.read().starved) == (0, 0), "nobody waited"
        getting = asyncio.create_task(queue.get())
        await asyncio.sleep(0.05)
        assert behind.read().starved > 0
        await queue.put(2)
        assert await getting == 2
        starved = behind.read().starved
        await queue.put(3)
        putting = asyncio.create_task(queue.put(4))
        await asyncio.sleep(0.05)
        assert before.read().blocked > 0
        assert behind.read().starved == starved
        putting.cancel()
        await asyncio.gather(putting, return_exceptions=True)
        blocked = before.read().blocked
        await asyncio.sleep(0.05)
        assert before.read().blocked == blocked, "who gave up does not wait"

    asyncio.run(use())


def test_a_pipeline_has_the_queues_that_were_asked_for():
    clock = StageClock(1)
    queues = Queues({"src": (None, clock), "double": (clock, None)})
    pipeline = (PipelineBuilder().add_source(range(100)).pipe(lambda x: 2 * x, name="double").add_sink(1)).build(
        num_threads=1, queue_class=queues
    )
    with pipeline.auto_stop():
        assert list(pipeline) == list(range(0, 200, 2))
    assert set(queues.made) == {"src", "double"}
    assert type(queues(next(iter(queues.made.values())).info.__class__(0, "9", "sink"), buffer_size=3)) is AsyncQueue
