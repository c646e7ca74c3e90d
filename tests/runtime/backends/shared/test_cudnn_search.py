"""When cuDNN's search is on: torch's own switch, read where a convolution would read it."""

import threading

import pytest
import torch

from headrace.runtime.backends.shared.cuda_graphs import to_be_searched
from headrace.runtime.backends.shared.cudnn_search import searching


@pytest.fixture(params=[False, True])
def before(request):
    kept, torch.backends.cudnn.benchmark = torch.backends.cudnn.benchmark, request.param
    yield request.param
    torch.backends.cudnn.benchmark = kept


def test_the_switch_is_put_back_also_after_an_error(before):
    def fail():
        assert torch.backends.cudnn.benchmark
        raise RuntimeError("no memory")

    with pytest.raises(RuntimeError, match="no memory"), searching():
        fail()
    assert torch.backends.cudnn.benchmark is before


def test_of_threads_that_search_at_once_the_last_puts_it_back(before):
    first_left, second_inside = threading.Event(), threading.Event()
    seen = []

    def second():
        with searching():
            second_inside.set()
            first_left.wait(30)
            seen.append(torch.backends.cudnn.benchmark)

    thread = threading.Thread(target=second)
    with searching():
        thread.start()
        assert second_inside.wait(30)
    first_left.set()
    thread.join()
    assert seen == [True]
    assert torch.backends.cudnn.benchmark is before


def test_what_plans_measure_is_searched_and_what_is_met_in_service_is_not():
    torch.backends.cudnn.benchmark = False
    found = {}
    for rows in (1, 2, 5, 8, 10, 24, 128, 256):
        with to_be_searched([torch.empty(rows, 3)]):
            found[rows] = torch.backends.cudnn.benchmark
    assert [rows for rows, on in found.items() if on] == [1, 2, 8, 128, 256]
    with to_be_searched([]):
        assert torch.backends.cudnn.benchmark
