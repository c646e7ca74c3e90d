"""Programs of torch.export: served as tensors, or rejected with the reason."""

import numpy as np
import pytest
import torch
from torch import nn

from headrace.errors import MigrateError
from headrace.migrate.named.packaged import packaged, read
from headrace.migrate.named.source import Options
from headrace.runtime.artifact.artifact import load_artifact


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


def test_one_for_a_single_batch_size_is_rejected(tmp_path):
    with pytest.raises(MigrateError, match="batches of 2 alone; export it with dynamic_shapes"):
        packaged(saved(tmp_path / "tiny.pt2", dynamic=False), cache=tmp_path / "cache")


def test_weights_do_not_go_with_it(tmp_path):
    (tmp_path / "tiny.pt2").write_bytes(b"")
    with pytest.raises(MigrateError, match="holds its weights"):
        read(str(tmp_path / "tiny.pt2"), Options(random_weights=True))
