#!/bin/sh
# Writes locks/dev.txt: one set of versions, with hashes, for every Python and system that semel supports.
# Run by `make lock` from the root of the repository. What is locked stays as it is, unless `--upgrade` is given. Only this
# needs uv, so it gets an environment of its own.
set -eu
# tools/python.sh has other words.
upgrade=${1:-}
. tools/python.sh
if [ ! -x build/lock/bin/uv ]; then
    echo "semel: fetching uv, which makes the lock"
    "$python" -m venv build/lock
    build/lock/bin/python -m pip install --quiet --disable-pip-version-check 'uv>=0.8'
fi
build/lock/bin/uv pip compile --quiet --universal --generate-hashes --no-annotate --python-version 3.11 \
    --custom-compile-command 'make lock' --extra dev --output-file locks/dev.txt pyproject.toml $upgrade
echo "semel: locks/dev.txt holds $(grep -c '^[a-z].*==' locks/dev.txt) packages; see what changed with: git diff locks"
