//! Privileges and policies are restored, and a dump contains no links.

use super::{LIVE_TOKEN_MAIL, QUIET, contents, dump, populate, read_in, relations, restore};
use crate::cluster::{Cluster, number};
use postgres::Client;

/// Returns all privileges on all objects of the extension.
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
    // Default privileges, as they are usual for a role that is to read everything that is created later.
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
    // A privilege that is granted explicitly stays, and is restored.
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
    // As docs/operations/backup.md says.
    let enabled = "SELECT count(*) FROM pg_class WHERE relrowsecurity";
    assert_eq!(number(&mut restored, enabled), 0);
}

/// pg_restore sets row_security = off, with which statements beside policies fail.
#[test]
fn rows_are_restored_into_tables_with_row_level_security() {
    let (cluster, mut client) = Cluster::start_with_app(QUIET);
    populate(&mut client);
    let script = dump(&cluster, "app", &["--data-only"]);
    let mut copy = cluster.create_database("copy");
    copy.batch_execute(
        "CREATE TABLE people (mail text, name text); SELECT mailroom_attach('people', 'mail', 'name'); \
         ALTER TABLE accounts ENABLE ROW LEVEL SECURITY; ALTER TABLE tokens ENABLE ROW LEVEL SECURITY; \
         ALTER TABLE pending ENABLE ROW LEVEL SECURITY; ALTER TABLE transports ENABLE ROW LEVEL SECURITY; \
         ALTER TABLE outbox ENABLE ROW LEVEL SECURITY",
    )
    .unwrap();
    read_in(&cluster, "copy", &script);
    for table in ["accounts", "tokens", "templates"] {
        let count = format!("SELECT count(*) FROM {table}");
        assert_eq!(
            number(&mut copy, &count),
            number(&mut client, &count),
            "{table}"
        );
    }
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
            // The signature is the second half. It begins within the 43rd base64 digit, so the first part has one digit
            // of it.
            let (secret, signature) = token.split_at(44);
            for part in [token, link, secret, signature] {
                assert!(!script.contains(part), "a link is in the dump");
            }
        }
    }
    // No mail that is still to be sent is lost.
    restore(&cluster, "copy", &dump(&cluster, "app", &[]));
    let waiting = format!(
        "SELECT count(*) FROM (SELECT token_id FROM pending UNION SELECT token_id FROM outbox WHERE {LIVE_TOKEN_MAIL}) w"
    );
    let count = number(&mut client, &waiting);
    assert!(count > 30);
    let mut copy = cluster.connect("copy");
    assert_eq!(number(&mut copy, "SELECT count(*) FROM pending"), count);
}

#[test]
fn a_role_that_may_only_read_makes_the_same_dump() {
    let (cluster, mut client) = Cluster::start_with_app(QUIET);
    populate(&mut client);
    client
        .batch_execute("CREATE ROLE reader LOGIN; GRANT pg_read_all_data TO reader")
        .unwrap();
    let theirs = dump(&cluster, "app", &["-U", "reader"]);
    let all = dump(&cluster, "app", &[]);
    let without_keys = |script: &str| -> Vec<String> {
        // Later versions of pg_dump put a random key there.
        let lines = script.lines().filter(|line| !line.contains("restrict "));
        lines.map(str::to_owned).collect()
    };
    assert_eq!(without_keys(&theirs), without_keys(&all));
}
