# What is checked without running it. Part of tests/run.
# shellcheck shell=bash

cargo_deny_version=0.20.2

# need_component <cargo subcommand> <rustup component>
need_component() {
    ! cargo "$1" --version >/dev/null 2>&1 || return 0
    command -v rustup >/dev/null || fail "cargo $1 is missing from the Rust toolchain"
    quietly "$2" "adding $2 to the Rust toolchain" rustup component add "$2"
}

# The SQL functions of more than 60 lines without a comment above them that says why.
long_functions() {
    find "$root/sql" -mindepth 1 -name '*.sql' -not -path '*/queries/*' -print0 | sort -z | xargs -0 awk '
        FNR == 1 { name = comment = ""; inside = 0 }
        name == "" && /^--/ { comment = comment "\n" $0; next }
        name == "" && /^CREATE (FUNCTION|PROCEDURE) / { name = $3; sub(/\(.*/, "", name); first = FNR }
        name == "" { comment = ""; next }
        # Within its body, or not.
        { inside = (inside + gsub(/\$\$/, "")) % 2 }
        !inside && /;$/ {
            if (FNR - first >= 60 && comment !~ /\n-- Long because /) print FILENAME ":" first ": " name
            name = comment = ""
        }'
}

# What `mailroom serve` may cost: lines of its assets, and crates. Its markup is escaped, always.
page_budgets() {
    local serve=$root/crates/mailroom/src/serve/assets crates
    [ "$(wc -l <"$serve/page.js")" -le 200 ] || fail "page.js has more than 200 lines"
    [ "$(wc -l <"$serve/page.css")" -le 350 ] || fail "page.css has more than 350 lines"
    ! grep -rn PreEscaped "$root/crates/mailroom/src" >&2 || fail "markup is not to be written unescaped"
    # 4 of them came with the page, which may bring 5.
    crates=$(cargo tree --locked --package mailroom-cli --edges normal,build --prefix none --format '{p}' |
        cut -d' ' -f1 | sort -u | wc -l)
    [ "$crates" -le 191 ] || fail "the program mailroom has $crates crates, more than 191"
}

# What rustfmt and clippy say, what lies at the top of the tree, how long functions are, and what the page costs.
lint_sources() {
    local tracked stray long
    need_component fmt rustfmt
    need_component clippy clippy
    echo "== top level"
    tracked=$(git -C "$root" ls-files) || fail "git does not list the files of $root"
    stray=$(cut -d/ -f1 <<<"$tracked" | sort -u | grep -vxF -f <(printf '%s\n' "${top_level[@]}") || true)
    [ -z "$stray" ] || fail "not of the top level: $(tr '\n' ' ' <<<"$stray")"
    echo "== long functions"
    long=$(long_functions)
    [ -z "$long" ] || fail "more than 60 lines without a comment \"Long because …\":"$'\n'"$long"
    echo "== budgets of the page"
    page_budgets
    echo "== licences"
    python3 "$root/packaging/copyright.py" "$target/copyright" || fail "packaging/copyright.py failed"
    diff "$root/packaging/debian/copyright" "$target/copyright" ||
        fail "packaging/debian/copyright is stale: run packaging/copyright.py packaging/debian/copyright"
    echo "== manual pages"
    mkdir -p "$target/man"
    python3 "$root/packaging/manpages.py" "$target/man" 0 1970-01-01 || fail "help.txt is not what packaging/manpages.py reads"
    echo "== archive for PGXN"
    python3 "$root/tests/lint/archive.py" "$(dist)" || fail "the archive of make dist, of the last commit, has these problems"
    echo "== rustfmt"
    cargo fmt --all --check
    echo "== clippy"
    cargo clippy --quiet --workspace --all-targets "${features[@]}" -- -D warnings
}

# deny: licences, banned and duplicate crates, and sources, as deny.toml has them.
deny() {
    PATH=$tools/bin:$PATH
    # Built in a directory of its own that cargo removes, so not in target/.
    [ "$(cargo deny --version 2>/dev/null)" = "cargo-deny $cargo_deny_version" ] ||
        quietly cargo-deny "building cargo-deny $cargo_deny_version: once, and some minutes" \
            env -u CARGO_TARGET_DIR cargo install --locked cargo-deny --version "$cargo_deny_version" --root "$tools"
    cargo deny --manifest-path "$root/Cargo.toml" check bans licenses sources
}

check() {
    lint_sources
    unit_tests "unit tests" --workspace --lib --bins
}

# statements <script>: without comments, which pgrx adds its own to, and empty lines.
statements() { sed -E 's#^/\*.*\*/$##; /^\/\*/,/\*\/$/d; /^ *--/d; /^$/d' "$1"; }

lint() {
    local script=$target/mailroom.sql
    need_python pgspot "pgspot==$pgspot_version"
    lint_sources
    cargo clippy --quiet --workspace --all-targets "${test_features[@]}" -- -D warnings
    echo "== cargo deny"
    deny
    echo "== install script"
    need_cargo_pgrx
    quietly schema "generating the install script by cargo pgrx" \
        cargo pgrx schema --pg-config "$server" "${features[@]}" --out "$script"
    install_script >"$script.files"
    diff <(statements "$script") <(statements "$script.files") ||
        fail "cargo pgrx has another install script than the files of sql/: see src/install.rs"
    echo "== pgspot"
    # pgspot does not read the bodies of standard SQL (RETURN …). These are parsed when the function is made, under the
    # script's own path, so they are shown to it as functions that pin that path.
    # shellcheck disable=SC2016
    awk '
        /^RETURN / { sub(/^RETURN /, "SET search_path = pg_catalog, pg_temp AS $body$ SELECT "); inside = 1 }
        inside && /;$/ { sub(/;$/, " $body$;"); inside = 0 }
        { print }
    ' "$script.files" >"$script.pgspot"
    "$tools/pgspot/bin/pgspot" "$script.pgspot"
    echo "== plpgsql_check"
    has postgresql-15-plpgsql-check ||
        fail "the server of $server is without plpgsql_check; install it, or unset PG_CONFIG"
    stage release
    quietly lint_functions "building what runs it" \
        cargo build "${features[@]}" --example lint_functions
    cargo run --quiet "${features[@]}" --example lint_functions
}
