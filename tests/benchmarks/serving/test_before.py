"""The other service runs the other checkout's code, in the same Python."""

import subprocess
from pathlib import Path

from tests.benchmarks.serving.before import service_of


def test_the_other_checkout_is_what_is_imported(tmp_path):
    checkout, packages = tmp_path / "checkout", tmp_path / "packages"
    checkout.mkdir()
    packages.mkdir()
    (checkout / "__init__.py").write_text("")
    (checkout / "__main__.py").write_text("import sys\nprint(__file__, sys.argv[1:])\n")
    service = service_of(checkout, tmp_path / "models", "/v1/classify/net", packages)
    assert (service.name, service.path) == ("before", "/v1/classify/net")
    said = subprocess.run(service.command, capture_output=True, text=True, check=True, cwd=tmp_path).stdout
    assert Path(said.split()[0]).resolve() == checkout / "__main__.py"
    assert "'serve'" in said
