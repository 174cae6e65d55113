#!/bin/sh
# Makes .venv from requirements.lock (exact versions, hashes checked). Run by `make`; safe to run again.
set -eu
cd "$(dirname "$0")/.."

find_python() {
    for candidate in "${PYTHON:-}" python3.13 python3.12 python3.11 python3; do
        [ -n "$candidate" ] || continue
        command -v "$candidate" >/dev/null 2>&1 || continue
        if "$candidate" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
            echo "$candidate"
            return 0
        fi
    done
    return 1
}

# The machine lacks Python or its venv module: Debian and Ubuntu ship both as packages.
install_python() {
    if command -v apt-get >/dev/null 2>&1 && [ "$(id -u)" = 0 ]; then
        echo "installing python3 and python3-venv with apt-get" >&2
        apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq python3 python3-venv >/dev/null
    fi
}

python=$(find_python) || { install_python; python=$(find_python); } || {
    echo "Plimsoll needs Python 3.11 or newer with its venv module (Debian: apt-get install python3 python3-venv)." >&2
    echo "Name one with PYTHON=/path/to/python3." >&2
    exit 1
}
"$python" -c 'import ensurepip, venv' 2>/dev/null || install_python

lock=$(cat requirements.lock pyproject.toml | cksum)
if [ -x .venv/bin/plimsoll ] && [ "$(cat .venv/.lock 2>/dev/null)" = "$lock" ] && .venv/bin/python -c 'import kopf, plimsoll' 2>/dev/null; then
    touch .venv/.ready
    exit 0
fi
echo "setting up .venv with $($python --version) (under a minute with a warm package cache)" >&2
rm -rf .venv
"$python" -m venv .venv
# Not compiled: half the time went into modules that nobody imports; those that somebody does compile then.
.venv/bin/python -m pip install --quiet --disable-pip-version-check --no-compile --require-hashes -r requirements.lock
.venv/bin/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
echo "$lock" > .venv/.lock
touch .venv/.ready
