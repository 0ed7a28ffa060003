//! Upgrades: ALTER EXTENSION mailroom UPDATE of an older version has the same result as CREATE EXTENSION.
//!
//! `tests/upgrade/released/` contains the install script of each released version. Until there is one, and to show that
//! the comparison finds every difference, an older version is made from [`CHANGES`]. Scripts that are not part of the
//! package are put into a copy of the server's directories, which shares their files by hard links.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::cluster::{Cluster, ask_pg_config, eventually, number};
use postgres::Client;

mod changes;
mod library;

use changes::CHANGES;

const VERSION: &str = env!("CARGO_PKG_VERSION");
/// The version that is made from [`CHANGES`].
const OLDER: &str = "0.0.9";

/// A copy of the server with additional scripts.
struct Scripts {
    bin: PathBuf,
    extension: PathBuf,
}

impl Scripts {
    fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let [bin, share] =
            ["--bindir", "--sharedir"].map(|option| ask_pg_config("MAILROOM_PG_CONFIG", option));
        let stage = PathBuf::from(std::env::var_os("MAILROOM_STAGE").unwrap());
        // Beside the staged server, in its file system; it is removed with the run, as the staged server is.
        let root = stage.with_file_name(format!(
            "mailroom-{}-scripts{}",
            std::process::id(),
            NEXT.fetch_add(1, Ordering::Relaxed)
        ));
        let _ = fs::remove_dir_all(&root);
        // The server finds its other directories, and perhaps its own libraries, relative to its program. The copies
        // share their files; files that are written here have other names.
        let copied = Command::new("cp")
            .arg("-al")
            .args([&stage, &root])
            .status()
            .unwrap();
        assert!(copied.success());
        let place = |path: &Path| root.join(path.strip_prefix(&stage).unwrap());
        Self {
            bin: place(&bin),
            extension: place(&share).join("extension"),
        }
    }

    fn write(&self, name: &str, script: &str) {
        fs::write(self.extension.join(name), script).unwrap();
    }

    /// The script of CREATE EXTENSION.
    fn current(&self) -> String {
        fs::read_to_string(self.extension.join(format!("mailroom--{VERSION}.sql"))).unwrap()
    }

    /// Writes the older version and the upgrade script from it. If `left_out` is one of the statements, the script
    /// lacks that one and those of the same change that follow it.
    fn write_sample(&self, terms: &BTreeMap<String, String>, left_out: Option<&str>) {
        let statements = |list: Vec<String>| list.join(";\n") + ";\n";
        let age = CHANGES.iter().map(|change| change.age.to_owned()).collect();
        let mend = CHANGES
            .iter()
            .flat_map(|change| {
                change
                    .mend
                    .iter()
                    .take_while(|statement| left_out != Some(**statement))
            })
            .map(|statement| fill_in(statement, terms))
            .collect();
        self.write(
            &format!("mailroom--{OLDER}.sql"),
            &(self.current() + &statements(age)),
        );
        self.write(
            &format!("mailroom--{OLDER}--{VERSION}.sql"),
            &(library::requirement(VERSION) + &statements(mend)),
        );
    }
}

/// The terms in braces of all changes, with their values in the installed extension.
fn terms(client: &mut Client) -> BTreeMap<String, String> {
    let mut terms = BTreeMap::new();
    for statement in CHANGES.iter().flat_map(|change| change.mend) {
        let Some((_, rest)) = statement.split_once('{') else {
            continue;
        };
        let (term, _) = rest.split_once('}').unwrap();
        let (kind, name) = term.split_once(' ').unwrap();
        let query = match kind {
            "index" => "SELECT pg_get_indexdef($1::text::regclass)",
            "constraint" => {
                "SELECT pg_get_constraintdef(oid) FROM pg_constraint WHERE conname = $1::text"
            }
            "trigger" => "SELECT pg_get_triggerdef(oid) FROM pg_trigger WHERE tgname = $1::text",
            "function" => "SELECT pg_get_functiondef($1::text::regprocedure)",
            "view" => "SELECT rtrim(pg_get_viewdef($1::text::regclass), ';')",
            "owner" => {
                "SELECT proowner::regrole::text FROM pg_proc WHERE oid = $1::text::regprocedure"
            }
            "comment" if name.contains('(') => {
                "SELECT quote_literal(obj_description($1::text::regprocedure, 'pg_proc'))"
            }
            "comment" => "SELECT quote_literal(obj_description($1::text::regclass, 'pg_class'))",
            _ => panic!("what is {kind}?"),
        };
        let text: String = client.query_one(query, &[&name]).unwrap().get(0);
        terms.insert(format!("{{{term}}}"), text);
    }
    terms
}

fn fill_in(statement: &str, terms: &BTreeMap<String, String>) -> String {
    terms
        .iter()
        .fold(statement.to_owned(), |text, (term, value)| {
            text.replace(term, value)
        })
}

/// A line for everything that the installed extension consists of.
fn snapshot(client: &mut Client) -> BTreeSet<String> {
    let mut transaction = client.transaction().unwrap();
    transaction
        .batch_execute("SET LOCAL search_path = ''")
        .unwrap();
    let rows = transaction
        .query(include_str!("../upgrade/snapshot.sql"), &[])
        .unwrap();
    rows.iter().map(|row| row.get(0)).collect()
}

/// The lines that only one of the two has.
fn differences(fresh: &BTreeSet<String>, upgraded: &BTreeSet<String>) -> Vec<String> {
    let missing = fresh.difference(upgraded).map(|line| format!("- {line}"));
    let added = upgraded.difference(fresh).map(|line| format!("+ {line}"));
    missing.chain(added).collect()
}

/// Installs a version, upgrades it and drops it; returns its snapshot after the upgrade.
fn upgrade_from(client: &mut Client, version: &str) -> BTreeSet<String> {
    client
        .batch_execute(&format!("CREATE EXTENSION mailroom VERSION '{version}'"))
        .unwrap();
    client
        .batch_execute("ALTER EXTENSION mailroom UPDATE")
        .unwrap();
    let upgraded = snapshot(client);
    client.batch_execute("DROP EXTENSION mailroom").unwrap();
    upgraded
}

/// The snapshot of a new installation, which is dropped again, and the values of the terms.
fn fresh(client: &mut Client) -> (BTreeSet<String>, BTreeMap<String, String>) {
    client.batch_execute("CREATE EXTENSION mailroom").unwrap();
    let fresh = snapshot(client);
    let terms = terms(client);
    client.batch_execute("DROP EXTENSION mailroom").unwrap();
    (fresh, terms)
}

const QUIET: &[&str] = &["shared_preload_libraries = ''"];

#[test]
fn no_difference_goes_unseen() {
    let scripts = Scripts::new();
    let cluster = Cluster::start_in(&scripts.bin, QUIET);
    let mut client = cluster.connect("postgres");
    client
        .batch_execute(
            "CREATE ROLE onlooker; ALTER DEFAULT PRIVILEGES GRANT SELECT ON TABLES TO onlooker; \
             ALTER DEFAULT PRIVILEGES GRANT EXECUTE ON FUNCTIONS TO onlooker",
        )
        .unwrap();
    let (fresh, terms) = fresh(&mut client);
    let opened: Vec<_> = fresh
        .iter()
        .filter(|line| line.contains("onlooker"))
        .collect();
    assert!(opened.is_empty(), "{opened:?}");
    scripts.write_sample(&terms, None);
    assert_eq!(
        differences(&fresh, &upgrade_from(&mut client, OLDER)),
        Vec::<String>::new()
    );
    for statement in CHANGES.iter().flat_map(|change| change.mend) {
        scripts.write_sample(&terms, Some(statement));
        let upgraded = upgrade_from(&mut client, OLDER);
        assert!(
            !differences(&fresh, &upgraded).is_empty(),
            "no difference without {statement}"
        );
    }
}

#[test]
fn an_upgrade_keeps_the_rows_and_the_worker_goes_on() {
    let scripts = Scripts::new();
    let cluster = Cluster::start_in(&scripts.bin, &["mailroom.batch_limit = 1"]);
    let mut client = cluster.connect("postgres");
    let (_, terms) = fresh(&mut client);
    scripts.write_sample(&terms, None);
    client
        .batch_execute(&format!("CREATE EXTENSION mailroom VERSION '{OLDER}'"))
        .unwrap();
    client
        .batch_execute("INSERT INTO accounts (email, login) VALUES ('a@example.com', 'a'); SELECT mailroom_send('b@example.com', 'S', 'T')")
        .unwrap();
    eventually("the worker to say what it waits for", || {
        let complaint = format!("the extension is version {OLDER}, the library {VERSION}");
        cluster.log().contains(&complaint).then_some(())
    });
    client
        .batch_execute("ALTER EXTENSION mailroom UPDATE")
        .unwrap();
    // The worker takes what waited without help.
    eventually("the mail", || {
        (number(
            &mut client,
            "SELECT count(*) FROM outbox WHERE state = 'scheduled'",
        ) == 2)
            .then_some(())
    });
    let token = "SELECT count(*) FROM outbox JOIN tokens t ON t.id = token_id JOIN accounts a ON a.id = t.account WHERE login = 'a'";
    assert_eq!(number(&mut client, token), 1);
}

/// What an administrator mends may show what else is wrong.
#[test]
fn a_worker_that_cannot_start_says_each_cause() {
    let cluster = Cluster::start(&[]);
    let mut client = cluster.connect("postgres");
    client
        .batch_execute(&format!(
            "CREATE EXTENSION mailroom; UPDATE pg_extension SET extversion = '{OLDER}' WHERE extname = 'mailroom'"
        ))
        .unwrap();
    let says = |part: &str| {
        eventually(part, || {
            cluster
                .log()
                .contains(&format!("mailroom worker cannot start its work: {part}"))
                .then_some(())
        });
    };
    says("the extension is version");
    client
        .batch_execute(&format!(
            "ALTER ROLE mailroom_collector RENAME TO former_collector; \
             UPDATE pg_extension SET extversion = '{VERSION}' WHERE extname = 'mailroom'"
        ))
        .unwrap();
    says("role mailroom_collector does not exist");
}

/// The released versions in the change log.
fn released() -> BTreeSet<String> {
    include_str!("../../CHANGELOG.md")
        .lines()
        .filter_map(|line| line.strip_prefix("## [")?.split(']').next())
        .filter(|version| *version != "Unreleased")
        .map(str::to_owned)
        .collect()
}

/// The install scripts of the released versions.
fn kept() -> BTreeMap<String, String> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/upgrade/released");
    fs::read_dir(&directory)
        .into_iter()
        .flatten()
        .map(|entry| {
            let path = entry.unwrap().path();
            let name = path.file_name().unwrap().to_str().unwrap().to_owned();
            let version = name
                .strip_prefix("mailroom--")
                .and_then(|name| name.strip_suffix(".sql"))
                .unwrap_or_else(|| panic!("what is {name} doing here?"));
            (version.to_owned(), fs::read_to_string(&path).unwrap())
        })
        .collect()
}

/// Applies to each version as soon as it is released: its script is kept, and never changes.
#[test]
fn each_released_version_becomes_the_current_one() {
    let kept = kept();
    assert_eq!(
        kept.keys().cloned().collect::<BTreeSet<_>>(),
        released(),
        "scripts in tests/upgrade/released (left) and versions in CHANGELOG.md (right)"
    );
    let scripts = Scripts::new();
    let cluster = Cluster::start_in(&scripts.bin, QUIET);
    let mut client = cluster.connect("postgres");
    let (fresh, _) = fresh(&mut client);
    for (version, script) in &kept {
        if version == VERSION {
            assert_eq!(
                &scripts.current(),
                script,
                "{version} was released as it is"
            );
            continue;
        }
        scripts.write(&format!("mailroom--{version}.sql"), script);
        let upgraded = upgrade_from(&mut client, version);
        assert_eq!(
            differences(&fresh, &upgraded),
            Vec::<String>::new(),
            "{version}"
        );
    }
}
