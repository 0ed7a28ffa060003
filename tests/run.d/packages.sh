# Packages for Debian, and archives for other systems. Part of tests/run.
# shellcheck shell=bash

# What packages are built for, and from which release of Debian the headers of its server are. Debian 12's own are those
# of 15; no release has 16, whose headers are those of the matrix.
package_versions=(15 16 17 18)
declare -A header_suites=([17]=trixie [18]=forky)
# The oldest glibc that the binaries may need: Debian 12 and later, Ubuntu 22.04 and later, RHEL 9 and later.
newest_glibc=2.34
packaged= # where they are put

# fetch_headers <major>: the headers of Debian's package for another release of Debian, in target/headers/pg<major>, with
# a pg_config that names them.
fetch_headers() {
    local prefix=$target/headers/pg$1 suite=${header_suites[$1]} mirror version apt=()
    [ ! -x "$prefix/bin/pg_config" ] || return 0
    mirror=$(debian_mirror)
    [ -n "$mirror" ] || fail "found no Debian mirror in the configuration of apt; run apt-get update"
    make_scratch
    mkdir -p "$scratch/headers/state/lists/partial" "$scratch/headers/cache/archives/partial" "$scratch/headers/root/bin"
    echo "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] $mirror $suite main" >"$scratch/headers/sources.list"
    apt=(-o Dir::State="$scratch/headers/state" -o Dir::Cache="$scratch/headers/cache"
        -o Dir::Etc::SourceList="$scratch/headers/sources.list" -o Dir::Etc::SourceParts=/dev/null
        # A suite that is no release yet may carry an old date.
        -o Acquire::Check-Valid-Until=false -o APT::Sandbox::User=root)
    cd "$scratch/headers"
    quietly "headers-$1-update" "looking for the headers of PostgreSQL $1 in Debian's $suite" apt-get "${apt[@]}" update
    quietly "headers-$1" "fetching them" apt-get "${apt[@]}" download "postgresql-server-dev-$1"
    dpkg -x postgresql-server-dev-"$1"_*.deb root
    version=$(sed -n 's/^#define PG_VERSION "\(.*\)"$/\1/p' "root/usr/include/postgresql/$1/server/pg_config.h")
    cat >root/bin/pg_config <<END
#!/bin/sh
# The directories of Debian's package; the headers alone are here.
here=\$(cd "\$(dirname "\$0")/.." && pwd -P)
case \$1 in
    --version) echo "PostgreSQL $version" ;;
    --bindir) echo "\$here/bin" ;;
    --includedir-server) echo "\$here/usr/include/postgresql/$1/server" ;;
    --includedir) echo "\$here/usr/include/postgresql" ;;
    --pkglibdir | --libdir) echo "/usr/lib/postgresql/$1/lib" ;;
    --sharedir) echo "/usr/share/postgresql/$1" ;;
    *) exit 1 ;;
esac
END
    chmod 755 root/bin/pg_config
    cd "$root"
    mkdir -p "$target/headers"
    rm -rf "$prefix"
    mv "$scratch/headers/root" "$prefix"
}

# use_headers <major>: the server that packages for it are built for.
use_headers() {
    case $1 in
        15)
            need_packages postgresql-15 postgresql-server-dev-15
            use_server "$debian_pg_config"
            ;;
        16)
            unpack_server 16.2 || fail "PostgreSQL 16.2 could not be unpacked"
            home=$target/pg16.2
            use_server "$(server_of 16.2)"
            ;;
        *)
            fetch_headers "$1"
            use_server "$target/headers/pg$1/bin/pg_config"
            ;;
    esac
}

# check_binary <file> <profile>: what it needs of glibc and, of a release, that it names no folder of this machine.
check_binary() {
    local newest path
    newest=$(objdump -T "$1" | grep -o 'GLIBC_[0-9.]*' | sort -u -V | tail -n 1)
    [ "$(printf '%s\n' "$newest" "GLIBC_$newest_glibc" | sort -V | tail -n 1)" = "GLIBC_$newest_glibc" ] ||
        fail "$1 needs $newest, newer than GLIBC_$newest_glibc"
    [ "$2" = release ] || return 0
    for path in "$root" "$target" "${CARGO_HOME:-$HOME/.cargo}" "${RUSTUP_HOME:-$HOME/.rustup}" "$scratch"; do
        ! grep --quiet --text --fixed-strings "$path/" "$1" || fail "$1 contains paths below $path"
    done
    echo "${1##*/}: $newest, no path of this machine"
}

# staged_packages <folder> <major...>: what each package installs, below <folder>, a folder for each package.
staged_packages() {
    local into=$1 one pkg flags tree=$target profile=${MAILROOM_PROFILE:-release}
    local cargo_home=${CARGO_HOME:-$HOME/.cargo}
    shift
    if [ "$profile" = release ]; then
        # Of a folder behind a symbolic link, debugging information has both names: cargo is given the one to which they lead.
        mkdir -p "$cargo_home"
        cargo_home=$(cd "$cargo_home" && pwd -P)
        export CARGO_HOME=$cargo_home
        # With flags of its own, what is built is no part of other builds. Of several folders that fit, the last counts.
        local target=$tree/packages-build
        flags=$(printf '%s\x1f' "--remap-path-prefix=$cargo_home=/cargo" "--remap-path-prefix=$root=/mailroom" \
            "--remap-path-prefix=$target=/mailroom/target")
        # Likewise what is in C, of which the debugger gets nothing.
        export CFLAGS="-g0 -ffile-prefix-map=$cargo_home=/cargo"
        export CARGO_TARGET_DIR=$target CARGO_ENCODED_RUSTFLAGS=${flags%$'\x1f'}
        # So that a backtrace has lines where the packages of debugging symbols are installed.
        export CARGO_PROFILE_RELEASE_DEBUG=line-tables-only
    fi
    for one in "$@"; do
        pkg=$into/postgresql-$one-mailroom
        target=$tree use_headers "$one"
        package "packages-$one" ", for its package" "$profile" "${features[@]}"
        check_binary "$scratch/package/mailroom.so" "$profile"
        command install -D -m 644 -t "$pkg/usr/lib/postgresql/$one/lib" "$scratch/package/mailroom.so"
        command install -D -m 644 -t "$pkg/usr/share/postgresql/$one/extension" "$scratch"/package/mailroom{.control,--*.sql}
    done
    quietly packages-program "building the program mailroom, for its package" \
        cargo build --profile "$profile" --package mailroom-cli
    check_binary "$target/$profile/mailroom" "$profile"
    command install -D -m 755 -t "$into/mailroom/usr/bin" "$target/$profile/mailroom"
    unset CARGO_ENCODED_RUSTFLAGS CARGO_PROFILE_RELEASE_DEBUG CFLAGS
    export CARGO_TARGET_DIR=$tree
}

# debian_folder <folder> <major...>: packaging/debian, with the files that each version has of its own.
debian_folder() {
    local into=$1 one file
    shift
    cp -R "$root/packaging/debian/." "$into"
    rm "$into"/control.head "$into"/control.server "$into"/server.*
    cp "$root/packaging/debian/control.head" "$into/control"
    for one in "$@"; do
        sed "s/@PG@/$one/g" "$root/packaging/debian/control.server" >>"$into/control"
        for file in "$root"/packaging/debian/server.*; do
            sed "s/@PG@/$one/g" "$file" >"$into/postgresql-$one-mailroom.${file##*/server.}"
        done
    done
    chmod 755 "$into/rules"
}

# archive <major> <folder of the built packages> <output>: library, scripts, program and licences in one folder.
archive() {
    local built=$2 name=$3 into=$scratch/archive/$3
    rm -rf "$scratch/archive"
    mkdir -p "$into/share"
    cp -R "$built/postgresql-$1-mailroom/usr/lib/postgresql/$1/lib" "$into/lib"
    cp -R "$built/postgresql-$1-mailroom/usr/share/postgresql/$1/extension" "$into/share/extension"
    cp -R "$built/mailroom/usr/bin" "$into/bin"
    cp -R "$scratch/licenses" "$into/licenses"
    cp "$root/LICENSE" "$root/CHANGELOG.md" "$into/"
    chmod -R u=rwX,go=rX "$into"
    tar --create --directory "$scratch/archive" --sort=name --mtime="@$SOURCE_DATE_EPOCH" --owner=0 --group=0 \
        --numeric-owner --format=gnu "$name" | gzip --no-name --best >"$packaged/$name.tar.gz"
}

# packages [major...]: Debian's packages and archives of the last commit, in target/packages; built by another profile
# than that of releases, for trying only, in target/packages-<profile>.
packages() {
    local version one build architecture changed
    packaged=$target/packages
    [ "${MAILROOM_PROFILE:-release}" = release ] || packaged+=-$MAILROOM_PROFILE
    [ $# -gt 0 ] || set -- "${package_versions[@]}"
    for one in "$@"; do
        [[ " ${package_versions[*]} " == *" $one "* ]] ||
            fail "there are no packages for PostgreSQL $one, but for ${package_versions[*]}"
    done
    changed=$(git -C "$root" status --porcelain) || fail "packages are built from a clone of the repository"
    [ -z "$changed" ] || fail "packages are built from what is committed, and these files are not:"$'\n'"$changed"
    need_packages debhelper lintian
    version=$(sed -n "s/^default_version = '\(.*\)'$/\1/p" "$root/mailroom.control")
    [ "$(dpkg-parsechangelog -l packaging/debian/changelog -S Version)" = "$version" ] ||
        fail "packaging/debian/changelog is not about version $version"
    architecture=$(dpkg --print-architecture)
    make_scratch
    build=$scratch/debian/mailroom-$version
    mkdir -p "$build/debian"
    debian_folder "$build/debian" "$@"
    # What others build is not built again for these variables: the profile of releases has a folder of its own.
    [ "${MAILROOM_PROFILE:-release}" = release ] || staged_packages "$build/debian/staged" "$@"
    SOURCE_DATE_EPOCH=$(dpkg-parsechangelog -l packaging/debian/changelog -S Timestamp)
    export SOURCE_DATE_EPOCH LC_ALL=C.UTF-8 TZ=UTC
    [ "${MAILROOM_PROFILE:-release}" != release ] || staged_packages "$build/debian/staged" "$@"
    python3 "$root/packaging/copyright.py" "$scratch/copyright" "$scratch/licenses"
    cmp "$scratch/copyright" "$root/packaging/debian/copyright" >&2 || fail "packaging/debian/copyright is stale: see make lint"
    mkdir -p "$build/debian/staged/mailroom/usr/share/man/man1"
    python3 "$root/packaging/manpages.py" "$build/debian/staged/mailroom/usr/share/man/man1" "$version" \
        "$(date --utc --date="@$SOURCE_DATE_EPOCH" +%Y-%m-%d)"
    cd "$build"
    # Built by another profile, they have no debugging symbols.
    [ "${MAILROOM_PROFILE:-release}" = release ] || export DEB_BUILD_OPTIONS=noautodbgsym
    quietly packages "building the packages" dpkg-buildpackage --build=binary --no-check-builddeps --unsigned-changes --unsigned-buildinfo
    cd "$root"
    rm -rf "$packaged"
    mkdir -p "$packaged"
    for one in "$@"; do
        archive "$one" "$build/debian" "mailroom-$version-pg$one-linux-$architecture"
    done
    cp "$scratch"/debian/*.deb "$packaged/"
    (cd "$packaged" && sha256sum -- *.deb *.tar.gz >SHA256SUMS)
    # A warning that has a reason would stand in packaging/debian/*.lintian-overrides, with the reason; there is none.
    quietly lintian "running lintian" lintian --fail-on error,warning --allow-root "$scratch/debian/mailroom_${version}_$architecture.changes"
    cat "$packaged/SHA256SUMS"
}

# reproducible [major...]: the packages a second time, from a clone in another folder with another umask, language, time
# zone and home of cargo. Each file is the same, or what differs stays in target/packages-again.
reproducible() {
    local again sums
    [ "${MAILROOM_PROFILE:-release}" = release ] || fail "only what is built by the profile of releases names no folder of its own"
    packages "$@"
    need_packages locales
    again=$scratch/elsewhere/mailroom
    (umask 077 && git clone --quiet "$root" "$again")
    ln -s "${CARGO_HOME:-$HOME/.cargo}" "$scratch/cargo"
    mkdir "$scratch/locales"
    quietly locale "making a language whose letters are not those of English" \
        localedef --inputfile=tr_TR --charmap=UTF-8 "$scratch/locales/tr_TR.UTF-8"
    quietly packages-again "building the packages again, elsewhere" \
        env -u CARGO_TARGET_DIR -u SOURCE_DATE_EPOCH -u PGRX_HOME CARGO_HOME="$scratch/cargo" \
        LOCPATH="$scratch/locales" LC_ALL=tr_TR.UTF-8 TZ=Pacific/Kiritimati "$again/tests/run" packages "$@"
    sums=$(diff "$packaged/SHA256SUMS" "$again/target/packages/SHA256SUMS") || {
        rm -rf "$target/packages-again"
        cp -R "$again/target/packages" "$target/packages-again"
        fail "built again, these differ; diffoscope tells where:"$'\n'"$sums"
    }
    echo "each file is the same when it is built elsewhere"
}
