import ast

import headrace
from headrace import _version


def test_the_version_is_the_packages_and_its_file_imports_nothing():
    assert headrace.__version__ == _version.__version__
    with open(_version.__file__) as file:
        tree = ast.parse(file.read())
    assert not [node for node in ast.walk(tree) if isinstance(node, ast.Import | ast.ImportFrom)]
