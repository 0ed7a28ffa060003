//! How accounts change when rows change.

use std::io::Write;

use super::{accounts, attach, prepare, told};
use crate::cluster::{Cluster, eventually, number};
use postgres::error::SqlState;

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
        "no account is mailed"
    );

    web.batch_execute(
        "INSERT INTO shop.users (mail, nick) VALUES ('New@example.com', 'New'), ('bare@example.com', NULL), (NULL, NULL)",
    )
    .unwrap();
    assert_eq!(
        accounts(&mut client),
        [
            "bare@example.com unnamed provisioned",
            "new@example.com new provisioned",
            "old@example.com old active"
        ]
    );
    assert_eq!(number(&mut client, "SELECT count(*) FROM pending"), 2);

    // A change of the address revokes the links that were sent to the former one.
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
    // A change of another column costs nothing and changes nothing.
    web.batch_execute("UPDATE shop.users SET seen = 3").unwrap();
    // A rolled-back change has no effect.
    web.batch_execute("BEGIN; INSERT INTO shop.users (mail) VALUES ('gone@example.com'); DELETE FROM shop.users WHERE nick = 'nobody'; ROLLBACK")
        .unwrap();
    // Rows that ON CONFLICT skips have no effect; accounts follow the rows that it updates.
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
    // A row whose account was deleted by hand gets no new one when it changes.
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
    // One of the links is redeemed.
    let row = client
        .query_one(
            "SELECT r.outcome, u.mail::text FROM outbox o, mailroom_redeem(o.secrets ->> 'token') r \
             JOIN accounts a ON a.id = r.account JOIN shop.users u ON lower(u.mail) = a.email \
             WHERE o.recipients = '{user77@example.com}'",
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
    // Addresses and logins of other accounts are refused, in upper and lower case.
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
    // A row that has such an address nevertheless, because no trigger fired, changes no account.
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
    // Nor does another table get an account of this one when it is attached.
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
            "Rows that cannot have an account: 1\nthe account of \"a@example.com\" belongs to another table".to_owned()
        )
    );
    cluster.verify();
}

/// Frameworks store an empty string where there is no address.
#[test]
fn an_empty_address_is_none() {
    let (cluster, client) = Cluster::start_with_app(&["shared_preload_libraries = ''"]);
    let (mut client, mut web) = prepare(&cluster, client);
    web.batch_execute("INSERT INTO shop.users (mail, nick) VALUES ('', 'none')")
        .unwrap();
    assert_eq!(attach(&cluster, "shop.users", "'mail', 'nick'").unwrap(), 0);
    web.batch_execute("UPDATE shop.users SET mail = 'a@example.com', nick = ''")
        .unwrap();
    let expected = ["a@example.com unnamed provisioned"];
    assert_eq!(accounts(&mut client), expected);
    web.batch_execute("UPDATE shop.users SET mail = ''; INSERT INTO shop.users (mail, nick) VALUES (NULL, ''); DELETE FROM shop.users")
        .unwrap();
    assert!(accounts(&mut client).is_empty());
    web.batch_execute(
        "INSERT INTO shop.users (mail, nick) VALUES ('', 'none'), ('b@example.com', '')",
    )
    .unwrap();
    let expected = ["b@example.com unnamed provisioned"];
    assert_eq!(accounts(&mut client), expected);
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
    // Two addresses, then three, then three in the opposite order together with the logins.
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
    // Logins in two statements, then an address with a row that had none.
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
    // Addresses that differ only in case are allowed in the table, but not in accounts.
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

/// A dropped table has left its OID, which may be that of another table in another cluster.
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
