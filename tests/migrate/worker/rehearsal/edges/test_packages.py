import os

PACKAGE = {"src/animals/__init__.py": "", "src/animals/nets.py": "SIDE = 8\n"}


def test_a_package_of_the_repository_is_found_below_a_folder_that_is_not_on_the_import_path(rehearsed):
    done = rehearsed({**PACKAGE, "tools/run.py": "from animals.nets import SIDE\nprint(SIDE)\n"}, script="tools/run.py")
    assert (done.report.ended, done.stdout) == ("finished", "8\n")
    assert [item.what for item in done.standins("packages")] == ["src was put on the import path"]


def test_a_file_of_a_package_runs_as_its_module(rehearsed):
    run = "from .nets import SIDE\nimport sys\nprint(SIDE, __package__)\n"
    done = rehearsed({**PACKAGE, "src/animals/run.py": run}, script="src/animals/run.py", directory=None)
    assert (done.report.ended, done.stdout) == ("finished", "8 animals\n")
    assert [item.what for item in done.standins("packages")] == ["run as python -m animals.run"]


def test_a_relative_import_of_the_folder_above_runs_from_above_it(rehearsed):
    files = {"lib/nets.py": "SIDE = 4\n", "lib/tools/run.py": "from ..nets import SIDE\nprint(SIDE)\n"}
    done = rehearsed(files, script="lib/tools/run.py")
    assert (done.report.ended, done.stdout) == ("finished", "4\n")


def test_the_package_is_meant_where_the_scripts_own_folder_has_a_file_of_that_name(rehearsed):
    files = {"helpers/__init__.py": "", "helpers/logs.py": "def say(): print('said')\n", "helpers/helpers.py": ""}
    files["helpers/run.py"] = "from helpers.logs import say\nsay()\n"
    done = rehearsed(files, script="helpers/run.py")
    assert (done.report.ended, done.stdout) == ("finished", "said\n")


def test_a_file_of_the_repository_is_read_where_its_user_would_stand(rehearsed):
    files = {"lists/classes.txt": "ant\nbee\n", "tools/run.py": "print(open('lists/classes.txt').read().split())\n"}
    done = rehearsed(files, script="tools/run.py", directory=None)
    assert done.stdout == "['ant', 'bee']\n"
    done = rehearsed(files, script="tools/run.py", directory=os.path.join(done.root, "tools"))
    assert done.stdout == "['ant', 'bee']\n"
    assert [item.what for item in done.standins("packages")] == ["run in the folder ."]
    assert not done.standins("data")


def test_a_library_that_is_nowhere_is_no_module_of_the_repository(rehearsed):
    done = rehearsed({"main.py": "import nobody_has_this\n"})
    assert not done.standins("packages")
