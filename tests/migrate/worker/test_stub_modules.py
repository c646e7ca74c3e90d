"""Libraries that a model's file imports and that building the model does not need."""

import json
import textwrap

import pytest

from headrace.migrate.worker.stub_modules import wraps_its_name

RUN = """
import json, sys
from headrace.errors import SandboxError
from headrace.migrate.worker.recipe import Recipe, build_model
notes = []
try:
    model = build_model(Recipe.from_json(json.loads(sys.argv[1])), notes)
    print(type(model).__name__, *notes, sep="\\n")
except SandboxError as error:
    print("refused:", error)
"""


@pytest.fixture
def build(tmp_path, warm_python):
    def run(source="from net import Net\nmodel = Net()\n"):
        (tmp_path / "main.py").write_text(source)
        recipe = {
            "root": str(tmp_path),
            "directory": ".",
            "script": "main.py",
            "argv": [],
            "source": source,
            "expression": "model",
        }
        done = warm_python(["-c", RUN, json.dumps(recipe)], cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    return run


def net(root, head, body="pass"):
    text = f"{head}\nimport torch\n\nclass Net(torch.nn.Module):\n    def __init__(self):\n"
    text += f"        super().__init__()\n        {body}\n"
    (root / "net.py").write_text(textwrap.dedent(text))


@pytest.mark.parametrize(
    "head",
    [
        "from absent_counter import profile, clever_format",
        "import absent_counter",
        "import absent_counter.parts.inner as inner\nimport other_absent",
        "from absent_counter.parts import Part",
        "from absent_counter import *\n\ndef count(model):\n    return clever_format(model)",
    ],
)
def test_an_unused_library_may_be_absent(tmp_path, build, head):
    net(tmp_path, head)
    name, *notes = build().splitlines()
    assert name == "Net"
    absent = ["absent_counter", *(["other_absent"] if "other_absent" in head else [])]
    assert notes == [f"the library '{name}' is not installed, and was not needed to build the model" for name in absent]


@pytest.mark.parametrize(
    ("head", "body"),
    [
        ("from absent_ops import fast", "self.x = fast(1)"),
        ("import absent_ops", "self.x = absent_ops.inner.Layer()"),
        ("import absent_ops", "self.x = absent_ops.__dict__['layer'](1)"),
        ("import absent_ops", "self.x = vars(absent_ops)['layer'](1)"),
        ("import absent_ops\n\n@absent_ops.register\ndef f():\n    pass", "pass"),
        ("import absent_ops\n\nclass Base(absent_ops.Layer):\n    pass", "pass"),
    ],
)
def test_a_library_that_is_used_is_asked_for(tmp_path, build, head, body):
    net(tmp_path, head, body)
    assert "No module named 'absent_ops'" in build()


def test_a_fallback_for_an_absent_library_is_taken(tmp_path, build):
    net(tmp_path, "try:\n    import absent_ops\nexcept ImportError:\n    absent_ops = None", "assert absent_ops is None")
    assert build() == "Net"


def test_a_file_of_the_repository_in_another_place_is_no_library(tmp_path, build):
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib" / "layers.py").write_text("x = 1\n")
    net(tmp_path, "import layers")
    assert "No module named 'layers'" in build()


def test_an_import_for_its_effect_is_needed(tmp_path, build):
    net(tmp_path, "")
    assert "No module named 'absent_ops'" in build("import absent_ops\nfrom net import Net\nmodel = Net()\n")


@pytest.mark.parametrize("use", ["amp.initialize(model)", "DDP(model)"])
def test_what_only_another_setting_uses_may_be_absent(tmp_path, build, use):
    net(tmp_path, "")
    source = "from absent_ops import amp\nfrom absent_ops.parallel import DDP\nfrom net import Net\nmodel = Net()\n"
    assert build(f"{source}if model.training is None:\n    model = {use}\n").startswith("Net\n")
    assert "No module named 'absent_ops'" in build(f"{source}if model.training:\n    model = {use}\n")


def test_a_link_to_what_is_not_here_and_a_folder_called_as_a_file_wrap_no_library(tmp_path):
    (tmp_path / "gone.py").symlink_to(tmp_path / "nowhere.py")
    (tmp_path / "folder.py").mkdir()
    (tmp_path / "own.py").write_text("import own\n")
    assert [wraps_its_name(tmp_path / f"{name}.py") for name in ("gone", "folder", "own")] == [False, False, True]
