import pytest
import torch

from headrace.migrate.worker.rehearsal.edges import downloads, network


def test_weights_by_url_are_a_marked_stand_in(on_stage, tmp_path):
    world = on_stage(network, downloads)
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
    world = on_stage(network, downloads, caches=(str(tmp_path / "torch"),))
    names = world.play(
        f"import torch\n"
        f"state = torch.hub.load_state_dict_from_url('https://example.invalid/net.pth', {str(tmp_path / 'hub')!r})\n"
    )
    assert torch.equal(names["state"]["weight"], torch.ones(2, 2))
    assert world.stage.user_weights
    assert world.said("network") == []


def test_other_addresses_fail_as_they_do_without_a_network(on_stage):
    world = on_stage(network, downloads)
    with pytest.raises(OSError, match="."):
        world.play("import urllib.request\nurllib.request.urlopen('http://127.0.0.1:9/labels.json', timeout=1)\n")
    assert network.remedy(world.stage, ConnectionError("name resolution failed")) is not None
    assert network.remedy(world.stage, ValueError("no")) is None


def test_a_program_that_is_not_here_cannot_be_made_up(rehearsed):
    done = rehearsed({"main.py": "import torch\nnet = torch.jit.load('out/traced.pt')\n"})
    assert (done.report.ended, done.report.where) == ("stopped", "main.py:2")
    assert "traced.pt is not here, and the script takes the model itself from it" in done.report.why
    assert done.report.remedy.startswith("put the file where the script looks for it")


def test_a_model_whose_code_is_elsewhere_is_not_made_up(rehearsed):
    done = rehearsed({"main.py": "import torch\ntorch.hub.load('who/nets:main', 'net50', trust_repo=True)\n"})
    assert (done.report.ended, done.report.where) == ("stopped", "main.py:2")
    assert done.report.why == "ConnectionError: the code of net50 is that of who/nets:main, which cannot be fetched here"
    assert done.report.remedy.startswith("fetch once what the script downloads")


def test_the_repositorys_own_models_are_had_without_fetching_it(rehearsed):
    files = {
        "hubconf.py": "from nets.small import net_2 as net, _helper\ndependencies = ['torch']\n",
        "nets/small.py": "import torch\ndef _helper(): pass\n"
        "def net_2(pretrained=False, width=2): return torch.nn.Linear(3, width)\n",
        "tools/verify.py": "import sys, torch\nassert 'net' in torch.hub.list('who/nets', force_reload=True)\n"
        "print(torch.hub.load('who/nets', 'net', pretrained=True, trust_repo=True, width=4).out_features, len(sys.path))\n"
        "torch.hub.load('who/nets', '_helper')\n",
    }
    done = rehearsed(files, script="tools/verify.py")
    assert done.stdout.startswith("4 ")
    assert (done.report.ended, done.report.where) == ("stopped", "tools/verify.py:4")
    assert [item.what for item in done.report.standins if item.edge == "network"] == [
        "net is that of the repository's own hubconf.py, not of who/nets"
    ]


def test_the_repositorys_own_models_may_begin_with_anothers(rehearsed):
    files = {
        "hubconf.py": "from net import net\n",
        "net.py": "import torch\n\n\ndef net():\n    first = torch.hub.load('who/first', 'net')\n    return first\n",
        "main.py": "from net import net\nnet()\n",
    }
    done = rehearsed(files)
    assert (done.report.ended, done.report.where) == ("stopped", "net.py:5")
    assert done.report.why == "ConnectionError: the code of net is that of who/first, which cannot be fetched here"


def test_settings_in_a_checkpoint_are_no_text_of_the_same_name(rehearsed):
    """`--config base.yaml` says nothing of the settings object that the training saved under "config"."""
    text = (
        "import argparse, torch\nparser = argparse.ArgumentParser()\nparser.add_argument('--config', default='base.yaml')\n"
        "parser.parse_args()\ndef load(path):\n    payload = torch.load(path, weights_only=False)\n"
        "    config = payload['config']\n    return config.model\nload('best.pt')\n"
    )
    done = rehearsed({"main.py": text})
    assert "best.pt is not here, and the script takes from it what has .model" in done.report.why
    assert done.report.remedy.startswith("put the file where the script looks for it")
    # A text is one where a text is taken.
    done = rehearsed(
        {
            "main.py": text.replace("config.model", "config.upper()")
            .replace("load('best", "print(load('best")
            .replace("pt')", "pt'))")
        }
    )
    assert (done.report.ended, done.stdout) == ("finished", "BASE.YAML\n"), done.report.why


@pytest.mark.parametrize(
    ("said", "where"),
    [
        ("Error 111 connecting to localhost:6379. Connection refused.", "localhost:6379"),
        ("HTTPConnectionPool(host='127.0.0.1', port=8000): Max retries exceeded with url: /p ([Errno 111] Connection refused)",
         "127.0.0.1:8000"),
        ("localhost:27017: [Errno 111] Connection refused (configured timeouts: 20.0 s)", "localhost:27017"),
        ('connection to server at "localhost" (127.0.0.1), port 5432 failed: Connection refused', "localhost:5432"),
        ("Can't connect to MySQL server on 'localhost' ([Errno 111] Connection refused)", "localhost"),
        ("HTTPSConnectionPool(host='example.org', port=443): Max retries exceeded with url: /a.pth", None),
        ("<urlopen error [Errno 111] Connection refused>", None),
    ],
)  # fmt: skip
def test_a_service_of_the_users_own_is_no_download(on_stage, said, where):
    told = network.remedy(on_stage(network).stage, ConnectionError(said))
    assert told is not None
    assert (f"the service at {where} that" in told) if where else told.startswith("fetch once what the script downloads")


@pytest.mark.parametrize("method", ["POST", "PUT", "GET"])
def test_what_is_sent_to_a_service_is_no_download(on_stage, method):
    requests = pytest.importorskip("requests")
    request = requests.Request(method, "https://api.example.org/query", json={"sql": "SELECT 1"}).prepare()
    error = requests.exceptions.ConnectionError("name resolution failed", request=request)
    told = network.remedy(on_stage(network).stage, error)
    asks = "nothing stands in for the service at api.example.org that the script asks; --entry takes one that does without it"
    assert told == asks if method != "GET" else told.startswith("fetch once what the script downloads")
