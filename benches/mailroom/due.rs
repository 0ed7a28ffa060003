//! How late a mail that was scheduled for a time is claimed by a sender that the worker wakes.
//!
//! The times are the server's own: `claimed_at` of the row minus its `send_at`. Mails become due one after the other, at
//! random moments; the sender never looks unless it was notified.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use postgres::Client;
use postgres::fallible_iterator::FallibleIterator;

use crate::cluster::{Cluster, eventually, number};
use crate::ground;
use crate::plan::Effort;
use crate::table::{Row, Target, Unit, percentile};

/// As late as a mail may be, in milliseconds.
const LATE: f64 = 50.0;
/// How often the sender looks whether it is to stop.
const BREATH: Duration = Duration::from_millis(100);

/// $1 mails, each due at a moment of its own within the next ten seconds or so.
const SCHEDULE: &str = "SELECT count(mailroom_send('a@example.com', 'S', 'T', \
    send_at => clock_timestamp() + (500 + random() * 10000) * interval '1 ms')) FROM generate_series(1, $1::integer)";

/// The rows of due.
pub fn measure(effort: Effort) -> Vec<Row> {
    let cluster = ground::with_workers();
    let settings = ["mailroom.poll_interval = '1h'"];
    drop(ground::create_database(&cluster, "woken", &settings));
    cluster.worker("woken");
    let mails = effort.of(500, 50);
    let mut rows = ["p50", "p99"].map(|part| {
        let name = format!("scheduled to claimed, {part} of {mails} / {LATE} ms");
        Row::new(name, Unit::Millis)
            .against(LATE)
            .aiming_at(Some(Target::RatioAtMost(1.0)))
    });
    for _ in 0..effort.of(3, 1) {
        let late = lateness(&cluster, mails);
        for (row, part) in rows.iter_mut().zip([0.5, 0.99]) {
            row.add_one(percentile(&late, part));
        }
    }
    rows.into()
}

/// How many milliseconds late each mail was claimed, sorted.
fn lateness(cluster: &Cluster, mails: i32) -> Vec<f64> {
    let mut client = cluster.connect("woken");
    client.batch_execute("TRUNCATE outbox").unwrap();
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let connection = cluster.connect("woken");
        let claimer = scope.spawn(|| claim(connection, &stop));
        client.query_one(SCHEDULE, &[&mails]).unwrap();
        eventually("all mails to be claimed", || {
            std::thread::sleep(BREATH);
            let left = "SELECT count(*) FROM outbox WHERE state = 'scheduled'";
            (number(&mut client, left) == 0 || claimer.is_finished()).then_some(())
        });
        stop.store(true, Ordering::Relaxed);
    });
    let late =
        "SELECT (extract(epoch FROM claimed_at - send_at) * 1000)::float8 FROM outbox ORDER BY 1";
    let late: Vec<f64> = client
        .query(late, &[])
        .unwrap()
        .iter()
        .map(|row| row.get(0))
        .collect();
    assert_eq!(late.len(), mails as usize);
    late
}

fn claim(mut client: Client, stop: &AtomicBool) {
    client.batch_execute("LISTEN outbox_due").unwrap();
    while !stop.load(Ordering::Relaxed) {
        let told = client.notifications().timeout_iter(BREATH).next().unwrap();
        while told.is_some()
            && !client
                .query("SELECT FROM mailroom_claim(100, '1 h')", &[])
                .unwrap()
                .is_empty()
        {}
    }
}
