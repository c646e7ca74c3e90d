import pytest
import torch


def test_an_api_has_its_settings_whether_or_not_its_constructor_asks_for_them(library):
    ls = library("litserve")

    class Own(ls.LitAPI):
        def __init__(self):
            self.own = 1

    assert (Own().max_batch_size, Own().api_path, ls.LitAPI(max_batch_size=4).max_batch_size) == (1, "/predict", 4)
    server = ls.LitServer([Own(), Own()], accelerator="auto", max_batch_size=8, api_path="/classify")
    assert [(api.max_batch_size, api.api_path) for api in server.apis] == [(8, "/classify")] * 2


def test_tensors_are_stacked_and_the_rest_is_a_list(library):
    api = library("litserve").LitAPI()
    assert api.batch([torch.zeros(2), torch.ones(2)]).shape == (2, 2)
    assert api.batch(["a", "b"]) == ["a", "b"]
    assert len(api.unbatch(torch.zeros(3, 2))) == 3
    with pytest.raises(NotImplementedError):
        api.predict(1)
