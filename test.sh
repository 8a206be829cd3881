#!/bin/sh
# All tests, in a virtual environment with the locked development requirements. Arguments go to pytest.
set -eu
cd "$(dirname "$0")"
venv=${VENV:-.venv}
stamp=$venv/.requirements
want=$(cat requirements/dev.txt pyproject.toml | cksum)
if [ ! -f "$stamp" ] || [ "$(cat "$stamp")" != "$want" ]; then
    [ -x "$venv/bin/python" ] || ${PYTHON:-python3} -m venv "$venv"
    "$venv/bin/python" -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements/dev.txt
    "$venv/bin/python" -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
    echo "$want" >"$stamp"
fi
exec "$venv/bin/python" -m pytest "$@"
