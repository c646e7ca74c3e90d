"""What names stand for, scope by scope."""

import ast

import pytest

from headrace.migrate.reading.scopes import Repository
from headrace.migrate.reading.source import parse_source


def read(source, **others):
    files = [parse_source("main.py", source.encode())]
    files += [parse_source(f"{name}.py", text.encode()) for name, text in others.items()]
    return Repository(files).modules["main.py"]


SOURCE = """\
import mine as F
import torch as T


@F.decorated
def inner(x, T=F.default):
    import torch.nn.functional as F
    F.called(T.parameter)


class Net:
    import numpy as F
    F.body

    def method(self):
        global late
        import late
        return F.from_top, [T.item for T in F.items], lambda F: F.of_lambda


late.used
"""


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("F.decorated", "mine.decorated"),
        ("F.default", "mine.default"),
        ("F.called", "torch.nn.functional.called"),
        ("T.parameter", None),
        ("F.body", "numpy.body"),
        ("F.from_top", "mine.from_top"),
        ("F.items", "mine.items"),
        ("T.item", None),
        ("F.of_lambda", None),
        ("late.used", "late.used"),
    ],
)
def test_an_import_is_that_of_the_scope(written, meant):
    module = read(SOURCE)
    (node,) = [item for item in module.of_kind(ast.Attribute) if ast.unparse(item) == written]
    assert [name for name, found in module.references.items() if node in found] == ([meant] if meant else [])
    assert module.expand(node) == (meant or written)


def test_a_callee_of_the_repository_is_that_of_the_scope():
    source = "import one as lib\n\n\ndef f():\n    import two as lib\n    lib.make()\n\n\nlib.make()\n"
    module = read(source, one="def make(): pass\n", two="def make(): pass\n")
    found = {call.lineno: module.find_callee(call.func)[0].path for call in module.calls}
    assert found == {6: "two.py", 9: "one.py"}


@pytest.mark.parametrize(
    ("name", "path"),
    [("package.net", "package/net.py"), ("package.net.Net", "package/net.py"), ("package.one", "package/__init__.py"),
     ("package", "package/__init__.py"), ("torch.nn", None), ("", None)],
)  # fmt: skip
def test_the_file_that_a_name_is_goes_before_the_one_in_which_it_stands(name, path):
    found = read("", **{"package/__init__": "one = 1\n", "package/net": "class Net: pass\n"}).source_of(name)
    assert (found.path if found is not None else None) == path


def test_of_several_folders_on_the_search_path_the_nearest_is_meant():
    """One repository may hold several projects, each with a `lib` of its own that its tools put on the path."""
    start = "import os, sys\nsys.path.append(os.path.join(os.path.dirname(__file__), '..', 'lib'))\n"
    files = {f"deep/{part}/tools/_init_paths": start for part in ("keras", "pytorch", "tf")}
    files |= {f"deep/{part}/lib/export": "one = 1\n" for part in ("keras", "pytorch", "tf")}
    repository = read("", **files).repository
    found = [repository.module("export", f"deep/{part}/tools/test.py").path for part in ("tf", "pytorch", "keras")]
    assert found == ["deep/tf/lib/export.py", "deep/pytorch/lib/export.py", "deep/keras/lib/export.py"]


def test_a_package_is_seen_from_above_by_its_own_face_and_from_beside_by_its_files():
    paths = ("data/__init__.py", "data/data.py", "data/sets.py", "data/net.py", "net.py")
    repository = Repository([parse_source(path, b"import data\n") for path in paths])
    reached = {path: repository.module("data", path).path for path in paths}
    assert reached == dict.fromkeys(paths, "data/__init__.py") | {
        "data/sets.py": "data/data.py",
        "data/net.py": "data/data.py",
    }
    assert [module.path for module in repository.meant("data", "data/sets.py")] == ["data/data.py", "data/__init__.py"]
    assert repository.module("sets", "data/__init__.py").path == "data/sets.py"  # where nothing above is called so


def test_what_installing_makes_importable_is_found_last():
    """`scripts/eval.py` imports the package in `src`, which is on no search path of its own."""
    files = [
        parse_source("src/pets/__init__.py", b"from .run import run_eval\n"),
        parse_source("src/pets/run.py", b"def run_eval(): 0"),
    ]
    script = parse_source("scripts/eval.py", b"from pets import run_eval\nrun_eval()\n")
    module = Repository([*files, script]).modules["scripts/eval.py"]
    assert module.find_callee(module.calls[0].func)[0].path == "src/pets/run.py"
    assert Repository([*files, script]).has_package("pets", "scripts/eval.py")
    nearer = [parse_source("scripts/pets/__init__.py", b"def run_eval(): 0")]
    module = Repository([*files, script, *nearer]).modules["scripts/eval.py"]
    assert module.find_callee(module.calls[0].func)[0].path == "scripts/pets/__init__.py"
    other = [parse_source(file.path.replace("src", "lib"), file.text.encode()) for file in files]
    module = Repository([*other, script]).modules["scripts/eval.py"]
    assert module.find_callee(module.calls[0].func) is None  # nothing makes a folder of another name importable


@pytest.mark.parametrize("place", ["packages/pets/src/pets", "packages/my-pets/my_pets"])
def test_the_projects_of_a_workspace_import_each_other(place):
    name = place.rpartition("/")[2]
    package = parse_source(f"{place}/__init__.py", b"def run_eval(): 0")
    script = parse_source("services/app/main.py", f"from {name} import run_eval\nrun_eval()\n".encode())
    module = Repository([package, script]).modules["services/app/main.py"]
    assert module.find_callee(module.calls[0].func)[0].path == f"{place}/__init__.py"
    assert Repository([package, script]).has_package(name, "services/app/main.py")
    loose = parse_source(f"packages/other/{name}/__init__.py", b"def run_eval(): 0")
    module = Repository([loose, script]).modules["services/app/main.py"]
    assert module.find_callee(module.calls[0].func) is None


def test_places_are_in_characters():
    module = read("é = '中𝒳'; call()\n")
    assert [module.place(call) for call in module.calls] == [(1, 10)]


def test_a_file_is_not_read_again_for_each_of_its_imports(monkeypatch):
    names = [f"name{number}" for number in range(50)]
    inner = "".join(f"\ndef f{number}():\n    global late{number}\n    import json as late{number}\n" for number in range(3))
    module = read("".join(f"import {name}\n" for name in names) + inner)
    walked, walk = [], ast.walk
    monkeypatch.setattr(ast, "walk", lambda node: walked.append(isinstance(node, ast.Module)) or walk(node))
    assert {*names, "late0", "late1", "late2"} <= set(module.imports)
    assert sum(walked) <= 3


def test_whether_a_name_leads_into_the_repository_is_asked_of_its_folders_once():
    """Each import of thousands of files looked through the paths of all of them."""

    class Counted(dict):
        looked = 0

        def __iter__(self):
            Counted.looked += 1
            return super().__iter__()

    paths = ["a/b/c/deep.py", "a/b/x.py", "top.py", "ab/y.py"]
    repository = Repository([parse_source(path, b"import torch\n") for path in paths])
    assert repository.folders == {"a", "a/b", "a/b/c", "ab"}
    repository.modules = Counted(repository.modules)
    found = [
        name for name in ("a", "b", "top", "ab", "torch", "x", "c") for _ in range(9) if repository.has_package(name, "top.py")
    ]
    assert sorted(set(found)) == ["a", "ab", "top"]
    assert repository.has_package("c.deep", "a/b/x.py")
    assert Counted.looked <= 1
