"""The rules of docs/adr/0001-layout.md, read from the sources themselves."""

import ast
import importlib.metadata
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PARTS = ("kernels", "migrate", "runtime", "serving")
SOURCES = sorted([*ROOT.glob("*.py"), *(path for part in PARTS for path in (ROOT / part).rglob("*.py"))])

# What each part may import of the others; "specs" and "errors" are open to all.
ALLOWED = {
    "kernels": set(),
    "runtime": {"kernels"},
    "migrate": set(),
    "serving": {"runtime"},
    "cli": {"cli_bench", "cli_classify", "cli_console", "cli_serve", "cli_triton", "migrate", "runtime", "serving"},
    "cli_bench": {"cli_console", "migrate", "runtime", "serving"},  # the command of that name
    "cli_classify": {"cli_console", "serving"},
    "cli_serve": {"serving"},
    "cli_triton": {"cli_console", "runtime", "serving"},
}
# Serving reaches the runtime only through what opens and describes a finished model.
RUNTIME_FOR_SERVING = {
    *("artifact", "atomic", "fingerprint", "gpu_images", "jpeg_decoders", "model_config", "plan", "preprocessing", "session"),
}
# The benchmark's baseline is the user's own eager model, so that one file may build it.
RUNTIME_FOR_BASELINE = RUNTIME_FOR_SERVING | {"recipe"}


def module_name(path):
    parts = ["headrace", *path.relative_to(ROOT).with_suffix("").parts]
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imports(path):
    """Absolute names of everything a file imports, inside functions too; `from x import y` counts as x and x.y."""
    package = module_name(path) if path.name == "__init__.py" else module_name(path).rpartition(".")[0]
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                parents = package.split(".")[: len(package.split(".")) - node.level + 1]
                base = ".".join([*parents, base]).rstrip(".")
            found |= {base, *(f"{base}.{alias.name}" for alias in node.names)}
    return found


def own_imports(path):
    """Those of `imports` that are modules of the package."""
    modules = {module_name(source) for source in SOURCES}
    return {name for name in imports(path) if name in modules and name != "headrace"}


STAGES = (("reading",), ("slicing",), ("survey",), ("resolving",), ("rewriting", "rules"), ("proving",), ("reporting",))
MIGRATOR = [path for path in SOURCES if path.is_relative_to(ROOT / "migrate") and path.parent != ROOT / "migrate"]


def stage(name):
    """The rank of a module of the migrator; what drives the stages comes after all."""
    parts = name.split(".")[2:]
    return next((rank for rank, names in enumerate(STAGES) if parts and parts[0] in names), len(STAGES))


@pytest.mark.parametrize("path", MIGRATOR, ids=lambda path: str(path.relative_to(ROOT)))
def test_no_stage_of_the_migrator_imports_a_later_one(path):
    own = module_name(path)
    later = [name for name in own_imports(path) if name.startswith("headrace.migrate.") and stage(name) > stage(own)]
    assert later == []


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(ROOT)))
def test_no_import_runs_up_the_layers(path):
    own = module_name(path).split(".")[1:] or ["__init__"]
    for name in own_imports(path):
        part, *rest = name.split(".")[1:]
        if part in ("specs", "errors", own[0]) or own[0] in ("__init__", "__main__"):
            continue
        assert own[0] in ALLOWED, f"{own[0]} may import nothing of the package, but imports {name}"
        assert part in ALLOWED[own[0]], f"{own[0]} may not import {name}"
        if own[0] == "serving" and rest:
            allowed = RUNTIME_FOR_BASELINE if own[-1] == "baseline" else RUNTIME_FOR_SERVING
            assert rest[0] in allowed, f"serving may use only {sorted(allowed)} of the runtime, not {name}"


def test_migrate_never_imports_torch():
    for path in (ROOT / "migrate").rglob("*.py"):
        assert not {name for name in imports(path) if name.split(".")[0] in ("torch", "torchvision", "timm")}, path


def test_no_two_files_import_each_other():
    graph = {module_name(path): own_imports(path) - {module_name(path)} for path in SOURCES if path.name != "__init__.py"}
    for name, targets in graph.items():
        for target in targets:
            assert name not in graph.get(target, ()), f"{name} and {target} import each other"


def test_nothing_imports_tests_examples_or_docker():
    for path in SOURCES:
        assert not {name for name in imports(path) if name.split(".")[0] in ("tests", "examples", "docker")}, path


def test_imports_inside_the_package_are_relative():
    for path in SOURCES:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom) and not node.level:
                assert (node.module or "").split(".")[0] != "headrace", f"{path}:{node.lineno}"


def test_pyproject_lists_every_package():
    listed = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["packages"]
    folders = {path.parent for path in SOURCES if path.name == "__init__.py"}
    assert sorted(listed) == sorted(module_name(folder / "__init__.py") for folder in folders)


def test_tests_mirror_the_package_and_are_no_packages():
    corpus = ROOT / "tests/migrate/corpus"  # other people's repositories, with packages of their own
    assert [path for path in (ROOT / "tests").rglob("__init__.py") if not path.is_relative_to(corpus)] == []


def test_no_folder_of_tests_hides_a_library():
    """pytest puts folders of tests on sys.path, where a folder without __init__.py is a package to whoever imports its name."""
    folders = {path.parent.name for path in (ROOT / "tests").rglob("test_*.py")}
    assert folders & {*importlib.metadata.packages_distributions(), "triton"} == set()


def test_the_wheel_holds_exactly_the_package(tmp_path):
    tracked = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.split("\0")
    source = tmp_path / "source"
    for name in filter(None, tracked):
        if (ROOT / name).is_file():
            (source / name).parent.mkdir(parents=True, exist_ok=True)
            (source / name).write_bytes((ROOT / name).read_bytes())
    command = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(tmp_path / "dist"), str(source)]
    subprocess.run(command, check=True, capture_output=True)
    (wheel,) = (tmp_path / "dist").glob("*.whl")
    inside = {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}
    expected = {
        f"headrace/{name}"
        for name in filter(None, tracked)
        if (name.endswith(".py") and (name.count("/") == 0 or name.split("/")[0] in PARTS))
        or name == "py.typed"
        or name.startswith("serving/console/static/")
    }
    assert inside == expected
