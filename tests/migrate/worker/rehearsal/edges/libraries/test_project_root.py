"""The folder of a project, where the library that finds it is not installed."""

import pytest


@pytest.mark.parametrize("library", ["rootutils", "pyrootutils"])
@pytest.mark.parametrize("indicator", ["'.project-root'", "['.git', '.nothing']"])
def test_the_folder_of_the_project_is_found_told_and_imported_from(rehearsed, library, indicator):
    text = (
        f"import os\nimport {library}\n"
        f"root = {library}.setup_root(__file__, indicator={indicator}, pythonpath=True, cwd=True)\n"
        "from src.net import NAME\nprint(NAME, os.environ['PROJECT_ROOT'] == str(root) == os.getcwd(), root.is_dir())\n"
    )
    files = {"src/train.py": text, "src/net.py": "NAME = 'net'\n", "src/__init__.py": "", ".project-root": ""}
    done = rehearsed(files, script="src/train.py")
    assert (done.report.ended, done.stdout) == ("finished", "net True True\n"), done.report.why
    assert [item.what for item in done.standins("libraries")] == [f"{library} is not installed; what it does stood in"]
