//! Rows are restored as they were.

use std::collections::BTreeSet;

use super::{LIVE_TOKEN_MAIL, QUIET, contents, dump, populate, read_in, relations, restore, run};
use crate::cluster::{Cluster, number};
use postgres::Client;

#[test]
fn every_table_is_dumped_or_has_a_reason() {
    let (_cluster, mut client) = Cluster::start_with_app(QUIET);
    let dumped: BTreeSet<String> = client
        .query(
            "SELECT relname::text FROM pg_extension, unnest(extconfig) c JOIN pg_class r ON r.oid = c \
             WHERE extname = 'mailroom'",
            &[],
        )
        .unwrap()
        .iter()
        .map(|row| row.get(0))
        .collect();
    // A table that is not to be dumped is added to `reasons`, with the reason.
    let reasons = [
        ("_database_identity", "it says which database this is"),
        ("_purged_delivery_events", "a purge starts at the first row"),
        ("_purged_job_runs", "a purge starts at the first row"),
        ("_purged_link_requests", "a purge starts at the first row"),
        (
            "_purged_operator_actions",
            "a purge starts at the first row",
        ),
        ("_purged_outbox", "a purge starts at the first row"),
        (
            "_purged_outbox_attachments",
            "a purge starts at the first row",
        ),
        ("_purged_outbox_attempts", "a purge starts at the first row"),
        ("_purged_outbox_files", "a purge starts at the first row"),
        ("_purged_tokens", "a purge starts at the first row"),
        ("deliverers", "they publish that while they run"),
        ("transports", "deliverers publish them while they run"),
    ];
    let mut expected: BTreeSet<String> = relations(&mut client, "r,p,S").into_iter().collect();
    assert!(expected.contains("accounts") && expected.contains("accounts_id_seq"));
    for (table, _) in reasons {
        assert!(expected.remove(table), "there is no table {table}");
    }
    assert_eq!(dumped, expected, "dumped (left), all (right)");
}

/// A dump has the rows of all columns, but does not create those that were added.
#[test]
fn rows_with_added_columns_come_back() {
    let (cluster, mut client) = Cluster::start_with_app(QUIET);
    let mut add = String::new();
    for table in relations(&mut client, "r,p") {
        add.push_str(&format!("ALTER TABLE public.{table} ADD COLUMN token_id_of json, ADD COLUMN \"t\" text DEFAULT 'x';\n"));
    }
    client.batch_execute(&add).unwrap();
    populate(&mut client);
    client
        .batch_execute("UPDATE pending SET t = 'y', token_id_of = '{}'")
        .unwrap();
    let expected = |client: &mut Client| {
        let all = "SELECT string_agg(concat_ws(' ', lane, token_id, t, token_id_of), ', ' ORDER BY lane, token_id) FROM pending";
        let rows: String = client.query_one(all, &[]).unwrap().get(0);
        (
            number(client, "SELECT count(*) FROM accounts WHERE t = 'x'"),
            rows,
        )
    };
    let live = number(
        &mut client,
        &format!("SELECT count(*) FROM outbox WHERE {LIVE_TOKEN_MAIL}"),
    );
    assert!(live > 0);
    for option in ["--format=plain", "--inserts", "--column-inserts"] {
        let sections = [
            "--section=pre-data",
            "--section=data",
            "--section=post-data",
        ];
        let [pre, data, post] = sections.map(|section| dump(&cluster, "app", &[option, section]));
        let name = option.trim_start_matches('-').replace(['-', '='], "_");
        restore(&cluster, &name, &format!("{pre}{add}{data}{post}"));
        let mut restored = cluster.connect(&name);
        let (accounts, pending) = expected(&mut client);
        let waiting = number(&mut restored, "SELECT count(*) FROM pending");
        assert_eq!(
            waiting,
            number(&mut client, "SELECT count(*) FROM pending") + live
        );
        restored
            .batch_execute("DELETE FROM pending WHERE t IS NULL")
            .unwrap();
        assert_eq!(expected(&mut restored), (accounts, pending), "{option}");
    }
}

#[test]
fn every_row_comes_back_as_it_was() {
    let (cluster, mut client) = Cluster::start_with_app(QUIET);
    populate(&mut client);
    // The checks below are meaningful only if every table has a row, and every state a mail.
    for table in relations(&mut client, "r,p") {
        let rows = number(&mut client, &format!("SELECT count(*) FROM {table}"));
        assert!(rows > 0, "{table} is empty");
    }
    let states =
        "SELECT count(DISTINCT (token_id IS NULL, state)) FROM outbox WHERE state <> 'expired'";
    assert!(number(&mut client, states) >= 8);
    let expected = contents(&mut client);

    let check = |database: &str| {
        let mut restored = cluster.connect(database);
        assert_eq!(contents(&mut restored), expected, "{database}");
        let acls = "SELECT string_agg(format('%s %s', oid::regprocedure, proacl), ' ' ORDER BY oid::regprocedure::text) \
                    FROM pg_proc WHERE pronamespace = 'public'::regnamespace";
        let acl = |client: &mut Client| -> String { client.query_one(acls, &[]).unwrap().get(0) };
        assert_eq!(acl(&mut restored), acl(&mut cluster.connect("app")));
        // New rows continue from the restored ones.
        restored
            .batch_execute("INSERT INTO accounts (email, login) VALUES ('new@example.com', 'new')")
            .unwrap();
        let fresh = "SELECT count(*) FROM pending WHERE token_id = (SELECT max(id) FROM tokens)";
        assert_eq!(number(&mut restored, fresh), 1, "{database}");
    };

    restore(&cluster, "plain", &dump(&cluster, "app", &[]));
    check("plain");
    restore(&cluster, "inserts", &dump(&cluster, "app", &["--inserts"]));
    check("inserts");
    let columns = [
        "--column-inserts",
        "--rows-per-insert=3",
        "--on-conflict-do-nothing",
    ];
    restore(&cluster, "columns", &dump(&cluster, "app", &columns));
    check("columns");

    // Into an existing database, whose objects the script drops first.
    let clean = dump(&cluster, "app", &["--clean", "--if-exists"]);
    read_in(&cluster, "plain", &clean);
    check("plain");

    // Rows only, into an existing extension.
    let rows = dump(&cluster, "app", &["--data-only"]);
    let people = "CREATE TABLE people (mail text, name text); SELECT mailroom_attach('people', 'mail', 'name')";
    let mut ready = cluster.create_database("rows");
    ready.batch_execute(people).unwrap();
    read_in(&cluster, "rows", &rows);
    check("rows");
    let rows = dump(&cluster, "app", &["--data-only", "--disable-triggers"]);
    let mut ready = cluster.create_database("untriggered");
    ready.batch_execute(people).unwrap();
    read_in(&cluster, "untriggered", &rows);
    check("untriggered");

    let scratch = cluster.scratch();
    let archive = |format: &str, restore_options: &[&str]| {
        let file = scratch.join(format);
        let file = file.to_str().unwrap();
        run(
            &cluster,
            "pg_dump",
            &["--format", format, "--file", file, "app"],
        );
        let database = format!("from_{format}");
        run(&cluster, "createdb", &["--template=template0", &database]);
        let target = ["--exit-on-error", "--dbname", &database, file];
        run(&cluster, "pg_restore", &[restore_options, &target].concat());
        check(&database);
    };
    archive("custom", &["--single-transaction"]);
    archive("tar", &[]);
    archive("directory", &["--jobs=4"]);
}

/// pg_restore may load tokens first when it works in several sessions; here it does so in one.
#[test]
fn tokens_may_come_before_their_accounts() {
    let (cluster, mut client) = Cluster::start_with_app(QUIET);
    populate(&mut client);
    let scratch = cluster.scratch();
    let (archive, list) = (scratch.join("archive"), scratch.join("list"));
    let (file, list) = (archive.to_str().unwrap(), list.to_str().unwrap());
    run(&cluster, "pg_dump", &["-Fc", "-f", file, "app"]);
    let entries = String::from_utf8(run(&cluster, "pg_restore", &["-l", file]).stdout).unwrap();
    let (accounts, others): (Vec<&str>, Vec<&str>) = entries
        .lines()
        .filter(|line| !line.starts_with(';'))
        .partition(|line| line.contains(" TABLE DATA public accounts "));
    assert_eq!(accounts.len(), 1);
    std::fs::write(list, [others, accounts].concat().join("\n") + "\n").unwrap();
    run(&cluster, "createdb", &["--template=template0", "copy"]);
    run(
        &cluster,
        "pg_restore",
        &["-e", "-L", list, "-d", "copy", file],
    );
    let mut copy = cluster.connect("copy");
    assert_eq!(contents(&mut copy), contents(&mut client));
    // The foreign key is in force for other sessions.
    let error = copy
        .batch_execute("INSERT INTO tokens (account, action) VALUES (99, 'activation')")
        .unwrap_err();
    assert_eq!(error.as_db_error().unwrap().code().code(), "23503");
}

#[test]
fn a_schema_that_needs_quoting_is_dumped_too() {
    let cluster = Cluster::start(QUIET);
    let mut client = cluster.connect("postgres");
    client
        .batch_execute(
            "CREATE SCHEMA \"Mail Room\"; CREATE EXTENSION mailroom SCHEMA \"Mail Room\"; \
             SET search_path = \"Mail Room\"",
        )
        .unwrap();
    populate(&mut client);
    let expected = contents(&mut client);
    restore(&cluster, "copy", &dump(&cluster, "postgres", &[]));
    let mut restored = cluster.connect("copy");
    restored
        .batch_execute("SET search_path = \"Mail Room\"")
        .unwrap();
    assert_eq!(contents(&mut restored), expected);
}
