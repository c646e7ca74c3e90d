"""When cuDNN's search is on: torch's own switch, read where a convolution would read it."""

import threading

import pytest
import torch

from headrace.runtime.backends.shared.cudnn_search import Searched, searching
from headrace.runtime.backends.shared.torch_session import open_session
from headrace.runtime.base.session import Target


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


def test_what_plans_measure_is_searched_once_and_what_is_met_in_service_is_not():
    torch.backends.cudnn.benchmark = False
    found = []

    def function(images):
        found.append((len(images), torch.backends.cudnn.benchmark))
        return (images,)

    searched = Searched(function)
    for rows in (1, 2, 5, 8, 10, 24, 128, 512):
        for _ in range(2):
            images = torch.randn(rows, 3)
            assert torch.equal(searched(images)[0], images)
    assert [rows for rows, on in found if on] == [1, 2, 8, 128, 512]
    assert len(found) == 16
    searched(torch.randn(8, 4))  # other rows are other convolutions
    assert found[-1] == (8, True)


def test_a_search_that_failed_is_made_again():
    torch.backends.cudnn.benchmark = False
    found = []

    def function(images):
        found.append(torch.backends.cudnn.benchmark)
        if len(found) == 1:
            raise RuntimeError("out of memory")
        return (images,)

    searched = Searched(function)
    with pytest.raises(RuntimeError, match="memory"):
        searched(torch.randn(4, 3))
    searched(torch.randn(4, 3))
    assert found == [True, True]


@pytest.mark.cuda
@pytest.mark.skipif(not torch.cuda.is_available(), reason="torch finds no usable CUDA device on this machine")
def test_a_session_on_a_gpu_searches_and_its_recordings_hold():
    weight = torch.randn(16, 8, 3, 3, device="cuda")
    seen = []

    def function(images):
        seen.append(torch.backends.cudnn.benchmark)
        return (torch.conv2d(images, weight),)

    session = open_session(function, Target(device="cuda"), recorded=True)
    images = torch.randn(4, 8, 9, 9)
    for _ in range(2):
        (found,) = session.run([images.numpy()])
        torch.testing.assert_close(torch.from_numpy(found), torch.conv2d(images, weight.cpu()), rtol=1e-2, atol=1e-2)
    assert seen[0]
    assert not any(seen[1:])
    assert session.note == ""
