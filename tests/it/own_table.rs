//! A table that mailroom did not create: its rows have accounts, whatever is done to it.

use std::io::Write;

use crate::cluster::{Cluster, eventually, number};
use postgres::Client;
use postgres::error::SqlState;

/// The accounts as the table has them.
fn accounts(client: &mut Client) -> Vec<String> {
    client
        .query(
            "SELECT concat_ws(' ', email, login, status) FROM accounts ORDER BY email",
            &[],
        )
        .unwrap()
        .iter()
        .map(|row| row.get(0))
        .collect()
}

/// A database without a worker and with a table of the application's, which writes it with no right to mailroom.
fn prepare(cluster: &Cluster, mut client: Client) -> (Client, Client) {
    client
        .batch_execute(
            "CREATE ROLE owner LOGIN IN ROLE mailroom_admin; CREATE ROLE web LOGIN; \
             CREATE SCHEMA shop AUTHORIZATION owner; GRANT USAGE ON SCHEMA shop TO web",
        )
        .unwrap();
    cluster
        .connect_as("app", "owner")
        .batch_execute(
            "CREATE TABLE shop.users (id bigserial PRIMARY KEY, mail varchar(100) UNIQUE, nick text, seen integer); \
             GRANT SELECT, INSERT, UPDATE, DELETE, TRUNCATE ON shop.users TO web; \
             GRANT USAGE ON SEQUENCE shop.users_id_seq TO web",
        )
        .unwrap();
    let web = cluster.connect_as("app", "web");
    (client, web)
}

fn attach(cluster: &Cluster, table: &str, arguments: &str) -> Result<i64, postgres::Error> {
    cluster
        .connect_as("app", "owner")
        .query_one(
            &format!("SELECT mailroom_attach('{table}', {arguments})"),
            &[],
        )
        .map(|row| row.get(0))
}

fn told(error: &postgres::Error) -> (String, String) {
    let error = error.as_db_error().unwrap();
    (
        error.code().code().to_owned(),
        error.detail().unwrap_or_default().to_owned(),
    )
}

#[test]
fn accounts_follow_rows() {
    let (cluster, client) = Cluster::start_with_app(&["shared_preload_libraries = ''"]);
    let (mut client, mut web) = prepare(&cluster, client);
    web.batch_execute(
        "INSERT INTO shop.users (mail, nick) VALUES ('Old@example.com', 'Old'), (NULL, 'nobody')",
    )
    .unwrap();
    assert_eq!(attach(&cluster, "shop.users", "'mail', 'nick'").unwrap(), 1);
    assert_eq!(accounts(&mut client), ["old@example.com old active"]);
    assert_eq!(
        number(&mut client, "SELECT count(*) FROM tokens"),
        0,
        "nobody is mailed"
    );

    web.batch_execute(
        "INSERT INTO shop.users (mail, nick) VALUES ('New@example.com', 'New'), ('bare@example.com', NULL), (NULL, NULL)",
    )
    .unwrap();
    assert_eq!(
        accounts(&mut client),
        [
            "bare@example.com bare@example.com provisioned",
            "new@example.com new provisioned",
            "old@example.com old active"
        ]
    );
    assert_eq!(number(&mut client, "SELECT count(*) FROM pending"), 2);

    // A change of the address ends the links that went to the former one.
    web.batch_execute(
        "UPDATE shop.users SET mail = 'newer@example.com', nick = 'Newer' WHERE nick = 'New'",
    )
    .unwrap();
    assert_eq!(
        number(
            &mut client,
            "SELECT count(*) FROM tokens WHERE revoked_at IS NOT NULL"
        ),
        1
    );
    web.batch_execute(
        "UPDATE shop.users SET nick = 'Oldest', seen = 1 WHERE nick = 'Old'; \
         UPDATE shop.users SET mail = upper(mail), seen = 2; \
         UPDATE shop.users SET mail = 'nobody@example.com' WHERE nick = 'nobody'; \
         UPDATE shop.users SET mail = NULL WHERE mail = 'BARE@EXAMPLE.COM'",
    )
    .unwrap();
    let expected = [
        "newer@example.com newer provisioned",
        "nobody@example.com nobody provisioned",
        "old@example.com oldest active",
    ];
    assert_eq!(accounts(&mut client), expected);
    // A column that is none of ours costs nothing and changes nothing.
    web.batch_execute("UPDATE shop.users SET seen = 3").unwrap();
    // What is rolled back never was.
    web.batch_execute("BEGIN; INSERT INTO shop.users (mail) VALUES ('gone@example.com'); DELETE FROM shop.users WHERE nick = 'nobody'; ROLLBACK")
        .unwrap();
    // Rows that ON CONFLICT turns away are none; those that it updates are followed.
    web.batch_execute(
        "INSERT INTO shop.users (mail) VALUES ('nobody@example.com') ON CONFLICT DO NOTHING; \
         INSERT INTO shop.users (mail, nick) VALUES ('nobody@example.com', 'Some'), ('one@example.com', 'one') \
             ON CONFLICT (mail) DO UPDATE SET nick = excluded.nick",
    )
    .unwrap();
    assert_eq!(
        accounts(&mut client),
        [
            "newer@example.com newer provisioned",
            "nobody@example.com some provisioned",
            "old@example.com oldest active",
            "one@example.com one provisioned"
        ]
    );
    web.batch_execute("DELETE FROM shop.users WHERE nick IN ('Some', 'one')")
        .unwrap();
    assert_eq!(
        accounts(&mut client),
        [
            "newer@example.com newer provisioned",
            "old@example.com oldest active"
        ]
    );
    assert_eq!(number(&mut client, "SELECT count(*) FROM attached"), 2);
    // An account that was deleted by hand leaves its row alone.
    client
        .batch_execute("DELETE FROM accounts WHERE login = 'newer'; UPDATE shop.users SET mail = 'no.account@example.com' WHERE nick = 'Newer'")
        .unwrap();
    assert_eq!(accounts(&mut client), ["old@example.com oldest active"]);
    web.batch_execute("TRUNCATE shop.users").unwrap();
    assert_eq!(accounts(&mut client), [""; 0]);
    assert_eq!(number(&mut client, "SELECT count(*) FROM attached"), 0);
    cluster.verify();
}

#[test]
fn bulk_rows_get_accounts_and_mail() {
    let (cluster, client) = Cluster::start_with_app(&["mailroom.batch_limit = 1000"]);
    let (mut client, mut web) = prepare(&cluster, client);
    attach(&cluster, "shop.users", "'mail'").unwrap();
    let mut copy = web.copy_in("COPY shop.users (mail) FROM STDIN").unwrap();
    for number in 0..20_000 {
        writeln!(copy, "User{number}@example.com").unwrap();
    }
    copy.finish().unwrap();
    assert_eq!(number(&mut client, "SELECT count(*) FROM accounts"), 20_000);
    assert_eq!(number(&mut client, "SELECT count(*) FROM attached"), 20_000);
    eventually("the mails", || {
        (number(
            &mut client,
            "SELECT count(*) FROM outbox WHERE state = 'scheduled'",
        ) == 20_000)
            .then_some(())
    });
    // And a person of them redeems.
    let row = client
        .query_one(
            "SELECT r.outcome, u.mail::text FROM outbox o, mailroom_redeem(o.secrets ->> 'token') r \
             JOIN accounts a ON a.id = r.account JOIN shop.users u ON lower(u.mail) = a.email \
             WHERE o.data ->> 'login' = 'user77@example.com'",
            &[],
        )
        .unwrap();
    assert_eq!(
        (row.get::<_, &str>(0), row.get::<_, &str>(1)),
        ("ok", "User77@example.com")
    );
    web.batch_execute("DELETE FROM shop.users WHERE mail LIKE '%7@example.com'")
        .unwrap();
    assert_eq!(number(&mut client, "SELECT count(*) FROM accounts"), 18_000);
    assert_eq!(number(&mut client, "SELECT count(*) FROM attached"), 18_000);
    cluster.verify();
}

#[test]
fn a_table_reaches_the_accounts_of_its_own_rows_only() {
    let (cluster, client) = Cluster::start_with_app(&["shared_preload_libraries = ''"]);
    let (mut client, mut web) = prepare(&cluster, client);
    client
        .batch_execute(
            "INSERT INTO accounts (email, login, status) VALUES ('boss@example.com', 'boss', 'active'); \
             CREATE TABLE staff (email text, name text); INSERT INTO staff VALUES ('clerk@example.com', 'clerk'); \
             SELECT mailroom_attach('staff', 'email', 'name')",
        )
        .unwrap();
    attach(&cluster, "shop.users", "'mail', 'nick'").unwrap();
    // Addresses and logins that somebody has are refused, in any spelling.
    for (mail, nick) in [
        ("Boss@example.com", "x"),
        ("CLERK@example.com", "y"),
        ("new@example.com", "Boss"),
    ] {
        let error = web
            .execute(
                "INSERT INTO shop.users (mail, nick) VALUES ($1, $2)",
                &[&mail, &nick],
            )
            .unwrap_err();
        assert_eq!(error.code(), Some(&SqlState::UNIQUE_VIOLATION), "{error:?}");
    }
    // A row that has such an address all the same, by a way around the triggers, moves nothing.
    client
        .batch_execute(
            "SET session_replication_role = replica; \
             INSERT INTO shop.users (mail, nick) VALUES ('boss@example.com', 'thief'), ('clerk@example.com', 'thief 2'); \
             RESET session_replication_role",
        )
        .unwrap();
    web.batch_execute(
        "UPDATE shop.users SET mail = 'mine@example.com', nick = 'mine' WHERE nick = 'thief'; \
         UPDATE shop.users SET nick = 'mine too' WHERE nick = 'thief 2'; \
         DELETE FROM shop.users WHERE nick = 'mine too'; TRUNCATE shop.users",
    )
    .unwrap();
    assert_eq!(
        accounts(&mut client),
        [
            "boss@example.com boss active",
            "clerk@example.com clerk active"
        ]
    );
    // Nor does another table's get them when it is attached.
    web.batch_execute("INSERT INTO shop.users (mail) VALUES ('a@example.com')")
        .unwrap();
    client
        .batch_execute(
            "CREATE TABLE guests (email text); INSERT INTO guests VALUES ('A@example.com')",
        )
        .unwrap();
    let error = client
        .batch_execute("SELECT mailroom_attach('guests', 'email')")
        .unwrap_err();
    assert_eq!(
        told(&error),
        (
            "23505".to_owned(),
            "The account of \"a@example.com\" belongs to another table.".to_owned()
        )
    );
    cluster.verify();
}

#[test]
fn it_follows_renames_and_survives_a_drop() {
    let (cluster, client) = Cluster::start_with_app(&["shared_preload_libraries = ''"]);
    let (mut client, mut web) = prepare(&cluster, client);
    attach(&cluster, "shop.users", "'mail', 'nick'").unwrap();
    client
        .batch_execute(
            "ALTER TABLE shop.users RENAME COLUMN mail TO \"E-Mail %1$I\"; \
             ALTER TABLE shop.users RENAME COLUMN nick TO \"Nick \"\"N\"\"\"; \
             ALTER TABLE shop.users RENAME TO \"The Users\"; ALTER SCHEMA shop RENAME TO \"The Shop\"; \
             ALTER TABLE \"The Shop\".\"The Users\" DROP COLUMN seen, ADD COLUMN more text",
        )
        .unwrap();
    web.batch_execute(
        "INSERT INTO \"The Shop\".\"The Users\" (\"E-Mail %1$I\", \"Nick \"\"N\"\"\") VALUES ('a@example.com', 'a'), ('b@example.com', 'b'); \
         UPDATE \"The Shop\".\"The Users\" SET \"E-Mail %1$I\" = 'c@example.com' WHERE \"Nick \"\"N\"\"\" = 'a'; \
         UPDATE \"The Shop\".\"The Users\" SET \"Nick \"\"N\"\"\" = 'c' WHERE \"Nick \"\"N\"\"\" = 'a'; \
         DELETE FROM \"The Shop\".\"The Users\" WHERE \"Nick \"\"N\"\"\" = 'b'",
    )
    .unwrap();
    assert_eq!(accounts(&mut client), ["c@example.com c provisioned"]);
    let row = client
        .query_one(
            "SELECT relation::text, email::text, login::text FROM mailroom_attached",
            &[],
        )
        .unwrap();
    assert_eq!(
        [row.get::<_, &str>(0), row.get(1), row.get(2)],
        ["\"The Shop\".\"The Users\"", "E-Mail %1$I", "Nick \"N\""]
    );
    // A column that is in use does not go by mistake, and the extension neither.
    for attempt in [
        "ALTER TABLE \"The Shop\".\"The Users\" DROP COLUMN \"E-Mail %1$I\"",
        "DROP EXTENSION mailroom",
    ] {
        let error = client.batch_execute(attempt).unwrap_err();
        assert_eq!(
            error.code(),
            Some(&SqlState::DEPENDENT_OBJECTS_STILL_EXIST),
            "{error:?}"
        );
    }
    // Detached, table and accounts go their own ways; attached again, they find each other.
    let mut owner = cluster.connect_as("app", "owner");
    let detach = "SELECT mailroom_detach('\"The Shop\".\"The Users\"')";
    assert_eq!(number(&mut owner, &detach.replace("SELECT ", "")), 1);
    let error = owner.batch_execute(detach).unwrap_err();
    assert_eq!(error.code(), Some(&SqlState::UNDEFINED_OBJECT));
    web.batch_execute(
        "INSERT INTO \"The Shop\".\"The Users\" (\"E-Mail %1$I\") VALUES ('d@example.com')",
    )
    .unwrap();
    assert_eq!(accounts(&mut client), ["c@example.com c provisioned"]);
    let again = attach(
        &cluster,
        "\"The Shop\".\"The Users\"",
        "'E-Mail %1$I', existing => 'provisioned'",
    );
    assert_eq!(again.unwrap(), 2);
    assert_eq!(
        accounts(&mut client),
        [
            "c@example.com c provisioned",
            "d@example.com d@example.com provisioned"
        ]
    );
    // A dropped table leaves its accounts, which another may then have.
    client
        .batch_execute(
            "DROP TABLE \"The Shop\".\"The Users\"; CREATE TABLE people (email text); \
             INSERT INTO people VALUES ('D@example.com'); SELECT mailroom_attach('people', 'email')",
        )
        .unwrap();
    assert_eq!(number(&mut client, "SELECT count(*) FROM attached"), 1);
    client.batch_execute("DELETE FROM people").unwrap();
    assert_eq!(accounts(&mut client), ["c@example.com c provisioned"]);
    cluster.verify();
}

// needs: citext file_fdw
#[test]
fn what_cannot_be_attached_is_refused_with_the_reason() {
    let (cluster, client) = Cluster::start_with_app(&["shared_preload_libraries = ''"]);
    let (mut client, _web) = prepare(&cluster, client);
    client
        .batch_execute(
            "CREATE EXTENSION citext; CREATE EXTENSION file_fdw; CREATE SERVER files FOREIGN DATA WRAPPER file_fdw; \
             CREATE FOREIGN TABLE far (email text) SERVER files OPTIONS (filename '/dev/null'); \
             CREATE TABLE parts (email text) PARTITION BY LIST (email); CREATE TABLE part PARTITION OF parts DEFAULT; \
             CREATE VIEW seen AS SELECT 'a@example.com'::text AS email; \
             CREATE MATERIALIZED VIEW kept AS SELECT 'a@example.com'::text AS email; \
             CREATE UNLOGGED TABLE quick (email text); CREATE TEMPORARY TABLE brief (email text); \
             CREATE TABLE parent (email text); CREATE TABLE child () INHERITS (parent); \
             CREATE TYPE mood AS ENUM ('fine'); CREATE DOMAIN address AS citext; CREATE DOMAIN narrow AS address; \
             CREATE TABLE good (a text, b varchar(99), c citext, d address, e narrow, f mood, g char(9), h integer, i text[], \"j k\" text)",
        )
        .unwrap();
    for (call, code, detail) in [
        ("'far', 'email'", "42809", "It is a foreign table."),
        (
            "'parts', 'email'",
            "42809",
            "It is partitioned, or a partition.",
        ),
        (
            "'part', 'email'",
            "42809",
            "It is partitioned, or a partition.",
        ),
        ("'seen', 'email'", "42809", "It is not a table."),
        ("'kept', 'email'", "42809", "It is not a table."),
        ("'accounts_pkey', 'email'", "42809", "It is not a table."),
        (
            "'quick', 'email'",
            "42809",
            "It is unlogged: a crash would empty it and leave the accounts.",
        ),
        ("'brief', 'email'", "42809", "It is temporary."),
        (
            "'parent', 'email'",
            "42809",
            "It inherits, or is inherited from.",
        ),
        (
            "'child', 'email'",
            "42809",
            "It inherits, or is inherited from.",
        ),
        (
            "'accounts', 'email'",
            "42809",
            "It belongs to an extension.",
        ),
        ("NULL, 'email'", "42809", "There is no such table."),
        ("999999, 'email'", "42809", "There is no such table."),
        ("'good', 'z'", "42703", "It has no column \"z\"."),
        ("'good', NULL", "42703", ""),
        ("'good', 'ctid'", "42703", "It has no column \"ctid\"."),
        ("'good', 'a', 'z'", "42703", "It has no column \"z\"."),
        ("'good', 'f'", "42804", "Column \"f\" is not text."),
        ("'good', 'g'", "42804", "Column \"g\" is not text."),
        ("'good', 'a', 'h'", "42804", "Column \"h\" is not text."),
        ("'good', 'i'", "42804", "Column \"i\" is not text."),
    ] {
        let error = client
            .batch_execute(&format!("SELECT mailroom_attach({call})"))
            .expect_err(call);
        let (found, told) = told(&error);
        assert_eq!(found, code, "{call}: {error:?}");
        assert!(told.contains(detail), "{call}: {told}");
    }
    let error = client
        .batch_execute("SELECT mailroom_attach('nowhere', 'email')")
        .unwrap_err();
    assert_eq!(error.code(), Some(&SqlState::UNDEFINED_TABLE));
    for column in ["a", "b", "c", "d", "e", "j k"] {
        client
            .batch_execute(&format!(
                "SELECT mailroom_attach('good', '{column}'); \
                 INSERT INTO good (\"{column}\") VALUES ('{}@example.com'); \
                 UPDATE good SET \"{column}\" = 'x' || \"{column}\"; DELETE FROM good; SELECT mailroom_detach('good')",
                column.replace(' ', ".")
            ))
            .unwrap_or_else(|error| panic!("{column}: {error:?}"));
    }
    client
        .batch_execute("SELECT mailroom_attach('good', 'a')")
        .unwrap();
    let error = client
        .batch_execute("SELECT mailroom_attach('good', 'b')")
        .unwrap_err();
    assert_eq!(
        told(&error),
        ("42710".to_owned(), "It is attached already.".to_owned())
    );
    // Addresses that are the same in lower case are one account's.
    client
        .batch_execute("CREATE TABLE twice (email text); INSERT INTO twice VALUES ('t@example.com'), ('T@example.com')")
        .unwrap();
    let error = client
        .batch_execute("SELECT mailroom_attach('twice', 'email')")
        .unwrap_err();
    assert_eq!(error.code(), Some(&SqlState::UNIQUE_VIOLATION));
    assert_eq!(
        number(&mut client, "SELECT count(*) FROM mailroom_attached"),
        1
    );
}

#[test]
fn only_the_owner_attaches_and_only_as_an_administrator() {
    let (cluster, client) = Cluster::start_with_app(&["shared_preload_libraries = ''"]);
    let (mut client, mut web) = prepare(&cluster, client);
    client
        .batch_execute(
            "CREATE ROLE chief LOGIN IN ROLE mailroom_admin; GRANT ALL ON shop.users TO chief; \
             GRANT USAGE ON SCHEMA shop TO chief; CREATE SCHEMA web AUTHORIZATION web",
        )
        .unwrap();
    web.batch_execute("CREATE TABLE web.mine (email text)")
        .unwrap();
    let error = web
        .batch_execute("SELECT mailroom_attach('web.mine', 'email')")
        .unwrap_err();
    assert_eq!(error.code(), Some(&SqlState::INSUFFICIENT_PRIVILEGE));
    let mut chief = cluster.connect_as("app", "chief");
    let error = chief
        .batch_execute("SELECT mailroom_attach('shop.users', 'mail')")
        .unwrap_err();
    assert_eq!(
        told(&error),
        ("42501".to_owned(), "Another role owns it.".to_owned())
    );
    attach(&cluster, "shop.users", "'mail'").unwrap();
    let error = chief
        .batch_execute("SELECT mailroom_detach('shop.users')")
        .unwrap_err();
    assert_eq!(error.code(), Some(&SqlState::INSUFFICIENT_PRIVILEGE));
    // Its writers get no right to the accounts by it, and see none of them in an error.
    web.batch_execute("INSERT INTO shop.users (mail) VALUES ('a@example.com')")
        .unwrap();
    for attempt in [
        "SELECT * FROM accounts",
        "SELECT * FROM attached",
        "SELECT * FROM tokens",
    ] {
        let error = web.batch_execute(attempt).unwrap_err();
        assert_eq!(error.code(), Some(&SqlState::INSUFFICIENT_PRIVILEGE));
    }
    // Rows that a policy hides from the owner: an error rather than half of the accounts.
    let mut owner = cluster.connect_as("app", "owner");
    owner
        .batch_execute(
            "CREATE TABLE shop.hidden (email text); INSERT INTO shop.hidden VALUES ('h@example.com'); \
             ALTER TABLE shop.hidden ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY",
        )
        .unwrap();
    let error = owner
        .batch_execute("SELECT mailroom_attach('shop.hidden', 'email')")
        .unwrap_err();
    assert_eq!(
        error.code(),
        Some(&SqlState::INSUFFICIENT_PRIVILEGE),
        "{error:?}"
    );
}

#[test]
fn an_account_that_is_edited_stays_with_its_row() {
    let (cluster, client) = Cluster::start_with_app(&["shared_preload_libraries = ''"]);
    let (mut client, mut web) = prepare(&cluster, client);
    attach(&cluster, "shop.users", "'mail', 'nick'").unwrap();
    web.batch_execute(
        "INSERT INTO shop.users (mail, nick) VALUES ('One@example.com', 'one'), ('two@example.com', 'two'), ('three@example.com', 'three')",
    )
    .unwrap();
    client
        .batch_execute("UPDATE accounts SET email = 'edited.' || email")
        .unwrap();
    // Only what changes in the row changes in the account.
    web.batch_execute(
        "UPDATE shop.users SET nick = 'first' WHERE nick = 'one'; \
         UPDATE shop.users SET mail = 'second@example.com' WHERE nick = 'two'; \
         DELETE FROM shop.users WHERE nick = 'three'",
    )
    .unwrap();
    assert_eq!(
        accounts(&mut client),
        [
            "edited.one@example.com first provisioned",
            "second@example.com two provisioned"
        ]
    );
    cluster.verify();
}

#[test]
fn rows_swap_what_a_deferrable_key_lets_them_swap() {
    let (cluster, client) = Cluster::start_with_app(&["shared_preload_libraries = ''"]);
    let (mut client, _) = prepare(&cluster, client);
    let mut owner = cluster.connect_as("app", "owner");
    owner
        .batch_execute(
            "CREATE TABLE shop.people (id bigserial PRIMARY KEY, mail text UNIQUE DEFERRABLE, nick text UNIQUE DEFERRABLE INITIALLY DEFERRED, \
                 badge integer UNIQUE DEFERRABLE)",
        )
        .unwrap();
    attach(&cluster, "shop.people", "'mail', 'nick'").unwrap();
    owner
        .batch_execute(
            "INSERT INTO shop.people (mail, nick) VALUES ('a@example.com', 'a'), ('b@example.com', 'b'), ('c@example.com', 'c'), (NULL, 'd')",
        )
        .unwrap();
    let ids =
        "SELECT string_agg(id || ' ' || email || ' ' || login, ', ' ORDER BY id) FROM accounts";
    let mut story = |statement: &str| -> String {
        owner
            .batch_execute(statement)
            .unwrap_or_else(|error| panic!("{statement}: {error:?}"));
        client.query_one(ids, &[]).unwrap().get(0)
    };
    // Two addresses, all of three, in the opposite order, and logins.
    assert_eq!(
        story(
            "UPDATE shop.people SET mail = CASE nick WHEN 'a' THEN 'b@example.com' ELSE 'a@example.com' END WHERE nick IN ('a', 'b')"
        ),
        "1 b@example.com a, 2 a@example.com b, 3 c@example.com c"
    );
    assert_eq!(
        story(
            "UPDATE shop.people SET mail = CASE id WHEN 1 THEN 'a@example.com' WHEN 2 THEN 'c@example.com' ELSE 'b@example.com' END WHERE id <= 3"
        ),
        "1 a@example.com a, 2 c@example.com b, 3 b@example.com c"
    );
    assert_eq!(
        story(
            "UPDATE shop.people SET mail = CASE id WHEN 1 THEN 'b@example.com' WHEN 2 THEN 'a@example.com' ELSE 'c@example.com' END, \
                   nick = CASE id WHEN 1 THEN 'c' WHEN 2 THEN 'a' ELSE 'b' END WHERE id <= 3"
        ),
        "1 b@example.com c, 2 a@example.com a, 3 c@example.com b"
    );
    // In two statements; and with a row that had none.
    assert_eq!(
        story(
            "BEGIN; UPDATE shop.people SET nick = 'a' WHERE id = 1; UPDATE shop.people SET nick = 'c' WHERE id = 2; COMMIT"
        ),
        "1 b@example.com a, 2 a@example.com c, 3 c@example.com b"
    );
    assert_eq!(
        story(
            "UPDATE shop.people SET mail = CASE id WHEN 4 THEN 'c@example.com' END WHERE id >= 3"
        ),
        "1 b@example.com a, 2 a@example.com c, 4 c@example.com d"
    );
    assert_eq!(
        number(
            &mut client,
            "SELECT count(*) FROM attached WHERE is_displaced"
        ),
        0
    );
    // What the table allows and accounts do not: addresses that differ in their case.
    let error = owner
        .batch_execute("UPDATE shop.people SET mail = 'A@example.com' WHERE id = 1")
        .unwrap_err();
    assert_eq!(
        told(&error),
        (
            "23505".to_owned(),
            "One of them is that of account 2.".to_owned()
        )
    );
    assert_eq!(
        client.query_one(ids, &[]).unwrap().get::<_, String>(0),
        "1 b@example.com a, 2 a@example.com c, 4 c@example.com d"
    );
    cluster.verify();
}

/// A dropped table has left its number, and in another cluster that may be another table's.
#[test]
fn a_dump_names_tables_that_are_there_only() {
    let (cluster, client) = Cluster::start_with_app(&["shared_preload_libraries = ''"]);
    let (mut client, mut web) = prepare(&cluster, client);
    attach(&cluster, "shop.users", "'mail'").unwrap();
    web.batch_execute("INSERT INTO shop.users (mail) VALUES ('a@example.com')")
        .unwrap();
    let rows = || {
        let output = cluster
            .program("pg_dump")
            .args(["--data-only", "app"])
            .output()
            .unwrap();
        assert!(output.status.success(), "{output:?}");
        let dump = String::from_utf8(output.stdout).unwrap();
        let (_, rows) = dump
            .split_once(
                "COPY public.attached (account_id, relation, email, is_displaced) FROM stdin;\n",
            )
            .unwrap();
        rows.split_once("\\.\n").unwrap().0.to_owned()
    };
    assert_eq!(rows(), "1\tshop.users\ta@example.com\tf\n");
    client.batch_execute("DROP TABLE shop.users").unwrap();
    assert_eq!(rows(), "");
}

/// Rows that somebody commits between the snapshot and the lock would be forgotten.
#[test]
fn a_table_is_attached_in_read_committed_only() {
    let (cluster, mut client) = Cluster::start_with_app(&[]);
    client
        .batch_execute(
            "CREATE TABLE people (mail text); INSERT INTO people VALUES ('one@example.com')",
        )
        .unwrap();
    for level in ["REPEATABLE READ", "SERIALIZABLE"] {
        client
            .batch_execute(&format!(
                "BEGIN ISOLATION LEVEL {level}; SELECT FROM people"
            ))
            .unwrap();
        cluster
            .connect("app")
            .batch_execute("INSERT INTO people VALUES (gen_random_uuid() || '@example.com')")
            .unwrap();
        let error = client
            .query_one("SELECT mailroom_attach('people', 'mail')", &[])
            .unwrap_err();
        assert_eq!(error.code().unwrap().code(), "0A000", "{error:?}");
        client.batch_execute("ROLLBACK").unwrap();
    }
    assert_eq!(
        number(&mut client, "SELECT mailroom_attach('people', 'mail')"),
        3
    );
}

/// PostgreSQL 18 has columns that no trigger sees.
#[test]
fn a_column_that_is_not_stored_is_refused() {
    let (_cluster, mut client) = Cluster::start_with_app(&[]);
    let attach = "SELECT mailroom_attach('people', 'mail', 'name')";
    client
        .batch_execute("CREATE TABLE people (raw text, name text, mail text GENERATED ALWAYS AS (lower(raw)) STORED)")
        .unwrap();
    assert_eq!(number(&mut client, attach), 0);
    client
        .batch_execute(
            "INSERT INTO people (raw, name) VALUES ('Ann@example.com', 'ann'); DROP TABLE people",
        )
        .unwrap();
    assert_eq!(
        number(
            &mut client,
            "SELECT count(*) FROM accounts WHERE email = 'ann@example.com'"
        ),
        1
    );
    if number(
        &mut client,
        "SELECT current_setting('server_version_num')::bigint",
    ) < 180_000
    {
        crate::cluster::skip("this server has no virtual generated columns");
        return;
    }
    client
        .batch_execute("CREATE TABLE people (raw text, name text, mail text GENERATED ALWAYS AS (lower(raw)) VIRTUAL)")
        .unwrap();
    let error = client.query_one(attach, &[]).unwrap_err();
    assert_eq!(error.code().unwrap().code(), "0A000", "{error:?}");
}
