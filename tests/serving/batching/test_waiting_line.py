import math
import random

from headrace.serving.batching.ticket import Ticket
from headrace.serving.batching.waiting_line import WaitingLine


def ticket(serial, *, rows=1, priority=1, deadline=10.0):
    return Ticket(rows, deadline, priority, 0.0, serial)


def holds(line, tickets):
    """What the line has counted is what these tickets are, whose states say where they stand."""
    waiting = sorted((one for one in tickets if one.state in ("coming", "queued")), key=lambda one: one.order)
    coming = [one for one in waiting if one.state == "coming"]
    assert line.tickets() == waiting
    assert line.queue == [one for one in waiting if one.state == "queued"]
    assert (len(line), line.coming, line.coming_rows) == (len(waiting), len(coming), sum(one.rows for one in coming))
    for one in waiting:
        ahead, rows = line.ahead(one.order)
        before = waiting[: waiting.index(one)]
        assert (list(ahead), rows) == (before, sum(other.rows for other in before))
        assert line.of_priority(one.priority) == sum(other.priority == one.priority for other in waiting)


def test_what_is_counted_is_what_waits():
    drawn, line, tickets = random.Random(2), WaitingLine(), []
    for serial in range(300):
        step = drawn.random()
        waiting = line.tickets()
        coming = [one for one in waiting if one.state == "coming"]
        if step < 0.5 or not waiting:
            one = ticket(serial, rows=drawn.randint(1, 8), priority=drawn.choice((1, 2)), deadline=drawn.uniform(0, 9))
            line.join(one)
            tickets.append(one)
        elif step < 0.8 and coming:
            line.ready(drawn.choice(coming))
        elif step < 0.9 and line.queue:
            line.run(line.queue[: drawn.randint(1, len(line.queue))])
        else:
            one = drawn.choice(waiting)
            assert line.remove(one)
            one.state = "done"
            assert not line.remove(one)
        holds(line, tickets)
    assert {one.state for one in tickets} == {"coming", "queued", "running", "done"}


def test_one_that_is_put_behind_is_the_last_of_its_level():
    line = WaitingLine()
    first, second, other_level = ticket(0, deadline=1.0), ticket(1, deadline=2.0), ticket(2, priority=2)
    for one in (first, second, other_level):
        one.wait = 0.5
        line.join(one)
        line.ready(one)
    line.put_behind(first)
    assert line.queue == [second, first, other_level]
    assert (first.wait, first.order[1]) == (0.0, math.inf)
    holds(line, [first, second, other_level])
    line.run([second, first])
    assert line.tickets() == [other_level]
