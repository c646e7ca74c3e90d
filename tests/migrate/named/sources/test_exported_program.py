"""Programs of torch.export: served as tensors, or rejected with the reason."""

import json

import numpy as np
import pytest
import torch
from torch import nn

from headrace.errors import MigrateError
from headrace.migrate.named.packaged import packaged, read
from headrace.migrate.named.source import Options
from headrace.runtime.artifact.artifact import load_artifact
from headrace.runtime.capture.capture import capture
from headrace.runtime.capture.programs import write_program
from headrace.specs import Preprocessing, Resize

pytestmark = pytest.mark.usefixtures("warm_sandbox")


def net():
    torch.manual_seed(0)
    made = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(400, 5)).eval()
    nn.init.normal_(made[1].running_mean)
    return made


def saved(path, dynamic=True):
    shapes = ({0: torch.export.Dim("batch", min=1, max=64)},) if dynamic else None
    torch.export.save(torch.export.export(net(), (torch.randn(2, 3, 12, 12),), dynamic_shapes=shapes), path)
    return str(path)


def test_a_program_computes_what_its_module_does(tmp_path):
    models = packaged(saved(tmp_path / "tiny.pt2"), cache=tmp_path / "cache")
    artifact = load_artifact(models / "tiny")
    assert artifact.preprocessing is None
    assert "says nothing of images" in artifact.provenance["notes"][0]
    rows = torch.randn(5, 3, 12, 12)
    session = artifact.open()
    try:
        (given,) = session.run([rows.numpy()])
    finally:
        session.close()
    assert np.allclose(given, net()(rows).detach().numpy(), atol=1e-4)


def test_what_export_writes_beside_a_program_is_understood_again(tmp_path):
    """Labels, preprocessing and task of several labels, by way of the file alone."""
    steps = Preprocessing(geometry=(Resize(size=(12, 12)),), mean=(0.5, 0.4, 0.3), std=(0.2, 0.25, 0.3))
    labels = {"scores": [f"class {number}" for number in range(5)]}
    heads = [{"output": "scores", "kind": "multi-label", "thresholds": [0.3]}]
    said = {"headrace": "0", "labels": labels, "preprocessing": steps.to_json(), "task": heads}
    extra = {name: value if isinstance(value, str) else json.dumps(value) for name, value in said.items()}
    write_program(capture(net(), torch.randn(2, 3, 12, 12)).program, tmp_path / "ours.pt2", extra=extra)
    artifact = load_artifact(packaged(str(tmp_path / "ours.pt2"), cache=tmp_path / "cache") / "ours")
    assert artifact.preprocessing == steps
    (head,) = artifact.task.heads
    assert (head.kind, head.thresholds, list(head.labels)) == ("multi-label", (0.3,), labels["scores"])
    assert artifact.provenance["notes"] == []


def test_one_for_a_single_batch_size_is_rejected(tmp_path):
    with pytest.raises(MigrateError, match="batches of 2 alone; export it with dynamic_shapes"):
        packaged(saved(tmp_path / "tiny.pt2", dynamic=False), cache=tmp_path / "cache")


def test_weights_do_not_go_with_it(tmp_path):
    (tmp_path / "tiny.pt2").write_bytes(b"")
    with pytest.raises(MigrateError, match="holds its weights"):
        read(str(tmp_path / "tiny.pt2"), Options(random_weights=True))
