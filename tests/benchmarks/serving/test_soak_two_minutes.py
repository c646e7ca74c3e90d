"""Two minutes at twice what a real server sustains: the short version of `make soak`, which takes an hour on a quiet machine.

Goodput is not judged here: the sustainable rate was found a minute before, beside whatever else this machine does. Where it
does less now, and twice that rate is answered in time, there is no excess to be rejected either (test_overload.py has one).
"""

import json
import statistics

import pytest

from tests.benchmarks.serving.soak import main

pytestmark = pytest.mark.slow

SPEED = "goodput within 10 % of the maximum"
EXCESS = {"the excess is rejected", "rejections come at once"}


@pytest.mark.timeout(600)
def test_two_minutes(busy_models, tmp_path, make_photo, capsys):
    for seed in range(8):
        (tmp_path / f"photo-{seed}.png").write_bytes(make_photo(seed))
    # The deadline is long for a model of ten milliseconds: that answers keep it is tested, not how fast this machine is.
    how = ["--seconds", "120", "--step-seconds", "3", "--start-rate", "64", "--deadline-ms", "3000"]
    main([str(busy_models), "--model", "slow", "--images", str(tmp_path), *how, "--out", str(tmp_path / "found")])
    printed = capsys.readouterr()
    found = json.loads((tmp_path / "found.json").read_text())
    held = {check["what"]: check["holds"] for check in found["checks"]}
    assert len(held) == 6, printed.err
    answered = statistics.median(one["goodput"] for one in found["slices"])
    left_out = {SPEED} | (EXCESS if answered > 0.95 * found["offered_per_second"] else set())
    assert all(holds for what, holds in held.items() if what not in left_out), printed.out
    assert sum(one["answered"] for one in found["slices"]) > 100
    memory = [one["memory_bytes"] for one in found["slices"]]
    assert len(memory) == 6
    assert max(memory[1:]) <= 1.05 * memory[1], memory
