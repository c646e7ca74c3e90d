"""What eager calls took so far is weighed against what a graph costs."""

from headrace.runtime.graph.account import Account


def test_a_graph_pays_when_its_price_has_been_spent_ten_times_over():
    account = Account(cost=10.0)
    assert not account.pays()
    account.eager, account.rows = 0.01, 9_999
    assert not account.pays()
    account.rows = 10_000
    assert account.pays(), "all of the eager time might have been saved"
    account.graph = 0.005
    assert not account.pays(), "half of it is saved, as is known now"


def test_an_evaluation_that_was_long_enough_pays_for_the_next_at_once():
    account = Account(cost=10.0, eager=0.01, graph=0.005, rows=1999)
    account.begin()
    assert (account.rows, account.rows_before) == (0, 1999)
    assert not account.pays()
    account.rows = 2000
    account.begin()
    assert account.pays()


def test_what_gains_nothing_is_not_made_again():
    account = Account(cost=10.0, eager=0.01, graph=0.0099, rows=10**9, rows_before=10**9)
    assert not account.pays()


def test_slower_is_what_was_slower_in_the_best_of_some_calls():
    account = Account(cost=10.0)
    for seconds in (0.01, 0.02, 0.01):
        account.note(False, seconds)
        assert not account.eager_next
    for seconds in (1.0, 0.012):
        account.note(True, seconds)
        assert not account.eager_next
    account.note(True, 0.013)
    assert account.eager_next
    account.note(True, 0.009)
    assert not account.eager_next


def test_what_is_not_clearly_faster_than_one_call_is_held_against_more():
    account = Account(cost=10.0)
    account.note(False, 0.02)
    for _ in range(3):
        account.note(True, 0.017)
    assert account.eager_next
    account.note(False, 0.01)
    assert account.eager_next
    account.note(False, 0.018)
    assert account.eager_next, "slower than the best"
    fast = Account(cost=10.0)
    fast.note(False, 0.02)
    for _ in range(3):
        fast.note(True, 0.01)
    assert not fast.eager_next


def test_each_kind_of_call_is_timed_until_it_is_known():
    account = Account(cost=1.0)
    for _ in range(16):
        assert account.wants_time(False)
        account.note(False, 0.1)
    assert not account.wants_time(False)
    assert account.wants_time(True)
    account.begin()
    assert account.wants_time(False)


def calls_compared(eager, graph, calls):
    account = Account(cost=1.0, eager=eager, graph=graph)
    return [number for number in range(1, calls + 1) if account.compares(4)]


def test_what_the_module_answers_as_well_costs_what_is_saved_and_a_tenth():
    powers = [1, 2, 4, 8, 16, 32, 64]
    assert calls_compared(1.0, 0.0, 100) == powers
    assert calls_compared(0.0, None, 100) == powers  # nobody knows yet
    assert calls_compared(1.0, 1.0, 100) == [16, 32, 64]  # a tenth, and nothing is saved
    assert calls_compared(1.0, 2.0, 100) == [16, 32, 64]
    assert calls_compared(1.0, 0.5, 100) == [2, 4, 8, 16, 32, 64]
    assert calls_compared(1.0, None, 100) == [16, 32, 64]
    account = Account(cost=1.0, eager=1.0, graph=0.5)
    first = [account.compares(4) for _ in range(5)]
    account.begin()
    assert [account.compares(4) for _ in range(5)] == first
