# The extension, built and put into a copy of a server. Part of tests/run.
# shellcheck shell=bash

make_scratch() {
    [ -z "$scratch" ] || return 0
    scratch=$(mktemp -d "${TMPDIR:-/tmp}/mailroom.XXXXXX")
    scratch=$(cd "$scratch" && pwd -P)
    # Root's tests start their servers as another user, who reads this.
    chmod 755 "$scratch"
}

# A server finds its directories relative to its executable, so a copy of them
# anywhere is a server of its own. That is where the extension goes: the
# system's PostgreSQL is not touched, and no step needs root.
copy_server() {
    local tree=$1 option dir
    if [ -n "$home" ]; then
        # With libraries of its own, wherever it looks for them.
        mkdir -p "$tree$home"
        cp -a "$home/." "$tree$home/"
    else
        for option in --bindir --pkglibdir --sharedir; do
            dir=$("$original" "$option")
            mkdir -p "$tree$dir"
            cp -a "$dir/." "$tree$dir/"
        done
    fi
    rm -f "$tree$("$original" --pkglibdir)"/mailroom.so \
        "$tree$("$original" --sharedir)"/extension/mailroom[.-]*
}

# The install script: the files of sql/ in the order of their numbers, in which
# src/install.rs names them to pgrx. `lint` holds both to be the same.
install_script() { find "$root/sql" -name '[0-9]*.sql' -print0 | LC_ALL=C sort -z | xargs -0 cat; }

# The declarations that pgrx adds to it for the in-database tests.
test_functions() {
    echo 'CREATE SCHEMA tests;'
    awk '
        /^ *#\[pg_extern\]$/ { declared = 1; next }
        declared && $1 == "fn" {
            sub(/\(.*/, "", $2)
            printf "CREATE FUNCTION tests.%s() RETURNS void LANGUAGE c AS \47MODULE_PATHNAME\47, \47%s_wrapper\47;\n", $2, $2
            declared = 0
        }' "$root"/src/pg_test/*.rs
}

# The C functions that SQL declares: of this version, and of each released one. A released symbol stays, because the SQL
# of before goes on calling it until ALTER EXTENSION, which may be long after the restart with a new library.
declared_symbols() {
    find "$@" "$root/sql" "$root/tests/upgrade" -name 'mailroom--*.sql' -exec cat {} + |
        sed -n "s/.*AS 'MODULE_PATHNAME', '\([^']*\)'.*/\1/p"
}

# check_symbols <library> <script>: the library exports the functions that SQL declares, and what the server itself looks
# up, and nothing else.
check_symbols() {
    local declared exported differences
    declared=$(declared_symbols "$2" | sed 'p; s/^/pg_finfo_/')
    exported=$(nm --dynamic --defined-only --format=just-symbols "$1") || fail "nm cannot read $1"
    differences=$(LC_ALL=C comm -3 --output-delimiter='declared nowhere: ' \
        <(printf '%s\n' "$declared" Pg_magic_func _PG_init mailroom_launcher_main mailroom_worker_main | LC_ALL=C sort -u) \
        <(LC_ALL=C sort -u <<<"$exported"))
    [ -z "$differences" ] || fail "symbols of the library and of SQL (those without a remark are missing in the library):"$'\n'"$differences"
}

# package <log> <what> <profile> <options of cargo build...>: what CREATE EXTENSION
# needs, in the scratch directory: library, control file and scripts.
package() {
    local log=$1 what=$2 profile=$3 into=$scratch/package version
    shift 3
    quietly "$log" "building mailroom for PostgreSQL $major$what" \
        cargo build --lib --profile "$profile" "$@"
    version=$(sed -n "s/^default_version = '\(.*\)'$/\1/p" "$root/mailroom.control")
    rm -rf "$into"
    mkdir "$into"
    cp "$target/${profile/#dev/debug}/libmailroom.so" "$into/mailroom.so"
    cp "$root/mailroom.control" "$into/"
    find "$root/sql" -maxdepth 1 -name 'mailroom--*.sql' -exec cp {} "$into/" ';'
    install_script >"$into/mailroom--$version.sql"
    [[ "$*" != *pg_test* ]] || test_functions >>"$into/mailroom--$version.sql"
    chmod -R a+rX "$into"
    check_symbols "$into/mailroom.so" "$into/mailroom--$version.sql"
}

# put_package <root> [command...]: what was packaged, into the server's directories below
# root. A library may be in use, or be another tree's too: it is replaced, never
# overwritten.
put_package() {
    local into=$1 from=$scratch/package
    shift
    "$@" cp --remove-destination "$from/mailroom.so" "$into$("$original" --pkglibdir)/"
    "$@" cp --remove-destination "$from"/mailroom{.control,--*.sql} \
        "$into$("$original" --sharedir)/extension/"
}

# A copy of the server with mailroom in it, built by `profile`.
stage_release() {
    local tree=$scratch/pg$release
    copy_server "$tree"
    package "pg$release-$profile" "" "$profile" "${features[@]}"
    put_package "$tree"
    MAILROOM_PG_CONFIG=$tree$("$original" --bindir)/pg_config
    export MAILROOM_PG_CONFIG MAILROOM_STAGE=$tree MAILROOM_SERVER=$server
    [ "$("$MAILROOM_PG_CONFIG" --sharedir)" = "$tree$("$original" --sharedir)" ] ||
        fail "the PostgreSQL of $original cannot be relocated"
}

# Another one with the functions of schema `tests`: a debug build, so that
# overflow checks and debug assertions are on. The servers share their files.
stage_pg_test() {
    local tree=$scratch/pg$release-pg_test
    cp -al "$scratch/pg$release" "$tree"
    package "pg$release-pg_test" ", with the in-database tests" dev "${test_features[@]}"
    put_package "$tree"
    MAILROOM_PG_TEST_CONFIG=$tree$("$original" --bindir)/pg_config
    export MAILROOM_PG_TEST_CONFIG
}

# stage release|all: one server, or both. One run at a time: builds for two versions have
# their library in the same place until it is packaged.
stage() {
    make_scratch
    exec 9>"$target/stage.lock"
    flock 9
    stage_release
    [ "$1" = release ] || stage_pg_test
    exec 9>&-
}
