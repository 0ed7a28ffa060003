//! The documents keep to what is there: each test that they name exists, and each file that they lead to. What the page on
//! sharding has in its blocks is executed, with the program in MAILROOM_SEND.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use crate::cluster::Cluster;

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// The documents, by their paths.
fn documents() -> Vec<(PathBuf, String)> {
    let mut paths: Vec<PathBuf> = fs::read_dir(root().join("docs"))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "md"))
        .collect();
    paths.push(root().join("README.md"));
    paths
        .into_iter()
        .map(|path| {
            let text = fs::read_to_string(&path).unwrap();
            (path, text)
        })
        .collect()
}

/// What stands between backticks within a line.
fn quoted(text: &str) -> impl Iterator<Item = &str> {
    text.lines()
        .filter(|line| !line.starts_with("```"))
        .flat_map(|line| line.split('`').skip(1).step_by(2))
}

/// The tests that a text names: a module of `tests/it/`, or `lib` and a module of `src/` or `crates/core/src/`, and a name. In `pg_test` they are
/// the functions that it calls.
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

/// Whether a source has a test of this name, in a block of `proptest!` or as a function.
fn has_test(source: &Path, name: &str) -> bool {
    has_marked(source, "#[test]", name)
}

/// Whether a source has a function of this name that an attribute marks.
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

/// The sources below a folder.
fn sources(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(sources(&path));
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
    found
}

fn exists(test: &str) -> bool {
    let tests = root().join("tests");
    let parts: Vec<&str> = test.split("::").collect();
    match parts[..] {
        ["regress", name] => tests.join(format!("pg_regress/sql/{name}.sql")).is_file(),
        ["isolation", name] => tests.join(format!("isolation/specs/{name}.spec")).is_file(),
        ["pg_test", name] => sources(&root().join("src/pg_test"))
            .iter()
            .any(|path| has_marked(path, "#[pg_extern]", name)),
        ["lib", ref module @ .., name] => ["src", "crates/core/src"].iter().any(|sources| {
            let module = format!("{sources}/{}", module.join("/"));
            [".rs", "/tests.rs"]
                .iter()
                .any(|end| has_test(&root().join(format!("{module}{end}")), name))
        }),
        [subject, name] => sources(&tests.join("it"))
            .iter()
            .filter(|path| {
                let below = path.strip_prefix(tests.join("it")).unwrap();
                below.with_extension("").iter().next().unwrap() == subject
            })
            .any(|path| has_test(path, name)),
        _ => false,
    }
}

#[test]
fn every_named_test_exists() {
    let mut named = BTreeSet::new();
    for (path, text) in documents() {
        for test in named_tests(&text) {
            assert!(exists(&test), "{}: there is no {test}", path.display());
            named.insert(test);
        }
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
    let text = fs::read_to_string(root().join("docs/security.md")).unwrap();
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

#[test]
fn every_link_to_a_file_leads_to_one() {
    let mut links = 0;
    for (path, text) in documents() {
        for link in text.split("](").skip(1) {
            let target = link.split([')', '#']).next().unwrap();
            if target.is_empty() || target.contains("://") {
                continue;
            }
            assert!(
                path.parent().unwrap().join(target).exists(),
                "{}: {target}",
                path.display()
            );
            links += 1;
        }
    }
    assert!(links >= 4, "only {links} links were found");
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
fn every_link_to_a_section_leads_to_one() {
    let mut links = 0;
    for (path, text) in documents() {
        for link in text.split("](").skip(1) {
            let target = link.split(')').next().unwrap();
            let Some((page, anchor)) = target.split_once('#') else {
                continue;
            };
            if page.contains("://") {
                continue;
            }
            let page = if page.is_empty() {
                text.clone()
            } else {
                fs::read_to_string(path.parent().unwrap().join(page)).unwrap()
            };
            assert!(
                anchors(&page).contains(anchor),
                "{}: {target}",
                path.display()
            );
            links += 1;
        }
    }
    assert!(links >= 10, "only {links} links were found");
}

#[test]
fn the_readme_is_short_and_lists_every_page() {
    let readme = fs::read_to_string(root().join("README.md")).unwrap();
    assert!(
        readme.lines().count() <= 150,
        "the README is longer than that"
    );
    for (path, _) in documents() {
        let name = path.file_name().unwrap().to_str().unwrap();
        let entry = format!("](docs/{name}): ");
        let is_listed = readme
            .lines()
            .any(|line| line.starts_with("- [") && line.contains(&entry));
        assert!(is_listed || name == "README.md", "{name} is not listed");
    }
}

/// Tests carry the numbers of the design's invariants: as in `i5_no_transaction_is_open`, or in the comment above a test.
#[test]
fn every_invariant_is_named_by_a_test() {
    let mut named = BTreeSet::new();
    for path in sources(&root().join("tests")) {
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

/// The fenced blocks of a text: their language, and what is in them.
fn blocks(text: &str) -> Vec<(&str, &str)> {
    let fenced = text.split("\n```").skip(1).step_by(2);
    fenced
        .map(|block| block.split_once('\n').unwrap())
        .collect()
}

/// What a program printed, which is to have succeeded.
fn printed(output: Output, block: &str) -> String {
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{block}\n{told}");
    String::from_utf8(output.stdout).unwrap()
}

/// SQL runs in each of the two databases that the page names, TOML is the transports file of the commands after it. A
/// sender is told to end when nothing is due.
#[test]
fn the_page_on_sharding_is_executed() {
    let cluster = Cluster::start(&["wal_level = logical"]);
    let databases = ["shop1", "shop2"];
    for database in databases {
        cluster.create_database(database);
    }
    let scratch = cluster.scratch();
    let transports = scratch.join("transports.toml");
    let program = std::env::var("MAILROOM_SEND").unwrap_or_else(|_| {
        panic!("MAILROOM_SEND is not set: run the tests with `make test`, which builds it")
    });
    symlink(program, scratch.join("mailroom")).unwrap();
    let path = [
        scratch.as_path(),
        &crate::cluster::bin_directory("MAILROOM_PG_CONFIG"),
    ]
    .map(|directory| directory.display().to_string())
    .join(":");
    let path = format!("{path}:{}", std::env::var("PATH").unwrap());
    let socket = cluster.socket().display().to_string().replace('/', "%2F");

    let page = fs::read_to_string(root().join("docs/sharding.md")).unwrap();
    let file = blocks(&page)
        .into_iter()
        .find(|(language, _)| *language == "toml");
    fs::write(&transports, file.unwrap().1).unwrap();
    fs::set_permissions(&transports, fs::Permissions::from_mode(0o600)).unwrap();
    cluster.give_away(&transports);
    let mut executed = 0;
    for (language, block) in blocks(&page) {
        match language {
            "sql" => {
                let promised: Vec<&str> = block
                    .lines()
                    .filter_map(|line| Some(line.split_once("-- => ")?.1))
                    .collect();
                for database in databases {
                    let mut psql = cluster.program("psql");
                    psql.args([
                        "-X",
                        "-q",
                        "-A",
                        "-t",
                        "-v",
                        "ON_ERROR_STOP=1",
                        "-d",
                        database,
                    ]);
                    let output = psql.args(["-c", block]).output().unwrap();
                    let told = printed(output, block);
                    let told: Vec<&str> = told.lines().collect();
                    assert_eq!(told, promised, "{database}: {block}");
                }
            }
            "sh" => {
                let script = block
                    .replace("mailroom send", "mailroom send --once")
                    .replace(
                        "/etc/mailroom/transports.toml",
                        &transports.display().to_string(),
                    )
                    .replace("db1.internal", &socket);
                let mut shell = cluster.as_server_user(Command::new("sh"));
                shell.env("PATH", &path).args(["-euc", &script]);
                let told = printed(shell.output().unwrap(), block);
                assert!(!block.contains("psql") || told.contains("shop2"), "{told}");
            }
            "toml" => {}
            other => panic!("what is {other}?"),
        }
        executed += 1;
    }
    assert!(executed >= 7, "only {executed} blocks were found");
}
