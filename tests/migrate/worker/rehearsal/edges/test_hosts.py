from headrace.migrate.worker.rehearsal.edges.hosts import all_hosts


def test_every_host_says_what_it_is_for():
    for host in all_hosts().values():
        assert host.LIBRARY
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
