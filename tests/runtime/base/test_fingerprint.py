import json
import os
import subprocess
import sys

import pytest

from headrace.runtime.base.fingerprint import _quota, available_cores, fingerprint, matches, versions


def in_a_fresh_process(code, **environment):
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=True, env={**os.environ, **environment}
    )
    return done.stdout.strip()


PRINT = """
import json, sys
from headrace.runtime.base.fingerprint import fingerprint
print(json.dumps([fingerprint(), "torch" in sys.modules]))
"""


def test_is_the_same_in_another_process_with_and_without_torch():
    bare, torch_imported = json.loads(in_a_fresh_process(PRINT))
    assert not torch_imported
    assert bare == fingerprint()
    with_torch, torch_imported = json.loads(in_a_fresh_process("import torch\n" + PRINT))
    assert torch_imported
    assert with_torch == bare
    assert matches(bare, with_torch)


def test_says_what_a_plan_depends_on():
    here = fingerprint()
    assert json.loads(json.dumps(here)) == here
    assert here["cpu"]
    assert here["versions"] == versions()
    assert here["versions"]["torch"]
    assert 1 <= here["cores"] <= os.cpu_count()


@pytest.mark.parametrize("key", ["cpu", "flags", "cores", "gpus", "versions", "headrace"])
def test_any_difference_or_gap_is_no_match(key):
    here = fingerprint()
    assert matches(here, dict(here))
    assert not matches({**here, key: "something else"}, here)
    assert not matches({name: value for name, value in here.items() if name != key}, here)


def test_a_plan_holds_for_any_number_of_gpus_of_one_kind():
    here = fingerprint()
    one, four = {**here, "gpus": ["H200"]}, {**here, "gpus": ["H200"] * 4}
    assert matches(one, four)
    assert matches(four, one)
    mixed = {**here, "gpus": ["H200", "T4"]}
    for other in (
        {**here, "gpus": []},
        {**here, "gpus": ["T4"]},
        mixed,
        {**here, "gpus": ["T4", "H200"]},
        {**here, "gpus": None},
    ):
        assert not matches(one, other)
    assert not matches(mixed, {**here, "gpus": ["T4", "H200"]})  # another one is the first


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="the platform has no CPU affinity")
def test_cores_follow_the_affinity():
    one = min(os.sched_getaffinity(0))
    code = (
        f"import os; os.sched_setaffinity(0, {{{one}}})\n"
        "from headrace.runtime.base.fingerprint import available_cores\nprint(available_cores())"
    )
    assert in_a_fresh_process(code) == "1"
    assert available_cores() >= 1


def test_hidden_gpus_are_none():
    code = "from headrace.runtime.base.fingerprint import gpus\nprint(gpus())"
    assert in_a_fresh_process(code, CUDA_VISIBLE_DEVICES="") == "[]"
    assert in_a_fresh_process(code, CUDA_VISIBLE_DEVICES="-1") == "[]"


@pytest.mark.parametrize(
    ("content", "cpus"),
    [("max 100000\n", None), ("150000 100000\n", 2), ("10000 100000\n", 1), ("garbage", None), ("1 0", None)],
)
def test_container_quota(tmp_path, content, cpus):
    (tmp_path / "cpu.max").write_text(content)
    assert _quota(tmp_path) == cpus
