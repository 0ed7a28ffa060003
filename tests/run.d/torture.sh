# The strictest tools: fuzzing, and, of cassert.sh, servers with assertions. Part of tests/run.
# shellcheck shell=bash

# How libFuzzer learns which code an input reaches. Assertions and overflow checks are on in the profile of tests/fuzz.
fuzz_flags=(--cfg fuzzing -Ccodegen-units=1 -Cpasses=sancov-module
    -Cllvm-args=-sanitizer-coverage-level=4 -Cllvm-args=-sanitizer-coverage-inline-8bit-counters
    -Cllvm-args=-sanitizer-coverage-pc-table -Cllvm-args=-sanitizer-coverage-trace-compares)

# fuzz_one <target> <seconds>: prints what it came to. What it found stays in target/fuzz/findings.
fuzz_one() {
    local seeds=$scratch/seeds/$1 corpus=$target/fuzz/corpus/$1 log=$logs/fuzz-$1.log status=0 runs
    mkdir -p "$seeds" "$corpus" "$target/fuzz/findings"
    # The seeds of a target are a file, in which a line `----` separates them; the line end before it is none of theirs.
    (cd "$seeds" && csplit --quiet --suppress-matched "$root/tests/fuzz/seeds/$1" '/^----$/' '{*}' && truncate --size=-1 -- *)
    # The system's certificates would be read for each transport.
    SSL_CERT_FILE=/dev/null "$target/fuzz/$fuzz_host/release/$1" -max_total_time="$2" -timeout=2 -rss_limit_mb=512 \
        -max_len=16384 -print_final_stats=1 -artifact_prefix="$target/fuzz/findings/$1-" "$corpus" "$seeds" >"$log" 2>&1 || status=1
    runs=$(sed -n 's/^stat::number_of_executed_units: *//p' "$log")
    [ "$status" -ne 0 ] || { echo "ok: fuzz $1: ${runs:-0} executions in $2 s"; return; }
    echo "FAILED: fuzz $1 after ${runs:-0} executions; the input is in target/fuzz/findings"
    tail -n 30 "$log" >&2
    return 1
}

# count_one: waits for one of what runs.
count_one() {
    if wait -n; then passed=$((passed + 1)); else failed=$((failed + 1)); fi
    running=$((running - 1))
}

# fuzz <seconds> <target...>: as many at a time as there are processors.
fuzz() {
    local seconds=$1 flags one running=0
    shift
    cargo +nightly --version >/dev/null 2>&1 ||
        fail "fuzzing needs a nightly compiler: rustup toolchain install nightly --profile minimal"
    make_scratch
    fuzz_host=$(rustc -vV | sed -n 's/^host: //p')
    flags=$(printf '%s\x1f' "${fuzz_flags[@]}")
    # With a target named, the flags are not for what builds the crates.
    quietly fuzz "building the fuzz targets" env CARGO_TARGET_DIR="$target/fuzz" CARGO_ENCODED_RUSTFLAGS="${flags%$'\x1f'}" \
        cargo +nightly build --release --manifest-path "$root/tests/fuzz/Cargo.toml" --target "$fuzz_host"
    for one in "$@"; do
        [ "$running" -lt "$(nproc)" ] || count_one
        fuzz_one "$one" "$seconds" &
        running=$((running + 1))
    done
    while [ "$running" -gt 0 ]; do count_one; done
}

# judge <what> <command...>: a check of its own in the summary.
judge() {
    local what=$1
    shift
    if "$@"; then
        passed=$((passed + 1))
        echo "ok: $what"
    else
        failed=$((failed + 1))
        echo "FAILED: $what"
    fi
}

# torture [seconds] [part...]: all, or some of `fuzz`, `cassert` and `deny`; a release such as 18-cassert, or a fuzz target.
torture() {
    local seconds=600 one targets
    if [[ ${1:-} =~ ^[0-9]+$ ]]; then
        seconds=$1
        shift
    fi
    [ $# -gt 0 ] || set -- deny fuzz cassert
    # Each fuzz target has a file of seeds.
    mapfile -t targets < <(find "$root/tests/fuzz/seeds" -type f -printf '%f\n' | sort)
    # Before the first part, which may take hours.
    for one in "$@"; do
        [[ " deny fuzz cassert ${cassert_releases[*]} ${targets[*]} " == *" $one "* ]] ||
            fail "there is no part $one, but deny, fuzz, cassert, ${cassert_releases[*]} and the fuzz targets ${targets[*]}"
    done
    for one in "$@"; do
        case $one in
            deny) judge "cargo deny" deny ;;
            fuzz) fuzz "$seconds" "${targets[@]}" ;;
            cassert) torture "${cassert_releases[@]}" ;;
            *-cassert) cassert "$one" ;;
            *) fuzz "$seconds" "$one" ;;
        esac
    done
}
