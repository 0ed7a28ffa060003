//! Clients that deliver mail beside a worker that delivers: they are notified of theirs, and only of that.

use super::{hear_on, settle};
use crate::cluster::transports::FILE;
use crate::cluster::{Cluster, Stop, eventually, number};
use postgres::Client;

/// Schedules a mail with these further arguments.
fn send(client: &mut Client, more: &str) {
    client
        .batch_execute(&format!(
            "SELECT mailroom_send('a@example.com', 'S', 'T', {more})"
        ))
        .unwrap();
}

/// Starts a worker that delivers through the transport `log`, which is the default. Also returns a session that listens
/// for due mail.
fn with_listener() -> (Cluster, Client, Client) {
    let settings = [
        "mailroom.poll_interval = '1h'",
        "mailroom.transport = 'log'",
        "mailroom.transports_file = 'transports.toml'",
    ];
    let file = "[transports.log]\nprovider = \"log\"\n";
    let (cluster, client) = Cluster::start_with_app_and_file(&settings, FILE, file);
    let (_, listener) = settled(&cluster);
    (cluster, client, listener)
}

/// Waits until the worker has published its transport and is idle. Returns a session, and one that listens for due mail.
fn settled(cluster: &Cluster) -> (Client, Client) {
    let mut client = cluster.connect("app");
    eventually("the transport to be published", || {
        (number(&mut client, "SELECT count(*) FROM mailroom_transports") == 1).then_some(())
    });
    let mut listener = cluster.connect("app");
    listener.batch_execute("LISTEN outbox_due").unwrap();
    settle(&mut client, &mut listener);
    (client, listener)
}

/// Restarts the server; as [`settled`].
fn restart(cluster: &Cluster, client: Client) -> (Client, Client) {
    drop(client);
    cluster.stop_server(Stop::Fast);
    cluster.start_server();
    settled(cluster)
}

fn wait_for_sent(client: &mut Client, count: i64) {
    let sent = "SELECT count(*) FROM outbox WHERE state = 'sent'";
    eventually("the mail to be sent", || {
        (number(client, sent) == count).then_some(())
    });
}

#[test]
fn mail_that_the_worker_delivers_is_not_announced_to_clients() {
    use postgres::fallible_iterator::FallibleIterator;
    let (cluster, mut client, mut listener) = with_listener();
    send(&mut client, "priority => -10");
    send(
        &mut client,
        "send_at => clock_timestamp() + interval '500 ms'",
    );
    client
        .batch_execute("INSERT INTO accounts (email, login) VALUES ('a@example.com', 'a')")
        .unwrap();
    wait_for_sent(&mut client, 3);
    settle(&mut client, &mut cluster.connect("app"));
    // Receives what the server has sent.
    listener.batch_execute("SELECT 1").unwrap();
    let mut notifications = listener.notifications();
    assert!(notifications.iter().next().unwrap().is_none());
}

#[test]
fn clients_hear_of_mail_without_a_transport_until_it_is_settled() {
    let (_cluster, mut client, mut listener) = with_listener();
    send(&mut client, "transport => ''");
    hear_on(&mut listener, "outbox_due");
    // The worker is idle again, although it has notified others.
    settle(&mut client, &mut listener);
    // A claim expires.
    client
        .batch_execute("SELECT FROM mailroom_claim(1, '700 ms', 'gone')")
        .unwrap();
    hear_on(&mut listener, "outbox_due");
    settle(&mut client, &mut listener);
    // An attempt fails.
    client
        .batch_execute(
            "SELECT mailroom_mark_error(id, 'no', '500 ms', claimant => 'me') FROM mailroom_claim(1, '1 h', 'me')",
        )
        .unwrap();
    hear_on(&mut listener, "outbox_due");
    settle(&mut client, &mut listener);
    send(
        &mut client,
        "transport => '', send_at => clock_timestamp() + interval '500 ms'",
    );
    hear_on(&mut listener, "outbox_due");
}

#[test]
fn clients_hear_of_mail_of_a_transport_that_no_deliverer_has() {
    let (_cluster, mut client, mut listener) = with_listener();
    client
        .batch_execute(
            "INSERT INTO routes (position, kind_pattern, transport) VALUES (1, 'bulk', 'bulk')",
        )
        .unwrap();
    send(&mut client, "kind => 'bulk'");
    hear_on(&mut listener, "outbox_due");
}

#[test]
fn clients_hear_of_mail_that_is_rerouted_to_them() {
    let (_cluster, mut client, mut listener) = with_listener();
    client.batch_execute("SELECT mailroom_pause()").unwrap();
    send(&mut client, "transport => 'log'");
    settle(&mut client, &mut listener);
    client
        .batch_execute("SELECT mailroom_reroute('log', '')")
        .unwrap();
    hear_on(&mut listener, "outbox_due");
}

#[test]
fn clients_hear_of_mail_from_before_a_start_of_the_worker() {
    let (cluster, mut client, _) = with_listener();
    send(&mut client, "transport => ''");
    client
        .batch_execute(
            "SELECT mailroom_mark_error(id, 'no', permanent => true, claimant => 'me') \
             FROM mailroom_claim(1, '1 h', 'me')",
        )
        .unwrap();
    // The worker knows of no client while no mail is left to one.
    let (mut client, mut listener) = restart(&cluster, client);
    client
        .batch_execute("SELECT mailroom_retry(id) FROM outbox")
        .unwrap();
    hear_on(&mut listener, "outbox_due");

    client
        .batch_execute(
            "SELECT mailroom_reschedule(id, clock_timestamp() + interval '1 h') FROM outbox",
        )
        .unwrap();
    let (mut client, mut listener) = restart(&cluster, client);
    client
        .batch_execute("SELECT mailroom_reschedule(id, clock_timestamp()) FROM outbox")
        .unwrap();
    hear_on(&mut listener, "outbox_due");
}
