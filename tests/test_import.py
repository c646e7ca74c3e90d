"""`import penstock` and the command line's help stay light: what is heavy is imported by the command that needs it."""

import json
import subprocess
import sys

import pytest

HEAVY = ("torch", "fastapi", "numpy", "onnxruntime", "openvino", "matplotlib")


def loaded_after(code):
    program = f"{code}\nimport sys, json\nprint(json.dumps([name for name in {HEAVY!r} if name in sys.modules]))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    return json.loads(done.stdout.splitlines()[-1])


def test_importing_penstock_imports_nothing_heavy():
    assert loaded_after("import penstock; penstock.__version__; dir(penstock)") == []


@pytest.mark.parametrize("arguments", [["--version"], ["--help"], ["migrate", "--help"]])
def test_the_command_line_answers_without_heavy_imports(arguments):
    code = f"import sys; sys.argv = ['penstock', *{arguments!r}]\nfrom penstock.cli import main\n"
    code += "try: main()\nexcept SystemExit: pass"
    assert loaded_after(code) == []


def test_the_public_surface_is_what_is_promised():
    code = "import penstock; assert all(hasattr(penstock, name) for name in penstock.__all__), penstock.__all__"
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize("first", ["import penstock.migrate.survey.survey", "import penstock"])
def test_migrate_is_callable_however_it_was_imported(first):
    code = f"{first}\nimport penstock\nassert callable(penstock.migrate)\n"
    code += "import penstock.migrate as package\nassert package.__path__"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_an_unknown_name_is_an_attribute_error():
    import penstock

    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = penstock.nothing
