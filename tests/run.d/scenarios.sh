# Tier 4: which scenarios run, and what they need. Part of tests/run.
# shellcheck shell=bash

# The subjects of tier 4: the modules of tests/it.
subjects() {
    local file
    for file in "$root"/tests/it/*.rs; do
        [ "$file" = "$root/tests/it/main.rs" ] || basename "$file" .rs
    done
}

# sources_of <subject>: its files.
sources_of() {
    echo "$root/tests/it/$1.rs"
    [ ! -d "$root/tests/it/$1" ] || find "$root/tests/it/$1" -name '*.rs'
}

# skip <what> <reason>
skip() { skipped+=("PostgreSQL $release: $1: $2"); }

# has <part>: whether the server has a part that tests need. A package for Debian's
# PostgreSQL 15 is installed for that one.
has() {
    local part=${1#postgresql-15-} dir
    case $part in
        # Of the second run, see `deliver_by_program`.
        worker) return ;;
        # What need_companions prepared.
        aiosmtpd) [ -n "${MAILROOM_PYTHON:-}" ]; return ;;
        browser) [ -n "${MAILROOM_BROWSER:-}" ]; return ;;
        counterparts) [ -n "${MAILROOM_COUNTERPARTS:-}" ]; return ;;
        debezium) [ -n "${MAILROOM_DEBEZIUM:-}" ]; return ;;
        specs) [ -n "${MAILROOM_SPECS:-}" ]; return ;;
        icu) "$original" --configure | grep -q -e --with-icu; return ;;
        openssl) "$original" --configure | grep -q -e --with-openssl -e --with-ssl=openssl; return ;;
        *.h) [ -e "$("$original" --includedir-server 2>/dev/null)/$part" ]; return ;;
    esac
    part=${part//-/_}
    dir=$("$original" --pkglibdir)
    if [ "$part" != "$1" ] && [ "$original" = "$debian_pg_config" ] && [ ! -e "$dir/$part.so" ]; then
        need_packages "$1"
    fi
    [ -e "$dir/$part.so" ] || [ -x "$("$original" --bindir)/$part" ]
}

# marked <needs|alone> <subject>: a line for each of these comments: the path of the test that
# it stands above, or of the module at whose head it does, and what it says.
marked() {
    local file module
    while read -r file; do
        module=${file#"$root/tests/it/"}
        module=${module%.rs}
        awk -v path="${module//\//::}" -v mark="^//!? $1:" '
            $0 ~ mark { sub(mark, ""); parts = parts $0; next }
            parts == "" || /^\/\// || /^#\[/ || /^$/ { next }
            {
                test = ""
                if ($1 == "fn") { test = $2; sub(/[(<].*/, "", test); test = "::" test }
                print path test parts
                parts = ""
            }' "$file"
    done < <(sources_of "$2")
}

# leave_out <subject...>: what of them cannot run here, into `without`.
leave_out() {
    local subject lines line path part missing
    without=()
    mapfile -t lines < <(for subject in "$@"; do marked needs "$subject"; done)
    for line in "${lines[@]}"; do
        path=${line%% *}
        missing=
        for part in ${line#* }; do
            has "$part" || missing+=", $part"
        done
        [ -n "$missing" ] || continue
        without+=("$path")
        skip "$path" "it needs ${missing#, }"
    done
}

# What scenarios run beside the server, whichever of them run: all of it, so that a machine with a part of it from an
# earlier run is like one without. Only what comes from npm and PyPI may be missing; the tests above which
# `// needs: <part>...` stands are left out then.
need_companions() {
    need_packages "${companions[@]}"
    if can "the SMTP server of tests" need_senders; then export MAILROOM_PYTHON=$tools/senders/bin/python; fi
    if can "what delivery is tested against" need_counterparts; then export MAILROOM_COUNTERPARTS=$tools; fi
    if can "what drives the browser of tests" need_browser; then
        MAILROOM_NODE=$(node_program)
        # Of a page that failed, a picture and the HTML are left among the logs.
        export MAILROOM_NODE MAILROOM_BROWSER=$tools/browser MAILROOM_BROWSER_LOGS=$logs/browser
    fi
    if can Debezium need_debezium; then export MAILROOM_DEBEZIUM=$tools/debezium/bin/python; fi
    need_program
    need_demo
}

# scenario_tier <number> <what> <subject...>: their tests, without those of `without`, and
# after the others, one by one, those that have to be alone.
scenario_tier() {
    local number=$1 what=$2 known test subject path lonely chosen=() last=()
    shift 2
    if ! known=$(cargo test --quiet "${features[@]}" --test it -- --list); then
        say "tier $number: did not build"
        failed=$((failed + 1))
        return
    fi
    lonely=$(for subject in "$@"; do marked alone "$subject"; done | cut -d' ' -f1 | tr '\n' ' ')
    while read -r test; do
        subject=${test%%::*}
        [[ " $* " == *" $subject "* ]] || continue
        if [ -n "$alone" ]; then
            [[ $test == "$subject::$alone" || $test == *"::$alone" || $test == "$subject::$alone::"* ]] || continue
        fi
        for path in "${without[@]}"; do
            [[ $test != "$path" && $test != "$path::"* ]] || continue 2
        done
        if [[ " $lonely " == *" $test "* ]]; then last+=("$test"); else chosen+=("$test"); fi
    done < <(sed -n 's/: test$//p' <<<"$known")
    # The one test may be of those that need the worker.
    [ $((${#chosen[@]} + ${#last[@]})) -gt 0 ] || [ -z "$alone" ] || [ "$number" -eq 4 ] || return 0
    if [ $((${#chosen[@]} + ${#last[@]})) -eq 0 ]; then
        say "tier $number: no test ran"
        failed=$((failed + 1))
        return
    fi
    # Most of them wait most of the time. Without a name all would run.
    [ ${#chosen[@]} -eq 0 ] || chosen=(-- --test-threads=$((4 * $(nproc))) --exact "${chosen[@]}")
    [ ${#last[@]} -eq 0 ] || last=(-- --test-threads=1 --exact "${last[@]}")
    tier "$number" "$what" --test it "${chosen[@]}" "${last[@]}"
}

# need_program [release]: the program mailroom, in MAILROOM_SEND.
need_program() {
    make_scratch
    quietly mailroom-send "building the program mailroom" \
        cargo build ${1:+--release} --package mailroom-cli
    # Another checkout may build its own in the same place.
    cp "$target/${1:-debug}/mailroom" "$scratch/mailroom"
    export MAILROOM_SEND=$scratch/mailroom
}

# need_demo: the demonstration, in MAILROOM_DEMO.
need_demo() {
    make_scratch
    quietly demo "building the demonstration" cargo build --package mailroom-demo
    cp "$target/debug/mailroom-demo" "$scratch/mailroom-demo"
    export MAILROOM_DEMO=$scratch/mailroom-demo
}

# deliver_by_program <subject...>: those of them that are in by_program, once more.
deliver_by_program() {
    local name line selection=() without=("${without[@]}")
    for name in "$@"; do
        [[ " ${by_program[*]} " == *" $name "* ]] || continue
        selection+=("$name")
        while read -r line; do
            [[ " ${line#* } " != *" worker "* ]] || without+=("${line%% *}")
        done < <(marked needs "$name")
    done
    [ ${#selection[@]} -gt 0 ] || return 0
    MAILROOM_DELIVERER=send scenario_tier 5 "scenarios of delivery by mailroom send" "${selection[@]}"
}
