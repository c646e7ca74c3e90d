"""What a script gives up over in a checkpoint that is not here is there in the next attempt."""

import pytest
import torch


@pytest.mark.parametrize("look", ["state.get('class_names')", "'class_names' in state and state['class_names']"])
def test_a_checkpoint_has_the_key_without_which_the_script_gives_up(rehearsed, look):
    text = (
        "import torch\nCLASSES = ['cat', 'dog']\ndef load():\n    state = torch.load('best.pt')\n"
        f"    if state.get('kind') is not None:\n        raise ValueError('other')\n    names = {look}\n"
        "    if not names:\n        raise KeyError('no names')\n    return names\nprint(load())\n"
    )
    done = rehearsed({"main.py": text})
    assert (done.report.ended, done.report.attempts, done.stdout) == ("finished", 2, "['cat', 'dog']\n"), done.stderr


@pytest.mark.parametrize(
    "choose",
    [
        "    if arch == 'small':\n        return torch.nn.Linear(4, classes)\n    raise ValueError(f'unknown: {arch}')\n",
        "    if arch.lower() not in ['small', 'big']:\n        raise ValueError\n    return torch.nn.Linear(4, classes)\n",
        "    return MODELS[arch](4, classes)\n",
        "    match arch:\n        case 'small': return torch.nn.Linear(4, classes)\n        case _: raise ValueError(arch)\n",
    ],
)
def test_a_checkpoint_says_by_name_which_model_it_is_of(rehearsed, choose):
    script = (
        "import torch\nMODELS = {'small': torch.nn.Linear}\nCLASSES = ['cat', 'dog', 'emu']\n"
        f"def build(arch, classes):\n{choose}"
        "kept = torch.load('best.pth', weights_only=False)\narch = kept.get('model_architecture')\n"
        "if arch is None:\n    raise KeyError('the checkpoint has no architecture')\n"
        "net = build(arch, kept['num_classes'])\nnet.load_state_dict(kept['state_dict'])\nprint(net.out_features)\n"
    )
    done = rehearsed({"main.py": script})
    assert done.report.ended == "finished", done.stderr
    assert int(done.stdout) == 3  # as many classes as there are names
    assert not done.report.user_weights


def test_of_several_models_a_checkpoint_is_of_the_one_that_its_path_names(rehearsed):
    script = (
        "import torch\ndef build(config, arch=None):\n    arch = arch or config.get('model_version')\n"
        "    if arch == 'tiny':\n        return torch.nn.Linear(4, 2)\n"
        "    if arch in ['net18', 'net34']:\n        return torch.nn.Linear(4, int(arch[3:]))\n"
        "    raise ValueError(f'unknown: {arch}')\n"
        "kept = torch.load('runs/NET34_2025/best.pth')\nnet = build(kept.get('config', {}) or kept['config'])\n"
        "net.load_state_dict(kept['state_dict'])\nprint(net.out_features)\n"
    )
    done = rehearsed({"main.py": script})
    assert (done.report.ended, done.stdout) == ("finished", "34\n"), done.stderr


def test_a_checkpoint_says_of_itself_what_the_script_insists_on(rehearsed):
    script = (
        "import torch\ndef main():\n    kept = torch.load('best.pth', weights_only=False)\n"
        "    if kept.get('model_name') != 'small':\n        raise ValueError('not of this model')\n"
        "    if kept['folds'] == 3 or kept.get('test_was_seen') is not False:\n        raise RuntimeError('seen')\n"
        "    net = torch.nn.Linear(4, 3)\n    net.load_state_dict(kept['state_dict'])\n    print(kept['model_name'])\nmain()\n"
    )
    done = rehearsed({"main.py": script})
    assert (done.report.ended, done.stdout, done.report.attempts) == ("finished", "small\n", 3), done.stderr


@pytest.mark.parametrize("given", [False, True])
def test_a_checkpoint_says_of_itself_what_the_script_was_told(rehearsed, tmp_path, given):
    """The script checks the file against its options; weights alone, as a user gives them, say nothing of that."""
    state = {"weight": torch.ones(3, 4), "bias": torch.ones(3)}
    torch.save(state, tmp_path / "given.pth")
    script = (
        "import argparse, torch\nparser = argparse.ArgumentParser()\nparser.add_argument('--arch', default='small')\n"
        "parser.add_argument('--dataset', default='pets')\nargs = parser.parse_args()\n"
        "kept = torch.load('best.pth')\nif 'model' in kept:\n    assert args.arch == kept['model']\n"
        "    assert kept['dataset'] == args.dataset\nnet = torch.nn.Linear(4, 3)\nnet.load_state_dict(kept['state_dict'])\n"
        "print(kept['model'], kept['dataset'])\n"
    )
    done = rehearsed({"main.py": script}, checkpoint=str(tmp_path / "given.pth") if given else None)
    assert (done.report.ended, done.stdout, done.report.user_weights) == ("finished", "small pets\n", given), done.stderr


@pytest.mark.parametrize("drop", ["state.pop('2.weight')", "del state['2.weight']"])
def test_what_a_script_took_out_is_missing(rehearsed, drop):
    """As efficientnet_pytorch looks whether the last layer alone is its own."""
    script = (
        "import torch\nnet = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.ReLU(), torch.nn.Linear(2, 3, bias=False))\n"
        f"state = torch.load('best.pth')\n{drop}\nfound = net.load_state_dict(state, strict=False)\n"
        "assert set(found.missing_keys) == {'2.weight'}, f'Missing keys: {found.missing_keys}'\nprint(found.unexpected_keys)\n"
    )
    done = rehearsed({"main.py": script})
    assert (done.report.ended, done.stdout) == ("finished", "[]\n"), done.stderr
