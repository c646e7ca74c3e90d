import json
import os
import sys
import textwrap
import time

import pytest

from headrace.migrate.worker.rehearsal import Rehearsal, Taken
from headrace.migrate.worker.rehearsal.rehearse import _Output, rehearse

WITHOUT_GPU = """
import sys
import torch
print("asked")
if not torch.cuda.is_available():
    sys.exit("this needs a GPU")
print(torch.ones(2).cuda().sum().item(), sys.argv[1:], __name__)
"""


def test_an_attempt_that_taught_something_leaves_no_trace_in_the_output(rehearsed):
    done = rehearsed({"main.py": WITHOUT_GPU}, "--flag")
    assert (done.report.ended, done.report.attempts, done.status) == ("finished", 2, 0)
    assert done.stdout == "asked\n2.0 ['--flag'] __main__\n"
    assert done.standins("device")[0].where == "main.py:5"


def test_what_an_attempt_imported_the_next_one_has_and_later_rehearsals_too(rehearsed, tmp_path):
    """Ten attempts that import slow libraries each anew are over before they come to a model."""
    text = "import sys\nprint('scipy' in sys.modules)\nimport scipy\n"
    done = rehearsed({"main.py": text + WITHOUT_GPU}, made=tmp_path / "kept")
    assert (done.report.attempts, done.stdout.splitlines()[0]) == (2, "True")
    assert json.loads(done.report.learned)["imported"] == ["scipy"]
    done = rehearsed({"main.py": text + WITHOUT_GPU}, made=tmp_path / "kept", learned=done.report.learned)
    assert (done.report.attempts, done.stdout.splitlines()[0]) == (1, "True")


def test_no_module_of_the_users_is_imported_before_its_script(rehearsed):
    files = {"main.py": f"import seaborn\n{WITHOUT_GPU}", "seaborn.py": "print('imported')\n"}
    done = rehearsed(files)
    assert done.stdout.splitlines()[0] == "imported"
    assert json.loads(done.report.learned)["imported"] == []


def test_what_an_attempt_prints_without_end_does_not_fill_the_disk(tmp_path, monkeypatch):
    monkeypatch.setattr(sys.modules[rehearse.__module__], "_MOST_PRINTED", 1000)
    output = _Output(tmp_path)
    child = os.fork()
    if child == 0:
        output.catch()
        for _ in range(30):
            os.write(1, b"x" * 10000)
            time.sleep(0.02)
        os._exit(7)
    assert os.waitstatus_to_exitcode(output.wait(child)) == 7
    assert [(path.name, path.stat().st_size) for path in sorted(tmp_path.iterdir())] == [
        (f"attempt.{os.getpid()}.1", 1000),
        (f"attempt.{os.getpid()}.2", 0),
    ]


def test_an_error_with_a_heading_says_what_stands_below_it(rehearsed):
    done = rehearsed({"main.py": "import torch\ntorch.nn.Linear(2, 3).load_state_dict({})\n"})
    assert done.report.why.startswith("RuntimeError: Error(s) in loading state_dict for Linear: Missing key(s) in state_dict")


def test_an_error_is_told_with_its_place_and_ends_the_process_as_python_does(rehearsed):
    done = rehearsed(
        {"main.py": "from part import fail\nprint('before')\nfail()\n", "part.py": "def fail():\n    raise ValueError('no')\n"}
    )
    assert (done.report.ended, done.report.why, done.report.where) == ("stopped", "ValueError: no", "part.py:2")
    assert (done.stdout, done.status) == ("before\n", 1)
    assert done.stderr.splitlines()[0] == "Traceback (most recent call last):"
    assert "rehearse.py" not in done.stderr


def test_a_process_that_dies_leaves_its_report_and_its_output(rehearsed):
    done = rehearsed({"main.py": "import os\nfor epoch in range(2):\n    print(epoch)\nprint('x', flush=True)\nos._exit(3)\n"})
    assert (done.report.why, done.status, done.stdout) == ("the process died", 3, "0\nx\n")
    assert done.standins("time")


def test_a_script_has_its_folder_its_path_and_its_name(rehearsed):
    files = {
        "tools/run.py": "import beside, os, sys\n"
        "from os.path import basename\nprint(beside.x, basename(os.getcwd()), sys.argv, basename(__file__))\n",
        "tools/beside.py": "x = 1\n",
        "package/__init__.py": "",
        "package/part.py": "x = 2\n",
        "package/tool.py": "from .part import x\nimport sys\nprint(x, __name__, sys.argv[1:])\n",
    }
    assert rehearsed(files, "a", script="tools/run.py").stdout == "1 repository ['tools/run.py', 'a'] run.py\n"
    assert rehearsed(files, "a", script="package.tool", module=True).stdout == "2 __main__ ['a']\n"


def once(tmp_path, text, **options):
    (tmp_path / "main.py").write_text(textwrap.dedent(text))
    return rehearse(Rehearsal(root=str(tmp_path), script="main.py", made=str(tmp_path / "made")), attempts=1, **options)


@pytest.mark.parametrize("code", ["", "None", "0"])
def test_a_script_that_ends_itself_well_has_finished(tmp_path, code):
    assert once(tmp_path, f"import sys\nsys.exit({code})\n").ended == "finished"


def test_a_watcher_ends_the_script_and_sees_its_world(tmp_path):
    seen = []

    class Watch:
        def __enter__(self):
            seen.append(os.getcwd())

        def __exit__(self, *error):
            import __main__

            seen.append(__main__.value)

    def take(value):
        raise Taken

    (tmp_path / "main.py").write_text(
        "value = 5\ntry:\n    __import__('builtins').taken(value)\nexcept Exception:\n    pass\nvalue = 6\n"
    )
    import builtins

    builtins.taken = take
    try:
        request = Rehearsal(root=str(tmp_path), script="main.py", made=str(tmp_path / "made"))
        assert rehearse(request, watch=Watch, attempts=1).ended == "taken"
    finally:
        del builtins.taken
    assert seen == [str(tmp_path), 5]


def test_an_error_in_the_place_of_another_teaches_what_that_would(rehearsed):
    """`except ImportError: raise RuntimeError(...)`: what the script lacks is in the first one."""
    text = (
        "def load():\n    try:\n        import nobody_has_this\n        return open('config.txt').read()\n"
        "    except ImportError:\n        raise RuntimeError('it is required')\n"
        "    except Exception as error:\n        raise ValueError('no settings') from error\nprint(len(load()) > 0)\n"
    )
    done = rehearsed({"main.py": text})
    assert (done.report.ended, done.stdout) == ("finished", "True\n"), done.report.why
    chained = (
        "try:\n    1 / 0\nexcept ZeroDivisionError as error:\n    error.__cause__ = error\n"
        "    raise ValueError('x') from error\n"
    )
    done = rehearsed({"main.py": chained})
    assert (done.report.ended, done.report.why) == ("stopped", "ValueError: x")


def test_an_error_that_a_library_put_in_the_place_of_the_users_teaches_what_that_would(rehearsed):
    """As Hydra does that builds what a configuration names; `pydoc.locate` has an error of its own, too."""
    files = {
        "main.py": "import pydoc\nprint(pydoc.locate('net.Net').__name__)\n",
        "net.py": "import nobody_has_this\nclass Net: ...\n",
    }
    done = rehearsed(files)
    assert (done.report.ended, done.stdout) == ("finished", "Net\n"), done.report.why
    done = rehearsed({**files, "net.py": "raise ValueError('no such depth')\n"})
    assert (done.report.ended, done.report.where) == ("stopped", "net.py:1")
    assert done.report.why == "ErrorDuringImport: problem in net - ValueError: no such depth, after ValueError: no such depth"


def test_a_script_that_waits_for_ever_has_come_to_its_end(rehearsed):
    """So that what nothing in it calls is called."""
    source = (
        "import time\nimport torch\nfrom PIL import Image\n\nnet = torch.nn.Linear(3, 2)\n\n\ndef classify(image):\n"
        "    return net(torch.rand(1, 3)).argmax()\n\n\nwhile True:\n    time.sleep(1)\n"
    )
    done = rehearsed({"main.py": source})
    assert done.report.ended == "enough"
    assert [item.what for item in done.standins("time")] == ["ended after 200 waits at main.py:13"]
