import importlib
import sys
import types

from headrace.migrate.worker.rehearsal import hosts
from headrace.migrate.worker.rehearsal.edges.hosts import all_hosts, stand_in


def test_every_host_says_what_it_is_for():
    for host in all_hosts().values():
        assert getattr(host, "LIBRARY", None) or host.LIBRARIES
        assert callable(host.hosted)
        assert callable(host.call)


def test_a_script_that_defines_nothing_for_a_server_is_left_alone(rehearsed):
    done = rehearsed({"main.py": "class Handler:\n    def handle(self):\n        raise SystemExit(3)\n"})
    assert (done.report.ended, done.standins("servers")) == ("finished", [])


def test_an_error_in_a_method_stops_the_rehearsal_where_it_is(rehearsed):
    text = "import litserve\nclass A(litserve.LitAPI):\n    def predict(self, x):\n        return 1 / 0\n"
    done = rehearsed({"main.py": text})
    assert (done.report.ended, done.report.why, done.report.where) == (
        "stopped", "ZeroDivisionError: division by zero", "main.py:4",
    )  # fmt: skip


def test_a_library_that_is_not_here_is_named(rehearsed):
    done = rehearsed({"main.py": "import ts.torch_handler.base_handler as b\nprint(b.BaseHandler.__name__)\n"})
    assert done.stdout == "BaseHandler\n"
    assert done.standins("libraries")[0].what == "ts is not installed; what its classes do stood in"


def test_a_module_of_the_repositorys_by_such_a_name_is_its_own(rehearsed):
    files = {"series/ts.py": "def load():\n    return 'own'\n", "main.py": "import ts\nprint(ts.load())\n"}
    assert rehearsed(files).stdout == "own\n"
    assert rehearsed({"main.py": "import series.ts\nprint(series.ts.load())\n"}).stdout == "own\n"


def test_each_of_several_is_asked_until_it_comes_to_the_model_itself(on_stage):
    """A second one is not taken to have come to the model because the first one has."""
    stage, called = on_stage().stage, []
    stage.seen = lambda: len(called)
    for what in ("first", "second"):
        hosts.answered(stage, what, [("the body", lambda: "no"), ("a file", lambda: called.append(1))])
        assert stage.learned["request"] == "a file"
        stage.learned.clear()
    assert len(called) == 2
    stage.seen = None
    hosts.answered(stage, "third", [("the body", lambda: "no"), ("a file", lambda: called.append(1))])
    assert (stage.learned["request"], len(called)) == ("the body", 2)


def test_what_stood_in_is_gone_afterwards_and_what_the_script_put_in_its_place_is_not(on_stage):
    stage, own = on_stage().stage, types.ModuleType("litserve")
    with stand_in(stage):
        importlib.import_module("ts.torch_handler.base_handler")
        importlib.import_module("litserve")
        assert "ts" in sys.modules
        sys.modules["litserve"] = own
    assert [name for name in sys.modules if name.partition(".")[0] == "ts"] == []
    assert sys.modules.pop("litserve") is own
