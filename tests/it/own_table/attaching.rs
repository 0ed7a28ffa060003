//! Which tables can be attached, by whom, and how they may change afterwards.

use super::{accounts, attach, prepare, told};
use crate::cluster::{Cluster, number, skip};
use postgres::error::SqlState;

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
    // A column that is in use cannot be dropped by mistake, nor can the extension.
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
    // After a detach, table and accounts change independently; attached again, rows find their accounts.
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
            "d@example.com unnamed provisioned"
        ]
    );
    // A dropped table leaves its accounts, which another table may take over.
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
    // Addresses that are the same in lower case belong to one account.
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
    // Roles that write the table get no privileges on the tables of mailroom.
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
    // A policy hides rows from the owner: an error is better than accounts for half of the rows.
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

/// Rows that are committed between the snapshot and the lock would be missed.
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

/// Rows that are written through the other table would not fire the triggers of this one.
#[test]
fn a_table_that_joins_a_hierarchy_is_not_written_to() {
    let (_cluster, mut client) = Cluster::start_with_app(&["shared_preload_libraries = ''"]);
    client
        .batch_execute(
            "CREATE TABLE people (mail text); CREATE TABLE parts (mail text) PARTITION BY LIST (mail); \
             CREATE TABLE parent (mail text); SELECT mailroom_attach('people', 'mail'); \
             INSERT INTO people VALUES ('a@example.com')",
        )
        .unwrap();
    let mut changes = 0;
    for (join, leave) in [
        (
            "ALTER TABLE parts ATTACH PARTITION people DEFAULT",
            "ALTER TABLE parts DETACH PARTITION people",
        ),
        (
            "ALTER TABLE people INHERIT parent",
            "ALTER TABLE people NO INHERIT parent",
        ),
        (
            "CREATE TABLE child () INHERITS (people)",
            "DROP TABLE child",
        ),
    ] {
        match client.batch_execute(join) {
            Ok(()) => {}
            // The first minor releases mistake the triggers for some that a partition may not have.
            Err(error) if error.code() == Some(&SqlState::FEATURE_NOT_SUPPORTED) => {
                skip(&format!("{join}, which this release of PostgreSQL refuses"));
                continue;
            }
            Err(error) => panic!("{join}: {error:?}"),
        }
        changes += 1;
        for write in [
            "INSERT INTO people VALUES ('b@example.com')",
            "UPDATE people SET mail = 'c@example.com'",
            "DELETE FROM people",
        ] {
            let error = client.batch_execute(write).expect_err(write);
            assert_eq!(
                error.code(),
                Some(&SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE),
                "{join}, {write}: {error:?}"
            );
        }
        client.batch_execute(leave).unwrap();
        client
            .batch_execute("UPDATE people SET mail = 'x' || mail")
            .unwrap();
    }
    assert!(changes >= 1);
    let address = format!("{}a@example.com", "x".repeat(changes));
    assert_eq!(
        accounts(&mut client),
        [format!("{address} unnamed provisioned")]
    );
}

/// Triggers do not see virtual columns, which PostgreSQL 18 introduced.
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
