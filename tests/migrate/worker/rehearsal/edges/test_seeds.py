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


@pytest.mark.parametrize("drawn", ["np.random.RandomState().rand()", "np.random.default_rng().random()"])
def test_generators_without_a_seed_start_alike(rehearsed, drawn):
    files = {"main.py": f"import numpy as np\nprint({drawn})\n"}
    assert rehearsed(files).stdout == rehearsed(files).stdout != "\n"


def test_what_a_trial_of_a_search_suggests_is_told(rehearsed, tmp_path):
    path = tmp_path / "site-packages" / "optuna" / "trial.py"
    path.parent.mkdir(parents=True)
    path.write_text("class Trial:\n    def suggest_categorical(self, name, choices):\n        return choices[-1]\n")
    text = f"import sys\nsys.path.insert(0, {str(tmp_path / 'site-packages')!r})\nfrom optuna.trial import Trial\n"
    done = rehearsed({"main.py": f"{text}print(Trial().suggest_categorical('body', ['small', 'large']))\n"})
    assert (done.report.ended, done.stdout) == ("finished", "large\n"), done.report.why
    said = [item.what for item in done.standins("arguments")]
    assert said == ["body=large is of a trial of a search, of which others may be meant"]
