import os
import subprocess
import sys

import pytest

pytest.importorskip("openvino_telemetry")

CODE = """
import sys
sys.addaudithook(lambda event, arguments: print(event) if event in ("os.fork", "socket.connect", "urllib.Request") else None)
from headrace.runtime.base.openvino_library import import_openvino
assert import_openvino() is import_openvino() and import_openvino().Core
import openvino.tools.ovc
import openvino_telemetry  # whoever asks for it has it afterwards
print(openvino_telemetry.__name__)
"""


def test_nothing_is_told_to_anybody(tmp_path):
    environment = {name: value for name, value in os.environ.items() if name not in {"CI", "TF_BUILD", "JENKINS_URL"}}
    done = subprocess.run(
        [sys.executable, "-c", CODE], capture_output=True, text=True, env={**environment, "HOME": str(tmp_path)}, check=True
    )
    assert (done.stdout.split(), list(tmp_path.iterdir())) == (["openvino_telemetry"], []), done.stderr
