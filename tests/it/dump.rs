//! Dump and restore: what pg_dump takes along, how it comes back, and that mail goes on from there, once.
//!
//! A dump is read in the way it is made: by pg_dump and psql or pg_restore, between databases of one cluster
//! where only rows matter, and between two clusters where the key and the worker do.

use std::collections::BTreeSet;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use crate::cluster::{Cluster, Stop, bin_directory, eventually, number};
use postgres::Client;

/// No worker: nothing happens but what a test does.
const QUIET: &[&str] = &["shared_preload_libraries = ''"];
/// A worker that takes each token at once.
const BUSY: &[&str] = &["mailroom.batch_limit = 1", "mailroom.poll_interval = '1h'"];
/// What every script of pg_dump begins with, as far as it matters here.
const AS_A_DUMP: &str =
    "SET check_function_bodies = false; SET client_min_messages = warning; SET row_security = off";
/// Live token mail, which is not dumped as such.
const LIVE_TOKEN_MAIL: &str = "token_id IS NOT NULL AND state IN ('scheduled', 'claimed')";

/// Runs one of the server's programs to its good end.
fn run(cluster: &Cluster, program: &str, arguments: &[&str]) -> Output {
    let output = cluster.program(program).args(arguments).output().unwrap();
    assert!(
        output.status.success(),
        "{program} {arguments:?}:\n{}",
        String::from_utf8_lossy(&output.stderr)
    );
    output
}

/// The script that pg_dump makes of a database.
fn dump(cluster: &Cluster, database: &str, options: &[&str]) -> String {
    let arguments = [options, &[database]].concat();
    String::from_utf8(run(cluster, "pg_dump", &arguments).stdout).unwrap()
}

/// Makes a database and has psql read a script into it; returns what psql had to say.
fn restore(cluster: &Cluster, database: &str, script: &str) -> String {
    cluster
        .connect("postgres")
        .batch_execute(&format!("CREATE DATABASE {database} TEMPLATE template0"))
        .unwrap();
    read_in(cluster, database, script)
}

fn read_in(cluster: &Cluster, database: &str, script: &str) -> String {
    let mut psql = psql(cluster, database, "ON_ERROR_STOP=1");
    psql.stdin
        .take()
        .unwrap()
        .write_all(script.as_bytes())
        .unwrap();
    let output = psql.wait_with_output().unwrap();
    let told = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{told}");
    told
}

/// psql, waiting for a script that ends it with its first error, or does not.
fn psql(cluster: &Cluster, database: &str, on_error: &str) -> std::process::Child {
    cluster
        .program("psql")
        .args(["-X", "-q", "-v", on_error, "-d", database])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap()
}

/// The names of the extension's tables or sequences.
fn relations(client: &mut Client, kinds: &str) -> Vec<String> {
    client
        .query(
            &format!(
                "SELECT c.relname::text FROM pg_depend d JOIN pg_class c ON c.oid = d.objid \
                 WHERE d.classid = 'pg_class'::regclass AND d.deptype IN ('e', 'a') \
                 AND (d.deptype = 'e' OR d.refobjid IN (SELECT objid FROM pg_depend \
                   WHERE deptype = 'e' AND refclassid = 'pg_extension'::regclass)) \
                 AND c.relkind = ANY ('{{{kinds}}}') AND c.relnamespace = \
                   (SELECT extnamespace FROM pg_extension WHERE extname = 'mailroom') \
                 GROUP BY 1 ORDER BY 1"
            ),
            &[],
        )
        .unwrap()
        .iter()
        .map(|row| row.get(0))
        .collect()
}

/// All rows of all tables and all positions of sequences, except that live token mail is left out of `outbox`, and
/// is among `pending`: what a dump of it has to bring back.
fn contents(client: &mut Client) -> Vec<String> {
    let mut all = Vec::new();
    for table in relations(client, "r,p") {
        let query = match table.as_str() {
            "outbox" => format!("SELECT t::text FROM outbox t WHERE NOT ({LIVE_TOKEN_MAIL})"),
            "pending" => format!(
                "SELECT t::text FROM pending t UNION SELECT ROW(CASE kind WHEN 'activation' THEN 1 ELSE 0 END, token_id)::text \
                 FROM outbox WHERE {LIVE_TOKEN_MAIL}"
            ),
            "outbox_attempts" => format!(
                "SELECT t::text FROM outbox_attempts t WHERE outbox_id NOT IN (SELECT id FROM outbox WHERE {LIVE_TOKEN_MAIL})"
            ),
            // Deliverers publish them again.
            "transports" | "deliverers" => "SELECT ''::text WHERE false".to_owned(),
            // Each database is at home, the restored one, too.
            "_database_identity" => {
                "SELECT format('%s', database = d.oid) FROM _database_identity \
                 JOIN pg_database d ON d.datname = current_database()"
                    .to_owned()
            }
            _ => format!("SELECT t::text FROM {table} t"),
        };
        let rows = client.query(&format!("{query} ORDER BY 1"), &[]).unwrap();
        all.push(format!("{table}: {}", rows.len()));
        all.extend(rows.iter().map(|row| row.get::<_, String>(0)));
    }
    for sequence in relations(client, "S") {
        let at: String = client
            .query_one(
                &format!("SELECT (last_value, is_called)::text FROM {sequence}"),
                &[],
            )
            .unwrap()
            .get(0);
        all.push(format!("{sequence}: {at}"));
    }
    all
}

/// Accounts, tokens and mail in every state there is, and a row or more in each table.
fn populate(client: &mut Client) {
    client
        .batch_execute(
            "INSERT INTO accounts (email, login) SELECT format('user%s@example.com', i), format('user%s', i) \
               FROM generate_series(1, 12) i;
             UPDATE tokens SET consumed_at = 1 WHERE account IN (1, 2);
             UPDATE accounts SET status = 'suspended' WHERE id = 2;
             UPDATE accounts SET status = 'suspended' WHERE id = 3;
             UPDATE accounts SET status = 'active' WHERE id = 3;
             INSERT INTO accounts (email, login, status) VALUES ('Odd@example.com', 'odd', 'active');
             UPDATE accounts SET activated_at = NULL WHERE login = 'odd';
             INSERT INTO tokens (account, action) VALUES (1, 'password_recovery');
             SELECT mailroom_collect(6);
             INSERT INTO tokens (account, action) VALUES (1, 'password_recovery');
             INSERT INTO templates (kind, locale, subject, body_text, body_html)
               VALUES ('welcome', 'en', 'Hello {{ name }}', E'Two\\nlines\\t\\\\.', '<p>{{ name }}</p>');
             SELECT mailroom_send(format('to%s@example.com', i), 'Subject', 'Text', group_key => 'group')
               FROM generate_series(1, 3) i;
             SELECT mailroom_send('to@example.com, other@example.com', kind => 'welcome',
               data => '{\"name\": \"Ann\\\\ \\u00e4\"}', item_key => 'key', bcc => 'b@example.com');
             SELECT mailroom_send('later@example.com', 'S', 'T', send_at => '2100-01-01', expires_at => '2101-01-01');
             SELECT mailroom_send('gone@example.com', 'S', 'T', item_key => 'gone');
             SELECT mailroom_cancel_item('gone');
             SELECT mailroom_claim(2, claimant => 'first');
             SELECT mailroom_mark_error(id, 'no answer', claimant => 'first'),
               mailroom_mark_sent(id, 'provider-1', claimant => 'first') FROM outbox WHERE claimed_by = 'first';
             SELECT mailroom_claim(3, claimant => 'second');
             SELECT mailroom_mark_sent(max(id), 'provider-2', claimant => 'second',
               refused_recipients => '[{\"recipient\": \"a@example.com\", \"response_code\": 550}]') FROM outbox WHERE claimed_by = 'second';
             SELECT mailroom_claim_group(claimant => 'third');
             SELECT mailroom_mark_error(min(id), 'never', permanent => true, claimant => 'third') FROM outbox WHERE claimed_by = 'third';
             INSERT INTO job_runs (started_at, duration, trigger, error) VALUES (now(), '1 s', 'poll', 'an error');
             SELECT mailroom_request_activation('user9@example.com');
             SELECT mailroom_request_recovery('user1@example.com');
             INSERT INTO budgets (period, amount) VALUES ('hour', 100), ('month', 1000);
             INSERT INTO routes (position, kind_pattern, transport, fallback) VALUES (1, 'a\\_%', 'one', 'two');
             SELECT _publish_transports('me', '[{\"name\": \"one\", \"provider\": \"log\"}]');
             SELECT mailroom_send('routed@example.com', 'S', 'T', transport => 'one');
             SELECT _consume_budget(array_fill(1, ARRAY[5]), false);
             CREATE TABLE people (mail text, name text);
             SELECT mailroom_attach('people', 'mail', 'name');
             INSERT INTO people VALUES ('ann@example.com', 'Ann');
             SELECT mailroom_pause();",
        )
        .unwrap();
}

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
    // A table that is not to be dumped is added to `reasons` with the reason.
    let reasons = [
        ("_database_identity", "it says which database this is"),
        ("_purged_tokens", "a purge begins anew"),
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

#[test]
fn every_row_comes_back_as_it_was() {
    let (cluster, mut client) = Cluster::start_with_app(QUIET);
    populate(&mut client);
    // The tests below are worth something only if every table has a row, and each state a mail.
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
        // It goes on from there.
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

    // Over a database that is there already, all that was in it being dropped first.
    let clean = dump(&cluster, "app", &["--clean", "--if-exists"]);
    read_in(&cluster, "plain", &clean);
    check("plain");

    // Rows into an extension that is there already.
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

/// What pg_restore may do in several sessions, done in one.
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
    // The foreign key is in force for everybody else.
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

/// Who may do what with the extension's objects, all in all.
fn grants(client: &mut Client) -> Vec<String> {
    client
        .query(
            "SELECT concat_ws(' ', o.name, CASE a.grantee WHEN 0 THEN 'PUBLIC' ELSE a.grantee::regrole::text END, a.privilege_type, a.is_grantable) \
             FROM pg_depend d \
             CROSS JOIN LATERAL ( \
                 SELECT c.oid::regclass::text, coalesce(c.relacl, acldefault(CASE c.relkind WHEN 'S' THEN 's' ELSE 'r' END::\"char\", c.relowner)) \
                 FROM pg_class c WHERE d.classid = 'pg_class'::regclass AND c.oid = d.objid \
                 UNION ALL \
                 SELECT p.oid::regprocedure::text, coalesce(p.proacl, acldefault('f', p.proowner)) \
                 FROM pg_proc p WHERE d.classid = 'pg_proc'::regclass AND p.oid = d.objid \
                 UNION ALL \
                 SELECT t.oid::regtype::text, coalesce(t.typacl, acldefault('T', t.typowner)) \
                 FROM pg_type t WHERE d.classid = 'pg_type'::regclass AND t.oid = d.objid \
             ) o (name, acl) \
             CROSS JOIN LATERAL aclexplode(o.acl) a \
             WHERE d.refclassid = 'pg_extension'::regclass AND d.deptype = 'e' \
             AND d.refobjid = (SELECT oid FROM pg_extension WHERE extname = 'mailroom') \
             ORDER BY 1",
            &[],
        )
        .unwrap()
        .iter()
        .map(|row| row.get(0))
        .collect()
}

#[test]
fn default_privileges_give_nothing_of_ours_away() {
    let cluster = Cluster::start(QUIET);
    let ours = grants(&mut cluster.create_database("plain"));
    assert!(!ours.is_empty());
    let mut postgres = cluster.connect("postgres");
    postgres.batch_execute("CREATE ROLE reporting").unwrap();
    for database in ["generous", "copy"] {
        let create = format!("CREATE DATABASE {database}");
        postgres.batch_execute(&create).unwrap();
    }
    // As a role that reads everything is usually given what is still to come.
    let generous = |client: &mut Client| {
        for where_to in ["", "IN SCHEMA public"] {
            client
                .batch_execute(&format!(
                    "ALTER DEFAULT PRIVILEGES {where_to} GRANT ALL ON TABLES TO reporting WITH GRANT OPTION; \
                     ALTER DEFAULT PRIVILEGES {where_to} GRANT SELECT ON TABLES TO PUBLIC; \
                     ALTER DEFAULT PRIVILEGES {where_to} GRANT ALL ON SEQUENCES TO reporting; \
                     ALTER DEFAULT PRIVILEGES {where_to} GRANT EXECUTE ON FUNCTIONS TO reporting; \
                     ALTER DEFAULT PRIVILEGES {where_to} GRANT USAGE ON TYPES TO reporting"
                ))
                .unwrap();
        }
    };
    let mut client = cluster.connect("generous");
    generous(&mut client);
    client
        .batch_execute("CREATE TABLE theirs (x integer); CREATE EXTENSION mailroom")
        .unwrap();
    assert_eq!(grants(&mut client), ours);
    // What is given on purpose stays, and comes back.
    client
        .batch_execute("GRANT SELECT ON outbox_history TO reporting")
        .unwrap();
    let given = grants(&mut client);
    assert_eq!(given.len(), ours.len() + 1);

    let mut copy = cluster.connect("copy");
    generous(&mut copy);
    read_in(&cluster, "copy", &dump(&cluster, "generous", &[]));
    assert_eq!(grants(&mut copy), given);
    let theirs = "SELECT count(*) FROM pg_class WHERE relname = 'theirs' AND has_table_privilege('reporting', oid, 'SELECT')";
    assert_eq!(number(&mut copy, theirs), 1);
}

#[test]
fn a_database_with_row_level_security_is_restored_with_our_policies() {
    let policies = "SELECT string_agg(format('%s %s %s %s', tablename, policyname, roles, qual), E'\\n' ORDER BY tablename, policyname) FROM pg_policies";
    let ask = |client: &mut Client| -> String { client.query_one(policies, &[]).unwrap().get(0) };
    let (cluster, mut client) = Cluster::start_with_app(QUIET);
    let ours = ask(&mut client);
    populate(&mut client);
    client
        .batch_execute("CREATE ROLE web LOGIN IN ROLE mailroom_app; CREATE POLICY tenants ON accounts TO web USING (login LIKE 'acme/%')")
        .unwrap();
    for table in relations(&mut client, "r") {
        assert!(ours.contains(&format!("{table} mailroom ")), "{table}");
        client
            .batch_execute(&format!(
                "ALTER TABLE {table} ENABLE ROW LEVEL SECURITY; ALTER TABLE {table} FORCE ROW LEVEL SECURITY"
            ))
            .unwrap();
    }
    let rows = contents(&mut client);
    restore(&cluster, "restored", &dump(&cluster, "app", &[]));
    let mut restored = cluster.connect("restored");
    assert_eq!(contents(&mut restored), rows);
    assert_eq!(ask(&mut restored), ours);
}

#[test]
fn no_link_is_in_a_dump() {
    let link = "mailroom.link_base_url = 'https://example.com/account'";
    let (cluster, mut client) = Cluster::start_with_app(&[QUIET, &[link]].concat());
    client
        .batch_execute(
            "INSERT INTO accounts (email, login) SELECT format('user%s@example.com', i), format('user%s', i)
               FROM generate_series(1, 60) i;
             UPDATE tokens SET consumed_at = 1 WHERE account <= 20;
             INSERT INTO tokens (account, action) SELECT i, 'password_recovery' FROM generate_series(1, 20) i;
             SELECT mailroom_collect(50);",
        )
        .unwrap();
    let secrets: Vec<(String, String)> = client
        .query(
            "SELECT secrets ->> 'token', secrets ->> 'link' FROM outbox WHERE state = 'scheduled'",
            &[],
        )
        .unwrap()
        .iter()
        .map(|row| (row.get(0), row.get(1)))
        .collect();
    assert_eq!(secrets.len(), 50);
    client
        .batch_execute(
            "SELECT mailroom_claim(30, claimant => 'me');
             SELECT mailroom_mark_sent(id, claimant => 'me') FROM outbox WHERE claimed_by = 'me' ORDER BY id LIMIT 10;
             SELECT mailroom_mark_error(id, 'no', permanent => id % 2 = 0, claimant => 'me') FROM outbox
               WHERE state = 'claimed' ORDER BY id LIMIT 10;",
        )
        .unwrap();
    let key = std::fs::read_to_string(cluster.data().join("mailroom.key")).unwrap();
    for options in [&["--inserts"][..], &[]] {
        let script = dump(&cluster, "app", options);
        assert!(script.contains("user60@example.com"));
        assert!(!script.contains("https://example.com/account"));
        assert!(!script.contains(key.trim()));
        for (token, link) in &secrets {
            // The second half is the signature; a base64 digit more, for it shares the 43rd with the first.
            let (secret, signature) = token.split_at(44);
            for part in [token, link, secret, signature] {
                assert!(!script.contains(part), "a link is in the dump");
            }
        }
    }
    // And yet none of those still to be sent is lost.
    restore(&cluster, "copy", &dump(&cluster, "app", &[]));
    let waiting = format!(
        "SELECT count(*) FROM (SELECT token_id FROM pending UNION SELECT token_id FROM outbox WHERE {LIVE_TOKEN_MAIL}) w"
    );
    let count = number(&mut client, &waiting);
    assert!(count > 30);
    let mut copy = cluster.connect("copy");
    assert_eq!(number(&mut copy, "SELECT count(*) FROM pending"), count);
}

/// What a consumer is told while a dump is being restored.
fn refused(client: &mut Client, call: &str) {
    let error = client
        .query(&format!("SELECT {call}"), &[])
        .expect_err(call);
    let error = error.as_db_error().expect(call);
    assert_eq!(error.code().code(), "55000", "{call}: {error}");
    assert_eq!(
        error.message(),
        "nothing is handed out while a dump is being restored"
    );
    assert!(error.hint().is_some() && error.detail().is_some());
}

/// Whether the worker of the client's database waits for the end of a restore.
fn stands_by(client: &mut Client) -> bool {
    let reason = "SELECT next_wake_for FROM mailroom_status()";
    let reason: Option<String> = client.query_one(reason, &[]).unwrap().get(0);
    reason.as_deref() == Some("a dump is being restored")
}

#[test]
fn nothing_is_handed_out_before_all_of_it_is_there() {
    // However long it takes, the request below comes too soon after the token before it.
    let settings = [BUSY, &["mailroom.request_interval = '1h'"]].concat();
    let cluster = Cluster::start(&settings);
    let source = Cluster::start(QUIET);
    let mut client = source.create_database("app");
    copy_key(&source, &cluster);
    client
        .batch_execute(
            "INSERT INTO accounts (email, login) SELECT format('user%s@example.com', i), format('user%s', i)
               FROM generate_series(1, 20) i;
             INSERT INTO templates (kind, locale, subject, body_text) VALUES ('welcome', 'en', 'Hello', 'Text');
             SELECT mailroom_send('to@example.com', kind => 'welcome', group_key => 'group');
             SELECT mailroom_request_activation('user1@example.com');",
        )
        .unwrap();
    let script = dump(&source, "app", &[]);
    // The queues come before the tokens and the templates.
    let cut = script.find("COPY public.templates").unwrap();
    assert!(script.find("COPY public.tokens").unwrap() > cut);
    assert!(script.find("COPY public.pending").unwrap() < cut);
    let (first, second) = script.split_at(cut);

    cluster
        .connect("postgres")
        .batch_execute("CREATE DATABASE copy TEMPLATE template0")
        .unwrap();
    let mut psql = psql(&cluster, "copy", "ON_ERROR_STOP=0");
    let mut input = psql.stdin.take().unwrap();
    input.write_all(first.as_bytes()).unwrap();
    // An error in somebody else's part of the dump does not open the gate.
    input.write_all(b"SELECT 1 / 0;\n").unwrap();
    input.flush().unwrap();
    let mut copy = cluster.connect("copy");
    eventually("the first half", || {
        let there = copy
            .query_one("SELECT to_regclass('link_requests') IS NOT NULL", &[])
            .unwrap()
            .get::<_, bool>(0);
        (there && number(&mut copy, "SELECT count(*) FROM link_requests") == 1).then_some(())
    });
    // It may have looked before the first row, and waits to be woken since.
    eventually("the worker to stand by", || {
        copy.batch_execute("SELECT mailroom_wake_worker()").unwrap();
        stands_by(&mut copy).then_some(())
    });
    for call in [
        "mailroom_dequeue()",
        "mailroom_dequeue_line()",
        "mailroom_collect()",
        "mailroom_claim()",
        "mailroom_claim_group()",
        "mailroom_answer_requests()",
        "mailroom_purge()",
    ] {
        refused(&mut copy, call);
    }
    // Woken, it looks, and stands by still.
    copy.batch_execute("SELECT mailroom_wake_worker()").unwrap();
    assert_eq!(number(&mut copy, "SELECT count(*) FROM pending"), 20);
    assert_eq!(number(&mut copy, "SELECT count(*) FROM outbox"), 1);
    assert_eq!(number(&mut copy, "SELECT count(*) FROM job_runs"), 0);

    input.write_all(second.as_bytes()).unwrap();
    drop(input);
    let output = psql.wait_with_output().unwrap();
    assert!(output.status.success());
    let told = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(told.contains("division by zero"), "{told}");
    assert_eq!(told.matches("ERROR").count(), 1, "{told}");
    // The request is one within the interval, and comes to nothing.
    eventually("all of it in the outbox, though nobody polls", || {
        (number(
            &mut copy,
            "SELECT count(DISTINCT token_id) FROM outbox WHERE state = 'scheduled'",
        ) == 20
            && number(&mut copy, "SELECT count(*) FROM link_requests") == 0)
            .then_some(())
    });
    assert_eq!(number(&mut copy, "SELECT count(*) FROM outbox"), 21);
    assert_eq!(
        number(&mut copy, "SELECT count(*) FROM mailroom_claim(100)"),
        21
    );
    let log = cluster.log();
    let restores = "mailroom: a dump is being restored, nothing is handed out in this database until this session ends";
    assert_eq!(log.matches(restores).count(), 1, "{log}");
    let stands_by = "mailroom worker stands by in database \"copy\" while a dump is being restored";
    assert_eq!(log.matches(stands_by).count(), 1, "{log}");
    assert!(!log.contains("WARNING"), "{log}");
}

#[test]
fn only_a_restore_is_taken_for_one() {
    let (cluster, mut client) = Cluster::start_with_app(QUIET);
    client
        .batch_execute("CREATE ROLE app LOGIN IN ROLE mailroom_app; CREATE ROLE admin LOGIN IN ROLE mailroom_admin")
        .unwrap();
    let mut logins = 0;
    let mut registers = |session: &mut Client| -> bool {
        logins += 1;
        session
            .batch_execute(&format!(
                "INSERT INTO accounts (email, login) VALUES ('u{logins}@example.com', 'u{logins}')"
            ))
            .unwrap();
        let queued = format!(
            "SELECT count(*) FROM pending JOIN tokens t ON t.id = token_id JOIN accounts a ON a.id = account WHERE login = 'u{logins}'"
        );
        number(&mut client, &queued) == 1
    };
    // Those who could not disable the triggers, whatever they set.
    for role in ["app", "admin"] {
        let mut session = cluster.connect_as("app", role);
        session.batch_execute(AS_A_DUMP).unwrap();
        assert!(registers(&mut session), "{role}");
    }
    // Nor does anybody who has become one of them.
    let mut session = cluster.connect("app");
    session
        .batch_execute(&format!("{AS_A_DUMP}; SET SESSION AUTHORIZATION app"))
        .unwrap();
    assert!(registers(&mut session));
    // A superuser with some of the settings.
    let settings: Vec<&str> = AS_A_DUMP.split("; ").collect();
    assert_eq!(settings.len(), 3);
    for left_out in 0..settings.len() {
        let mut session = cluster.connect("app");
        for (at, setting) in settings.iter().enumerate() {
            if at != left_out {
                session.batch_execute(setting).unwrap();
            }
        }
        assert!(registers(&mut session), "without {}", settings[left_out]);
    }
    // Nobody is kept from anything by all these.
    let mut other = cluster.connect("app");
    other.batch_execute("SELECT mailroom_dequeue(1)").unwrap();
    // All of them are a restore, for as long as they are set.
    let mut session = cluster.connect("app");
    session.batch_execute(AS_A_DUMP).unwrap();
    assert!(!registers(&mut session));
    session.batch_execute("RESET row_security").unwrap();
    assert!(registers(&mut session));
    // It ends with its session; until then others wait.
    refused(&mut other, "mailroom_dequeue(1)");
    drop(session);
    eventually("the end of the restore", || {
        other.batch_execute("SELECT mailroom_dequeue(1)").ok()
    });
    // Who has become somebody that may, as with pg_restore --role, restores as well.
    other
        .batch_execute("CREATE ROLE climber LOGIN NOINHERIT; GRANT postgres TO climber")
        .unwrap();
    let mut session = cluster.connect_as("app", "climber");
    session
        .batch_execute(&format!("{AS_A_DUMP}; SET ROLE postgres"))
        .unwrap();
    assert!(!registers(&mut session));
}

#[test]
fn a_restore_waits_for_those_who_are_handing_out() {
    let (cluster, mut consumer) = Cluster::start_with_app(QUIET);
    consumer
        .batch_execute(
            "INSERT INTO accounts (email, login) VALUES ('a@example.com', 'a'), ('b@example.com', 'b'); \
             BEGIN; SELECT mailroom_dequeue(1)",
        )
        .unwrap();
    let mut restoring = cluster.connect("app");
    let restore = std::thread::spawn(move || {
        restoring
            .batch_execute(&format!(
                "{AS_A_DUMP}; INSERT INTO link_requests (action, email) VALUES ('activation', 'c@example.com')"
            ))
            .unwrap();
        restoring
    });
    let mut other = cluster.connect("app");
    let waits = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE '%c@example.com%' \
                 AND pid <> pg_backend_pid()";
    eventually("the restore to wait", || {
        (number(&mut other, waits) == 1).then_some(())
    });
    // Nobody comes in before it, and nobody waits.
    refused(&mut other, "mailroom_dequeue(1)");
    // Whoever is at it goes on.
    let rows = consumer.query("SELECT mailroom_dequeue(1)", &[]).unwrap();
    assert_eq!(rows.len(), 1);
    assert_eq!(number(&mut other, waits), 1);
    consumer.batch_execute("COMMIT").unwrap();
    drop(restore.join().unwrap());
    eventually("the end of the restore", || {
        other.batch_execute("SELECT mailroom_dequeue(1)").ok()
    });
}

/// Copies the key file from one cluster to another, as docs/operations/backup.md says.
fn copy_key(from: &Cluster, to: &Cluster) {
    let (from, to) = (
        from.data().join("mailroom.key"),
        to.data().join("mailroom.key"),
    );
    let mut command = Command::new("install");
    command.args(["-m", "600"]).arg(from).arg(&to);
    // As the server's user, to whom both must belong.
    let copied = as_server_user(&to, command);
    assert!(copied.status.success(), "{copied:?}");
}

fn as_server_user(file: &Path, mut command: Command) -> Output {
    use std::os::unix::fs::MetadataExt;
    use std::os::unix::process::CommandExt;
    let owner = std::fs::metadata(file.parent().unwrap()).unwrap();
    command.uid(owner.uid()).gid(owner.gid()).output().unwrap()
}

/// A database with mail in it whose tokens are known, as (id, signed token).
///
/// Of ten token mails two are sent, and three are being sent; then there is one without a token.
fn with_links(cluster: &Cluster) -> Vec<(i64, String)> {
    let mut client = cluster.create_database("app");
    client
        .batch_execute(
            "CREATE ROLE app LOGIN IN ROLE mailroom_app;
             INSERT INTO accounts (email, login) SELECT format('user%s@example.com', i), format('user%s', i)
               FROM generate_series(1, 10) i;",
        )
        .unwrap();
    eventually("all of it in the outbox", || {
        (number(
            &mut client,
            "SELECT count(*) FROM outbox WHERE state = 'scheduled'",
        ) == 10)
            .then_some(())
    });
    cluster
        .connect_as("app", "app")
        .batch_execute("SELECT mailroom_send('own@example.com', 'Subject', 'Text', priority => 1, item_key => 'own')")
        .unwrap();
    client
        .batch_execute(
            "SELECT mailroom_claim(5, '1 h', 'me');
             SELECT mailroom_mark_sent(id, claimant => 'me') FROM outbox WHERE state = 'claimed' ORDER BY id LIMIT 2;",
        )
        .unwrap();
    client
        .query(
            "SELECT id, mailroom_sign(action, secret, code) FROM tokens ORDER BY id",
            &[],
        )
        .unwrap()
        .iter()
        .map(|row| (row.get(0), row.get(1)))
        .collect()
}

fn redeem(client: &mut Client, token: &str) -> String {
    client
        .query_one("SELECT outcome FROM mailroom_redeem($1)", &[&token])
        .unwrap()
        .get(0)
}

#[test]
fn delivery_goes_on_in_another_cluster() {
    let old = Cluster::start(BUSY);
    let links = with_links(&old);
    let sent: BTreeSet<i64> = old
        .connect("app")
        .query("SELECT token_id FROM outbox WHERE state = 'sent'", &[])
        .unwrap()
        .iter()
        .map(|row| row.get(0))
        .collect();
    assert_eq!(sent.len(), 2);
    // As docs/operations/backup.md has it.
    let file = old.scratch().join("app.dump");
    let file = file.to_str().unwrap();
    run(&old, "pg_dump", &["--format=custom", "--file", file, "app"]);
    let new = Cluster::start(BUSY);
    copy_key(&old, &new);
    old.stop_server(Stop::Fast);
    run(&new, "createdb", &["--template=template0", "app"]);
    let options = ["--exit-on-error", "--single-transaction", "--dbname=app"];
    let restored = run(&new, "pg_restore", &[&options[..], &[file]].concat());
    assert_eq!(String::from_utf8_lossy(&restored.stderr), "");
    let mut client = new.connect("app");
    // Each mail that was not sent, once, by the worker, which nobody else wakes.
    eventually("the rest of the mail", || {
        (number(
            &mut client,
            "SELECT count(*) FROM outbox WHERE state = 'scheduled'",
        ) == 9)
            .then_some(())
    });
    let claimed = client
        .query(
            "SELECT token_id, data ->> 'token', recipients[1] FROM mailroom_claim(100)",
            &[],
        )
        .unwrap();
    assert_eq!(claimed.len(), 9);
    for mail in &claimed {
        match mail.get::<_, Option<i64>>(0) {
            // The very link of before.
            Some(token) => assert!(links.contains(&(token, mail.get(1))) && !sent.contains(&token)),
            None => assert_eq!(mail.get::<_, String>(2), "own@example.com"),
        }
    }
    // Those that went out from the old cluster are as good as the new.
    for (_, link) in &links {
        assert_eq!(redeem(&mut client, link), "ok");
        assert_eq!(redeem(&mut client, link), "invalid");
    }
    let active = "SELECT count(*) FROM accounts WHERE status = 'active'";
    assert_eq!(number(&mut client, active), 10);
}

#[test]
fn a_copy_may_be_paused_in_the_session_that_restores_it() {
    let cluster = Cluster::start(BUSY);
    let links = with_links(&cluster);
    let file = cluster.scratch().join("app.dump");
    let file = file.to_str().unwrap();
    run(
        &cluster,
        "pg_dump",
        &["--format=custom", "--file", file, "app"],
    );
    let script = run(&cluster, "pg_restore", &["--file=-", file]).stdout;
    let script = String::from_utf8(script).unwrap();
    restore(
        &cluster,
        "copy",
        &format!("{script}SELECT public.mailroom_pause();\n"),
    );
    let mut copy = cluster.connect("copy");
    // It has looked, since the restore ended, and leaves all of it alone.
    copy.batch_execute("SELECT mailroom_wake_worker()").unwrap();
    eventually("the worker to wait for mailroom_resume()", || {
        let waits = "SELECT coalesce(next_wake_for LIKE 'paused%', false) FROM mailroom_status()";
        let paused: bool = copy.query_one(waits, &[]).unwrap().get(0);
        paused.then_some(())
    });
    assert_eq!(number(&mut copy, "SELECT count(*) FROM pending"), 8);
    assert_eq!(number(&mut copy, "SELECT count(*) FROM outbox"), 3);
    copy.batch_execute("SELECT mailroom_resume()").unwrap();
    eventually("the mail", || {
        (number(&mut copy, "SELECT count(*) FROM outbox") == 11).then_some(())
    });
    // Both databases have the same key, and each its own tokens.
    for database in ["app", "copy"] {
        let mut client = cluster.connect(database);
        assert_eq!(redeem(&mut client, &links[0].1), "ok", "{database}");
    }
}

#[test]
fn without_the_key_the_rows_come_back_and_say_what_is_missing() {
    let old = Cluster::start(BUSY);
    let links = with_links(&old);
    let script = dump(&old, "app", &[]);
    let new = Cluster::start(BUSY);
    let told = restore(&new, "app", &script);
    // Once, from the first statement on, and in the words of whoever would sign.
    assert_eq!(told.matches("WARNING").count(), 1, "{told}");
    assert!(
        told.contains("mailroom.key\" does not exist") && told.contains("Put the file back"),
        "{told}"
    );
    let mut client = new.connect("app");
    assert_eq!(number(&mut client, "SELECT count(*) FROM accounts"), 10);
    // What needs no key goes on.
    let claimed = client
        .query("SELECT recipients[1] FROM mailroom_claim(100)", &[])
        .unwrap();
    assert_eq!(claimed.len(), 1);
    assert_eq!(claimed[0].get::<_, String>(0), "own@example.com");
    // What needs one says so, to its caller and in the log, and loses nothing.
    let error = client.query("SELECT mailroom_dequeue()", &[]).unwrap_err();
    let error = error.as_db_error().unwrap();
    assert_eq!(error.code().code(), "58P01");
    assert!(
        error.hint().unwrap().contains("Put the file back"),
        "{error}"
    );
    eventually("the worker to say so", || {
        new.log()
            .contains("mailroom worker could not take a batch (attempt 1, next in 1 s): key file")
            .then_some(())
    });
    assert_eq!(number(&mut client, "SELECT count(*) FROM pending"), 8);

    copy_key(&old, &new);
    new.reload();
    let scheduled =
        "SELECT count(*) FROM outbox WHERE token_id IS NOT NULL AND state = 'scheduled'";
    eventually("the mail", || {
        (number(&mut client, scheduled) == 8).then_some(())
    });
    drop(client);
    assert_eq!(redeem(&mut new.connect("app"), &links[0].1), "ok");

    // A cluster that has a key of its own: what was sent before is void, and what is sent from now on is good.
    let other = Cluster::start(BUSY);
    drop(other.create_database("first"));
    assert_eq!(restore(&other, "app", &script), "");
    let mut client = other.connect("app");
    eventually("the mail", || {
        (number(&mut client, scheduled) == 8).then_some(())
    });
    let fresh = client
        .query("SELECT token_id, secrets ->> 'token' FROM outbox WHERE token_id IS NOT NULL AND state = 'scheduled'", &[])
        .unwrap();
    for mail in &fresh {
        let (token, signed): (i64, String) = (mail.get(0), mail.get(1));
        let (_, before) = links.iter().find(|(id, _)| *id == token).unwrap();
        assert_eq!(redeem(&mut client, before), "invalid");
        assert_eq!(redeem(&mut client, &signed), "ok");
    }
}

// needs: pg_upgrade
#[test]
fn pg_upgrade_takes_everything_but_the_key() {
    let old = Cluster::start(BUSY);
    let links = with_links(&old);
    // One more token, which no worker sees before the upgrade.
    old.stop_server(Stop::Fast);
    old.start_server_with("-c shared_preload_libraries=");
    old.connect("app")
        .batch_execute("SELECT mailroom_pause(); INSERT INTO accounts (email, login) VALUES ('last@example.com', 'last')")
        .unwrap();
    let everything = |client: &mut Client| {
        let mut all = contents(client);
        // Nothing is left out here, secrets included: it is the same database.
        let rows = client
            .query("SELECT t::text FROM outbox t ORDER BY id", &[])
            .unwrap();
        all.extend(rows.iter().map(|row| row.get::<_, String>(0)));
        all
    };
    let expected = everything(&mut old.connect("app"));
    old.stop_server(Stop::Fast);
    let new = Cluster::start(BUSY);
    new.stop_server(Stop::Fast);

    let bin: PathBuf = bin_directory("MAILROOM_PG_CONFIG");
    let scratch = new.scratch();
    let output = new
        .program("pg_upgrade")
        .current_dir(&scratch)
        .env("PGCTLTIMEOUT", "300")
        .arg("-b")
        .arg(&bin)
        .arg("-B")
        .arg(&bin)
        .arg("-d")
        .arg(old.data())
        .arg("-D")
        .arg(new.data())
        .args(["-U", "postgres", "-s"])
        .arg(&scratch)
        .output()
        .unwrap();
    assert!(
        output.status.success(),
        "{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    new.start_server();
    let mut client = new.connect("app");
    assert_eq!(everything(&mut client), expected);
    let error = client.query("SELECT mailroom_dequeue()", &[]).unwrap_err();
    assert_eq!(error.as_db_error().unwrap().code().code(), "58P01");
    copy_key(&old, &new);
    drop(client);
    let mut client = new.connect("app");
    client.batch_execute("SELECT mailroom_resume()").unwrap();
    let last = "SELECT count(*) FROM outbox WHERE recipients = '{last@example.com}' AND state = 'scheduled'";
    eventually("the last mail", || {
        (number(&mut client, last) == 1).then_some(())
    });
    assert_eq!(redeem(&mut client, &links[0].1), "ok");
}
