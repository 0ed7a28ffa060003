//! A subscriber of a logical replication takes over from its publisher.

use std::fs;
use std::process::Command;

use super::{path, printed};
use crate::book::block;
use crate::cluster::transports::{FILE, Transports, write_secret};
use crate::cluster::{Cluster, Stop, eventually, number};
use crate::post::SECRET;
use crate::receiver::{Receiver, status};
use postgres::Client;

/// Starts a server that delivers to this receiver once it preloads the library, with these settings.
fn start(receiver: &Receiver, settings: &[&str]) -> Cluster {
    let endpoint = format!("transport.endpoint = {}", receiver.endpoint());
    let secret = format!("transport.{SECRET}");
    let keys = [
        "transport.provider = webhook",
        "transport.allowed_networks = 127.0.0.1",
        "mailroom.batch_timeout = 0",
        &endpoint,
        &secret,
    ];
    let (transports, others) = Transports::take(&[&keys, settings].concat());
    let others: Vec<&str> = others.iter().map(String::as_str).collect();
    let cluster = Cluster::start_with_file(&others, FILE, &transports.render());
    cluster
        .connect("postgres")
        .batch_execute("CREATE DATABASE app")
        .unwrap();
    cluster
}

/// Runs a block of the page.
fn run(old: &Cluster, new: &Cluster, mark: &str) {
    let script = block("docs/operations/upgrades.md", mark);
    let to = |cluster: &Cluster| {
        let host = cluster.socket().display();
        format!("host={host} user=postgres dbname=app")
    };
    let mut shell = old.as_server_user(Command::new("sh"));
    let script = script.replace(
        "columns.sql",
        &old.scratch().join("columns.sql").display().to_string(),
    );
    shell
        .env("PATH", path(old))
        .envs([("OLD", to(old)), ("NEW", to(new))])
        .args(["-euc", &script]);
    printed(shell.output().unwrap(), &script);
}

/// Connects, with the extension's schema on the search_path.
fn connect(cluster: &Cluster) -> Client {
    let mut client = cluster.connect("app");
    client
        .batch_execute("SET search_path = public, mailroom")
        .unwrap();
    client
}

/// Starts the publisher, with the extension as in docs/start/install.md.
fn publisher(receiver: &Receiver) -> (Cluster, Client) {
    let cluster = start(receiver, &["wal_level = logical"]);
    let mut client = connect(&cluster);
    client
        .batch_execute("CREATE SCHEMA mailroom; CREATE EXTENSION mailroom SCHEMA mailroom")
        .unwrap();
    let columns = "ALTER TABLE mailroom.accounts ADD COLUMN tenant text; ALTER TABLE mailroom.pending ADD COLUMN reason text;";
    client.batch_execute(columns).unwrap();
    fs::write(cluster.scratch().join("columns.sql"), columns).unwrap();
    (cluster, client)
}

/// Restarts the server with the library preloaded.
fn preload(cluster: &Cluster) {
    let setting = "shared_preload_libraries = 'mailroom'\n";
    cluster.append("postgresql.auto.conf", setting);
    cluster.stop_server(Stop::Fast);
    cluster.start_server();
}

/// The tables of the extension that are not in the publication.
const LEFT_OUT: &str = "SELECT string_agg(c.relname, ' ' ORDER BY c.relname) FROM pg_class c \
     WHERE c.relnamespace = 'mailroom'::regnamespace AND c.relkind = 'r' \
     AND NOT EXISTS (SELECT FROM pg_publication_tables p WHERE p.schemaname = 'mailroom' AND p.tablename = c.relname)";

#[test]
fn a_subscriber_takes_over_as_described() {
    let receiver = Receiver::start(|_| status(204));
    let (old, mut client) = publisher(&receiver);
    client
        .batch_execute(
            "CREATE TABLE people (id integer PRIMARY KEY, mail text); SELECT mailroom_attach('people', 'mail'); \
             INSERT INTO people VALUES (1, 'a@example.com')",
        )
        .unwrap();
    eventually("the first mail", || (receiver.count() == 1).then_some(()));
    let new = start(&receiver, &["shared_preload_libraries = ''"]);
    let key = fs::read_to_string(old.data().join("mailroom.key")).unwrap();
    write_secret(&new, "mailroom.key", &key);

    run(&old, &new, "sh replicate");
    let left_out: String = client.query_one(LEFT_OUT, &[]).unwrap().get(0);
    assert_eq!(left_out, "_database_identity deliverers pauses transports");
    client
        .batch_execute("ALTER PUBLICATION move ADD TABLE people")
        .unwrap();
    let mut copy = connect(&new);
    copy.batch_execute("ALTER SUBSCRIPTION move REFRESH PUBLICATION")
        .unwrap();
    client
        .batch_execute("INSERT INTO people VALUES (2, 'b@example.com')")
        .unwrap();
    eventually("the second mail", || (receiver.count() == 2).then_some(()));
    let sent = "SELECT count(*) FROM outbox WHERE state = 'sent'";
    eventually("the subscriber to have both", || {
        (number(&mut copy, sent) == 2 && number(&mut copy, "SELECT count(*) FROM people") == 2)
            .then_some(())
    });
    // These wait for the switch: a mail, and a token.
    pause(&mut client);
    client
        .batch_execute(
            "SELECT mailroom_send('c@example.com', 'Hello', 'Text', attachments => '[{\"filename\": \"a.txt\", \"content\": \"QQ==\"}]'); INSERT INTO people VALUES (3, 'd@example.com')",
        )
        .unwrap();

    run(&old, &new, "sh switch");
    assert_eq!(receiver.count(), 2);
    old.stop_server(Stop::Fast);
    drop(copy);
    preload(&new);
    eventually("what waited", || (receiver.count() == 4).then_some(()));
    let mut copy = connect(&new);
    // New rows get ids of their own, and a row of the attached table keeps its account.
    copy.batch_execute("INSERT INTO people VALUES (4, 'e@example.com')")
        .unwrap();
    eventually("all to be settled", || {
        (number(&mut copy, sent) == 5).then_some(())
    });
    let mut ids = receiver.accepted();
    ids.sort();
    ids.dedup();
    assert_eq!((ids.len(), receiver.count()), (5, 5));
    copy.batch_execute("DELETE FROM people WHERE id < 4")
        .unwrap();
    assert_eq!(number(&mut copy, "SELECT count(*) FROM accounts"), 1);
}

/// Pauses the worker and waits until it rests: it finishes what it has begun.
fn pause(client: &mut Client) {
    client.batch_execute("SELECT mailroom_pause()").unwrap();
    let rests = "SELECT count(*) FROM mailroom_status() WHERE next_wake_for LIKE 'paused%'";
    eventually("the worker to rest", || {
        (number(client, rests) == 1).then_some(())
    });
}

/// Why the page says that no worker may run beside the publisher's.
#[test]
fn a_worker_of_a_subscriber_sends_what_waits_in_the_publisher() {
    let receiver = Receiver::start(|_| status(204));
    let (old, mut client) = publisher(&receiver);
    pause(&mut client);
    client
        .batch_execute("SELECT mailroom_send('a@example.com', 'Hello', 'Text')")
        .unwrap();
    let new = start(&receiver, &[]);
    run(&old, &new, "sh replicate");
    eventually("the subscriber to send it", || {
        (receiver.count() == 1).then_some(())
    });
    client.batch_execute("SELECT mailroom_resume()").unwrap();
    eventually("the publisher to send it", || {
        (receiver.count() == 2).then_some(())
    });
    let ids = receiver.accepted();
    assert_eq!(ids[0], ids[1]);
}
