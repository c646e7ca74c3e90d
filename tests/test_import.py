"""`import headrace` and the command line's help stay light: what is heavy is imported by the command that needs it."""

import json
import subprocess
import sys

import pytest

HEAVY = ("torch", "fastapi", "numpy", "onnxruntime", "openvino", "matplotlib")


def loaded_after(code, heavy=HEAVY):
    program = f"{code}\nimport sys, json\nprint(json.dumps([name for name in {heavy!r} if name in sys.modules]))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    return json.loads(done.stdout.splitlines()[-1])


def test_importing_headrace_imports_nothing_heavy():
    assert loaded_after("import headrace; headrace.__version__; dir(headrace)") == []


@pytest.mark.parametrize("arguments", [["--version"], ["--help"], ["migrate", "--help"]])
def test_the_command_line_answers_without_heavy_imports(arguments):
    code = f"import sys; sys.argv = ['headrace', *{arguments!r}]\nfrom headrace.cli import main\n"
    code += "try: main()\nexcept SystemExit: pass"
    assert loaded_after(code) == []


def test_a_serving_process_imports_nothing_that_it_does_not_need():
    """All that one process imports, with its data plane, front ends, and the backend that opens a portable graph."""
    code = "import headrace.serving.processes.single, headrace.serving.processes.engine, headrace.serving.processes.frontend\n"
    code += "import headrace.serving.http.app, headrace.runtime.backends.onnxruntime, onnxruntime\n"
    code += "from headrace.runtime import backends; backends.discover()"
    heavy = ("torch", "matplotlib", "onnx", "onnxscript", "openvino", "scipy", "pandas", "triton", "tritonclient")
    assert loaded_after(code, heavy) == []


def test_until_the_ports_are_taken_the_web_framework_is_not_imported():
    """The longest import of all; sessions are opened meanwhile."""
    assert loaded_after("import headrace.serving.processes.single", ("fastapi", "pydantic", "torch")) == []


def test_the_public_surface_is_what_is_promised(warm_python, tmp_path):
    code = "import headrace; assert all(hasattr(headrace, name) for name in headrace.__all__), headrace.__all__"
    done = warm_python(["-c", code], cwd=tmp_path)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("first", ["import headrace.migrate.survey.survey", "import headrace"])
def test_migrate_is_callable_however_it_was_imported(first):
    code = f"{first}\nimport headrace\nassert callable(headrace.migrate)\n"
    code += "import headrace.migrate as package\nassert package.__path__"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_an_unknown_name_is_an_attribute_error():
    import headrace

    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = headrace.nothing


def test_a_graph_on_one_device_imports_nothing_for_many():
    code = "import headrace; headrace.Graph, headrace.evaluation_step"
    assert loaded_after(code, ("torch.distributed.tensor", "torch.distributed.pipelining", "openvino", "onnxruntime")) == []
