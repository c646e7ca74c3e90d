"""Many requests of one stream at a time, answered as they are done."""

import asyncio

import pytest

from headrace.serving.grpc.stream import in_completion_order


async def _given(values):
    for value in values:
        yield value


def test_nothing_gives_nothing():
    async def work():
        return [answer async for answer in in_completion_order(_given([]), asyncio.sleep, window=2)]

    assert asyncio.run(work()) == []


def test_answers_come_as_they_are_done():
    async def work():
        gates = {name: asyncio.Event() for name in "abc"}

        async def answer(name):
            await gates[name].wait()
            return name

        answers = in_completion_order(_given("abc"), answer, window=3)
        order = []
        for name in "cab":
            gates[name].set()
            order.append(await anext(answers))
        assert [rest async for rest in answers] == []
        return order

    assert asyncio.run(work()) == ["c", "a", "b"]


def test_no_more_are_read_than_may_run():
    async def work():
        read = 0
        gate = asyncio.Event()

        async def requests():
            nonlocal read
            for number in range(10):
                read += 1
                yield number

        async def answer(number):
            await gate.wait()
            return number

        answers = in_completion_order(requests(), answer, window=3)
        first = asyncio.ensure_future(anext(answers))
        for _ in range(100):  # turns of the loop, in which all goes on that can
            await asyncio.sleep(0)
        assert read == 4  # three run, and the fourth waits for a place
        gate.set()
        return {await first, *[number async for number in answers]}

    assert asyncio.run(work()) == set(range(10))


def test_ending_early_cancels_what_runs():
    async def work():
        cancelled = []

        async def answer(number):
            try:
                await asyncio.sleep(0 if number == 0 else 60)
            except asyncio.CancelledError:
                cancelled.append(number)
                raise
            return number

        answers = in_completion_order(_given(range(3)), answer, window=5)
        assert await anext(answers) == 0
        await answers.aclose()
        await asyncio.sleep(0)
        return cancelled

    assert sorted(asyncio.run(work())) == [1, 2]


def test_an_exception_of_either_side_ends_the_whole():
    async def broken():
        yield 1
        raise OSError("gone")

    async def answer(number):
        return 1 / (number - 1) if number == 1 else number

    async def work(requests, answer):
        return [one async for one in in_completion_order(requests, answer, window=2)]

    with pytest.raises(ZeroDivisionError):
        asyncio.run(work(_given([5, 1]), answer))
    with pytest.raises(OSError, match="gone"):
        asyncio.run(work(broken(), lambda number: asyncio.sleep(0, number)))
