//! Addresses that change hands within a transaction: in which order rows are changed and deleted makes no difference.

use postgres::Client;

use super::{attach, prepare};
use crate::cluster::{Cluster, number};

/// A statement or transaction, and the ids of the accounts with their addresses afterwards.
const STORIES: &[(&str, &str)] = &[
    // The row that has the address already is deleted, before, after, or in the same statement.
    (
        "BEGIN; DELETE FROM shop.people WHERE id = 2; UPDATE shop.people SET mail = 'b@example.com' WHERE id = 1; COMMIT",
        "1 b, 3 c",
    ),
    (
        "BEGIN; UPDATE shop.people SET mail = 'b@example.com' WHERE id = 1; DELETE FROM shop.people WHERE id = 2; COMMIT",
        "1 b, 3 c",
    ),
    (
        "WITH d AS (DELETE FROM shop.people WHERE id = 2) UPDATE shop.people SET mail = 'b@example.com' WHERE id = 1",
        "1 b, 3 c",
    ),
    (
        "MERGE INTO shop.people p USING (VALUES (1), (2)) v (id) ON p.id = v.id \
         WHEN MATCHED AND p.id = 2 THEN DELETE WHEN MATCHED THEN UPDATE SET mail = 'b@example.com'",
        "1 b, 3 c",
    ),
    // It loses its address.
    (
        "BEGIN; UPDATE shop.people SET mail = 'b@example.com' WHERE id = 1; UPDATE shop.people SET mail = NULL WHERE id = 2; COMMIT",
        "1 b, 3 c",
    ),
    (
        "UPDATE shop.people SET mail = CASE id WHEN 1 THEN 'b@example.com' END WHERE id <= 2",
        "1 b, 3 c",
    ),
    // A row that had no address gets that of a row that is deleted.
    (
        "BEGIN; UPDATE shop.people SET mail = 'b@example.com' WHERE id = 4; DELETE FROM shop.people WHERE id = 2; COMMIT",
        "1 a, 3 c, new b",
    ),
    // Two swap, then one of them is deleted.
    (
        "BEGIN; UPDATE shop.people SET mail = 'b@example.com' WHERE id = 1; UPDATE shop.people SET mail = 'a@example.com' WHERE id = 2; \
         DELETE FROM shop.people WHERE id = 2; COMMIT",
        "1 b, 3 c",
    ),
    (
        "BEGIN; UPDATE shop.people SET mail = 'b@example.com' WHERE id = 1; UPDATE shop.people SET mail = 'a@example.com' WHERE id = 2; \
         DELETE FROM shop.people WHERE id = 1; COMMIT",
        "2 a, 3 c",
    ),
    // Both rows with the address are deleted, in one statement and in two.
    (
        "BEGIN; UPDATE shop.people SET mail = 'b@example.com' WHERE id = 1; DELETE FROM shop.people WHERE id <= 2; COMMIT",
        "3 c",
    ),
    (
        "BEGIN; UPDATE shop.people SET mail = 'b@example.com' WHERE id = 1; DELETE FROM shop.people WHERE id = 2; \
         DELETE FROM shop.people WHERE id = 1; COMMIT",
        "3 c",
    ),
    // A ring of three, of which one is deleted.
    (
        "BEGIN; UPDATE shop.people SET mail = 'b@example.com' WHERE id = 1; UPDATE shop.people SET mail = 'c@example.com' WHERE id = 2; \
         DELETE FROM shop.people WHERE id = 3; COMMIT",
        "1 b, 2 c",
    ),
    (
        "BEGIN; UPDATE shop.people SET mail = 'c@example.com' WHERE id = 2; UPDATE shop.people SET mail = 'b@example.com' WHERE id = 1; \
         DELETE FROM shop.people WHERE id = 3; COMMIT",
        "1 b, 2 c",
    ),
    (
        "BEGIN; UPDATE shop.people SET mail = 'c@example.com' WHERE id = 2; DELETE FROM shop.people WHERE id = 3; \
         UPDATE shop.people SET mail = 'b@example.com' WHERE id = 1; COMMIT",
        "1 b, 2 c",
    ),
    (
        "WITH d AS (DELETE FROM shop.people WHERE id = 3) \
         UPDATE shop.people SET mail = CASE id WHEN 1 THEN 'b@example.com' ELSE 'c@example.com' END WHERE id <= 2",
        "1 b, 2 c",
    ),
    (
        "BEGIN; UPDATE shop.people SET mail = CASE id WHEN 1 THEN 'b@example.com' WHEN 2 THEN 'c@example.com' ELSE 'a@example.com' END WHERE id <= 3; \
         DELETE FROM shop.people WHERE id = 1; COMMIT",
        "2 c, 3 a",
    ),
    // A new row gets an address that has become free.
    (
        "BEGIN; UPDATE shop.people SET mail = 'b@example.com' WHERE id = 1; INSERT INTO shop.people VALUES (5, 'a@example.com'); \
         DELETE FROM shop.people WHERE id = 2; COMMIT",
        "1 b, 3 c, new a",
    ),
    (
        "BEGIN; DELETE FROM shop.people WHERE id = 2; INSERT INTO shop.people VALUES (5, 'b@example.com'); COMMIT",
        "1 a, 3 c, new b",
    ),
    (
        "BEGIN; INSERT INTO shop.people VALUES (5, 'e@example.com'); UPDATE shop.people SET mail = 'b@example.com' WHERE id = 5; \
         DELETE FROM shop.people WHERE id = 2; COMMIT",
        "1 a, 3 c, new b",
    ),
    // What is rolled back to a savepoint has not happened.
    (
        "BEGIN; UPDATE shop.people SET mail = 'b@example.com' WHERE id = 1; SAVEPOINT s; DELETE FROM shop.people WHERE id = 2; \
         ROLLBACK TO s; UPDATE shop.people SET mail = 'a@example.com' WHERE id = 2; COMMIT",
        "1 b, 2 a, 3 c",
    ),
];

const WITH_KEY: &str = "id integer PRIMARY KEY, mail text UNIQUE DEFERRABLE INITIALLY DEFERRED";

/// Starts a cluster with an attached table of these columns. Returns sessions of a superuser and of its owner, too.
fn with_people(columns: &str, attached: &str) -> (Cluster, Client, Client) {
    let (cluster, client) = Cluster::start_with_app(&["shared_preload_libraries = ''"]);
    let (client, _) = prepare(&cluster, client);
    let mut owner = cluster.connect_as("app", "owner");
    owner
        .batch_execute(&format!("CREATE TABLE shop.people ({columns})"))
        .unwrap();
    attach(&cluster, "shop.people", attached).unwrap();
    (cluster, client, owner)
}

#[test]
fn an_account_stays_with_its_row_in_every_order() {
    let (cluster, mut client, mut owner) = with_people(WITH_KEY, "'mail'");
    for (statements, expected) in STORIES {
        client
            .batch_execute(
                "TRUNCATE shop.people; TRUNCATE accounts, tokens, link_requests, outbox RESTART IDENTITY CASCADE; \
                 INSERT INTO shop.people VALUES (1, 'a@example.com'), (2, 'b@example.com'), (3, 'c@example.com'), (4, NULL); \
                 UPDATE accounts SET status = 'active' WHERE id = 2",
            )
            .unwrap();
        owner
            .batch_execute(statements)
            .unwrap_or_else(|error| panic!("{statements}: {error:?}"));
        let found: Option<String> = client
            .query_one(
                "SELECT string_agg(CASE WHEN id <= 3 THEN id::text ELSE 'new' END || ' ' || split_part(email, '@', 1), ', ' ORDER BY id) \
                 FROM accounts WHERE email LIKE '%@example.com'",
                &[],
            )
            .unwrap()
            .get(0);
        assert_eq!(found.as_deref(), Some(*expected), "{statements}");
        // Each row with an address has one account, and each account is that of a row.
        for what in [
            "(SELECT count(*) FROM accounts FULL JOIN (SELECT mail FROM shop.people WHERE mail IS NOT NULL) p ON email = mail WHERE mail IS NULL OR email IS NULL)",
            "(SELECT count(*) FROM accounts a FULL JOIN attached t ON t.account_id = a.id AND t.email = a.email WHERE t.is_displaced IS NOT FALSE OR a.id IS NULL)",
            "(SELECT count(*) FROM accounts WHERE (status = 'active') <> (id = 2))",
        ] {
            assert_eq!(
                number(&mut client, &format!("SELECT {what}")),
                0,
                "{statements}: {what}"
            );
        }
    }
    cluster.verify();
}

/// Nothing tells two rows with the same address apart: the row that is changed or deleted is taken to be the one that
/// had the address before. No account is lost, and none remains without a row.
#[test]
fn while_two_rows_have_an_address_the_one_that_had_it_first_goes() {
    let (cluster, mut client, mut owner) = with_people(WITH_KEY, "'mail'");
    for statements in [
        "DELETE FROM shop.people WHERE id = 1",
        "UPDATE shop.people SET mail = NULL WHERE id = 1",
        "UPDATE shop.people SET mail = 'c@example.com' WHERE id = 1",
    ] {
        client
            .batch_execute("DELETE FROM shop.people; INSERT INTO shop.people VALUES (1, 'a@example.com'), (2, 'b@example.com')")
            .unwrap();
        owner
            .batch_execute(&format!(
                "BEGIN; UPDATE shop.people SET mail = 'b@example.com' WHERE id = 1; {statements}; COMMIT"
            ))
            .unwrap_or_else(|error| panic!("{statements}: {error:?}"));
        assert_eq!(
            number(
                &mut client,
                "SELECT count(*) FROM accounts FULL JOIN (SELECT mail FROM shop.people WHERE mail IS NOT NULL) p ON email = mail \
                 WHERE mail IS NULL OR email IS NULL"
            ),
            0,
            "{statements}"
        );
    }
    cluster.verify();
}

/// Without a deferrable key of its own the table cannot tell a swap from two rows with one address.
#[test]
fn a_table_without_a_deferrable_key_is_told_why_rows_cannot_swap() {
    let (_cluster, mut client, mut owner) =
        with_people("id integer, mail text, nick text", "'mail', 'nick'");
    owner
        .batch_execute("INSERT INTO shop.people VALUES (1, 'a@example.com', 'a'), (2, 'b@example.com', 'b'), (3, NULL, 'c')")
        .unwrap();
    for statement in [
        "UPDATE shop.people SET mail = CASE id WHEN 1 THEN 'b@example.com' ELSE 'a@example.com' END WHERE id <= 2",
        "UPDATE shop.people SET nick = CASE id WHEN 1 THEN 'b' ELSE 'a' END WHERE id <= 2",
        "UPDATE shop.people SET mail = 'B@example.com' WHERE id = 3",
    ] {
        let error = owner.batch_execute(statement).unwrap_err();
        let error = error.as_db_error().unwrap();
        assert_eq!(error.code().code(), "23505", "{statement}");
        assert_eq!(
            error.message(),
            "two rows of table shop.people have the same address or login",
            "{statement}"
        );
        assert!(error.detail().is_some(), "{statement}");
        assert_eq!(
            error.hint(),
            Some(
                "Each address and each login belongs to one account. Rows can swap theirs only if the table has a deferrable unique key of its own."
            ),
            "{statement}"
        );
    }
    assert_eq!(
        number(
            &mut client,
            "SELECT count(*) FROM accounts WHERE (id, email, login) IN ((1, 'a@example.com', 'a'), (2, 'b@example.com', 'b'))"
        ),
        2
    );
}
