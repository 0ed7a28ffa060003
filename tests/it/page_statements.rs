//! The statements of `mailroom serve`: who may run which, that they write nothing, and what they read at size.
//!
//! Each runs as the role that logged in, in a transaction as the page begins it; the program is not needed for that.

pub mod matrix;
mod size;

use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;

use postgres::error::SqlState;
use postgres::{Client, Error, SimpleQueryMessage, SimpleQueryRow};

use crate::cluster::Cluster;

use matrix::{RIGHTS, ROLES, STATEMENTS};

const QUIET: &[&str] = &["shared_preload_libraries = ''", "autovacuum = off"];

fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("crates/mailroom/sql/page")
}

fn text(name: &str) -> String {
    let file = folder().join(name).with_extension("sql");
    let text = fs::read_to_string(file).unwrap();
    text.replace("@extschema@", "public")
}

/// The rows of a statement in a transaction as the page has it, which is rolled back.
pub fn run(
    client: &mut Client,
    name: &str,
    arguments: &str,
    before: &str,
) -> Result<Vec<SimpleQueryRow>, Error> {
    let mode = match name.starts_with("act_") {
        true => "READ WRITE",
        false => "READ ONLY",
    };
    client
        .batch_execute(&format!(
            "BEGIN {mode}; SET LOCAL search_path = pg_catalog, pg_temp; SET LOCAL enable_seqscan = off; SET LOCAL jit = off"
        ))
        .unwrap();
    let call = match arguments {
        "" => "page".to_owned(),
        _ => format!("page({arguments})"),
    };
    let answer = client.simple_query(&format!(
        "PREPARE page AS {}; {before} EXECUTE {call}",
        text(name)
    ));
    client.batch_execute("ROLLBACK; DEALLOCATE ALL").unwrap();
    let rows = answer?.into_iter().filter_map(|message| match message {
        SimpleQueryMessage::Row(row) => Some(row),
        _ => None,
    });
    Ok(rows.collect())
}

fn rows(client: &mut Client, name: &str, arguments: &str) -> Vec<SimpleQueryRow> {
    run(client, name, arguments, "")
        .unwrap_or_else(|error| panic!("{name}({arguments}): {error:?}"))
}

pub fn create_roles(client: &mut Client) {
    client
        .batch_execute(
            "CREATE ROLE page_monitor LOGIN IN ROLE mailroom_monitor; CREATE ROLE page_support LOGIN IN ROLE mailroom_support; \
             CREATE ROLE page_admin LOGIN IN ROLE mailroom_admin",
        )
        .unwrap();
}

#[test]
fn no_statement_of_the_page_names_what_opens_a_link() {
    let files: BTreeSet<String> = fs::read_dir(folder())
        .unwrap()
        .map(|file| file.unwrap().file_name().into_string().unwrap())
        .collect();
    let known: BTreeSet<String> = STATEMENTS
        .iter()
        .map(|(name, ..)| format!("{name}.sql"))
        .collect();
    assert_eq!(files, known);
    for (name, ..) in STATEMENTS {
        let text = text(name);
        assert!(
            text.is_ascii() && text.starts_with("-- ") && !text.trim_end().ends_with(';'),
            "{name}"
        );
        let words = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
        let bad: Vec<&str> = words
            .filter(|word| {
                [
                    "secret",
                    "secrets",
                    "code",
                    "unsubscribe_url",
                    "_mail_secrets",
                    "_token_verdicts",
                    "_secrets",
                    "_sample_secrets",
                ]
                .contains(word)
            })
            .collect();
        assert!(bad.is_empty(), "{name}: {bad:?}");
    }
}

#[test]
fn each_statement_of_the_page_runs_as_the_roles_it_is_for() {
    let (cluster, mut client) = Cluster::start_with_app(QUIET);
    create_roles(&mut client);
    // Policies of an application do not concern these roles.
    client
        .batch_execute("ALTER TABLE outbox ENABLE ROW LEVEL SECURITY; CREATE POLICY own ON outbox USING (false)")
        .unwrap();
    for (role, user) in ROLES {
        let mut session = cluster.connect_as("app", user);
        for (name, least, calls) in STATEMENTS {
            for call in *calls {
                let answer = run(&mut session, name, call, "");
                match answer {
                    Ok(_) => assert!(role >= *least, "{user} ran {name}"),
                    Err(error) => {
                        assert_eq!(
                            error.code(),
                            Some(&SqlState::INSUFFICIENT_PRIVILEGE),
                            "{user}: {name}({call}): {error:?}"
                        );
                        assert!(role < *least, "{user} may not run {name}: {error:?}");
                    }
                }
            }
        }
        let rights = rows(&mut session, "rights", "");
        for (column, statement) in RIGHTS {
            let least = STATEMENTS
                .iter()
                .find(|(name, ..)| name == statement)
                .unwrap()
                .1;
            let expected = if role >= least { "t" } else { "f" };
            assert_eq!(rights[0].get(*column), Some(expected), "{user}: {column}");
        }
    }
    // Others get an answer too, for the page to say why they do not get in.
    client
        .batch_execute("CREATE ROLE stranger LOGIN; REVOKE USAGE ON SCHEMA public FROM PUBLIC")
        .unwrap();
    let mut stranger = cluster.connect_as("app", "stranger");
    let rights = rows(&mut stranger, "rights", "");
    assert_eq!(
        (rights[0].get("sees_mail"), rights[0].get("roles")),
        (Some("f"), Some("{}"))
    );
}
