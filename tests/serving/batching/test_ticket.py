from headrace.serving.batching.ticket import Ticket, close


def test_a_session_of_several_buckets_is_closed_once():
    class Session:
        closed = 0

        def close(self):
            self.closed += 1

    one, other = Session(), Session()
    close({1: one, 2: one, 4: other, 8: one})
    assert (one.closed, other.closed) == (1, 1)


def test_tickets_rank_by_priority_then_deadline_then_arrival():
    asked = [(1, 9.0, 4), (2, 5.0, 1), (2, 5.0, 2), (2, 7.0, 0)]
    tickets = [Ticket(1, deadline, priority, 0.0, serial) for priority, deadline, serial in asked]
    assert sorted(tickets, key=lambda ticket: ticket.order) == tickets
    assert [ticket.priority for ticket in tickets] == [1, 2, 2, 2]
