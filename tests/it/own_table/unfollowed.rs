//! Rows that were written so that no account could follow: they are told of.

use super::accounts;
use crate::cluster::Cluster;

const WARNING: &str = "rows of table public.users have no accounts that follow them";

fn with_users() -> (Cluster, postgres::Client) {
    let (cluster, mut client) = Cluster::start_with_app(&["shared_preload_libraries = ''"]);
    client
        .batch_execute(
            "CREATE TABLE users (id bigserial PRIMARY KEY, email text UNIQUE, name text); \
             SELECT mailroom_attach('users', 'email', 'name'); \
             INSERT INTO users (email, name) VALUES ('a@example.com', 'a')",
        )
        .unwrap();
    (cluster, client)
}

/// What psql says to a script that succeeds.
fn said(cluster: &Cluster, script: &str) -> String {
    let output = cluster.psql("app", script);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{said}");
    said
}

#[test]
fn a_row_that_changed_without_triggers_is_told_of() {
    let (cluster, mut client) = with_users();
    let quiet = said(
        &cluster,
        "ALTER TABLE users DISABLE TRIGGER USER; UPDATE users SET email = 'b@example.com'; ALTER TABLE users ENABLE TRIGGER USER",
    );
    assert_eq!(quiet, "");
    for change in [
        "UPDATE users SET email = 'c@example.com'",
        "UPDATE users SET name = 'z'",
        "UPDATE users SET email = NULL",
    ] {
        let told = said(&cluster, change);
        assert!(told.contains(WARNING), "{change}: {told}");
        assert_eq!(accounts(&mut client), ["a@example.com a provisioned"]);
        client
            .batch_execute("ALTER TABLE users DISABLE TRIGGER USER; UPDATE users SET email = 'b@example.com', name = 'a'; ALTER TABLE users ENABLE TRIGGER USER")
            .unwrap();
    }
    // The remedy of the hint.
    client
        .batch_execute("UPDATE accounts SET email = 'b@example.com'; SELECT mailroom_detach('users'), mailroom_attach('users', 'email', 'name')")
        .unwrap();
    assert_eq!(
        said(&cluster, "UPDATE users SET email = 'c@example.com'"),
        ""
    );
    assert_eq!(accounts(&mut client), ["c@example.com a provisioned"]);
}

/// The trigger's own change comes to an end before that of the statement that caused it.
#[test]
fn a_row_that_a_later_trigger_changes_again_is_told_of() {
    let (cluster, mut client) = with_users();
    client
        .batch_execute(
            "CREATE FUNCTION shorten() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN \
                 UPDATE users SET email = replace(NEW.email, '+list', '') WHERE id = NEW.id AND NEW.email LIKE '%+list%'; \
                 RETURN NULL; \
             END $$; \
             CREATE TRIGGER a_shorten AFTER UPDATE ON users FOR EACH ROW EXECUTE FUNCTION shorten()",
        )
        .unwrap();
    let told = said(
        &cluster,
        "UPDATE users SET email = 'b+list@example.com' WHERE id = 1",
    );
    assert!(told.contains(WARNING), "{told}");
}

#[test]
fn rows_of_a_dump_without_accounts_are_told_of() {
    let (cluster, mut client) = with_users();
    let told = said(
        &cluster,
        "SET check_function_bodies = off; SET client_min_messages = warning; SET row_security = off; \
         INSERT INTO users (email, name) VALUES (NULL, 'b'); \
         INSERT INTO users (email, name) VALUES ('c@example.com', 'c')",
    );
    assert_eq!(told.matches(WARNING).count(), 1, "{told}");
    assert_eq!(accounts(&mut client), ["a@example.com a provisioned"]);
    client
        .batch_execute("SELECT mailroom_detach('users'), mailroom_attach('users', 'email', 'name')")
        .unwrap();
    assert_eq!(
        accounts(&mut client),
        ["a@example.com a provisioned", "c@example.com c active"]
    );
}
