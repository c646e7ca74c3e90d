import os
import subprocess
import sys

import pytest

from headrace.runtime.base.session import Target, default_threads


def test_target_rejects_what_does_not_exist():
    for fields in (
        {"device": "tpu"}, {"precision": "fp64"}, {"threads": 0}, {"streams": 2}, {"batch": 3, "streams": 2}
    ):  # fmt: skip
        with pytest.raises(ValueError, match="target"):
            Target(**fields)


def test_threads_default_to_cores_this_process_may_use():
    assert 1 <= default_threads() <= len(os.sched_getaffinity(0))
    assert Target().thread_count == default_threads()
    assert Target(threads=3).thread_count == 3


def test_session_plan_and_backends_import_without_torch():
    code = (
        "import sys; from headrace.runtime import backends\n"
        "from headrace.runtime.artifact import artifact, parity, plan\n"
        "from headrace.runtime.base import config, session, structure\n"
        "from headrace.runtime.tuning import measure\n"
        "backends.discover(); backends.get('onnxruntime').supports(session.Target())\n"
        "backends.get('openvino').supports(session.Target())\n"
        "print('torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip().endswith("False")
