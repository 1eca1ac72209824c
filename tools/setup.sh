#!/bin/sh
# Makes .venv: finds a Python, hands over to setup.py. Run by `make setup` from the root of the repository.
set -eu
. tools/python.sh
exec "$python" tools/setup.py
