# The packages of target/packages on Debian systems that run in namespaces, and a newcomer's. Part of tests/run.
# shellcheck shell=bash

# The releases of Debian that have a PostgreSQL which mailroom is for.
declare -A debian_suites=([15]=bookworm [17]=trixie [18]=forky)
system=       # the process that is a running system's first, as this one sees it
namespaces=   # the one that made its namespaces, and whose end ends the system
mailcatcher=  # the SMTP server in them

as_root() { [ "$(id -u)" -eq 0 ] || fail "make $1 builds Debian systems, so root runs it"; }

# in_tree <folder> <command...>: in a Debian system that does not run, with the network of this machine, and with /proc and
# what <binds> names (<from>:<to>...), which go away with the command.
binds=()
in_tree() {
    local tree=$1
    shift
    # shellcheck disable=SC2016
    unshare --mount --pid --fork --kill-child bash -c '
        set -e
        tree=$1 count=$2
        shift 2
        mount --make-rprivate /
        mount -t proc proc "$tree/proc"
        for device in null zero urandom random; do
            [ -c "$tree/dev/$device" ] || { touch "$tree/dev/$device"; mount --bind "/dev/$device" "$tree/dev/$device"; }
        done
        while [ "$count" -gt 0 ]; do
            mkdir -p "$tree${1#*:}"
            mount --bind "${1%%:*}" "$tree${1#*:}"
            shift
            count=$((count - 1))
        done
        exec chroot "$tree" "$@"' in_tree "$tree" "${#binds[@]}" "${binds[@]}" "$@"
}

# base_system <name> <suite> <packages...>: a debootstrapped system with packages, in target/systems/<name>, if it is not
# there. It is used through a copy of it, or through a layer above it.
base_system() {
    local name=$1 suite=$2 tree=$target/systems/$1 mirror script=
    shift 2
    [ "$(cat "$tree/made" 2>/dev/null)" != "$*" ] || return 0
    need_packages debootstrap
    mirror=$(debian_mirror)
    [ -n "$mirror" ] || fail "found no Debian mirror in the configuration of apt; run apt-get update"
    # Releases that this debootstrap does not know are made as Debian's unstable is.
    [ -e "/usr/share/debootstrap/scripts/$suite" ] || script=/usr/share/debootstrap/scripts/sid
    rm -rf "$tree" "$tree.new"
    mkdir -p "$tree.new"
    quietly "system-$name" "making a system of Debian's $suite" \
        debootstrap --variant=minbase --keyring=/usr/share/keyrings/debian-archive-keyring.gpg \
        "$suite" "$tree.new" "$mirror" ${script:+"$script"}
    # No service is started while it does not run.
    printf '#!/bin/sh\nexit 101\n' >"$tree.new/usr/sbin/policy-rc.d"
    chmod 755 "$tree.new/usr/sbin/policy-rc.d"
    # A suite that is no release yet may carry an old date.
    echo 'Acquire::Check-Valid-Until "false";' >"$tree.new/etc/apt/apt.conf.d/90valid-until"
    cp --remove-destination /etc/resolv.conf "$tree.new/etc/resolv.conf"
    quietly "system-$name-packages" "adding $*" in_tree "$tree.new" \
        env DEBIAN_FRONTEND=noninteractive sh -c 'apt-get update && apt-get install --yes --no-install-recommends "$@"' sh "$@"
    rm "$tree.new/usr/sbin/policy-rc.d"
    echo "$*" >"$tree.new/made"
    mv "$tree.new" "$tree"
}

# boot_system <name>: the base system with its own systemd; what it writes goes with the scratch directory.
boot_system() {
    local waited=0
    setsid unshare --mount --pid --fork --kill-child=KILL --cgroup --uts --ipc --net \
        "$root/tests/installed/boot" "$target/systems/$1" "$scratch/system" >"$scratch/boot.log" 2>&1 &
    namespaces=$!
    until system=$(pgrep --parent "$namespaces") && inside systemctl is-system-running --wait >"$scratch/state" 2>/dev/null ||
        [ "$(cat "$scratch/state" 2>/dev/null)" = degraded ]; do
        kill -0 "$namespaces" 2>/dev/null || { cat "$scratch/boot.log" >&2; fail "the system did not start"; }
        waited=$((waited + 1))
        [ "$waited" -le 60 ] || fail "systemd is not up after a minute: $(cat "$scratch/state")"
        sleep 1
    done
    inside ip link set lo up 2>/dev/null || nsenter --target "$system" --net ip link set lo up
}

stop_system() {
    [ -z "$mailcatcher" ] || kill "$mailcatcher" 2>/dev/null || true
    [ -z "$namespaces" ] || kill -KILL "$namespaces" 2>/dev/null || true
    [ -z "$namespaces" ] || wait "$namespaces" 2>/dev/null || true
    system= namespaces= mailcatcher=
}

# inside <command...>: in the running system.
inside() { nsenter --target "$system" --mount --uts --ipc --net --pid --cgroup --root --wd "$@"; }

sql() { inside runuser -u postgres -- psql -X -A -t -v ON_ERROR_STOP=1 "$@"; }

# holds <what> <command...>
holds() {
    local what=$1
    shift
    if "$@"; then
        passed=$((passed + 1))
        echo "ok: $what"
    else
        failed=$((failed + 1))
        echo "FAILED: $what"
        inside journalctl --no-pager --lines=15 >&2 || true
    fi
}

# within <seconds> <command...>: until it succeeds.
within() {
    local until_=$((SECONDS + $1))
    shift
    until "$@"; do
        [ "$SECONDS" -lt "$until_" ] || return 1
        sleep 0.2
    done
}

mail_to() { grep --quiet --fixed-strings "To: <$1>" "$scratch/mail.log"; }
says() { inside systemctl show --value --property "$1" "$2"; }
# The journal gets a line a little later. Of a pipe, journalctl would fail when grep has found it.
tells() { grep -q "$2" <<<"$(inside journalctl --no-pager --unit "$1")"; }
is() { [ "$(says "$1" mailroom-send@app)" = "$2" ]; }
serves() { sql -c 'SELECT 1' >/dev/null 2>&1; }

# block <page> <kind> <number>: what a block of this page says.
block() {
    awk -v fence="\`\`\`$2" -v number="$3" '
        $0 == fence { inside = ++at == number; next }
        /^```$/ { inside = 0 }
        inside { print; found = 1 }
        END { exit !found }' "$root/$1" || fail "$1 has no block $3 of the kind $2"
}

# page_block <page> <number> <major>: runs a block of commands for Debian of this page, in the system, where packages are in
# /srv/next. They are written for 17, and for instances of several names. As at a prompt, one that fails does not stop them.
page_block() {
    local commands
    commands=$(block "$1" 'sh debian' "$2") || exit 1
    commands=$(sed "s/17/$3/g; s/@shops\?$/@app/" <<<"$commands")
    inside env DEBIAN_FRONTEND=noninteractive sh -c "mkdir -p /srv/next && cd /srv/next && $commands"
}

# local_repository: the packages as a signed repository, in the system that is to be started.
local_repository() {
    local repository=$scratch/system/upper/srv/mailroom
    mkdir -p "$repository" "$scratch/system/upper/etc/apt"
    need_packages gpg gpg-agent apt-utils
    cp "$packaged"/*.deb "$repository/"
    (
        cd "$repository"
        export GNUPGHOME=$scratch/gpg
        mkdir -m 700 "$GNUPGHOME"
        apt-ftparchive packages . >Packages
        apt-ftparchive release . >"$scratch/Release" && mv "$scratch/Release" .
        gpg --batch --quiet --passphrase '' --quick-generate-key 'packages under test' ed25519 sign never 2>/dev/null
        gpg --batch --quiet --clearsign --output InRelease Release
        gpg --batch --quiet --export >key.gpg
        gpgconf --kill gpg-agent
    )
    # Its only one: it has no network.
    echo 'deb [signed-by=/srv/mailroom/key.gpg] file:/srv/mailroom ./' >"$scratch/system/upper/etc/apt/sources.list"
}

# set_preload <major> [value]: without a value, the setting is removed.
set_preload() {
    if [ -n "${2:-}" ]; then
        inside pg_conftool "$1" main set shared_preload_libraries "$2"
    else
        inside pg_conftool "$1" main remove shared_preload_libraries
    fi
    inside systemctl restart "postgresql@$1-main"
    within 20 serves
}

# configure <major>: what the guide "Install" tells an administrator to do.
configure() {
    inside sh -c 'cat >/tmp/transports.toml && install -o root -g postgres -m 0640 /tmp/transports.toml /etc/mailroom/' <<'END'
[transports.relay]
provider = "smtp"
host = "127.0.0.1"
port = 2525
tls = "none"
allowed_networks = ["127.0.0.0/8"]
from = "Example <noreply@example.com>"
END
    inside pg_conftool "$1" main set mailroom.transports_file /etc/mailroom/transports.toml
    inside pg_conftool "$1" main set mailroom.transport relay
    inside pg_conftool "$1" main set mailroom.link_base_url https://example.com
    page_block docs/start/install.md 2 "$1" >/dev/null 2>&1
    within 20 serves
    sql -q -c 'CREATE DATABASE app'
    sql -q -d app -c 'CREATE SCHEMA mailroom; CREATE EXTENSION mailroom SCHEMA mailroom'
    sql -q -d app -c "ALTER DATABASE app SET search_path = \"\$user\", public, mailroom"
}

register() { sql -q -d app -c "INSERT INTO accounts (email, login) VALUES ('$1', '$1')"; }

postmaster() { inside head -n 1 "/var/lib/postgresql/$1/main/postmaster.pid"; }

# configuration <major>: the sum of each of its files.
configuration() { inside find /etc/postgresql "/var/lib/postgresql/$1/main/postgresql.auto.conf" -type f -exec sha256sum {} +; }

# The worker: from a system with PostgreSQL to the first mail.
first_mail() {
    local began=$SECONDS server settings
    server=$(postmaster "$1")
    settings=$(configuration "$1")
    inside apt-get update -qq
    inside env DEBIAN_FRONTEND=noninteractive apt-get install --yes -qq "postgresql-$1-mailroom" mailroom >"$scratch/apt.log" 2>&1 ||
        { cat "$scratch/apt.log" >&2; fail "apt did not install the packages"; }
    holds "installing restarts no cluster" [ "$server" = "$(postmaster "$1")" ]
    holds "and configures none" [ "$settings" = "$(configuration "$1")" ]
    holds "and creates no role" [ "$(sql -c "SELECT count(*) FROM pg_roles WHERE rolname LIKE 'mailroom%'")" = 0 ]
    holds "and starts and enables no unit" [ -z "$(inside systemctl list-units --all --no-legend 'mailroom-*')$(inside find /etc/systemd/system -name 'mailroom-*')" ]
    holds "/etc/mailroom is for root and the server" [ "$(inside stat -c '%U:%G %a' /etc/mailroom)" = 'root:postgres 750' ]
    configure "$1"
    register worker@example.com
    holds "PostgreSQL $1: the first mail, by the worker, is there" within 60 mail_to worker@example.com
    echo "PostgreSQL $1: from apt-get update to the first mail: $((SECONDS - began)) s"
    holds "in at most 60 s" [ $((SECONDS - began)) -le 60 ]
    holds "without a toolchain" inside sh -c '! command -v cc && ! command -v rustc && ! command -v cargo'
    holds "mailroom check finds nothing wrong" inside runuser -u postgres -- \
        mailroom check --transports /etc/mailroom/transports.toml --database 'postgresql:///app?host=/var/run/postgresql'
    holds "the manual is there" inside sh -c 'for page in mailroom mailroom-send mailroom-check mailroom-receive mailroom-report mailroom-serve; do test -e "/usr/share/man/man1/$page.1.gz" || exit 1; done'
}

# The unit, in the worker's place.
first_mail_of_the_unit() {
    local unit=mailroom-send@app
    set_preload "$1"
    sql -q -d app -c 'CREATE ROLE mailroom LOGIN; GRANT mailroom_collector TO mailroom; GRANT USAGE ON SCHEMA mailroom TO mailroom'
    holds "without its file an instance does not start" eval '! inside systemctl start '$unit' 2>/dev/null'
    holds "and says why" within 10 tells "$unit" 'Failed to load environment files'
    inside sh -c "echo 'ARGUMENTS=--database postgresql:///app?host=/var/run/postgresql' >/etc/mailroom/send/app.conf"
    # So that a stopped program is noticed within the patience of a test.
    inside sh -c "mkdir -p /etc/systemd/system/$unit.service.d && printf '[Service]\nWatchdogSec=4\nRestartSec=1\n' >/etc/systemd/system/$unit.service.d/test.conf"
    inside systemctl daemon-reload
    inside systemctl reset-failed "$unit" 2>/dev/null || true
    register unit@example.com
    holds "mailroom-send@app starts, and says that it is ready" page_block docs/guides/several-machines.md 1 "$1"
    holds "PostgreSQL $1: the first mail, by the unit, is there" within 30 mail_to unit@example.com
    holds "it runs as the user mailroom" [ "$(inside stat -c %U "/proc/$(says MainPID $unit)")" = mailroom ]
    inside systemctl kill --kill-who=main --signal=KILL "$unit"
    register killed@example.com
    holds "killed, it is started again, and goes on" within 30 mail_to killed@example.com
    holds "which systemd counted" is NRestarts 1
    inside systemctl kill --kill-who=main --signal=STOP "$unit"
    register stopped@example.com
    holds "stopped, it is started again by the watchdog" within 60 mail_to stopped@example.com
    holds "which systemd counted" is NRestarts 2
    inside mv /etc/mailroom/transports.toml /etc/mailroom/elsewhere.toml
    holds "without the transports file it does not start" eval '! inside systemctl restart '$unit' 2>/dev/null'
    holds "and says why" within 10 tells "$unit" 243/CREDENTIALS
    inside mv /etc/mailroom/elsewhere.toml /etc/mailroom/transports.toml
    inside systemctl reset-failed "$unit"
    holds "and with it, it does" inside systemctl restart "$unit"
    holds "there is no reload" eval '! inside systemctl reload '$unit' 2>/dev/null'
    is_confined "$1" "$unit"
    inside systemctl stop "$unit"
    holds "it ends in order" is Result success
}

# is_confined <major> <unit>
is_confined() {
    local exposure
    exposure=$(inside systemd-analyze security --no-pager "$2" | sed -n 's/.*exposure level[^:]*: *\([0-9.]*\).*/\1/p')
    echo "PostgreSQL $1: systemd-analyze security of $2: $exposure"
    holds "at most 2.0" awk -v exposure="$exposure" 'BEGIN { exit !(exposure > 0 && exposure <= 2.0) }'
}

# post <path> <user:password> <body>: to mailroom receive; prints the status.
post() {
    nsenter --target "$system" --net "$MAILROOM_PYTHON" - "$@" <<'END'
import base64, sys, urllib.error, urllib.request
path, password, body = sys.argv[1:]
headers = {"Authorization": "Basic " + base64.b64encode(password.encode()).decode()}
try:
    print(urllib.request.urlopen(urllib.request.Request("http://127.0.0.1:8025" + path, body.encode(), headers)).status)
except urllib.error.HTTPError as error:
    print(error.code)
END
}

# The unit that records events.
first_event_of_the_unit() {
    local unit=mailroom-receive@app body copy one
    sql -q -d app -c 'CREATE ROLE "mailroom-receive" LOGIN; GRANT mailroom_receiver TO "mailroom-receive"; GRANT USAGE ON SCHEMA mailroom TO "mailroom-receive"'
    inside sh -c 'cat >>/etc/mailroom/transports.toml' <<'END'
[transports.postmark]
provider = "postmark"
from = "Example <noreply@example.com>"
api_key = "00000000-0000-0000-0000-000000000000"
event_secret_file = "postmark.secret"
END
    # A file that the transports file names: the unit's user may not enter the folder.
    inside sh -c 'echo webhook:correct-horse-battery >/tmp/secret && install -o root -g postgres -m 0640 /tmp/secret /etc/mailroom/postmark.secret'
    inside sh -c "echo 'ARGUMENTS=--database postgresql:///app?host=/var/run/postgresql' >/etc/mailroom/receive/app.conf"
    holds "without a secret that it names it does not start" eval '! inside systemctl start '$unit' 2>/dev/null'
    holds "and says why" within 10 tells "$unit" "the file that event_secret_file names does not exist"
    copy=$(block docs/guides/several-machines.md 'ini credential' 1)
    for one in send receive; do
        inside sh -c "mkdir -p /etc/systemd/system/mailroom-$one@.service.d && cat >/etc/systemd/system/mailroom-$one@.service.d/secret.conf" \
            <<<"${copy//relay.password/postmark.secret}"
    done
    inside systemctl daemon-reload
    inside systemctl reset-failed "$unit"
    holds "mailroom-receive@app starts, and says that it is ready" page_block docs/guides/events.md 1 "$1"
    holds "it runs as a user of its own" [ "$(inside stat -c %U "/proc/$(says MainPID $unit)")" = mailroom-receive ]
    body=$(sql -d app -c "SELECT json_build_object('RecordType', 'Delivery', 'MessageID', 'x', 'Recipient', recipients[1],
        'Metadata', json_build_object('message_id', message_id)) FROM outbox ORDER BY id LIMIT 1")
    holds "PostgreSQL $1: it refuses a stranger" [ "$(post /events/postmark webhook:guess "$body")" = 401 ]
    holds "and takes what the provider posts" [ "$(post /events/postmark webhook:correct-horse-battery "$body")" = 200 ]
    holds "which is recorded" [ "$(sql -d app -c "SELECT count(*) FROM delivery_events WHERE type = 'delivered'")" = 1 ]
    holds "its user reads no mail" grep -q 'permission denied for table outbox' <<<"$(inside runuser -u mailroom-receive -- psql -X -d app -c 'TABLE outbox' 2>&1)"
    is_confined "$1" "$unit"
    inside systemctl stop "$unit"
    holds "it ends in order" [ "$(says Result $unit)" = success ]
}

# log_in <password>: to mailroom serve as the role ann; prints the status, and where it leads.
log_in() {
    nsenter --target "$system" --net "$MAILROOM_PYTHON" - "$@" <<'END'
import http.client, sys, urllib.parse
page = http.client.HTTPConnection("127.0.0.1", 8425)
form = urllib.parse.urlencode({"role": "ann", "password": sys.argv[1]})
page.request("POST", "/app/login", form, {"Origin": "http://127.0.0.1:8425", "Content-Type": "application/x-www-form-urlencoded"})
answer = page.getresponse()
print(answer.status, answer.headers["Location"])
END
}

# The unit of the page.
first_page_of_the_unit() {
    local unit=mailroom-serve@app
    sql -q -d app -c "CREATE ROLE ann LOGIN PASSWORD 'correct horse' IN ROLE mailroom_support"
    inside sh -c "echo 'ARGUMENTS=--database postgresql://127.0.0.1/app' >/etc/mailroom/serve/app.conf"
    holds "mailroom-serve@app starts, and says that it is ready" page_block docs/guides/page.md 1 "$1"
    holds "it runs as a user of its own" [ "$(inside stat -c %U "/proc/$(says MainPID $unit)")" = mailroom-serve ]
    holds "PostgreSQL $1: it refuses a wrong password" [ "$(log_in guess)" = "403 None" ]
    holds "and lets the role in by its own" [ "$(log_in 'correct horse')" = "303 /app/" ]
    is_confined "$1" "$unit"
    inside systemctl stop "$unit"
    holds "it ends in order" [ "$(says Result $unit)" = success ]
}

# next_packages <major>: the same with the version of a successor, in /srv/next.
next_packages() {
    local one
    rm -rf "$scratch/next"
    mkdir -p "$scratch/next"
    for one in "$packaged/postgresql-$1-mailroom_"*.deb "$packaged"/mailroom_*.deb; do
        dpkg-deb --raw-extract "$one" "$scratch/next/tree"
        sed -i 's/^Version: .*/&+next/' "$scratch/next/tree/DEBIAN/control"
        dpkg-deb --root-owner-group --build "$scratch/next/tree" "$scratch/next" >/dev/null
        rm -rf "$scratch/next/tree"
    done
    tar --create --directory "$scratch" next | inside tar --extract --directory /srv
}

# What "After apt upgrade" promises: new packages change nothing that runs, until the commands there.
upgrade() {
    local unit=mailroom-send@app server program
    inside systemctl start "$unit"
    server=$(postmaster "$1") program=$(says MainPID "$unit")
    next_packages "$1"
    holds "apt upgrades the packages" eval 'page_block docs/start/install.md 1 '"$1"' >"$scratch/upgrade.log" 2>&1'
    holds "to the new version" [ "$(inside dpkg-query --show --showformat '${Version}' mailroom | sed 's/.*+//')" = next ]
    holds "the cluster goes on" [ "$server" = "$(postmaster "$1")" ]
    holds "and so does the unit" [ "$program" = "$(says MainPID "$unit")" ]
    holds "the commands of the page succeed" eval 'page_block docs/start/install.md 3 '"$1"' >"$scratch/after.log" 2>&1'
    holds "they update the extension" grep -q 'of extension "mailroom" is already installed' "$scratch/after.log"
    holds "and restart the cluster" [ "$server" != "$(postmaster "$1")" ]
    holds "and the unit" [ "$program" != "$(says MainPID "$unit")" ]
    register upgraded@example.com
    holds "PostgreSQL $1: mail goes out after an upgrade" within 30 mail_to upgraded@example.com
}

# What removal leaves, and that a second installation goes on.
remove_and_return() {
    local key=/var/lib/postgresql/$1/main/mailroom.key theirs=(/etc/mailroom/{transports.toml,send/app.conf,receive/app.conf,serve/app.conf}) before
    set_preload "$1" mailroom
    before=$(inside sha256sum "$key" "${theirs[@]}")
    inside systemctl start mailroom-send@app
    inside apt-get remove --yes -qq "postgresql-$1-mailroom" mailroom >"$scratch/remove.log" 2>&1
    holds "removal warns of the setting that stops the server" grep -q "/etc/postgresql/$1/main/postgresql.conf" "$scratch/remove.log"
    holds "and leaves the server running" serves
    holds "and ends the units" [ "$(says ActiveState mailroom-send@app)" = inactive ]
    inside apt-get purge --yes -qq "postgresql-$1-mailroom" mailroom >"$scratch/purge.log" 2>&1
    holds "purge leaves the key and what the administrator wrote" [ "$before" = "$(inside sha256sum "$key" "${theirs[@]}")" ]
    holds "and none of the package's files" inside sh -c "! find /usr /lib -name '*mailroom*' -not -path '/usr/share/doc/*' | grep ."
    holds "and no link to a unit" inside sh -c "! find /etc/systemd/system -name '*mailroom*' -type l | grep ."
    holds "and the database" [ "$(sql -d app -c "SELECT count(*) FROM accounts")" -ge 4 ]
    inside env DEBIAN_FRONTEND=noninteractive apt-get install --yes -qq "postgresql-$1-mailroom" mailroom >"$scratch/apt.log" 2>&1
    inside systemctl restart "postgresql@$1-main"
    within 20 serves
    register again@example.com
    holds "installed again, the worker goes on" within 30 mail_to again@example.com
}

# installed [major...]: for each, its packages on the release of Debian that has that PostgreSQL.
installed() {
    local one python
    as_root installed
    [ $# -gt 0 ] || set -- 15 17 18
    for one in "$@"; do
        [ -n "${debian_suites[$one]:-}" ] || fail "no release of Debian has PostgreSQL $one"
    done
    packages "$@"
    need_senders
    make_scratch
    trap 'stop_system; cleanup' EXIT
    for one in "$@"; do
        base_system "${debian_suites[$one]}" "${debian_suites[$one]}" systemd systemd-sysv dbus ca-certificates "postgresql-$one"
        echo "== PostgreSQL $one on Debian's ${debian_suites[$one]}"
        rm -rf "$scratch/system" "$scratch/gpg" "$scratch/mail.log"
        local_repository
        boot_system "${debian_suites[$one]}"
        python=$MAILROOM_PYTHON
        nsenter --target "$system" --net "$python" -u -m aiosmtpd --nosetuid --listen 127.0.0.1:2525 >"$scratch/mail.log" 2>&1 &
        mailcatcher=$!
        holds "PostgreSQL $one runs" within 60 serves
        first_mail "$one"
        first_mail_of_the_unit "$one"
        first_event_of_the_unit "$one"
        first_page_of_the_unit "$one"
        upgrade "$one"
        remove_and_return "$one"
        stop_system
    done
}

# fresh [command...]: what the README tells a newcomer to run, in a clone of the last commit, on a Debian 12 without
# anything but git, this machine's Rust toolchain and what its cargo has downloaded.
fresh() {
    local rustup=${RUSTUP_HOME:-$HOME/.rustup} cargo=${CARGO_HOME:-$HOME/.cargo} tree command
    as_root fresh
    [ $# -gt 0 ] || set -- 'make demo' 'make test'
    base_system fresh bookworm git make ca-certificates
    make_scratch
    tree=$scratch/fresh
    cp -a "$target/systems/fresh" "$tree"
    # This machine's network may have authorities of its own.
    cp -a /usr/local/share/ca-certificates "$tree/usr/local/share/"
    in_tree "$tree" update-ca-certificates >/dev/null
    git clone --quiet "$root" "$tree/root/mailroom"
    # In a container in which cargo has not run, it has downloaded nothing.
    mkdir -p "$cargo/registry"
    binds=("$rustup:/root/.rustup" "$cargo/bin:/root/.cargo/bin" "$cargo/registry:/root/.cargo/registry")
    for command in "$@"; do
        echo "== $command"
        in_tree "$tree" env -u CARGO_TARGET_DIR -u PGRX_HOME HOME=/root RUSTUP_HOME=/root/.rustup CARGO_HOME=/root/.cargo \
            PATH=/root/.cargo/bin:/usr/sbin:/usr/bin:/sbin:/bin sh -c "cd /root/mailroom && $command" ||
            fail "$command failed on a bare Debian 12"
        echo "== $command: passed"
    done
}
