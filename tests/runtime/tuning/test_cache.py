"""A second process finds what the first one tuned, and nothing that does not fit."""

import functools
import os
import shutil
from dataclasses import fields, replace

import pytest
import torch

from headrace import GraphConfig, compile
from headrace.runtime.base.cache_folder import cache_folder
from headrace.runtime.capture.capture import capture
from headrace.runtime.tuning import autotuner as tune
from headrace.runtime.tuning.cache import cache_key

FAST = GraphConfig(threads=1, max_tuning_seconds=0.3)
PINNED = GraphConfig(threads=1, backend="eager")  # what a plan is made of is up to the tests that take `FAST`


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("HEADRACE_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def call(module, rows, config=PINNED):
    graph = compile(module, config=config)
    result = graph(rows)
    with torch.no_grad():
        torch.testing.assert_close(result, module(rows), rtol=1e-4, atol=1e-4)
    return graph


def entries(cache):
    return sorted(path.name for path in (cache / "plans").iterdir()) if (cache / "plans").exists() else []


def test_the_second_graph_takes_the_plan_of_the_first(conv_net, cache):
    rows = torch.randn(3, 3, 16, 16)
    first = call(conv_net, rows, FAST)
    (entry,) = entries(cache)
    before = (cache / "plans" / entry / "headrace.json").read_bytes()
    second = call(conv_net, rows, FAST)
    assert second.plan == first.plan
    assert second.passes == first.passes
    assert entries(cache) == [entry]
    assert (cache / "plans" / entry / "headrace.json").read_bytes() == before


def test_a_new_batch_size_joins_the_entry(conv_net, cache):
    graph = call(conv_net, torch.randn(1, 3, 16, 16))
    graph(torch.randn(16, 3, 16, 16))
    assert call(conv_net, torch.randn(16, 3, 16, 16)).plan.buckets == (1, 16)
    assert len(entries(cache)) == 1


def test_other_weights_another_graph_and_another_configuration_are_other_entries(conv_net):
    rows = torch.randn(2, 3, 16, 16)
    keys = {cache_key(capture(conv_net, rows), FAST), cache_key(capture(conv_net, rows), FAST)}
    for other in (
        replace(FAST, max_captures=9),
        replace(FAST, buckets=(1, 2)),
    ):  # no plan depends on it; an entry collects them
        keys.add(cache_key(capture(conv_net, rows), other))
    assert len(keys) == 1
    keys.add(cache_key(capture(conv_net, rows), GraphConfig(threads=2)))
    keys.add(cache_key(capture(torch.nn.Sequential(conv_net, torch.nn.Softmax(1)), rows), FAST))
    keys.add(cache_key(capture(conv_net, torch.randn(2, 3, 20, 16)), FAST))
    with torch.no_grad():
        conv_net.head.bias[0] += 1e-3
    keys.add(cache_key(capture(conv_net, rows), FAST))
    assert len(keys) == 5


@pytest.mark.slow
def test_a_damaged_entry_is_dropped_and_made_again(conv_net, cache):
    rows = torch.randn(2, 3, 16, 16)
    call(conv_net, rows)
    (entry,) = entries(cache)
    for name in os.listdir(cache / "plans" / entry):
        path = cache / "plans" / entry / name
        content = bytearray(path.read_bytes())
        content[len(content) // 2] ^= 1
        path.write_bytes(content)
        call(conv_net, rows)
        assert entries(cache) == [entry]


def test_compiling_ahead_always_measures(conv_net, cache, monkeypatch):
    call(conv_net, torch.randn(2, 3, 16, 16))
    measured = []
    original = tune.measure
    monkeypatch.setattr(tune, "measure", lambda *args, **kwargs: measured.append(1) or original(*args, **kwargs))
    compile(conv_net, torch.randn(2, 3, 16, 16), config=replace(PINNED, buckets=(2,)))
    assert measured


@pytest.mark.parametrize("off", ["off", "0", ""])
def test_it_can_be_turned_off(conv_net, cache, monkeypatch, off):
    monkeypatch.setenv("HEADRACE_CACHE", off)
    assert cache_folder() is None
    call(conv_net, torch.randn(2, 3, 16, 16))
    assert entries(cache) == []


def test_a_folder_that_cannot_be_written_costs_no_answer(conv_net, tmp_path, monkeypatch, caplog):
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("HEADRACE_CACHE", str(tmp_path / "file" / "cache"))
    call(conv_net, torch.randn(2, 3, 16, 16))
    assert "not cached" in caplog.text


def test_it_works_across_processes(cache, tmp_path, warm_python):
    (tmp_path / "script.py").write_text(
        "import torch, headrace\n"
        "torch.manual_seed(0)\n"
        "model = torch.nn.Sequential(torch.nn.Conv2d(3, 8, 3), torch.nn.ReLU(), torch.nn.Flatten(), torch.nn.Linear(288, 4))\n"
        "graph = headrace.compile(model, config=headrace.GraphConfig(threads=1, max_tuning_seconds=0.3))\n"
        "graph(torch.rand(2, 3, 8, 8))\n"
        "print([(item.median_ms, item.spread_ms) for item in graph.plan.measurements])\n"
    )
    runs = [warm_python(["script.py"], cwd=tmp_path) for _ in range(2)]
    assert [run.returncode for run in runs] == [0, 0], runs
    assert runs[0].stdout == runs[1].stdout != ""
    assert len(entries(cache)) == 1


class Nested(torch.nn.Module):
    """A factor in an autocast block, or in a branch: both are graph modules inside of the graph module."""

    def __init__(self, factor, branch=False):
        super().__init__()
        torch.manual_seed(0)
        self.linear, self.factor, self.branch = torch.nn.Linear(4, 3), factor, branch
        self.register_buffer("flag", torch.tensor(True))

    def forward(self, x):
        x = self.linear(x)
        if self.branch:
            return torch.cond(self.flag, lambda value: value * self.factor, lambda value: value + 1, (x,))
        with torch.autocast("cpu", enabled=False):
            return x * self.factor


@pytest.mark.parametrize("branch", [False, True])
def test_programs_that_differ_inside_of_a_block_do_not_share_an_entry(branch):
    rows = torch.randn(3, 4)
    for factor in (2.0, 3.0):  # the second would be answered with the first one's numbers
        call(Nested(factor, branch), rows)
    keys = {cache_key(capture(Nested(factor, branch), rows), FAST) for factor in (2.0, 3.0)}
    assert len(keys) == 2


@pytest.fixture(scope="module")
def key_of(new_conv_net):
    """Of a graph that nothing changes."""
    return functools.partial(cache_key, capture(new_conv_net(), torch.randn(2, 3, 16, 16)))


@pytest.mark.parametrize("field", [item.name for item in fields(GraphConfig) if item.name not in ("buckets", "max_captures")])
def test_every_setting_is_part_of_the_key(key_of, field):
    other = {
        "precision": "fp32", "backend": "eager", "device": "cpu", "max_tuning_seconds": 5.0, "tolerance": 0.5,
        "threads": 2, "disable_passes": ("fold_scale",), "task": "multi-label", "budget": 2.0,
    }  # fmt: skip
    assert key_of(FAST) != key_of(replace(FAST, **{field: other[field]}))


def test_other_code_makes_other_plans(conv_net, monkeypatch):
    captured = capture(conv_net, torch.randn(2, 3, 16, 16))
    key = cache_key(captured, FAST)
    monkeypatch.setattr("headrace.runtime.tuning.cache.source_digest", lambda: "of another commit")
    assert cache_key(captured, FAST) != key


def test_a_wrong_model_in_the_cache_is_found_before_its_first_use(cache, caplog):
    rows = torch.randn(3, 4)
    call(Nested(2.0), rows)
    (of_two,) = entries(cache)
    call(Nested(3.0), rows)
    (of_three,) = set(entries(cache)) - {of_two}
    shutil.rmtree(cache / "plans" / of_three)
    shutil.copytree(cache / "plans" / of_two, cache / "plans" / of_three)  # every digest is right, and the model is not
    call(Nested(3.0), rows)
    assert "it is not this model's" in caplog.text
    caplog.clear()
    call(Nested(3.0), rows)
    assert "made anew" not in caplog.text


def test_only_entries_are_pruned(conv_net, cache, monkeypatch):
    monkeypatch.setattr("headrace.runtime.tuning.cache._MOST_ENTRIES", 1)
    others = [cache / "tensorrt" / "engine", cache / "data", cache / "plans" / "notes", cache / "plans" / ("a" * 64)]
    for folder in others:
        folder.mkdir(parents=True)
        (folder / "file").write_text("not ours to delete")
    for rows in (2, 3):
        call(conv_net, torch.randn(2, 3, 16, 16 + rows))
    assert all((folder / "file").exists() for folder in others)
    assert len([name for name in entries(cache) if (cache / "plans" / name / "headrace.json").exists()]) == 1


def test_another_graph_is_one_that_holds_other_tensors_or_gives_its_results_otherwise(conv_net):
    captured = capture(torch.nn.Sequential(conv_net, torch.nn.Softmax(1)), torch.randn(2, 3, 16, 16))
    keys = {cache_key(captured, FAST)}
    for value in (2.0, 3.0):  # as an attribute, it is no parameter, no buffer and in no table of constants
        scales = torch.ones(5000)
        scales[2500] = value  # where nothing that is printed shows it
        captured.program.graph_module.scales = scales
        keys.add(cache_key(captured, FAST))
    (output,) = captured.program.graph_signature.output_specs
    output.kind = type(output.kind).LOSS_OUTPUT  # the code is the same, and what its result is for is another thing
    keys.add(cache_key(captured, FAST))
    assert len(keys) == 4


def test_another_graph_is_one_of_other_numbers(conv_net, monkeypatch):
    captured = capture(conv_net, torch.randn(2, 3, 16, 16))
    key = cache_key(captured, FAST)
    monkeypatch.setattr(torch, "get_float32_matmul_precision", lambda: "medium")
    keys = {key, cache_key(captured, FAST)}
    captured.program.range_constraints.clear()  # which sizes it holds for
    keys.add(cache_key(captured, FAST))
    assert len(keys) == 3
