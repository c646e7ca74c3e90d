import json
import os
import subprocess
import sys

import pytest

from headrace.runtime.base.fingerprint import _quota, available_cores, differences, fingerprint, versions


def in_a_fresh_process(code, **environment):
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=True, env={**os.environ, **environment}
    )
    return done.stdout.strip()


LIBRARIES = ("torch", "onnxruntime", "openvino")
PRINT = """
import json, sys
from headrace.runtime.base.fingerprint import fingerprint
print(json.dumps([fingerprint(), "torch" in sys.modules]))
"""


def test_is_the_same_in_another_process_with_and_without_torch(warm_python, tmp_path):
    bare, torch_imported = json.loads(in_a_fresh_process(PRINT))
    assert not torch_imported
    assert bare == fingerprint()
    with_torch, torch_imported = json.loads(warm_python(["-c", PRINT], cwd=tmp_path).stdout)
    assert torch_imported
    assert with_torch == bare
    assert not differences(bare, with_torch, device="cpu", libraries=LIBRARIES)


def test_says_what_a_plan_depends_on():
    here = fingerprint()
    assert json.loads(json.dumps(here)) == here
    assert here["cpu"]
    assert here["versions"] == versions()
    assert here["versions"]["torch"]
    assert 1 <= here["cores"] <= os.cpu_count()


@pytest.mark.parametrize(("device", "keys"), [("cpu", {"cpu", "flags", "cores", "headrace"}), ("cuda", {"gpus", "headrace"})])
def test_a_plan_depends_on_the_device_that_it_is_for_and_on_nothing_else(device, keys):
    here = fingerprint()
    assert not differences(here, dict(here), device=device, libraries=LIBRARIES)
    for key in ("cpu", "flags", "cores", "gpus", "headrace"):
        for there in ({**here, key: "something else"}, {name: value for name, value in here.items() if name != key}):
            assert set(differences(there, here, device=device, libraries=LIBRARIES)) == ({key} & keys)


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_a_plan_depends_on_the_libraries_that_it_runs_with_and_on_no_others(device):
    here = fingerprint()
    for name, version in here["versions"].items():
        for other in ("0.0.1", None):
            there = {**here, "versions": {**here["versions"], name: other}}
            found = differences(there, here, device=device, libraries=[name])
            assert set(found) == (set() if other == version else {name})
            assert not differences(there, here, device=device, libraries=set(here["versions"]) - {name})
    for broken in ({}, {"versions": None}, {"versions": "all"}):
        assert "torch" in differences({**here, **broken} if broken else {}, here, device=device, libraries=["torch"])


def test_only_a_gpus_plan_depends_on_the_cuda_that_its_library_was_built_with():
    one, other = ({**fingerprint(), "versions": {"torch": f"2.11.0+{build}"}} for build in ("cpu", "cu128"))
    assert not differences(one, other, device="cpu", libraries=["torch"])
    assert differences(one, other, device="cuda", libraries=["torch"]) == {"torch": ("2.11.0+cpu", "2.11.0+cu128")}


def test_a_plan_holds_for_any_number_of_gpus_of_one_kind():
    here = fingerprint()

    def matches(one, other):
        return not differences(one, other, device="cuda", libraries=())

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
