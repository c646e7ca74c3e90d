"""What keeps a machine from running the wheel's Triton, and what is found where."""

import json
import os
import platform
import stat
import sys

import pytest

from headrace.errors import TritonError
from headrace.serving.triton import install as module
from headrace.serving.triton.install import find, install, installed, obstacle


@pytest.mark.parametrize(
    ("patch", "says"),
    [
        ((platform, "machine", lambda: "aarch64"), "Linux on x86-64, this is Linux on aarch64"),
        ((platform, "system", lambda: "Darwin"), "this is Darwin"),
        ((platform, "libc_ver", lambda: ("glibc", "2.31")), "glibc 2.35 or newer, this is glibc 2.31"),
        ((platform, "libc_ver", lambda: ("", "")), "another C library"),
        ((module, "_PYTHONS", ((3, 8),)), "its Python backend is for 3.8"),
        ((module, "_libpython", lambda: None), "--enable-shared"),
    ],
)
def test_obstacles(monkeypatch, tmp_path, patch, says):
    good = {"system": "Linux", "machine": "x86_64", "libc_ver": ("glibc", "2.36")}
    for name, value in good.items():  # wherever the tests run, what is patched is the only obstacle
        monkeypatch.setattr(platform, name, lambda value=value: value)
    monkeypatch.setattr(module, "_PYTHONS", (sys.version_info[:2],))
    monkeypatch.setattr(*patch)
    with pytest.raises(TritonError, match="cannot run here") as caught:
        install(tmp_path / "triton")
    assert says in str(caught.value)
    assert not (tmp_path / "triton").exists()


def test_what_is_not_complete_is_not_installed(tmp_path):
    assert installed(tmp_path) is None
    (tmp_path / "triton.json").write_text("not json")
    assert installed(tmp_path) is None
    (tmp_path / "triton.json").write_text(json.dumps({"wheel": "another"}))
    assert installed(tmp_path) is None


def test_without_one_the_message_says_how_to_get_one(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(TritonError, match="headrace triton install"):
        find(tmp_path)


def test_the_one_on_path_comes_first(monkeypatch, tmp_path):
    binary = tmp_path / "tritonserver"
    binary.write_text("#!/bin/sh\n")
    binary.chmod(binary.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    found = find(tmp_path)
    assert found.binary == binary
    assert found.arguments == ()


def test_the_environment_leads_the_backend_to_its_own_python(monkeypatch, tmp_path):
    monkeypatch.setenv("PYTHONPATH", "/elsewhere")
    monkeypatch.setenv("LD_LIBRARY_PATH", "/first")
    made = module.Installed(binary=tmp_path / "x", path=(tmp_path / "bin",), libraries=(tmp_path / "lib",)).environment()
    assert "PYTHONPATH" not in made
    assert made["ORT_DISABLE_TELEMETRY"]
    assert made["PATH"].startswith(f"{tmp_path / 'bin'}{os.pathsep}")
    assert made["LD_LIBRARY_PATH"] == f"{tmp_path / 'lib'}{os.pathsep}/first"


def test_a_folder_that_cannot_be_written(tmp_path):
    if obstacle():
        pytest.skip(obstacle())
    (tmp_path / "file").write_text("")
    with pytest.raises(TritonError, match="name another folder"):
        install(tmp_path / "file" / "triton")


def test_it_is_installed(triton, tmp_path):
    """What `make test-triton` installed is complete, is for this Python, and is not installed again."""
    said = []
    folder = triton.path[0].parents[1]
    assert install(folder, said.append) == triton
    assert said == [f"Triton {module.VERSION} is installed in {folder}"]
    assert f"python{sys.version_info.major}.{sys.version_info.minor}" in str(triton.binary)
    # An interrupted call leaves no stamp; the next one goes on from there.
    assert json.loads((folder / "triton.json").read_text())["wheel"] == "nvidia-pytriton==0.7.0"
