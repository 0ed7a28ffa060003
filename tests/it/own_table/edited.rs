//! Rows whose accounts were edited.

use super::{accounts, attach, prepare};
use crate::cluster::Cluster;
use postgres::error::SqlState;

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

/// Otherwise nothing would tell which account belongs to which row.
#[test]
fn two_rows_have_no_address_in_common_though_an_account_was_edited() {
    let (cluster, client) = Cluster::start_with_app(&["shared_preload_libraries = ''"]);
    let (mut client, _web) = prepare(&cluster, client);
    client
        .batch_execute(
            "CREATE TABLE people (id integer PRIMARY KEY, mail text, nick text); \
             SELECT mailroom_attach('people', 'mail', 'nick'); \
             INSERT INTO people VALUES (1, 'm@example.com', 'one'), (2, 'o@example.com', 'two'), (3, NULL, 'three'); \
             UPDATE accounts SET email = 'n@example.com' WHERE login = 'one'",
        )
        .unwrap();
    let before = accounts(&mut client);
    for change in [
        "INSERT INTO people VALUES (4, 'M@example.com', 'four')",
        "UPDATE people SET mail = 'm@example.com' WHERE id = 2",
        "UPDATE people SET mail = 'm@example.com' WHERE id = 3",
    ] {
        let error = client.batch_execute(change).unwrap_err();
        assert_eq!(error.code(), Some(&SqlState::UNIQUE_VIOLATION), "{error:?}");
        assert_eq!(accounts(&mut client), before);
    }
    client
        .batch_execute("UPDATE people SET mail = 'p@example.com' WHERE id = 1; INSERT INTO people VALUES (4, 'm@example.com', 'four')")
        .unwrap();
    assert_eq!(accounts(&mut client).len(), 3);
}
