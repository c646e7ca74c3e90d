"""Sessions of OpenVINO: from the cache as from the graph, several over one compiled model."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

from headrace.errors import BackendError
from headrace.runtime import backends
from headrace.runtime.base.session import Target
from headrace.runtime.capture.capture import capture

pytest.importorskip("openvino")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    torch.manual_seed(0)
    net = nn.Sequential(nn.Conv2d(3, 64, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(8), nn.Flatten(), nn.Linear(64 * 64, 256)).eval()
    path = tmp_path_factory.mktemp("graph")
    assert BACKEND.prepare(capture(net, torch.randn(2, 3, 20, 12)), Target(), path) == ["model.onnx"]
    return path


@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("HEADRACE_CACHE", str(tmp_path))
    return tmp_path / "compiled"


BACKEND = backends.get("openvino")
ROWS = [np.random.default_rng(0).standard_normal((6, 3, 20, 12)).astype(np.float32)]
KEPT = Target(threads=1, kept=True)


def opened(folder, target):
    return BACKEND.open(folder, target, ["model.onnx"])


@pytest.mark.parametrize("target", [KEPT, replace(KEPT, batch=2), replace(KEPT, batch=4, threads=2, streams=2)])
def test_what_was_kept_computes_what_the_graph_does(folder, cache, target):
    plain = opened(folder, replace(target, kept=False)).run(ROWS)[0]
    assert not cache.exists()  # nobody asked for it
    for _ in range(2):
        session = opened(folder, target)
        np.testing.assert_array_equal(session.run(ROWS)[0], plain)
        session.close()
        assert len(list(cache.iterdir())) == 1


def test_batch_sizes_and_settings_are_kept_apart(folder, cache):
    for target in (KEPT, replace(KEPT, batch=2), replace(KEPT, batch=4), replace(KEPT, threads=2)):
        assert opened(folder, target).run(ROWS)[0].shape == (6, 256)
    assert len(list(cache.iterdir())) == 4


def test_what_was_damaged_is_compiled_again(folder, cache, caplog):
    expected = opened(folder, KEPT).run(ROWS)[0]
    (path,) = cache.iterdir()
    path.write_bytes(path.read_bytes()[:-100] + bytes(100))
    np.testing.assert_array_equal(opened(folder, KEPT).run(ROWS)[0], expected)
    assert "not as it was written" in caplog.text
    assert [found.name for found in cache.iterdir()] == [path.name]
    assert not path.read_bytes().endswith(bytes(100))


def test_what_the_library_cannot_read_is_compiled_again(folder, cache, caplog):
    from headrace.runtime.backends.shared.compiled_files import store

    expected = opened(folder, KEPT).run(ROWS)[0]
    (path,) = cache.iterdir()
    assert store(path.name, memoryview(b"whole, and nothing that openvino wrote" * 1000)) is not None
    np.testing.assert_array_equal(opened(folder, KEPT).run(ROWS)[0], expected)
    assert "cannot read what it compiled before" in caplog.text


def test_without_a_cache_it_is_compiled(folder, monkeypatch):
    monkeypatch.setenv("HEADRACE_CACHE", "off")
    assert opened(folder, KEPT).run(ROWS)[0].shape == (6, 256)


@pytest.mark.parametrize("target", [KEPT, replace(KEPT, batch=2), replace(KEPT, batch=4, threads=2, streams=2)])
def test_twins_run_beside_each_other_and_outlive_each_other(folder, cache, target):
    session = opened(folder, target)
    expected = session.run(ROWS)[0]
    twin = session.twin()
    with ThreadPoolExecutor(2) as pool:
        for _ in range(20):
            for found in pool.map(lambda one: one.run(ROWS)[0], (session, twin)):
                np.testing.assert_array_equal(found, expected)
    session.close()
    with pytest.raises(BackendError, match="closed"):
        session.run(ROWS)
    np.testing.assert_array_equal(twin.run(ROWS)[0], expected)
    twin.close()
    twin.close()
    with pytest.raises(BackendError, match="closed"):
        twin.twin()


def test_it_computes_as_before_when_its_memory_was_given_up(folder, cache):
    session = opened(folder, KEPT)
    expected = session.run(ROWS)[0]
    for _ in range(3):
        session.shrink([value[:1] for value in ROWS])
        np.testing.assert_array_equal(session.run(ROWS)[0], expected)


def test_an_onnxruntime_session_has_a_twin_on_a_cpu(folder):
    pytest.importorskip("onnxruntime")
    session = backends.get("onnxruntime").open(folder, Target(threads=1), ["model.onnx"])
    twin, expected = session.twin(), session.run(ROWS)[0]
    session.close()
    np.testing.assert_array_equal(twin.run(ROWS)[0], expected)
    assert getattr(session, "turn", None) is None
