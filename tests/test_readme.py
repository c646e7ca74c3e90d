"""What the README shows runs as it stands."""

import re
from pathlib import Path

README = (Path(__file__).parents[1] / "README.md").read_text()


def test_the_quick_start_runs(tmp_path, warm_python):
    (code,) = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    assert len(code.splitlines()) <= 30
    code, _, _ = code.partition("report = headrace.migrate")  # its path is the reader's
    done = warm_python(["-c", code], cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "models" / "tiny" / "config.pbtxt").is_file()
