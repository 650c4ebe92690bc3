#!/bin/sh
# Installs the servers that tests start, where they are missing, without letting any of them run as a service.
# Where that is not possible it prints the command and succeeds: the tests of those servers are skipped then.
set -eu

missing=
need() { # package, then the files that show it is there
    package=$1
    shift
    for file in "$@"; do
        if [ -e "$file" ]; then
            return
        fi
    done
    missing="$missing $package"
}

need redis-server /usr/bin/redis-server
need postgresql /usr/lib/postgresql/*/bin/postgres
need mariadb-server /usr/sbin/mariadbd
need pgbouncer /usr/sbin/pgbouncer
need nginx /usr/sbin/nginx
need etcd-server /usr/bin/etcd
need chromium /usr/bin/chromium /usr/bin/google-chrome
need tmux /usr/bin/tmux
need mandoc /usr/bin/mandoc
need systemd /usr/bin/systemd-analyze
need libfaketime /usr/lib/*/faketime/libfaketime.so.1
if [ -z "$missing" ]; then
    exit 0
fi

command="apt-get install --no-install-recommends$missing"
if ! command -v apt-get >/dev/null 2>&1; then
    echo "not installed, so tests that need them are skipped:$missing" >&2
    exit 0
elif [ "$(id -u)" = 0 ]; then
    as_root=
elif sudo -n true 2>/dev/null; then
    as_root=sudo
else
    echo "some servers are missing, and tests that need them are skipped. To have them: sudo $command" >&2
    exit 0
fi

# What installing starts, policy-rc.d decides: 101 means nothing. One that is there already is left alone.
policy=/usr/sbin/policy-rc.d
if [ ! -e "$policy" ]; then
    trap '$as_root rm -f "$policy"' EXIT
    trap 'exit 1' HUP INT TERM
    printf '#!/bin/sh\nexit 101\n' | $as_root tee "$policy" >/dev/null
    $as_root chmod 755 "$policy"
fi
echo "installing for the tests:$missing"
log=$(mktemp)
if ! { $as_root apt-get update -qq && $as_root env DEBIAN_FRONTEND=noninteractive $command -qq -y; } >"$log" 2>&1; then
    cat "$log" >&2
    echo "could not install$missing; tests that need them are skipped" >&2
fi
rm -f "$log"
