# Finds a Python that can set semel up and leaves it in $python; says one clear line and exits if there is none.
# Sourced by setup.sh and lock.sh. A name given in $PYTHON is the only one tried.

python=""
without_venv=""
# Not to be split: there may be a space in its path.
if [ -n "${PYTHON:-}" ]; then
    set -- "$PYTHON"
else
    set -- python3 python3.13 python3.12 python3.11 python3.14 python
fi
for candidate in "$@"; do
    # Run it rather than look for it: a version manager's shim exists for versions that do not run here.
    if "$candidate" -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 14))' >/dev/null 2>&1; then
        if "$candidate" -c 'import ensurepip, venv' >/dev/null 2>&1; then
            python=$candidate
            break
        fi
        without_venv=${without_venv:-$candidate}
    fi
done

if [ -z "$python" ] && [ -n "$without_venv" ]; then
    echo "semel: $without_venv cannot make virtual environments: install its venv module (Debian, Ubuntu: apt install python3-venv)" >&2
    exit 1
elif [ -z "$python" ]; then
    echo "semel: no Python 3.11 to 3.14 found (tried: ${PYTHON:-python3, python3.11 to python3.14}): install one, or name it: make setup PYTHON=/path/to/python3" >&2
    exit 1
fi
