import pytest
import torch

from headrace.migrate.worker.rehearsal.edges import network


def test_weights_by_url_are_a_marked_stand_in(on_stage, tmp_path):
    world = on_stage(network)
    names = world.play(
        f"import torch\n"
        f"state = torch.hub.load_state_dict_from_url('https://example.invalid/net-1234.pth', {str(tmp_path / 'hub')!r})\n"
        "net = torch.nn.Linear(2, 2)\nloaded = net.load_state_dict(state)\n"
    )
    assert names["loaded"].missing_keys == []
    assert not world.stage.user_weights
    assert "Linear: weights that are not yours stood in" in world.said("network")


def test_the_users_cache_comes_first(on_stage, tmp_path):
    cached = tmp_path / "torch/hub/checkpoints/net.pth"
    cached.parent.mkdir(parents=True)
    torch.save({"weight": torch.ones(2, 2)}, cached)
    world = on_stage(network, caches=(str(tmp_path / "torch"),))
    names = world.play(
        f"import torch\n"
        f"state = torch.hub.load_state_dict_from_url('https://example.invalid/net.pth', {str(tmp_path / 'hub')!r})\n"
    )
    assert torch.equal(names["state"]["weight"], torch.ones(2, 2))
    assert world.stage.user_weights
    assert world.said("network") == []


def test_images_and_names_by_url_are_made(on_stage):
    world = on_stage(network)
    names = world.play(
        "import io, json, requests, urllib.request\nfrom PIL import Image\nclasses = ['cat', 'dog']\n"
        "one = Image.open(urllib.request.urlopen('https://example.invalid/dog.jpg')).size\n"
        "two = Image.open(io.BytesIO(requests.get('https://example.invalid/a/cat.png?size=1').content)).size\n"
        "names = requests.get('https://example.invalid/labels.json').json()\n"
        "path, _ = urllib.request.urlretrieve('https://example.invalid/dog.jpg', 'dog.jpg')\nthere = open(path, 'rb').read(2)\n"
    )
    assert (names["one"], names["two"], names["there"]) == ((256, 256), (256, 256), b"\xff\xd8")
    assert "0" in names["names"]
    assert "labels.json was made, not downloaded" in world.said("network")


def test_other_addresses_fail_as_they_do_without_a_network(on_stage):
    world = on_stage(network)
    with pytest.raises(OSError, match="."):
        world.play("import urllib.request\nurllib.request.urlopen('http://127.0.0.1:9/labels.json', timeout=1)\n")
    assert network.remedy(world.stage, ConnectionError("name resolution failed")) is not None
    assert network.remedy(world.stage, ValueError("no")) is None
