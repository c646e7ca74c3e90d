#!/bin/sh
# What the images install, step by step; docker/test.sh runs the same steps where there is no Docker engine.
#
#   install.sh wheels EXTRA WHEELS    in a checkout: every wheel that headrace[EXTRA] needs, its own included, into the folder WHEELS
#   install.sh venv EXTRA WHEELS DIR  a virtual environment DIR without pip, from those wheels alone and without the network
#
# EXTRA is what pyproject.toml calls it: serve, cpu or cuda, or several, as in cpu,telemetry.
# LOCK is a file of packages with digests (docker/locks), which alone are then taken; without it, whatever constraints.txt allows.
# TORCH_INDEX is the index that torch is taken from; without it, torch comes from where pip finds everything else.
set -eu

fail() {
    echo "install.sh: $1" >&2
    exit 2
}

PYTHON=${PYTHON:-python3}

wheels() {
    [ -f constraints.txt ] || fail "there is no constraints.txt here; run it in a checkout of headrace"
    mkdir -p "$2"
    if [ -n "${TORCH_INDEX:-}" ]; then
        # First and alone: nothing else may come from that index, and +cpu is newer than the same version without.
        "$PYTHON" -m pip wheel --disable-pip-version-check --no-cache-dir --no-deps --index-url "$TORCH_INDEX" \
            --constraint constraints.txt --wheel-dir "$2" torch
    fi
    if [ -z "${LOCK:-}" ]; then
        "$PYTHON" -m pip wheel --disable-pip-version-check --no-cache-dir --find-links "$2" \
            --constraint constraints.txt --wheel-dir "$2" ".[$1]"
        return
    fi
    [ -f "$LOCK" ] || fail "there is no $LOCK; LOCK= takes what constraints.txt allows"
    "$PYTHON" -m pip download --disable-pip-version-check --no-cache-dir --no-deps --only-binary :all: --require-hashes \
        --dest "$2" --requirement "$LOCK"
    build=$(mktemp -d)
    "$PYTHON" -m pip install --disable-pip-version-check --no-cache-dir --no-deps --only-binary :all: --require-hashes \
        --target "$build" --requirement docker/locks/build.txt
    PYTHONPATH=$build "$PYTHON" -m pip wheel --disable-pip-version-check --no-cache-dir --no-deps --no-build-isolation --wheel-dir "$2" .
    rm -r "$build"
}

venv() {
    [ -d "$2" ] || fail "there is no folder $2; run 'install.sh wheels $1 $2' first"
    "$PYTHON" -m venv --without-pip "$3"
    # Whatever the settings and variables of pip say: what was not built above must not be installed here.
    PIP_CONFIG_FILE=/dev/null "$PYTHON" -m pip --isolated --python "$3/bin/python" install --disable-pip-version-check --no-cache-dir \
        --no-index --find-links "$2" --compile "headrace[$1]"
    "$3/bin/python" -c 'import headrace' || fail "headrace does not import from $3"
}

case "${1:-} $#" in
    "wheels 3") wheels "$2" "$3" ;;
    "venv 4") venv "$2" "$3" "$4" ;;
    *) fail "say 'install.sh wheels EXTRA WHEELS' or 'install.sh venv EXTRA WHEELS DIR'" ;;
esac
