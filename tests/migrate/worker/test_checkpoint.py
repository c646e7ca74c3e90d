import pickle
from pathlib import Path

import pytest
import torch
from torch import nn

from headrace.errors import ArtifactError
from headrace.migrate.worker.checkpoint import (
    KEYS,
    PREFIXES,
    are_weights,
    classes_in,
    fits,
    load_weights,
    outputs_of,
    take_state,
)


def network():
    return nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Flatten())


class Wrapper(nn.Module):
    def __init__(self):
        super().__init__()
        self.model = network()


def assert_same(model, other):
    for name, value in other.state_dict().items():
        torch.testing.assert_close(model.state_dict()[name], value, rtol=0, atol=0)


@pytest.mark.parametrize("prefix", ["", *PREFIXES, "module._orig_mod."])
@pytest.mark.parametrize("key", ["", *KEYS])
def test_weights_are_found_under_common_keys_and_prefixes(tmp_path, key, prefix):
    trained = network()
    state = {prefix + name: value for name, value in trained.state_dict().items()}
    torch.save({key: state, "epoch": 3} if key else state, tmp_path / "weights.pth")
    model = network()
    load_weights(model, tmp_path / "weights.pth")
    assert_same(model, trained)


def test_a_child_called_model_keeps_its_name(tmp_path):
    trained = Wrapper()
    torch.save({"state_dict": trained.state_dict()}, tmp_path / "weights.pth")
    model = Wrapper()
    load_weights(model, tmp_path / "weights.pth")
    assert_same(model, trained)


class Payload:
    def __reduce__(self):
        return (open, ("pwned", "w"))


@pytest.mark.parametrize(("more", "taken"), [(False, True), (True, False)])
def test_weights_of_the_network_that_a_module_holds_are_the_modules(tmp_path, more, taken):
    network = nn.Sequential(nn.Linear(2, 2), nn.ReLU(), nn.Linear(2, 2))
    holder = nn.Module()
    holder.inner = nn.Module()
    holder.inner.net = nn.Sequential(nn.Linear(2, 2), nn.ReLU(), nn.Linear(2, 2))
    if more:  # which the file says nothing of
        holder.head = nn.Linear(2, 2)
    torch.save({"state_dict": {f"module.{name}": value for name, value in network.state_dict().items()}}, tmp_path / "w.pth")
    assert fits(holder, tmp_path / "w.pth") is taken
    if taken:
        load_weights(holder, tmp_path / "w.pth")
        assert all(torch.equal(holder.inner.net.state_dict()[name], value) for name, value in network.state_dict().items())
    else:
        with pytest.raises(ArtifactError, match="missing 6"):
            load_weights(holder, tmp_path / "w.pth")


@pytest.mark.parametrize("protocol", [2, 5])
def test_a_pickle_that_executes_code_is_refused(tmp_path, monkeypatch, protocol):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "weights.pth").write_bytes(pickle.dumps({"state_dict": Payload()}, protocol=protocol))
    with pytest.raises(ArtifactError, match="read safely"):
        load_weights(network(), tmp_path / "weights.pth")
    torch.save({"state_dict": Payload()}, tmp_path / "weights.pth")  # whose object is read as data, and is no weights
    with pytest.raises(ArtifactError, match="no weights"):
        load_weights(network(), tmp_path / "weights.pth")
    assert not (tmp_path / "pwned").exists()


def test_what_does_not_fit_is_named(tmp_path):
    torch.save({"a": torch.ones(2)}, tmp_path / "weights.pth")
    with pytest.raises(ArtifactError, match=r"missing 7 \(0.bias, .*unexpected 1 \(a\)"):
        load_weights(network(), tmp_path / "weights.pth")
    other = nn.Sequential(nn.Conv2d(3, 4, 5), nn.BatchNorm2d(4), nn.Flatten())
    torch.save(other.state_dict(), tmp_path / "weights.pth")
    with pytest.raises(ArtifactError, match="size mismatch for 0.weight"):
        load_weights(network(), tmp_path / "weights.pth")


@pytest.mark.parametrize("content", [b"", b"not a checkpoint", b"PK\x03\x04broken"])
def test_a_broken_file_is_refused(tmp_path, content):
    (tmp_path / "weights.pth").write_bytes(content)
    with pytest.raises(ArtifactError, match="weights.pth"):
        load_weights(network(), tmp_path / "weights.pth")


def test_a_missing_file_or_one_without_weights_is_refused(tmp_path):
    with pytest.raises(ArtifactError, match="no such checkpoint"):
        load_weights(network(), tmp_path / "none.pth")
    torch.save({"epoch": 3}, tmp_path / "weights.pth")
    with pytest.raises(ArtifactError, match=r"no weights under .*\['epoch'\]"):
        load_weights(network(), tmp_path / "weights.pth")


def test_the_outputs_that_a_checkpoint_tells_apart(tmp_path: Path) -> None:
    net = torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3), torch.nn.BatchNorm2d(4), torch.nn.Flatten(), torch.nn.Linear(4, 7))
    state = {f"module.{name}": value for name, value in net.state_dict().items()}
    torch.save({"epoch": 3, "state_dict": state}, tmp_path / "a")
    (tmp_path / "b").write_text("no weights")
    assert outputs_of(tmp_path / "a") == 7
    assert outputs_of(tmp_path / "b") is None
    assert outputs_of(tmp_path / "absent") is None


def test_a_checkpoint_fits_by_names_and_shapes_and_is_read_once(tmp_path: Path) -> None:
    torch.save({"model": {f"module.{name}": value for name, value in network().state_dict().items()}}, tmp_path / "a")
    assert fits(network(), tmp_path / "a")
    (tmp_path / "a").unlink()
    assert fits(network(), tmp_path / "a")
    assert fits(torch.nn.Linear(2, 3), tmp_path / "a") is False
    assert fits(network(), tmp_path / "absent") is None


def test_weights_are_tensors_and_nothing_else() -> None:
    assert are_weights({"a": torch.ones(2)})
    assert not any(map(are_weights, ({}, {"a": torch.ones(2), "epoch": 3}, [torch.ones(2)], None)))


def with_heads(classes=10, aux=True):
    parts = {"body": nn.Linear(10, 10), "head": nn.Linear(10, classes)}  # the body has as many outputs as there are classes
    return nn.ModuleDict(parts | ({"aux": nn.Linear(4, classes)} if aux else {}))


@pytest.mark.parametrize("classes", [10, 3, 1, 1000])
def test_the_layers_that_differ_tell_how_many_classes(tmp_path, classes):
    torch.save({"state_dict": with_heads(classes).state_dict()}, tmp_path / "net.pth")
    assert classes_in(with_heads, tmp_path / "net.pth", 10) == classes


def test_another_network_tells_no_classes(tmp_path):
    torch.save(nn.ModuleDict({"body": nn.Linear(7, 9), "head": nn.Linear(9, 4)}).state_dict(), tmp_path / "other.pth")
    (tmp_path / "broken.pth").write_bytes(b"no checkpoint")
    for name in ("other.pth", "broken.pth"):
        assert classes_in(with_heads, tmp_path / name, 10) == 10


def test_a_constructor_that_computes_with_values_tells_as_well(tmp_path):
    """As torchvision's RegNet does, whose widths come from torch.linspace: no such thing has a value on the meta device."""

    def build(classes=10):
        width = int(torch.linspace(4, 8, 2).tolist()[1])
        return nn.ModuleDict({"body": nn.Linear(7, width), "head": nn.Linear(width, classes)})

    torch.save(build(4).state_dict(), tmp_path / "net.pth")
    assert classes_in(build, tmp_path / "net.pth", 10) == 4


class Versioned(nn.Module):
    """As torchvision's MNASNet: weights of no known version are refused."""

    _version = 2

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(2, 2)

    def _load_from_state_dict(self, state_dict, prefix, local_metadata, *rest):
        if local_metadata.get("version") not in (1, 2):
            raise ValueError(f"version should be set to 1 or 2 instead of {local_metadata.get('version')}")
        super()._load_from_state_dict(state_dict, prefix, local_metadata, *rest)


def test_a_plain_table_of_weights_is_of_the_models_version(tmp_path):
    trained, model = Versioned(), Versioned()
    take_state(model, dict(trained.state_dict()))
    assert_same(model, trained)
    torch.save({"net": dict(trained.state_dict())}, tmp_path / "w.pth")
    load_weights(loaded := Versioned(), tmp_path / "w.pth")
    assert_same(loaded, trained)


def test_a_version_that_was_saved_stays(tmp_path):
    class First(Versioned):
        _version = 1

    seen = []

    class Asking(Versioned):
        def _load_from_state_dict(self, state_dict, prefix, local_metadata, *rest):
            seen.append(local_metadata.get("version"))
            super()._load_from_state_dict(state_dict, prefix, local_metadata, *rest)

    take_state(Asking(), First().state_dict())
    assert seen == [1]


def test_a_pointer_that_is_given_as_a_checkpoint_is_told_for_what_it_is(tmp_path):
    path = tmp_path / "weights.pth"
    path.write_text(f"version https://git-lfs.github.com/spec/v1\noid sha256:{'5' * 64}\nsize 31379841\n")
    with pytest.raises(ArtifactError, match="a pointer of Git LFS, whose content is not here; git lfs pull fetches it"):
        load_weights(network(), path)
