#!/bin/sh
# Writes docker/locks: for each image every package that is installed in it, with the digests of its files, for Python 3.11 on
# Linux and x86-64 (Triton's own is 3.12). Needs uv: `make lock` brings it.
set -eu

cd "$(dirname "$0")/.."

lock() {
    target=$1
    shift
    "${UV:-uv}" pip compile --quiet --no-config --default-index https://pypi.org/simple --only-binary :all: --upgrade \
        --python-platform x86_64-manylinux_2_28 --generate-hashes --custom-compile-command "make lock" \
        --output-file "docker/locks/$target.txt" "$@"
}

lock serve --python-version 3.11 --constraint constraints.txt --extra serve --extra telemetry pyproject.toml
# torch comes from an index of its own there; cpu.in has what it needs.
lock cpu --python-version 3.11 --constraint constraints.txt --override docker/locks/cpu.overrides --extra cpu --extra telemetry \
    pyproject.toml docker/locks/cpu.in
lock cuda --python-version 3.11 --constraint docker/locks/cuda.constraints --extra cuda --extra telemetry pyproject.toml
lock triton --python-version 3.12 docker/triton-requirements.txt
lock build --python-version 3.11 docker/locks/build.in
