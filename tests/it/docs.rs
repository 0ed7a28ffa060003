//! The book keeps to what is there: each test that it names exists, each link leads to a page or a section, and each of its
//! blocks is executed, here or by the test that `ELSEWHERE` names.
//!
//! Blocks marked `sql` run in the order of their page, in a database `app` of the page's own that has a worker; between two of them
//! the queues are given time to empty. `fresh` gives a block a database of its own, `no-worker` a server that does not preload the
//! library. `crate::book::run_sql` says what the comments in them promise.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::process::{Command, Output};

use crate::book::{Block, Page, blocks, files, pages, read, root, run_sql};
use crate::cluster::{Cluster, eventually, number};

/// The pages whose commands run `mailroom` in two databases.
const FLEETS: [&str; 2] = ["docs/guides/sharding.md", "docs/guides/several-machines.md"];

/// The blocks that other tests execute: page, what stands behind the fence, and the test.
const ELSEWHERE: [(&str, &str, &str); 8] = [
    (
        "README.md",
        "console",
        "readme::the_picture_is_what_the_demonstration_shows",
    ),
    (
        "docs/guides/consumers.md",
        "python",
        "senders::the_python_sender_delivers_by_smtp",
    ),
    (
        "docs/guides/consumers.md",
        "js",
        "drivers::the_sender_of_the_book_for_node_delivers",
    ),
    (
        "docs/guides/consumers.md",
        "rust",
        "senders::the_rust_sender_delivers_by_smtp",
    ),
    (
        "docs/guides/change-streams.md",
        "properties",
        "change_stream::the_recipe_emits_each_new_message_once_and_no_secret",
    ),
    (
        "docs/operations/key-file.md",
        "sh key",
        "docs::the_key_is_rotated_as_described",
    ),
    (
        "docs/operations/backup.md",
        "sh backup",
        "docs::a_database_is_restored_as_described",
    ),
    (
        "docs/operations/backup.md",
        "sh copy",
        "docs::a_database_is_restored_as_described",
    ),
];

/// The blocks that no test executes: page, what stands behind the fence, and why.
const NOT_EXECUTED: [(&str, &str, &str); 2] = [
    (
        "docs/operations/security.md",
        "sh fuzz",
        "it needs a nightly compiler, and runs as long as one lets it",
    ),
    (
        "docs/guides/several-machines.md",
        "ini systemd",
        "no systemd runs in a test",
    ),
];

/// What stands between backticks within a line.
fn quoted(text: &str) -> impl Iterator<Item = &str> {
    text.lines()
        .filter(|line| !line.starts_with("```"))
        .flat_map(|line| line.split('`').skip(1).step_by(2))
}

/// The tests that a text names: a program of `tests/`, or `lib` and a module, and a name. In `pg_test` they are the functions that
/// it calls.
fn named_tests(text: &str) -> BTreeSet<String> {
    quoted(text)
        .filter(|name| {
            name.contains("::")
                && name
                    .chars()
                    .all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || "_:-".contains(c))
                && *name != "program::test"
        })
        .map(str::to_owned)
        .collect()
}

/// Whether a source has a function of this name that an attribute marks, in a block of `proptest!` too.
fn has_marked(source: &Path, attribute: &str, name: &str) -> bool {
    let text = fs::read_to_string(source).unwrap_or_default();
    let mut is_test = false;
    text.lines().any(|line| {
        let line = line.trim();
        if line.starts_with(attribute) {
            is_test = true;
        } else if is_test && !line.starts_with('#') {
            is_test = false;
            return line
                .strip_prefix("fn ")
                .is_some_and(|rest| rest.split('(').next() == Some(name));
        }
        false
    })
}

/// Whether a file is a module, or in the folder of one.
fn is_of(module: &str, path: &Path) -> bool {
    path.strip_prefix(root())
        .unwrap()
        .with_extension("")
        .components()
        .any(|part| part.as_os_str() == module)
}

fn exists(test: &str) -> bool {
    let parts: Vec<&str> = test.split("::").collect();
    let tests = root().join("tests");
    match parts[..] {
        ["regress", name] => tests.join(format!("pg_regress/sql/{name}.sql")).is_file(),
        ["isolation", name] => tests.join(format!("isolation/specs/{name}.spec")).is_file(),
        ["pg_test", name] => files("src", "rs")
            .iter()
            .any(|path| is_of("pg_test", path) && has_marked(path, "#[pg_extern]", name)),
        ["lib", ref modules @ .., name] => ["src", "crates/core/src"]
            .into_iter()
            .flat_map(|folder| files(folder, "rs"))
            .any(|path| {
                modules.iter().all(|module| is_of(module, &path))
                    && has_marked(&path, "#[test]", name)
            }),
        [program, name] => files("tests", "rs")
            .iter()
            .any(|path| is_of(program, path) && has_marked(path, "#[test]", name)),
        _ => false,
    }
}

#[test]
fn every_named_test_exists() {
    let mut named = BTreeSet::new();
    for page in pages() {
        for test in named_tests(&page.text) {
            assert!(exists(&test), "{}: there is no {test}", page.name);
            named.insert(test);
        }
    }
    for (page, _, test) in ELSEWHERE {
        assert!(exists(test), "{page}: there is no {test}");
    }
    assert!(named.len() >= 40, "only {} tests are named", named.len());
    for missing in [
        "accounts::no_such_test",
        "nowhere::rolling_back_is_no_way_to_guess_on",
        "lib::token::no_such_test",
        "regress::nothing",
        "pg_test::no_such_function",
        // A function beside them.
        "pg_test::chi_square",
        // A function, but no test.
        "accounts::redeem",
    ] {
        assert!(!exists(missing), "{missing}");
    }
}

#[test]
fn every_claim_of_the_security_page_names_its_test() {
    let text = read("docs/operations/security.md");
    let mut claims = 0;
    for section in [
        "Who reads and does what",
        "Links",
        "The key",
        "Hostile surroundings",
    ] {
        let (_, rest) = text
            .split_once(&format!("\n## {section}\n"))
            .unwrap_or_else(|| panic!("there is no section {section}"));
        let body = rest.split("\n## ").next().unwrap();
        for claim in body.split("\n- ").skip(1) {
            // What the server's version does is not ours to test.
            if claim.starts_with("On PostgreSQL") {
                continue;
            }
            assert!(
                !named_tests(claim).is_empty(),
                "{section}: which test holds this?\n{claim}"
            );
            claims += 1;
        }
    }
    assert!(claims >= 25, "only {claims} claims were found");
}

/// The targets of the links on a page that lead to files of the checkout.
fn links(page: &Page) -> Vec<String> {
    page.text
        .split("](")
        .skip(1)
        .map(|link| link.split(')').next().unwrap().to_owned())
        .filter(|target| !target.contains("://"))
        .collect()
}

/// The files and folders of the checkout that a text names.
fn named_files(text: &str) -> impl Iterator<Item = &str> {
    const TOP: [&str; 6] = ["benches", "crates", "docs", "sql", "src", "tests"];
    quoted(text).filter(|name| {
        let (top, rest) = name.split_once('/').unwrap_or((name, "-"));
        TOP.contains(&top)
            && rest
                .chars()
                .all(|c| c.is_ascii_alphanumeric() || "_-./".contains(c))
            && !name.contains("--")
    })
}

#[test]
fn every_named_file_exists() {
    let mut named = 0;
    for page in pages() {
        for name in named_files(&page.text) {
            assert!(root().join(name).exists(), "{}: {name}", page.name);
            named += 1;
        }
    }
    assert!(named >= 40, "only {named} files were named");
}

/// The anchors of a page, as GitHub makes them of headings.
fn anchors(page: &str) -> BTreeSet<String> {
    let mut is_code = false;
    page.lines()
        .filter(|line| {
            is_code ^= line.starts_with("```");
            !is_code && line.starts_with('#')
        })
        .map(|line| {
            line.trim_start_matches('#')
                .trim()
                .to_lowercase()
                .chars()
                .filter(|c| c.is_alphanumeric() || "-_ ".contains(*c))
                .map(|c| if c == ' ' { '-' } else { c })
                .collect()
        })
        .collect()
}

#[test]
fn every_link_leads_to_a_file_and_a_section_of_it() {
    let (mut to_files, mut to_sections) = (0, 0);
    for page in pages() {
        let folder = root().join(&page.name).parent().unwrap().to_owned();
        for target in links(&page) {
            let (file, anchor) = target.split_once('#').unwrap_or((&target, ""));
            let path = folder.join(file);
            assert!(file.is_empty() || path.exists(), "{}: {target}", page.name);
            to_files += 1;
            if anchor.is_empty() {
                continue;
            }
            let text = if file.is_empty() {
                page.text.clone()
            } else {
                fs::read_to_string(path).unwrap()
            };
            assert!(anchors(&text).contains(anchor), "{}: {target}", page.name);
            to_sections += 1;
        }
    }
    assert!(to_files >= 100, "only {to_files} links were found");
    assert!(
        to_sections >= 20,
        "only {to_sections} links to sections were found"
    );
}

#[test]
fn the_table_of_contents_has_every_page() {
    let pages = pages();
    let contents = pages
        .iter()
        .find(|page| page.name == "docs/README.md")
        .unwrap();
    let listed: BTreeSet<String> = links(contents).into_iter().collect();
    for page in &pages {
        let Some(name) = page.name.strip_prefix("docs/") else {
            continue;
        };
        assert!(
            name == "README.md" || listed.contains(name),
            "{name} is not listed"
        );
    }
}

/// Tests carry the numbers of the design's invariants: as in `i5_no_transaction_is_open`, or in the comment above a test.
#[test]
fn every_invariant_is_named_by_a_test() {
    let mut named = BTreeSet::new();
    for path in files("tests", "rs") {
        let text = fs::read_to_string(&path).unwrap();
        let mut comment = String::new();
        for line in text.lines().map(str::trim) {
            if let Some(rest) = line.strip_prefix("///") {
                comment.push_str(rest);
            } else if let Some(test) = line.strip_prefix("fn ") {
                let words = test.split('_').take(1).map(str::to_uppercase);
                named.extend(words.filter(|word| is_invariant(word)));
            } else if line == "#[test]" {
                let words = comment.split(|c: char| !c.is_ascii_alphanumeric());
                named.extend(words.filter(|word| is_invariant(word)).map(str::to_owned));
            } else {
                comment.clear();
            }
        }
    }
    let missing: Vec<String> = (1..=9)
        .map(|number| format!("I{number}"))
        .filter(|name| !named.contains(name))
        .collect();
    assert!(missing.is_empty(), "no test names {missing:?}");
}

/// Whether a word is `I` and a number.
fn is_invariant(word: &str) -> bool {
    word.strip_prefix('I')
        .is_some_and(|number| number.parse::<u8>().is_ok())
}

/// Who executes a block of a page; None for nobody.
fn executed_by(page: &Page, block: &Block) -> Option<&'static str> {
    let name = page.name.as_str();
    let info = block.info();
    let listed = ELSEWHERE
        .iter()
        .chain(&NOT_EXECUTED)
        .find(|(of, what, _)| *of == name && *what == info);
    if let Some((_, _, test)) = listed {
        return Some(test);
    }
    match block.language.as_str() {
        "sql" | "sh" if FLEETS.contains(&name) => Some("the_pages_on_fleets_are_executed"),
        "sql" => Some("every_query_works"),
        "ini" => Some("every_setting_is_accepted"),
        "toml" => Some("every_transports_file_is_good"),
        "sh" if block.text.lines().all(|line| line.starts_with("make ")) => {
            Some("every_make_target_exists")
        }
        // A picture.
        "mermaid" => Some(""),
        _ => None,
    }
}

#[test]
fn every_block_is_executed() {
    let pages = pages();
    let mut seen = 0;
    let mut found = BTreeSet::new();
    for page in &pages {
        for block in blocks(&page.text) {
            let info = block.info();
            assert!(
                executed_by(page, &block).is_some(),
                "{}: no test executes\n{info}\n{}",
                page.name,
                block.text
            );
            found.insert((page.name.clone(), info));
            seen += 1;
        }
    }
    assert!(seen >= 80, "only {seen} blocks were found");
    for (page, info, _) in ELSEWHERE.iter().chain(&NOT_EXECUTED) {
        let entry = ((*page).to_owned(), (*info).to_owned());
        assert!(found.contains(&entry), "there is no {entry:?}");
    }
}

#[test]
fn a_promise_is_kept_or_broken() {
    crate::book::check_promises();
}

#[test]
fn every_query_works() {
    let cluster = Cluster::start(&[]);
    let bare = Cluster::start(&["shared_preload_libraries = ''"]);
    let mut executed = 0;
    for page in pages() {
        let mut blocks = blocks(&page.text);
        blocks.retain(|block| executed_by(&page, block) == Some("every_query_works"));
        if blocks.is_empty() {
            continue;
        }
        let mut admin = cluster.connect("postgres");
        admin.batch_execute("DROP DATABASE IF EXISTS app").unwrap();
        admin.batch_execute("CREATE DATABASE app").unwrap();
        if !blocks[0].text.contains("CREATE EXTENSION") {
            let install = "CREATE SCHEMA mailroom; CREATE EXTENSION mailroom SCHEMA mailroom; \
                 ALTER DATABASE app SET search_path = \"$user\", public, mailroom";
            cluster.connect("app").batch_execute(install).unwrap();
        }
        for (index, block) in blocks.iter().enumerate() {
            let server = if block.has("no-worker") {
                &bare
            } else {
                &cluster
            };
            eprintln!("{}: block {index}", page.name);
            if block.has("fresh") {
                let database = format!("fresh{executed}");
                server
                    .connect("postgres")
                    .batch_execute(&format!("CREATE DATABASE {database}"))
                    .unwrap();
                run_sql(server, &database, &block.text);
            } else {
                run_sql(server, "app", &block.text);
                let mut client = server.connect("app");
                eventually("the queues to empty", || {
                    let waiting = "SELECT (SELECT count(*) FROM mailroom.link_requests) + (SELECT count(*) FROM mailroom.pending)";
                    (number(&mut client, waiting) == 0).then_some(())
                });
            }
            executed += 1;
        }
    }
    assert!(executed >= 60, "only {executed} blocks were found");
}

#[test]
fn every_setting_is_accepted() {
    let cluster = Cluster::start(&[]);
    let mut client = cluster.connect("postgres");
    let mut executed = 0;
    for page in pages() {
        for block in blocks(&page.text) {
            if executed_by(&page, &block) != Some("every_setting_is_accepted") {
                continue;
            }
            // The last line for a name counts, and this file is read last.
            let before = read_data(&cluster);
            cluster.append("postgresql.auto.conf", &block.text);
            // A change that takes a restart is no mistake.
            let wrong = "SELECT count(*) FROM pg_file_settings WHERE error IS NOT NULL AND error <> 'setting could not be applied'";
            assert_eq!(
                number(&mut client, wrong),
                0,
                "{}\n{}",
                page.name,
                block.text
            );
            let settings = block.text.lines().filter(|line| line.contains('=')).count();
            let read = format!(
                "SELECT count(*) FROM pg_file_settings WHERE sourcefile LIKE '%auto.conf' AND sourceline > {before}"
            );
            assert_eq!(usize::try_from(number(&mut client, &read)), Ok(settings));
            executed += 1;
        }
    }
    assert!(executed >= 3, "only {executed} blocks were found");
}

/// The number of lines in the configuration that ALTER SYSTEM writes.
fn read_data(cluster: &Cluster) -> usize {
    let file = cluster.data().join("postgresql.auto.conf");
    fs::read_to_string(file).unwrap().lines().count()
}

#[test]
fn every_transports_file_is_good() {
    let mut seen = 0;
    for page in pages() {
        for block in blocks(&page.text) {
            if executed_by(&page, &block) == Some("every_transports_file_is_good") {
                let read = mailroom_core::transport::config::parse(&block.text, Path::new("/"));
                assert!(
                    read.is_ok(),
                    "{}\n{}\n{:?}",
                    page.name,
                    block.text,
                    read.err()
                );
                seen += 1;
            }
        }
    }
    assert!(seen >= 10, "only {seen} blocks were found");
}

#[test]
fn every_make_target_exists() {
    let mut seen = 0;
    for page in pages() {
        for block in blocks(&page.text) {
            if executed_by(&page, &block) != Some("every_make_target_exists") {
                continue;
            }
            for line in block.text.lines() {
                let arguments = line.strip_prefix("make ").unwrap();
                // -n prints what would be done, and fails for a target that does not exist.
                let output = Command::new("sh")
                    .args(["-c", &format!("make -n {arguments}")])
                    .current_dir(root())
                    .env_remove("MAKEFLAGS")
                    .env_remove("MAKELEVEL")
                    .output()
                    .unwrap();
                let errors = String::from_utf8_lossy(&output.stderr);
                assert!(output.status.success(), "{line}\n{errors}");
                seen += 1;
            }
        }
    }
    assert!(seen >= 3, "only {seen} commands were found");
}

/// What a program printed, which is to have succeeded.
fn printed(output: Output, block: &str) -> String {
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{block}\n{told}");
    String::from_utf8(output.stdout).unwrap()
}

/// A directory with the programs of the server and `mailroom`, as PATH.
fn path(cluster: &Cluster) -> String {
    let scratch = cluster.scratch();
    let program = std::env::var("MAILROOM_SEND").unwrap_or_else(|_| {
        panic!("MAILROOM_SEND is not set: run the tests with `make test`, which builds it")
    });
    let link = scratch.join("mailroom");
    let _ = fs::remove_file(&link);
    symlink(program, link).unwrap();
    format!(
        "{}:{}:{}",
        scratch.display(),
        crate::cluster::bin_directory("MAILROOM_PG_CONFIG").display(),
        std::env::var("PATH").unwrap()
    )
}

/// SQL runs in each of two databases; TOML, or a transport into the log, is the transports file of the commands. A sender is
/// told to end when nothing is due.
#[test]
fn the_pages_on_fleets_are_executed() {
    for page in FLEETS {
        let cluster = Cluster::start(&["wal_level = logical"]);
        let databases = ["shop1", "shop2"];
        for database in databases {
            cluster.create_database(database);
        }
        let transports = cluster.scratch().join("transports.toml");
        let path = path(&cluster);
        let socket = cluster.socket().display().to_string().replace('/', "%2F");
        let text = read(page);
        let file = blocks(&text)
            .into_iter()
            .find(|block| block.language == "toml")
            .map_or_else(
                || "[transports.log]\nprovider = \"log\"\n".to_owned(),
                |block| block.text,
            );
        fs::write(&transports, file).unwrap();
        fs::set_permissions(&transports, fs::Permissions::from_mode(0o600)).unwrap();
        cluster.give_away(&transports);
        let mut executed = 0;
        for block in blocks(&text) {
            match block.info().as_str() {
                "sql" => {
                    for database in databases {
                        run_sql(&cluster, database, &block.text);
                    }
                }
                "sh" => {
                    let script = block
                        .text
                        .replace("mailroom send", "mailroom send --once")
                        .replace(
                            "/etc/mailroom/transports.toml",
                            &transports.display().to_string(),
                        )
                        .replace("db1.internal", &socket);
                    let mut shell = cluster.as_server_user(Command::new("sh"));
                    shell.env("PATH", &path).args(["-euc", &script]);
                    let told = printed(shell.output().unwrap(), &block.text);
                    assert!(
                        !block.text.contains("psql") || told.contains("shop2"),
                        "{told}"
                    );
                }
                _ => continue,
            }
            executed += 1;
        }
        assert!(executed >= 2, "only {executed} blocks were found in {page}");
    }
}

#[test]
fn the_key_is_rotated_as_described() {
    let cluster = Cluster::start(&[]);
    let mut client = cluster.create_database("app");
    let secret = vec![7_u8; 32];
    let sign = "SELECT mailroom_sign('activation', $1)";
    let old: String = client.query_one(sign, &[&secret]).unwrap().get(0);
    let rotation = crate::book::block("docs/operations/key-file.md", "sh key");
    let mut shell = Command::new("sh");
    shell.args(["-e", "-c", &rotation]);
    let status = cluster
        .as_server_user(shell)
        .current_dir(cluster.data())
        .status()
        .unwrap();
    assert!(status.success());
    let new: String = client.query_one(sign, &[&secret]).unwrap().get(0);
    assert_ne!(old, new);
    for token in [old, new] {
        let genuine: bool = client
            .query_one("SELECT mailroom_verify($1, 'activation')", &[&token])
            .unwrap()
            .get(0);
        assert!(genuine);
    }
}

#[test]
fn a_database_is_restored_as_described() {
    let (old, new) = (Cluster::start(&[]), Cluster::start(&[]));
    let mut client = old.create_database("app");
    client
        .batch_execute("INSERT INTO accounts (email, login) VALUES ('a@example.com', 'a')")
        .unwrap();
    let sign = "SELECT mailroom_sign('activation', decode(repeat('07', 32), 'hex'))";
    let signed: String = client.query_one(sign, &[]).unwrap().get(0);
    let backup = crate::book::block("docs/operations/backup.md", "sh backup");
    let (dump, restore) = backup.split_once("# On the other server").unwrap();
    let copy = crate::book::block("docs/operations/backup.md", "sh copy");
    let copy = format!("its user\ncreatedb --template=template0 copy\n{copy}");
    let shared = |name: &str| old.scratch().join(name).display().to_string();
    let run = |cluster: &Cluster, script: &str| {
        let script = script
            .replace("app.dump", &shared("app.dump"))
            .replace("mailroom.key.copy", &shared("mailroom.key.copy"));
        let mut shell = cluster.as_server_user(Command::new("sh"));
        shell
            .env("PATH", path(cluster))
            .env("PGDATA", cluster.data())
            .args(["-euc", &format!("#{script}")]);
        printed(shell.output().unwrap(), &script);
    };
    run(&old, &format!("\n{dump}"));
    run(&new, restore);
    let mut client = new.connect("app");
    assert_eq!(number(&mut client, "SELECT count(*) FROM accounts"), 1);
    let again: String = client.query_one(sign, &[]).unwrap().get(0);
    assert_eq!(again, signed);
    run(&new, &copy);
    let paused = "SELECT count(*) FROM pauses WHERE paused_by = 'postgres'";
    assert_eq!(number(&mut new.connect("copy"), paused), 1);
}
