"""A library whose absence is handled by a word, and whose names are used all the same."""

import pytest

PIPE = (
    "try:\n    from fastpipe.plugin import Iterator\n"
    "    from fastpipe.pipeline import Pipeline as Pipe\n    import fastpipe.ops as ops\n"
    "except ImportError:\n    print('install fastpipe')\n\n"
    "class Own(Pipe):\n    def __init__(self):\n        super().__init__(4)\n        self.decode = ops.Decoder()\n\n"
    "print(Own.__name__)\n"
)


def test_the_script_goes_on_with_what_it_does_not_need(rehearsed):
    done = rehearsed({"main.py": PIPE})
    assert (done.report.ended, done.stdout.splitlines()[-1]) == ("finished", "Own"), done.report.why
    said = [item.what for item in done.standins("libraries")]
    assert said
    assert all(what.startswith("fastpipe is not installed; ") for what in said)


@pytest.mark.parametrize(
    "text",
    [
        "class Own(Pipe):\n    pass\n",  # bound nowhere
        "try:\n    import json as Pipe\n    del Pipe\nexcept ImportError:\n    pass\nclass Own(Pipe):\n    pass\n",  # installed
        "try:\n    from . import Pipe\nexcept ImportError:\n    pass\nclass Own(Pipe):\n    pass\n",  # the repository's own
    ],
)
def test_other_names_stay_the_repositorys_own_fault(rehearsed, text):
    done = rehearsed({"main.py": text})
    assert done.report.ended == "stopped"
    assert "name 'Pipe' is not defined" in done.report.why
    assert done.standins("libraries") == []
