"""What the README shows runs as it stands."""

import re
import subprocess
import sys
from pathlib import Path

README = (Path(__file__).parents[1] / "README.md").read_text()


def test_the_quick_start_runs(tmp_path):
    (code,) = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    assert len(code.splitlines()) <= 30
    code, _, _ = code.partition("report = headrace.migrate")  # its path is the reader's
    done = subprocess.run([sys.executable, "-c", code], check=False, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "models" / "tiny" / "config.pbtxt").is_file()


def test_every_command_and_option_shown_exists():
    for command, rest in re.findall(r"^ +headrace (\w+)(.*)$", README, re.MULTILINE):
        shown = subprocess.run(
            [sys.executable, "-m", "headrace", command, "--help"], capture_output=True, text=True, check=True
        )
        for option in re.findall(r"(--[\w-]+)", rest.partition("#")[0]):
            assert option in shown.stdout, f"headrace {command} has no {option}"
