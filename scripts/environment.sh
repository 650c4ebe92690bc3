#!/bin/sh
# Makes the virtual environment that is named, with a Python that is new enough; one that works already is kept. On a
# Debian without its `venv` package it installs that one.
set -eu

venv=$1
wanted='import sys; sys.exit(sys.version_info < (3, 11))'

find_python() {
    for candidate in ${PYTHON:-} python3 python3.13 python3.12 python3.11; do
        if "$candidate" -c "$wanted" >/dev/null 2>&1; then
            echo "$candidate"
            return
        fi
    done
    echo "leased needs Python 3.11 or newer; none found. Name one: make PYTHON=/path/to/python3" >&2
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

if ! "$venv/bin/python" -c "$wanted" >/dev/null 2>&1 || ! "$venv/bin/python" -m pip --version >/dev/null 2>&1; then
    python=$(find_python)
    "$python" -c 'import venv, ensurepip' 2>/dev/null || install_venv_package
    rm -rf "$venv"
    "$python" -m venv "$venv"
fi
