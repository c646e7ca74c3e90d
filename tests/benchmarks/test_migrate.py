"""The migrator's benchmark runs and measures what it says; how fast, it is not for a test to say."""

import json
import subprocess
import sys
from pathlib import Path

SCRIPT = Path(__file__).parent / "migrate.py"


def test_it_measures_a_repository_of_the_lines_asked_for(tmp_path):
    command = [sys.executable, str(SCRIPT), "--lines", "1500", "--repeats", "1", "--out", str(tmp_path / "found.json")]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    found = json.loads((tmp_path / "found.json").read_text())
    assert 1500 <= found["lines"] < 1700
    assert found["rewritten"] >= 10
    assert found["survey_seconds"]["median"] > 0
    assert (found["lines_per_second"]["median"] < 2000) == (ended.returncode != 0 and "slower" in ended.stderr)
