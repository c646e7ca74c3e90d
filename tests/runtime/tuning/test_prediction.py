import json
import logging

import pytest
import torch
from torch import nn

from headrace.runtime.capture.capture import capture
from headrace.runtime.lowering.portable import ONNX_FILE, write_onnx
from headrace.runtime.tuning import prediction
from headrace.runtime.tuning.prediction import Layer, Machine, Prediction, Work, work_of, work_of_portable
from headrace.specs import BF16, FP32, INT8

HERE = {"fp32": 1e9, "bf16": 2e9, "int8": 4e9}
DENSE = Work((Layer(operations=10**9, elements=10**4, weights=10**4),))
SPARSE = Work((Layer(operations=10**7, elements=10**7, weights=10),))


def machine(**slowness):
    return Machine(dict(HERE), 1e9, dict(slowness))


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.depthwise = nn.Conv2d(3, 8, 3), nn.Conv2d(8, 8, 3, groups=8)
        self.head = nn.Linear(8, 5)

    def forward(self, x):
        x = self.depthwise(self.conv(x)).flatten(2)
        mixed = x.transpose(1, 2) @ x
        return self.head(x.mean(2)) + mixed.mean((1, 2))[:, None]


def test_the_work_of_a_program_and_of_its_portable_graph_is_counted_per_row(tmp_path):
    captured = capture(Net().eval(), torch.randn(3, 3, 10, 10))
    wanted = [
        Layer(2 * 8 * 64 * 27, 300 + 512, 8 * 27 + 8),
        Layer(2 * 36 * 36 * 8, 2 * 288 + 1296, 0, convolution=False),
        Layer(2 * 8 * 36 * 9, 512 + 288, 72 + 8),
        Layer(2 * 5 * 8, 8 + 5, 40 + 5, convolution=False),
    ]
    assert sorted(work_of(captured.program).layers, key=lambda layer: -layer.operations) == wanted
    write_onnx(captured, tmp_path)
    assert sorted(work_of_portable(tmp_path / ONNX_FILE).layers, key=lambda layer: -layer.operations) == wanted


def test_what_computes_is_bound_by_operations_and_what_moves_by_bytes():
    dense, sparse = Prediction(DENSE, machine()), Prediction(SPARSE, machine())
    assert dense.seconds("any", FP32, 1, efficiency=1.0) == pytest.approx(1.0)
    assert dense.seconds("any", INT8, 1, efficiency=0.5) == pytest.approx(0.5)
    assert sparse.seconds("any", FP32, 1, efficiency=1.0) == pytest.approx(0.04, rel=1e-4)
    assert sparse.seconds("any", BF16, 1, efficiency=1.0) == pytest.approx(0.02, rel=1e-4)
    assert dense.seconds("any", FP32, 8, efficiency=1.0) == pytest.approx(8.0)


def test_int8_is_tried_where_torchs_own_product_of_it_is_slow():
    without_instructions = Machine({"fp32": 1e9, "bf16": 1e7, "int8": 1e7}, 1e9)  # a processor with AVX2 alone
    dense = Prediction(DENSE, without_instructions)
    assert dense.seconds("openvino", INT8, 1, efficiency=1.0) == pytest.approx(1.0)
    assert dense.seconds("eager", BF16, 1, efficiency=1.0) == pytest.approx(100.0)


@pytest.mark.parametrize("busy", [1.0, 2.5])
def test_what_plans_found_orders_those_that_follow_however_busy_the_machine_was(busy):
    known = machine()
    found = {("a", FP32): 1.0 * busy, ("b", FP32): 1.1 * busy, ("b", INT8): 1.5 * busy}
    Prediction(DENSE, known).learn(found, 1, {"a": 1.0, "b": 1.0})
    later = Prediction(Work((Layer(3 * 10**9, 10**4, 10**4),)), known)
    seconds = {form: later.seconds(*form, 1, efficiency=1.0) for form in found}
    assert seconds["b", INT8] / seconds["a", FP32] == pytest.approx(1.5, rel=0.05)
    assert seconds["a", FP32] < seconds["b", FP32] < seconds["b", INT8]
    other = Prediction(SPARSE, known)  # of another kind nothing else is known
    assert other.seconds("b", INT8, 1, efficiency=1.0) > other.seconds("b", FP32, 1, efficiency=1.0)


def test_kinds_of_graphs_learn_apart_and_the_latest_counts_half():
    known = machine()
    for seconds in (0.02, 0.08):
        Prediction(SPARSE, known).learn({("a", FP32): 0.04, ("b", FP32): seconds}, 1, {"a": 1.0, "b": 1.0})
    Prediction(DENSE, known).learn({("a", FP32): 1.0, ("b", FP32): 4.0}, 1, {"a": 1.0, "b": 1.0})

    def times(work):
        return known_times(Prediction(work, known))

    assert times(SPARSE) == pytest.approx(1.0, rel=0.05)
    assert times(DENSE) == pytest.approx(4.0)


def known_times(given):
    return given.seconds("b", FP32, 1, efficiency=1.0) / given.seconds("a", FP32, 1, efficiency=1.0)


def test_what_transformers_teach_says_nothing_of_what_convolutions_taught():
    """ONNX Runtime's int8 takes 1.1 times as long as OpenVINO's for a ResNet, and 2.5 times for a ViT."""
    known, attention = machine(), Work((Layer(10**9, 10**4, 10**4, convolution=False), Layer(10**8, 10**4, 10**4)))
    for work, seconds in ((DENSE, 1.1), (attention, 2.5)):
        Prediction(work, known).learn({("a", FP32): 1.0, ("b", FP32): seconds}, 1, {"a": 1.0, "b": 1.0})
    assert known_times(Prediction(DENSE, known)) == pytest.approx(1.1, rel=0.01)
    assert known_times(Prediction(attention, known)) == pytest.approx(2.5, rel=0.05)


def test_what_small_graphs_teach_says_nothing_of_large_ones():
    """Between their layers calls take the time, and one backend's take five times another's."""
    learned = machine()
    little = Prediction(Work((Layer(operations=10**4, elements=10, weights=10),)), learned)
    assert little.small
    little.learn({("onnxruntime", FP32): 1e-5, ("openvino", FP32): 5e-5}, 1, {"onnxruntime": 0.9, "openvino": 0.9})
    slow, quick = (little.seconds(name, FP32, 1, efficiency=0.9) for name in ("openvino", "onnxruntime"))
    assert slow == pytest.approx(5 * quick)
    for work in (DENSE, SPARSE):
        large = Prediction(work, learned)
        same = [large.seconds(name, FP32, 1, efficiency=0.9) for name in ("openvino", "onnxruntime")]
        assert same[0] == same[1] == Prediction(work, machine()).seconds("any", FP32, 1, efficiency=0.9)


def test_one_measurement_alone_tells_nothing():
    known = machine()
    Prediction(DENSE, known).learn({("a", FP32): 9.0}, 1, {"a": 1.0})
    assert known.slowness == {}


def test_the_callers_random_numbers_go_on_while_the_machine_is_measured():
    torch.manual_seed(3)
    before = torch.get_rng_state()
    prediction._peaks.__wrapped__()
    assert torch.equal(torch.get_rng_state(), before)


def test_the_machine_is_measured_once_and_kept(monkeypatch, tmp_path, caplog):
    monkeypatch.setenv("HEADRACE_CACHE", str(tmp_path))
    monkeypatch.setattr(prediction, "_peaks", lambda: (dict(HERE), 1e9))
    first = Machine.here()
    first.slowness["dense: a fp32"] = 2.0
    first.keep()
    monkeypatch.setattr(prediction, "_peaks", lambda: pytest.fail("measured again"))
    assert Machine.here() == first
    (path,) = (tmp_path / "machines").iterdir()
    path.write_text(json.dumps({"operations": 5}))
    monkeypatch.setattr(prediction, "_peaks", lambda: (dict(HERE), 3e9))
    with caplog.at_level(logging.WARNING, "headrace.cache"):
        assert Machine.here().bytes == 3e9
    assert "is measured anew" in caplog.text


def test_without_a_cache_nothing_is_written(monkeypatch, tmp_path):
    monkeypatch.setenv("HEADRACE_CACHE", "off")
    monkeypatch.chdir(tmp_path)
    machine().keep()
    assert not list(tmp_path.iterdir())


def test_a_core_computes_in_every_precision_and_torchs_threads_are_as_before():
    before = torch.get_num_threads()
    operations, moved = prediction._peaks()
    assert set(operations) == {"fp32", "bf16", "int8"}
    assert all(value > 1e7 for value in operations.values())
    assert moved > 1e7
    assert torch.get_num_threads() == before
