# A server with assertions: the tests that it comes with, and ours. Part of tests/run.
# shellcheck shell=bash

# The servers with assertions.
cassert_releases=(18-cassert 17-cassert)
core_cluster= # the folder of the server that runs its own tests, while it is there

# as_server <command...>: as the user who runs servers.
as_server() {
    if [ "$(id -u)" -eq 0 ]; then runuser -u postgres -- "$@"; else "$@"; fi
}

# core_suite <regress|isolation> <program> <schedule>: the server's own tests, on the server that `core_suites` started.
core_suite() {
    local suite=$1 program=$2 schedule=$3 output=$core_cluster/$1 began=$SECONDS log=$logs/pg$release-core-$1.log status=0
    as_server mkdir "$output"
    as_server env -C "$output" PGISOLATIONTIMEOUT=120 "$("$MAILROOM_PG_CONFIG" --pkglibdir)/pgxs/src/test/$suite/$program" \
        --inputdir="$core/$suite" --expecteddir="$core/$suite" --outputdir="$output" --bindir="$bin" --dlpath="$core/$suite" \
        --schedule="$core/$suite/$schedule" --max-concurrent-tests=20 --host="$core_cluster" --user=postgres \
        >"$log" 2>&1 || status=1
    [ "$status" -eq 0 ] || { grep '^not ok\|FAILED' "$log"; cat "$output/regression.diffs"; } >&2
    echo "the server's own $suite tests took $((SECONDS - began)) s: $(grep -E '^# (All|[0-9]+ of)|tests (passed|failed)' "$log" | tail -n 1)"
    return "$status"
}

# end_core_cluster: stops that server, and removes its folder.
end_core_cluster() {
    [ -n "$core_cluster" ] || return 0
    if [ -e "$core_cluster/data/postmaster.pid" ]; then
        as_server "$("$MAILROOM_PG_CONFIG" --bindir)/pg_ctl" --pgdata="$core_cluster/data" --mode=immediate --wait --silent stop || true
    fi
    rm -rf -- "$core_cluster"
    core_cluster=
}

# core_suites: the server's own tests on a cluster that preloads mailroom, beside a database that mailroom's worker serves.
core_suites() {
    local bin core
    bin=$("$MAILROOM_PG_CONFIG" --bindir)
    core=$MAILROOM_STAGE$home/core
    core_cluster=$(mktemp -d "$(directory_for_tests)/mailroom-core.XXXXXX")
    # Before the server's programs, which are in the scratch directory, are removed.
    trap 'end_core_cluster; cleanup' EXIT
    [ "$(id -u)" -ne 0 ] || chown postgres: "$core_cluster"
    quietly "pg$release-initdb" "making a cluster for its own tests" \
        as_server "$bin/initdb" --pgdata="$core_cluster/data" --username=postgres --auth=trust --no-sync --encoding=UTF8 --locale=C
    as_server tee -a "$core_cluster/data/postgresql.conf" >/dev/null <<END
shared_preload_libraries = 'mailroom'
listen_addresses = ''
unix_socket_directories = '$core_cluster'
fsync = off
max_prepared_transactions = 10
END
    as_server "$bin/pg_ctl" --pgdata="$core_cluster/data" --log="$core_cluster/log" --wait --silent start
    as_server "$bin/psql" -X -q -h "$core_cluster" -U postgres -d postgres -c 'CREATE DATABASE app'
    as_server "$bin/psql" -X -q -h "$core_cluster" -U postgres -d app -c 'CREATE SCHEMA mailroom' -c 'CREATE EXTENSION mailroom SCHEMA mailroom'
    judge "PostgreSQL $release: its own regression tests with mailroom preloaded" core_suite regress pg_regress parallel_schedule
    judge "PostgreSQL $release: its own isolation tests with mailroom preloaded" core_suite isolation pg_isolation_regress isolation_schedule
    as_server "$bin/pg_ctl" --pgdata="$core_cluster/data" --wait --silent stop
    cp "$core_cluster/log" "$logs/pg$release-core-server.log"
    judge "PostgreSQL $release: no process ended by an assertion or a signal" \
        eval '! grep -E "TRAP:|PANIC:|was terminated by signal" "$logs/pg$release-core-server.log"'
    end_core_cluster
}

# cassert <release>: on a server with assertions every tier, and its own tests.
cassert() {
    build_server "$1"
    home=$target/pg$1
    use_server "$(server_of "$1")" "$1"
    all_tiers
    core_suites
}
