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

const VERSION: &str = env!("CARGO_PKG_VERSION");
/// The version that is made from [`CHANGES`].
const OLDER: &str = "0.0.9";

/// One difference of an older version.
struct Change {
    /// The statement that turns the current version into the older one.
    age: &'static str,
    /// The statements of the upgrade script that undo it, in order. `{kind name}` stands for what a new installation
    /// says of that object.
    mend: &'static [&'static str],
}

const CHANGES: &[Change] = &[
    Change {
        age: "CREATE TABLE @extschema@.left_over (id bigint)",
        mend: &["DROP TABLE @extschema@.left_over"],
    },
    Change {
        age: "DROP VIEW @extschema@.mailroom_attached",
        mend: &[
            "CREATE VIEW @extschema@.mailroom_attached AS {view mailroom_attached}",
            "SELECT @extschema@._close(ARRAY['@extschema@.mailroom_attached'::regclass::oid])",
            "COMMENT ON VIEW @extschema@.mailroom_attached IS {comment mailroom_attached}",
            "GRANT SELECT ON @extschema@.mailroom_attached TO mailroom_admin",
        ],
    },
    Change {
        age: "ALTER TABLE @extschema@.pauses DROP COLUMN paused_by",
        mend: &[
            "ALTER TABLE @extschema@.pauses ADD COLUMN paused_by name NOT NULL DEFAULT session_user",
            "COMMENT ON COLUMN @extschema@.pauses.paused_by IS 'The user who paused it; mailroom_collector if the worker paused itself because the database is a copy.'",
        ],
    },
    Change {
        age: "ALTER TABLE @extschema@.job_runs ALTER COLUMN collected DROP DEFAULT",
        mend: &["ALTER TABLE @extschema@.job_runs ALTER COLUMN collected SET DEFAULT 0"],
    },
    Change {
        age: "ALTER TABLE @extschema@.job_runs ALTER COLUMN duration DROP NOT NULL",
        mend: &["ALTER TABLE @extschema@.job_runs ALTER COLUMN duration SET NOT NULL"],
    },
    Change {
        age: "ALTER TABLE @extschema@.accounts SET (fillfactor = 20)",
        mend: &["ALTER TABLE @extschema@.accounts SET (fillfactor = 80)"],
    },
    Change {
        age: "ALTER TABLE @extschema@.templates ENABLE ROW LEVEL SECURITY",
        mend: &["ALTER TABLE @extschema@.templates DISABLE ROW LEVEL SECURITY"],
    },
    Change {
        age: "DROP INDEX @extschema@.outbox_attempts_outbox_id",
        mend: &["{index outbox_attempts_outbox_id}"],
    },
    Change {
        age: "ALTER TABLE @extschema@.job_runs DROP CONSTRAINT job_runs_counts_must_not_be_negative",
        mend: &[
            "ALTER TABLE @extschema@.job_runs ADD CONSTRAINT job_runs_counts_must_not_be_negative {constraint job_runs_counts_must_not_be_negative}",
        ],
    },
    Change {
        age: "ALTER DOMAIN @extschema@._kind DROP CONSTRAINT outbox_kind_must_not_be_empty",
        mend: &[
            "ALTER DOMAIN @extschema@._kind ADD CONSTRAINT outbox_kind_must_not_be_empty {constraint outbox_kind_must_not_be_empty}",
        ],
    },
    Change {
        age: "DROP TRIGGER budgets_changed ON @extschema@.budgets",
        mend: &["{trigger budgets_changed}"],
    },
    Change {
        age: "ALTER TABLE @extschema@.link_requests DISABLE TRIGGER link_requests_note_restore",
        mend: &["ALTER TABLE @extschema@.link_requests ENABLE TRIGGER link_requests_note_restore"],
    },
    Change {
        age: "CREATE OR REPLACE FUNCTION @extschema@._tokens_keep_id() RETURNS trigger LANGUAGE plpgsql \
              SET search_path = pg_catalog, pg_temp AS 'BEGIN RETURN NEW; END'",
        mend: &["{function _tokens_keep_id()}"],
    },
    Change {
        age: "ALTER FUNCTION @extschema@.mailroom_pause() RESET search_path",
        mend: &[
            "ALTER FUNCTION @extschema@.mailroom_pause() SET search_path = pg_catalog, pg_temp",
        ],
    },
    Change {
        age: "DROP FUNCTION @extschema@.mailroom_dequeue_line(integer)",
        mend: &[
            "{function mailroom_dequeue_line(integer)}",
            "COMMENT ON FUNCTION @extschema@.mailroom_dequeue_line(integer) IS {comment mailroom_dequeue_line(integer)}",
            "SELECT @extschema@._close(ARRAY['@extschema@.mailroom_dequeue_line(integer)'::regprocedure::oid])",
            "GRANT EXECUTE ON FUNCTION @extschema@.mailroom_dequeue_line(integer) TO mailroom_collector",
        ],
    },
    Change {
        age: "ALTER FUNCTION @extschema@.mailroom_peek(text) OWNER TO pg_monitor",
        mend: &[
            "ALTER FUNCTION @extschema@.mailroom_peek(text) OWNER TO {owner mailroom_peek(text)}",
        ],
    },
    Change {
        age: "CREATE OR REPLACE VIEW @extschema@._token_ages AS SELECT t.id, t.created_at FROM @extschema@.tokens t WHERE t.id > 0",
        mend: &["CREATE OR REPLACE VIEW @extschema@._token_ages AS {view _token_ages}"],
    },
    Change {
        age: "ALTER SEQUENCE @extschema@.outbox_attempts_id_seq CACHE 20",
        mend: &["ALTER SEQUENCE @extschema@.outbox_attempts_id_seq CACHE 1"],
    },
    Change {
        age: "GRANT SELECT ON @extschema@.pauses TO mailroom_app",
        mend: &["REVOKE SELECT ON @extschema@.pauses FROM mailroom_app"],
    },
    Change {
        age: "REVOKE SELECT (status) ON @extschema@.accounts FROM mailroom_app",
        mend: &["GRANT SELECT (status) ON @extschema@.accounts TO mailroom_app"],
    },
    Change {
        age: "REVOKE USAGE ON SCHEMA @extschema@ FROM mailroom_app",
        mend: &["GRANT USAGE ON SCHEMA @extschema@ TO mailroom_app"],
    },
    Change {
        age: "COMMENT ON TABLE @extschema@.pauses IS 'Old'",
        mend: &["COMMENT ON TABLE @extschema@.pauses IS {comment pauses}"],
    },
    Change {
        age: "SELECT pg_extension_config_dump('@extschema@.templates', 'WHERE false')",
        mend: &["SELECT pg_extension_config_dump('@extschema@.templates', '')"],
    },
];

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
            &statements(mend),
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
            "nobody misses {statement}"
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

/// The released versions in the change log.
fn released() -> BTreeSet<String> {
    include_str!("../../CHANGELOG.md")
        .lines()
        .filter_map(|line| line.strip_prefix("## [")?.split(']').next())
        .filter(|version| *version != "Unreleased")
        .map(str::to_owned)
        .collect()
}

/// Applies to each version as soon as it is released: its script is kept, and never changes.
#[test]
fn each_released_version_becomes_the_current_one() {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/upgrade/released");
    let kept: BTreeMap<String, String> = fs::read_dir(&directory)
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
        .collect();
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
