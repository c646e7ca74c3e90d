"""Seeds that a script takes from the clock."""

import pytest

DRAWS = "import random, time\nimport numpy as np\nimport torch\nstamp = {stamp}\n{seed}\nprint({drawn})\n"
KINDS = [
    ("random.seed(stamp)", "random.random()"),
    ("np.random.seed(int(stamp % 2**32))", "np.random.rand()"),
    ("torch.manual_seed(int(stamp) + 3)", "float(torch.rand(1))"),
]


@pytest.mark.parametrize(("seed", "drawn"), KINDS)
def test_a_seed_of_the_clocks_is_the_same_in_each_run(rehearsed, seed, drawn):
    files = {"main.py": DRAWS.format(stamp="time.time()", seed=seed, drawn=drawn)}
    first, second = rehearsed(files), rehearsed(files)
    assert first.report.ended == "finished", first.report.why
    assert first.stdout == second.stdout
    assert [item.what for item in first.standins("time")] == ["a seed of 0, not of the clock"]


@pytest.mark.parametrize("stamp", ["time.time_ns()", "time.time() * 1000"])
def test_clocks_count_other_units_too(rehearsed, stamp):
    files = {"main.py": DRAWS.format(stamp=stamp, seed="random.seed(stamp)", drawn="random.random()")}
    assert rehearsed(files).stdout == rehearsed(files).stdout


@pytest.mark.parametrize("stamp", ["7", "20261130", "'name'", "None"])
def test_other_seeds_are_the_scripts_own(rehearsed, stamp):
    done = rehearsed({"main.py": DRAWS.format(stamp=stamp, seed="random.seed(stamp)", drawn="'drawn'")})
    assert (done.stdout, done.standins("time")) == ("drawn\n", []), done.report.why
