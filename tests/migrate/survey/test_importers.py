from headrace.migrate.survey.importers import leading_to
from headrace.migrate.survey.survey import project_index, survey


def test_a_file_leads_to_what_it_imports_by_way_of_others(tmp_path):
    files = {
        "net.py": "import torch\n",
        "tools/__init__.py": "",
        "tools/loading.py": "from net import Net\n",
        "main.py": "from tools.loading import load\n",
        "circle.py": "import main\nimport circle\n",
        "other.py": "import json\n",
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    repository = project_index(survey(tmp_path)).repository
    torch, json, none = leading_to(
        repository,
        lambda module: "torch" in module.imports.values(),
        lambda module: "json" in module.imports.values(),
        lambda module: False,
    )
    assert (torch, json, none) == ({"net.py", "tools/loading.py", "main.py", "circle.py"}, {"other.py"}, set())
