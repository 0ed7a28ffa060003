//! Four clusters and two `mailroom send`, each of which serves all four: what a cluster that is stopped, and started again,
//! costs the other three.
//!
//! Answers take 200 ms and few requests are under way, so that the rate is theirs and not the machine's: a machine that is
//! busy would give the others what the one that is down leaves. What it costs to start a server on the same two cores and
//! disk, which recovers, is in the figure.

use std::time::{Duration, Instant};

use postgres::Client;

use crate::cluster::{Cluster, Stop, eventually, number};
use crate::ground;
use crate::plan::Effort;
use crate::receiver::{Reaction, Receiver};
use crate::sender_scene::{ROLES, Sender, load, url, write_webhook};
use crate::table::{Row, Target, Unit};

const LATENCY: Duration = Duration::from_millis(200);

/// The row of fleet. The function is long because the steps of the measurement share its variables.
pub fn measure(effort: Effort) -> Vec<Row> {
    let mut row = Row::new(
        "fleet: three clusters, while the fourth is stopped and started / before",
        Unit::PerSecond,
    )
    .aiming_at(Some(Target::RatioAtLeast(0.95)));
    let receiver = Receiver::start(|_| Reaction::Late(LATENCY, 200));
    let mut settings = ground::SETTINGS.to_vec();
    settings.extend([
        "shared_preload_libraries = ''",
        "mailroom.transport = 'main'",
        "shared_buffers = 128MB",
    ]);
    let clusters: [Cluster; 4] = std::array::from_fn(|_| Cluster::start(&settings));
    let mut clients = clusters.each_ref().map(|cluster| {
        let mut client = cluster.create_database("app");
        client.batch_execute(ROLES).unwrap();
        client
    });
    let transports = clusters[0].scratch().join("transports.toml");
    write_webhook(
        &transports,
        &receiver.endpoint(),
        "main",
        "concurrency = 32",
    );
    let urls = clusters.each_ref().map(|one| url(one, "sender", "app"));
    let arguments: Vec<&str> = urls.iter().flat_map(|url| ["--database", url]).collect();
    let _senders = ["one", "two"].map(|name| {
        let log = clusters[0].scratch().join(name);
        Sender::start_with(log, &transports, &arguments)
    });
    let seconds = effort.of(6, 2);
    for _ in 0..effort.of(9, 1) {
        for client in &mut clients {
            // More than goes in both windows.
            load(client, i64::from(seconds) * 1_000);
        }
        wait_until_sent(&mut clients[0], 1);
        let before = rate(&mut clients[1..], seconds, |_| {});
        let stopped = rate(&mut clients[1..], seconds, |is_half| match is_half {
            false => drop(clusters[0].stop_server(Stop::Immediate)),
            true => clusters[0].start_server(),
        });
        row.add(stopped, before);
        clients[0] = clusters[0].connect("app");
        for client in &mut clients {
            // VACUUM wants a statement of its own.
            for statement in [
                "DELETE FROM outbox WHERE state = 'scheduled'",
                "VACUUM outbox",
            ] {
                client.batch_execute(statement).unwrap();
            }
        }
        // The one that was stopped is served again.
        let sent = sent(&mut clients[0]);
        load(&mut clients[0], 1);
        wait_until_sent(&mut clients[0], sent + 1);
    }
    vec![row]
}

/// Mails a second of these, all together; `event` is called at the beginning, and after half of the time.
fn rate(clients: &mut [Client], seconds: u32, event: impl Fn(bool)) -> f64 {
    let begin = Instant::now();
    let before: i64 = clients.iter_mut().map(sent).sum();
    for (part, is_half) in [(1, false), (2, true)] {
        event(is_half);
        let end = Duration::from_secs(seconds.into()) * part / 2;
        std::thread::sleep(end.saturating_sub(begin.elapsed()));
    }
    let after: i64 = clients.iter_mut().map(sent).sum();
    (after - before) as f64 / begin.elapsed().as_secs_f64()
}

fn sent(client: &mut Client) -> i64 {
    number(client, "SELECT count(*) FROM outbox WHERE state = 'sent'")
}

fn wait_until_sent(client: &mut Client, count: i64) {
    eventually("mail to be sent", || (sent(client) >= count).then_some(()));
}
