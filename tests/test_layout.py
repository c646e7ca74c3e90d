"""The rules of docs/adr/0001-layout.md, read from the sources themselves."""

import ast
import re
import subprocess
import sys
import tomllib
import zipfile
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PARTS = ("kernels", "migrate", "runtime", "serving")
SOURCES = sorted([*ROOT.glob("*.py"), *(path for part in PARTS for path in (ROOT / part).rglob("*.py"))])

# What each part may import of the others; "specs", "errors", "extras", "trust" and "scratch" are open to all.
ALLOWED = {
    "kernels": set(),
    "runtime": {"kernels"},
    "migrate": set(),
    "serving": {"runtime"},
    "cli": {"console", "migrate", "runtime", "serving"},
}
# A command stands beside what it runs, and reaches what it shows or prepares in other parts when it is run.
OF_COMMANDS = {"console", "migrate", "runtime", "serving"}
# Serving reaches the runtime only through what opens and describes a finished model.
RUNTIME_FOR_SERVING = {"base", "artifact", "images"}
# The benchmark's baseline is a process of its own in which the user's eager model is built.
BASELINE = "headrace.serving.bench.baseline"

# From the ground up: a room may import only what stands below it, or beside it in braces that know nothing of each other.
RUNTIME = (
    "base",
    "capture",
    "passes",
    "lowering",
    "backends",
    "images",
    "artifact",
    "tuning",
    "formats",
    "export",
    "inspect",
    "parallel",
    "training",
    "graph",
)
SERVING = (
    *(
        "images",
        "protocol",
        "batching",
        "options",
        "command_line",
        "config",
        "guard",
        "ready_file",
        "models",
        "observe",
        "plane",
        "console",
        "grpc",
        "http",
    ),
    *("processes", "ray", "server", "named", "offline", "predict", "bench", "triton", "verify", "cli"),
)
MIGRATE = (
    *("reading", "slicing", "survey", "resolving", "rewriting", "proving", "reporting", "stages"),
    *("cache_entry", "api", "prepared", "named", "cli"),
)

# The modules whose test file is missing: tests/X/Y/test_Z.py for X/Y/Z.py. This list only gets shorter.
WITHOUT_TESTS = """
.: __main__ specs
kernels: _kernel _launch _levels _tiles
migrate/proving: confine fit_numbers sandbox trace_fit trace_probe
migrate/reading: calls edits facts finding integers lexer statements text_lines
migrate/reading/notebooks: notebook_json notebook_magics
migrate/reporting: progress render
migrate/resolving: evaluation model_metadata opened resolved settings sources
migrate/rewriting: call_edits codes evaluation_edits graph_mode graph_names placement rule scalars
    selftest training_edits
migrate/slicing: classes interprocedural liveness pretrained side_effects
migrate/stages: migration worker_client zero_edit_child
migrate/survey: transforms
migrate/worker: stub_datasets
runtime: cli
runtime/artifact: decode_model manifest
runtime/backends: eager inductor_autotuned onnxruntime tensorrt
runtime/backends/shared: kernel_timer torch_session
runtime/base: numerics
runtime/capture: behavior diagnosis no_grad_mode obstacles rewrite source_locations
runtime/graph: loaded runner
runtime/images: image_folder
runtime/inspect: plan_table
runtime/passes: _affine
runtime/training: options state step surroundings
serving: cli config server
serving/batching: latency_table request_queue
serving/bench: config services
serving/bench/load: http_load load
serving/bench/reporting: caveats plots result
serving/grpc: codec methods
serving/guard: byte_budget
serving/http: app body edge openapi
serving/images: decode_pool
serving/models: loading model_group models repository_protocol snapshots
serving/observe: stages
serving/plane: data_plane settings
serving/processes: child control description endpoints engine engine_session frontend ports remote remote_model
    single supervisor
serving/protocol: config_json messages request_fields results
serving/ray: config deploy engine ingress message
serving/triton: cases cli documented exchange finding lint_ensemble lint_folder lint_graph lint_scheduling lint_tensors
    onnxruntime_backend production subject
serving/verify: config decoding hypotheses reference routes search
"""


def module_name(path):
    parts = ["headrace", *path.relative_to(ROOT).with_suffix("").parts]
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


@dataclass(frozen=True)
class Imports:
    """Absolute names of everything a file imports, inside functions too (`from x import y` counts as x and x.y), those of them
    that are modules of the package, and the lines that name the package in full."""

    names: set[str]
    own: set[str]
    absolute: list[int]


@pytest.fixture(scope="session")
def imports(once):
    """What each file of the package imports."""
    return once("layout-imports", lambda _: _all_imports())


def _all_imports():
    modules = {module_name(path) for path in SOURCES}
    return {path: _imports(path, modules) for path in SOURCES}


def _imports(path, modules):
    package = module_name(path) if path.name == "__init__.py" else module_name(path).rpartition(".")[0]
    found, absolute = set(), []
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                parents = package.split(".")[: len(package.split(".")) - node.level + 1]
                base = ".".join([*parents, base]).rstrip(".")
            elif base.split(".")[0] == "headrace":
                absolute.append(node.lineno)
            found |= {base, *(f"{base}.{alias.name}" for alias in node.names)}
    return Imports(found, {name for name in found if name in modules and name != "headrace"}, absolute)


def room(name):
    """The part of the package and the room in it: ("runtime", "base") of headrace.runtime.base.session."""
    part, own, *_ = *name.split(".")[1:3], "", ""
    return part, "rewriting" if (part, own) == ("migrate", "rules") else own  # which finds its rules by their files


@pytest.mark.parametrize(("part", "ladder"), [("runtime", RUNTIME), ("serving", SERVING), ("migrate", MIGRATE)])
def test_no_room_imports_one_above_it(part, ladder, imports):
    upwards = []
    for path in SOURCES:
        own_part, own = room(module_name(path))
        if own_part != part or own in ("", "worker") or (part == "runtime" and own == "cli"):
            continue
        for name in imports[path].own:
            other_part, other = room(name)
            if other_part == part and other not in ("", own) and ladder.index(other) > ladder.index(own):
                upwards.append(f"{path.relative_to(ROOT)} imports {name}")
    assert upwards == []


def test_every_room_is_on_its_ladder():
    for part, ladder in (("runtime", RUNTIME), ("serving", SERVING), ("migrate", MIGRATE)):
        rooms = {room(module_name(path))[1] for path in SOURCES if room(module_name(path))[0] == part}
        assert rooms - {"", "cli", "worker"} == set(ladder) - {"cli"}


def test_no_room_is_too_full_to_look_around():
    for folder in {path.parent for path in SOURCES} - {ROOT / "migrate/rules"}:
        assert len([*folder.glob("*.py")]) <= 20, folder


def test_no_import_runs_up_the_layers(imports):
    upwards = [f"{path.relative_to(ROOT)} imports {name}" for path in SOURCES for name in _upwards(path, imports[path].own)]
    assert upwards == []


def _upwards(path, names):
    """Those of a file's imports that its part, or serving of the runtime, may not have."""
    module = module_name(path)
    own = module.split(".")[1:] or ["__init__"]
    allowed = OF_COMMANDS if own[-1] == "cli" else ALLOWED.get(own[0], set())
    if own[:2] == ["migrate", "worker"]:
        allowed = {"migrate", "runtime"}
    for name in names:
        part, *rest = name.split(".")[1:]
        if part in ("specs", "errors", "extras", "trust", "scratch", "_version", own[0]) or own[0] in ("__init__", "__main__"):
            continue
        if module == BASELINE and rest[:1] == ["worker"]:
            continue
        of_runtime = own[0] == "serving" and part == "runtime" and own[-1] != "cli"
        if part not in allowed or (of_runtime and rest[0] not in RUNTIME_FOR_SERVING):
            yield name


def test_only_a_subprocess_imports_the_worker(imports):
    for path in SOURCES:
        name = module_name(path)
        if name != BASELINE and not name.startswith("headrace.migrate.worker"):
            assert not [target for target in imports[path].own if target.startswith("headrace.migrate.worker")], path


def test_migrate_never_imports_torch(imports):
    for path in (ROOT / "migrate").rglob("*.py"):
        if path.is_relative_to(ROOT / "migrate/worker"):
            continue
        assert not {name for name in imports[path].names if name.split(".")[0] in ("torch", "torchvision", "timm")}, path


def test_no_two_files_import_each_other(imports):
    graph = {module_name(path): imports[path].own - {module_name(path)} for path in SOURCES if path.name != "__init__.py"}
    for name, targets in graph.items():
        for target in targets:
            assert name not in graph.get(target, ()), f"{name} and {target} import each other"


def test_nothing_imports_tests_examples_or_docker(imports):
    for path in SOURCES:
        assert not {name for name in imports[path].names if name.split(".")[0] in ("tests", "examples", "docker")}, path


def test_imports_inside_the_package_are_relative(imports):
    assert {path: imports[path].absolute for path in SOURCES if imports[path].absolute} == {}


def test_pyproject_lists_every_package():
    listed = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["packages"]
    folders = {path.parent for path in SOURCES if path.name == "__init__.py"}
    assert sorted(listed) == sorted(module_name(folder / "__init__.py") for folder in folders)


def test_tests_mirror_the_package_and_are_no_packages():
    corpus = ROOT / "tests/migrate/corpus"  # other people's repositories, with packages of their own
    assert [path for path in (ROOT / "tests").rglob("__init__.py") if not path.is_relative_to(corpus)] == []


def test_a_module_has_its_tests_at_its_own_path():
    """Rules apart: their examples stand in the rules themselves, and tests/migrate/rules/test_every_rule.py runs them all."""
    listed = set()
    for entry in re.split(r"\n(?! )", WITHOUT_TESTS.strip()):
        folder, names = entry.split(":")
        listed |= {f"{folder}/{name}.py".removeprefix("./") for name in names.split()}
    paths = (path.relative_to(ROOT) for path in SOURCES if path.name != "__init__.py" and path.parent != ROOT / "migrate/rules")
    missing = {str(path) for path in paths if not (ROOT / "tests" / path.parent / f"test_{path.name}").exists()}
    assert missing - listed == set(), "these modules need tests at their mirrored paths"
    assert listed - missing == set(), "these modules have tests or are gone: take them off WITHOUT_TESTS"


def test_the_old_name_stands_in_the_history_only():
    old = "pen" + "stock"
    tracked = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.split("\0")
    found = set()
    for name in filter(None, tracked):
        path = ROOT / name
        if old in name.lower() or (path.is_file() and old.encode() in path.read_bytes().lower()):
            found.add(name)
    assert {name for name in found if name != "CHANGELOG.md" and not name.startswith("docs/adr/")} == set()


def test_no_folder_of_tests_hides_a_library():
    """A folder on sys.path is a package to whoever imports its name, without __init__.py too; tests/serving has a triton."""
    above = {ROOT / "tests" / part for part in ("", *PARTS)}
    assert {Path(entry).resolve() for entry in sys.path} & above == set()


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
        or name in ("py.typed", "runtime/artifact/triton_messages.binpb")
        or name.startswith("serving/console/static/")
    }
    assert inside == expected
