"""A checkpoint that is not here holds what the repository itself saves, where the script checks what is in it."""

import pytest

SAVES = """
import torch
LABELS = ("ant", "bee")
VERSION = 3

def save(net, path, arch, history):
    torch.save(
        {"version": VERSION, "weights": net.state_dict(), "labels": list(LABELS), "n": len(LABELS), "arch": arch, "log": history
        },
        path,
    )
"""
OTHER = """
import torch

def keep(net, optimizer):
    state = {"optimizer": optimizer.state_dict(), "epoch": 1}
    torch.save(state, "last.pth")
"""
MAIN = """
import argparse, torch
parser = argparse.ArgumentParser()
parser.add_argument("--arch", default="small")
REQUIRED = {"arch", "labels", "version", "weights"}
kept = torch.load("best.pth")
CHECK
net = torch.nn.Linear(2, 2)
net.load_state_dict(kept["weights"])
print(kept["version"], kept["labels"], kept["n"], kept["arch"], dict(kept["log"]))
"""


@pytest.mark.parametrize(
    "check",
    [
        "missing = REQUIRED - kept.keys()\nif missing:\n    raise ValueError(f'no checkpoint: {sorted(missing)}')",
        "assert REQUIRED <= set(kept), 'it lacks arch, labels, version or weights'",
        "import sys\nif not REQUIRED.issubset(kept):\n    sys.exit('arch and labels are missing')",
    ],
)
def test_a_checkpoint_that_is_checked_is_as_the_repository_saves_it(rehearsed, check):
    files = {"main.py": MAIN.replace("CHECK", check), "a_other.py": OTHER, "saving.py": SAVES}
    done = rehearsed(files)
    assert (done.report.ended, done.stdout) == ("finished", "3 ['ant', 'bee'] 2 small {}\n"), done.report.why
    assert "Linear: weights that are not yours stood in" in [item.what for item in done.standins("network")]


def test_a_checkpoint_of_which_nothing_is_known_stops_the_script(rehearsed):
    done = rehearsed({"main.py": MAIN.replace("CHECK", "if not REQUIRED <= set(kept):\n    raise LookupError('other')")})
    assert (done.report.ended, done.report.why) == ("stopped", "LookupError: other")
