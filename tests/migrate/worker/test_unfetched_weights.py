"""Models that are built without the stored weights that they ask for."""

import pytest
import torch

from headrace.migrate.worker.unfetched_weights import unfetched

URL = "https://nowhere.invalid/net.pth"


def test_a_model_keeps_the_weights_that_it_was_made_with_and_others_are_loaded() -> None:
    net = torch.nn.Linear(3, 2)
    made, load = net.weight.detach().clone(), torch.nn.Module.load_state_dict
    with unfetched():
        state = torch.hub.load_state_dict_from_url(URL, progress=False)
        del state["fc.weight"]
        state["head"] = state.pop("fc.bias")
        assert not net.load_state_dict(state, strict=False).missing_keys
        assert torch.equal(net.weight, made)
        net.load_state_dict({name: torch.ones_like(value) for name, value in net.state_dict().items()})
    assert torch.equal(net.weight, torch.ones(2, 3))
    assert torch.nn.Module.load_state_dict is load


def test_what_was_fetched_before_is_fetched_after() -> None:
    fetch = torch.hub.load_state_dict_from_url
    with unfetched():
        assert torch.hub.load_state_dict_from_url is not fetch
    assert torch.hub.load_state_dict_from_url is fetch


def test_models_of_libraries_are_made_without_theirs() -> None:
    torchvision, timm = pytest.importorskip("torchvision"), pytest.importorskip("timm")
    with unfetched():
        assert torchvision.models.squeezenet1_1(weights="IMAGENET1K_V1").num_classes == 1000
        assert timm.create_model("mobilenetv3_small_050", pretrained=True, num_classes=7).num_classes == 7
