"""With a toolkit of two headers and a library named libcuda, and the machine's own compiler."""

import os
import shutil
import subprocess
import sys
from types import SimpleNamespace

import pytest
from torch.utils import cpp_extension

from headrace.runtime.backends.inductor import compiler
from headrace.runtime.backends.shared import cuda_toolkit
from headrace.runtime.backends.shared.cuda_toolkit import toolkit, toolkit_found, why_not_linked

needs_compiler = pytest.mark.skipif(compiler() is None, reason="needs a C++ compiler")


def library(path, name="libcuda.so.1"):
    """What a program links against, and loads by that name."""
    path.parent.mkdir(parents=True, exist_ok=True)
    source = 'extern "C" int cuDeviceGetCount(int*) { return 0; }'
    command = [compiler(), "-shared", "-fPIC", f"-Wl,-soname,{name}", "-x", "c++", "-", "-o", str(path)]
    subprocess.run(command, input=source, text=True, check=True)


def headers(home):
    (home / "include").mkdir(parents=True)
    (home / "include/cuda.h").write_text('extern "C" int cuDeviceGetCount(int*);\n')
    (home / "include/cuda_runtime_api.h").write_text("")
    return home


@pytest.fixture
def machine(tmp_path, monkeypatch):
    """Without CUDA: whatever this one has is out of sight. Its folder of programs is first on PATH."""
    for name in ("CUDA_HOME", "CUDA_PATH", "LIBRARY_PATH"):
        monkeypatch.delenv(name, raising=False)
    (tmp_path / "bin").mkdir()
    for name in ("g++", "clang++", "as", "ld", "cc1plus"):
        if found := shutil.which(name):
            (tmp_path / "bin" / name).symlink_to(found)
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.setattr(cuda_toolkit, "_PLACES", (tmp_path / "usr",))
    monkeypatch.setattr(cuda_toolkit, "_driver", lambda: None)
    monkeypatch.setattr(sys, "path", [])
    monkeypatch.setattr(cuda_toolkit, "site", SimpleNamespace(getsitepackages=lambda: [str(tmp_path / "site-packages")]))
    return tmp_path


def test_the_toolkit_is_where_the_environment_says_else_where_there_are_headers(machine, monkeypatch):
    assert toolkit() is None
    packaged = headers(machine / "site-packages/nvidia/cu13")
    assert toolkit() == packaged
    old, new = headers(machine / "usr/cuda-12.8"), headers(machine / "usr/cuda-13.0")
    assert toolkit() == new
    (machine / "usr/cuda").symlink_to(old)
    assert toolkit() == machine / "usr/cuda"
    script = machine / "bin/nvcc"  # of which the folder above has no headers
    script.write_text("#!/bin/sh\n")
    script.chmod(0o755)
    assert toolkit() == machine / "usr/cuda"
    script.unlink()
    home = headers(machine / "elsewhere")
    (home / "bin").mkdir()
    shutil.copy2(sys.executable, home / "bin/nvcc")
    script.symlink_to(home / "bin/nvcc")
    assert toolkit() == home
    monkeypatch.setenv("CUDA_PATH", "/its/own")
    assert str(toolkit()) == "/its/own"


@needs_compiler
def test_without_the_drivers_library_it_says_what_helps(machine):
    assert "CUDA's headers are nowhere to be found" in why_not_linked(compiler())
    home = headers(machine / "usr/cuda")
    why = why_not_linked(compiler())
    assert f"with the toolkit in {home}" in why
    assert "-lcuda" in why
    assert "CUDA_HOME" in why
    (home / "include/cuda.h").write_text("#error no such thing\n")
    assert "no such thing" in why_not_linked(compiler())


@needs_compiler
@pytest.mark.parametrize("stubs", cuda_toolkit._STUBS)
def test_the_toolkits_stub_is_found(machine, stubs):
    library(headers(machine / "usr/cuda") / stubs / "libcuda.so")
    assert why_not_linked(compiler()) is None
    assert "LIBRARY_PATH" not in os.environ
    assert "CUDA_HOME" not in os.environ


@needs_compiler
def test_a_driver_that_programs_load_is_linked_too(machine, monkeypatch):
    headers(machine / "usr/cuda")
    driver = machine / "driver/libcuda.so.1"
    library(driver)
    monkeypatch.setattr(cuda_toolkit, "_driver", lambda: driver)
    assert why_not_linked(compiler()) is None


def test_what_the_environment_names_comes_first_and_is_put_back(machine, monkeypatch):
    home = headers(machine / "usr/cuda")
    (home / "lib64/stubs").mkdir(parents=True)
    (home / "lib64/stubs/libcuda.so").write_text("")
    monkeypatch.setenv("LIBRARY_PATH", "/my/own")
    with toolkit_found():
        assert os.environ["LIBRARY_PATH"].split(":") == ["/my/own", str(home / "lib64/stubs")]
        assert os.environ["CUDA_HOME"] == str(home)
    assert os.environ["LIBRARY_PATH"] == "/my/own"
    assert "CUDA_HOME" not in os.environ


def test_torch_which_looked_for_it_before_is_told(machine):
    home, before = headers(machine / "usr/cuda"), cpp_extension.CUDA_HOME
    with toolkit_found():
        assert str(home) == cpp_extension.CUDA_HOME
        assert str(home / "include") in cpp_extension.include_paths("cuda")
    assert before == cpp_extension.CUDA_HOME


@pytest.mark.parametrize("machine_name", ["x86-64", "AArch64"])
def test_the_driver_is_what_the_loader_knows(tmp_path, machine_name):
    lines = ("libcuda.so (libc6) => /other", "libcuda.so.1 (libc6) => /lib32/libcuda.so.1")
    lines += (f"libcuda.so.1 (libc6,{machine_name}) => /lib64/libcuda.so.1",)
    script = tmp_path / "ldconfig"
    script.write_text("#!/bin/sh\n" + "".join(f"echo '\t{line}'\n" for line in lines))
    script.chmod(0o755)
    code = "from headrace.runtime.backends.shared import cuda_toolkit; print(cuda_toolkit._driver())"
    environment = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"}  # a process that has loaded no driver
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "/lib64/libcuda.so.1"
