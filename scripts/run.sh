#!/bin/sh
# Starts the demonstration: with .venv where that is made, else with a small environment of its own that has the package
# and what its service needs, and nothing to test with.
set -eu

venv=.venv
if [ ! -e "$venv/installed" ]; then
    venv=.run
    if [ ! "$venv/installed" -nt pyproject.toml ]; then
        echo "installing leased with its service into $venv, about a minute"
        sh scripts/environment.sh "$venv"
        "$venv/bin/python" -m pip install --quiet --disable-pip-version-check --editable '.[server,http,cli,sqlite]'
        touch "$venv/installed"
    fi
fi
exec "$venv/bin/python" scripts/demo.py
