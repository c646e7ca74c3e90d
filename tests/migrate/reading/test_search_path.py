"""Folders that scripts add to the search path, and what is then found there."""

import ast
import textwrap

import pytest

from headrace.migrate.reading.search_path import added_folders
from headrace.migrate.resolving.resolve import resolve
from headrace.migrate.survey.survey import survey
from tests.migrate.repositories import written


def folders(text, path="tools/run.py"):
    return list(added_folders(ast.parse(textwrap.dedent(text)), path))


@pytest.mark.parametrize(
    "text",
    [
        "import sys\nprint(sys.path)",
        "sys.path.insert(0, '/home/me/code')",
        "sys.path.append(folder)",
        "sys.path.append(os.path.join(os.environ['HOME'], 'lib'))",
        "sys.path.append('..')",  # from tools that is the root, from the root it lies outside
        "sys.path.append('../../elsewhere')",
        "here = here\nsys.path.append(here)",
        "a = b\nb = a\nsys.path.append(a)",
        "root = Path.cwd()\nif root.name == 'notebooks':\n    root = root.parent\nsys.path.insert(0, str(root))",
        "root = root.parent\nsys.path.insert(0, str(root))",
        "root = top.parent\ntop = root / 'lib'\nsys.path.insert(0, str(top))",
        "\n".join(f"a{n} = a{n + 1}.parent" for n in range(700)) + "\nsys.path.append(a0)",
        "\n".join(f"a{n} = a{n + 1} / a{n + 1}" for n in range(60)) + "\nsys.path.append(a0)",
        f"sys.path.append(Path(__file__){'.parent' * 300})",
        "sys.path.insert(0, Path(__file__).parents[-1])",
        "paths.append('lib')",
    ],
)
def test_nothing_is_made_of_what_says_nothing(text):
    assert folders(text) == []


@pytest.mark.parametrize(
    "text",
    [
        "sys.path.append('../lib')",
        "sys.path.append('lib')",
        "sys.path.insert(0, os.path.join(os.path.dirname(__file__), '..', 'lib'))",
        "sys.path.insert(0, osp.join(osp.dirname(osp.dirname(osp.abspath(__file__))), 'lib'))",
        "this_dir = osp.dirname(__file__)\nlib_path = osp.join(this_dir, '..', 'lib')\nsys.path.insert(0, lib_path)",
        "def add_path(path):\n    if path not in sys.path:\n        sys.path.insert(0, path)\nadd_path(osp.join(osp.dirname(__file__), '..', 'lib'))",  # noqa: E501
        "ROOT = Path(__file__).resolve().parent.parent\nsys.path.append(str(ROOT / 'lib'))",
        "sys.path.append(str(Path(__file__).resolve().parents[1].joinpath('lib')))",
        "sys.path.extend([os.path.join(os.getcwd(), 'lib')])",
        "sys.path.append(os.path.dirname(os.path.realpath(__file__)) + '/../lib')",
        "root = Path.cwd()\nwhile not (root / 'lib').is_dir():\n    root = root.parent\nsys.path.insert(0, str(root / 'lib'))",
    ],
)
def test_the_ways_of_writing_it(text):
    assert "lib" in folders(text)


def write(root, files):
    return survey(written(root, {path: textwrap.dedent(text) for path, text in files.items()}))


NET = """
    from torch import nn

    class Net(nn.Module):
        def __init__(self, num_classes=10):
            super().__init__()
            self.conv = nn.Conv2d(3, 8, 3)
            self.fc = nn.Linear(8, num_classes)

        def forward(self, x):
            return self.fc(self.conv(x).mean((2, 3)))
"""
LOOP = """
    import torch

    def test(loader, model):
        model.eval()
        right = 0
        with torch.no_grad():
            for images, target in loader:
                right += (model(images).argmax(1) == target).sum()
        return right
"""
SCRIPT = """
    {0}
    from core.function import test
    from models.net import Net

    def main():
        model = Net(num_classes=5)
        print(test(loader, model))

    if __name__ == "__main__":
        main()
"""
PATHS = """
    import os.path as osp
    import sys

    sys.path.insert(0, osp.join(osp.dirname(__file__), "..", "lib"))
"""


def test_a_script_is_followed_into_a_folder_that_another_file_adds(tmp_path):
    found = write(
        tmp_path,
        {
            "tools/test.py": SCRIPT.format("import _init_paths"),
            "tools/_init_paths.py": PATHS,
            "lib/core/function.py": LOOP,
            "lib/models/net.py": NET,
        },
    )
    (script,) = found.scripts
    assert script.roles == ("evaluate",)
    source = resolve(found).recipe.source
    assert "Net(num_classes=5)" in source
    assert source.index("import _init_paths") < source.index("from models.net import Net")


def test_what_is_nearer_comes_first(tmp_path):
    found = write(
        tmp_path,
        {
            "test.py": SCRIPT.format("import sys\n    sys.path.append('old')"),
            "core/function.py": LOOP,
            "models/net.py": NET,
            "old/models/net.py": "from torch import nn\nclass Net(nn.Module):\n    pass\n",
        },
    )
    assert resolve(found).factory.startswith("models/net.py")


def test_where_no_file_adds_the_folder_it_is_somebody_elses(tmp_path):
    found = write(tmp_path, {"tools/test.py": SCRIPT.format(""), "lib/core/function.py": LOOP, "lib/models/net.py": NET})
    assert "tools/test.py" not in [script.path for script in found.scripts]
