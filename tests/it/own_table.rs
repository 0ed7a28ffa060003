//! A table that mailroom did not create: its rows have accounts, no matter how they are changed.

mod attaching;
mod edited;
mod orders;
mod rows;
mod surroundings;
mod unfollowed;

use crate::cluster::Cluster;
use postgres::Client;

/// Email, login and status of each account; `unnamed` is a login without its random part.
fn accounts(client: &mut Client) -> Vec<String> {
    client
        .query(
            "SELECT concat_ws(' ', email, regexp_replace(login, '^(unnamed) [0-9a-f-]{36}$', '\\1'), status) FROM accounts ORDER BY email",
            &[],
        )
        .unwrap()
        .iter()
        .map(|row| row.get(0))
        .collect()
}

/// Adds a table of the application, whose role `web` writes it without privileges on mailroom; connects as `web`.
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
