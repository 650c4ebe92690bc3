#!/bin/sh
# Builds the wheel and the sdist, then tries the wheel in an empty environment of every Python 3.11+ on this machine:
# alone, and with each extra alone. Everything it makes outside dist/ lies in a temporary directory.
# EXTRAS="redis server" tries only these; JOBS says how many at a time.
set -eu

scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
here=$PWD

rm -rf dist
.venv/bin/python -m build --no-isolation --outdir dist . >"$scratch/build.log" 2>&1 || { cat "$scratch/build.log" >&2; exit 1; }
ls dist
.venv/bin/python scripts/smoke.py dist

# One line per Python: its minor version and the program itself, without the shims of version managers.
pythons() {
    for candidate in "$HOME"/.pyenv/versions/*/bin/python python3 python3.11 python3.12 python3.13 python3.14; do
        "$candidate" -c 'import os, sys, venv, ensurepip
if sys.version_info >= (3, 11) and sys.implementation.name == "cpython":
    print("%d.%d" % sys.version_info[:2], os.path.realpath(sys.executable))' 2>/dev/null || true
    done | sort -u -k1,1
}

pythons >"$scratch/pythons"
[ -s "$scratch/pythons" ] || { echo "no Python 3.11+ with a working venv module" >&2; exit 1; }
while read -r version python; do
    venv="$scratch/$version"
    "$python" -m venv "$venv" </dev/null
    # Older Pythons put setuptools into every environment, and that imports itself.
    "$venv/bin/python" -m pip uninstall --quiet --disable-pip-version-check --yes setuptools </dev/null >/dev/null 2>&1
    "$venv/bin/python" -m pip install --quiet --disable-pip-version-check --no-index dist/*.whl </dev/null
    "$venv/bin/python" -m pip check --disable-pip-version-check </dev/null
    (cd "$scratch" && "$venv/bin/python" -I -W error "$here/scripts/smoke.py" </dev/null)
done <"$scratch/pythons"

# Version, program, environment and extra, for each extra on each Python. What is the same is downloaded once.
wheel=$(ls "$here"/dist/*.whl)
extras=${EXTRAS:-$("$venv/bin/python" -c 'from importlib import metadata
print(*metadata.metadata("leased").get_all("Provides-Extra"))')}
while read -r version python; do
    for extra in $extras; do echo "$python $scratch/$version-$extra $extra"; done
done <"$scratch/pythons" >"$scratch/tries"
export here wheel scratch
xargs -P "${JOBS:-$(getconf _NPROCESSORS_ONLN)}" -L 1 sh -euc '
    "$here/.venv/bin/uv" venv --quiet --no-project --python "$1" "$2"
    "$here/.venv/bin/uv" pip install --quiet --python "$2/bin/python" "leased[$3] @ file://$wheel"
    cd "$scratch" && exec "$2/bin/python" -I "$here/scripts/smoke.py" "$3"' smoke <"$scratch/tries"
