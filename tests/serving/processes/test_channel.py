"""One half of a socket pair: what is posted goes together, and nothing is overtaken or lost."""

import asyncio
import socket
import threading

from headrace.serving.processes.channel import Channel
from headrace.serving.processes.messages import Alive, Cancel, Submit
from headrace.serving.processes.wire import Reader


class Counting(socket.socket):
    """A socket that counts how often something was sent."""

    sent = 0

    def sender(self):
        """Called in the thread that sends."""

    def send(self, *arguments):
        self.sent += 1
        self.sender()
        return super().send(*arguments)


def with_channel(test):
    """Run a test's coroutine with a channel on a socket that counts, and the other end of it."""

    def run():
        async def body():
            here, there = socket.socketpair()
            counting = Counting(fileno=here.detach())
            channel = Channel(counting, lambda message: None)
            try:
                await test(channel, counting, there)
            finally:
                channel.close()
                there.close()

        asyncio.run(body())

    run.__name__ = test.__name__
    return run


async def _received(there: socket.socket, count: int) -> list:
    reader, found = Reader(), []
    there.setblocking(False)
    async with asyncio.timeout(20):
        while len(found) < count:
            found += reader.feed(await asyncio.get_running_loop().sock_recv(there, 1 << 16))
    return found


@with_channel
async def test_what_a_thread_sends_goes_together(channel, counting, there):
    def send():
        for number in range(100):
            channel.send(Submit(number))

    thread = threading.Thread(target=send)
    thread.start()
    thread.join()  # the event loop has not run meanwhile
    assert await _received(there, 100) == [Submit(number) for number in range(100)]
    assert counting.sent == 1


@with_channel
async def test_the_event_loop_sends_when_it_has_done_what_it_does(channel, counting, there):
    """What one read brings makes one message, not one for each request in it."""
    for message in (Submit(1), Cancel(1), Submit(2), Alive()):
        channel.send(message)
    assert counting.sent == 0
    assert await _received(there, 4) == [Submit(1), Cancel(1), Submit(2), Alive()]
    assert counting.sent == 1


@with_channel
async def test_no_thread_lets_go_of_the_interpreter_with_the_lock(channel, counting, there):
    """The event loop would wait for it, and then for the interpreter."""
    senders = []
    counting.sender = lambda: senders.append(threading.get_ident())
    await asyncio.get_running_loop().run_in_executor(None, channel.send, Submit(1))
    assert await _received(there, 1) == [Submit(1)]
    assert senders == [threading.get_ident()]


@with_channel
async def test_nothing_is_lost_where_nobody_reads(channel, counting, there):
    """More than the socket takes at once, from several threads."""

    def send(first: int):
        for number in range(first, first + 20_000):
            channel.send(Submit(number))

    threads = [threading.Thread(target=send, args=(first,)) for first in (0, 100_000, 200_000)]
    for thread in threads:
        thread.start()
    for thread in threads:
        await asyncio.get_running_loop().run_in_executor(None, thread.join)
    found = [message.ticket for message in await _received(there, 60_000)]
    assert len(set(found)) == 60_000
    for first in (0, 100_000, 200_000):
        own = [ticket for ticket in found if first <= ticket < first + 100_000]
        assert own == sorted(own)


@with_channel
async def test_after_the_end_nothing_is_sent(channel, counting, there):
    channel.send(Submit(1))
    channel.close()
    channel.send(Submit(2))
    await asyncio.sleep(0.01)
    assert await _received(there, 1) == [Submit(1)]
    assert there.recv(100) == b""
