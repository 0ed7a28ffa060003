# Tiers of tests, and what they come to. Part of tests/run.
# shellcheck shell=bash

# Where tests put their data directories, which live for seconds: in memory, if there is a
# file system for it that has room and from which programs may be run.
directory_for_tests() {
    local memory=/dev/shm free
    free=$(awk '/^MemAvailable:/ { print $2 }' /proc/meminfo)
    if [ -z "${TMPDIR:-}" ] && [ -w "$memory" ] && [ "$free" -gt 8000000 ] \
        && [ "$(df --output=fstype "$memory" | tail -n 1)" = tmpfs ] \
        && [ "$(df --output=avail "$memory" | tail -n 1)" -gt 8000000 ] \
        && ! findmnt --noheadings --output OPTIONS "$memory" | grep --quiet --word-regexp noexec; then
        echo "$memory"
    else
        echo "${TMPDIR:-/tmp}"
    fi
}

# tier <number> <what> <selection of cargo test...> [-- <options of the programs...>]...
# With several options the programs run as often, one after the other.
# A tier in which no test ran, an ignored test, and a test program that broke
# off all count as failures: green means that everything ran but what the closing
# lines name as skipped.
tier() {
    local number=$1 what=$2 status=0 log=$logs/pg$release-tier$1.log ok bad ignored line began=$SECONDS
    local selection=() options=() marker follower
    shift 2
    while [ $# -gt 0 ] && [ "$1" != -- ]; do
        selection+=("$1")
        shift
    done
    [ $# -gt 0 ] || set -- -- --test-threads=2 --exact ${alone:+"$alone"}
    echo "== PostgreSQL $release, tier $number: $what"
    mkdir -p "$logs"
    if ! cargo test --quiet --no-run "${features[@]}" "${selection[@]}"; then
        say "tier $number: did not build"
        failed=$((failed + 1))
        return
    fi
    # Into a file: a program that a test starts may have a pipe refuse what is written too fast.
    : >"$log"
    # It holds nothing of the caller's open, should this be killed.
    sleep infinity >/dev/null 2>&1 &
    marker=$!
    tail --pid="$marker" --lines=+1 --follow "$log" &
    follower=$!
    while [ $# -gt 0 ]; do
        shift
        options=()
        while [ $# -gt 0 ] && [ "$1" != -- ]; do
            options+=("$1")
            shift
        done
        TMPDIR=$(directory_for_tests) cargo test --no-fail-fast "${features[@]}" "${selection[@]}" -- "${options[@]}" || status=1
    done >>"$log" 2>&1
    kill "$marker"
    wait "$follower" "$marker" 2>/dev/null || true
    read -r ok bad ignored < <(awk '
        /^test result:/ {
            for (i = 2; i <= NF; i++) {
                if ($i == "passed;") ok += $(i - 1)
                if ($i == "failed;") bad += $(i - 1)
                if ($i == "ignored;") ignored += $(i - 1)
            }
        }
        END { print ok + 0, bad + 0, ignored + 0 }' "$log")

    if [ "$ignored" -gt 0 ]; then
        say "tier $number: ignored tests count as failed: $ignored"
        bad=$((bad + ignored))
    fi
    if [ "$status" -ne 0 ] && [ "$bad" -eq 0 ]; then
        say "tier $number: broke off"
        bad=1
    elif [ $((ok + bad)) -eq 0 ]; then
        say "tier $number: no test ran"
        bad=1
    fi
    passed=$((passed + ok))
    failed=$((failed + bad))
    echo "== PostgreSQL $release, tier $number took $((SECONDS - began)) s: $ok passed, $bad failed"
    while IFS= read -r line; do
        skipped+=("PostgreSQL $release: $line")
    done < <(sed -n 's/^skipped: //p' "$log" | sort -u)
}

# unit_tests <what> <selection...>: tier 0. More at a time than there are processors, because some wait for a timeout.
unit_tests() {
    tier 0 "$@" -- --test-threads=$((4 * $(nproc))) --exact ${alone:+"$alone"}
}

# What the requests of transports are compared with needs no server: leaves the test
# in `unit_selection` if it can run.
need_anymail() {
    if can django-anymail need_python anymail \
        --requirement "$root/crates/core/tests/anymail/requirements.txt"; then
        export MAILROOM_ANYMAIL=$tools/anymail/bin/python
        unit_selection+=(--test anymail)
    else
        skip anymail "what it compares with could not be installed, and MAILROOM_SKIP_EXTERNAL is set"
    fi
}

all_tiers() {
    local subjects unit_selection=(--workspace --lib --bins)
    mapfile -t subjects < <(subjects)
    need_companions
    leave_out "${subjects[@]}"
    need_anymail
    unit_tests "unit tests" "${unit_selection[@]}"
    stage all
    tier 1 "in the database" --test pg_test
    tier 2 "regression" --test regress
    tier 3 "isolation" --test isolation
    scenario_tier 4 "scenarios" "${subjects[@]}"
    deliver_by_program "${subjects[@]}"
}

# one_tier <name>: one test program or subject only, or one of its tests: <name>::<test>.
one_tier() {
    local unit_selection=(--workspace)
    if [[ $1 == ?*::?* ]]; then
        alone=${1#*::}
        set -- "${1%%::*}"
    fi
    case $1 in
        lib) unit_tests "unit tests" --workspace --lib --bins ;;
        anymail)
            need_anymail
            [ ${#unit_selection[@]} -eq 1 ] || unit_tests "$1" "${unit_selection[@]}"
            ;;
        pg_test) stage all; tier 1 "$1" --test "$1" ;;
        regress) stage release; tier 2 "$1" --test "$1" ;;
        isolation) stage release; tier 3 "$1" --test "$1" ;;
        */* | '' | main) fail "not the name of a subject: $1" ;;
        *)
            [ -f "$root/tests/it/$1.rs" ] || fail "there is no tests/it/$1.rs"
            need_companions
            leave_out "$1"
            stage release
            scenario_tier 4 "$1" "$1"
            deliver_by_program "$1"
            ;;
    esac
}

# Fails where no test ran, too: all may have been left out.
summary() {
    local what
    for what in "${skipped[@]}"; do
        echo "skipped: $what"
    done
    echo "$passed passed, $failed failed"
    [ "$failed" -eq 0 ] && [ "$passed" -gt 0 ]
}
