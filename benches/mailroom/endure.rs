//! The worker killed fifty times while it delivers under load: what is lost, and what goes out twice.
//!
//! The receiver keeps the books, by message_id. In the end A is how many messages were accepted more than once,
//! B how many were under way or waited to be settled when the worker was killed.

use std::collections::HashSet;
use std::time::Duration;

use crate::cluster::{self, eventually, number, signal};
use crate::ground;
use crate::pgbench::Load;
use crate::plan::Effort;
use crate::post::Post;
use crate::receiver::{Reaction, Receiver};
use crate::table::{Row, Target, Unit};

/// Mails offered in a second, ten in a transaction.
const OFFERED: u32 = 1_000;
const OFFER: &str = "INSERT INTO outbox (kind, recipients, subject, body_text) \
    SELECT 'own', '{a@example.com}', 'Hello', 'Text' FROM generate_series(1, 10);\n\
    SELECT _mail_due(now(), false, false);\n";

const NEXT_WORKER: &str = "SELECT FROM pg_stat_activity \
     WHERE backend_type = 'mailroom worker' AND datname = 'app' AND pid <> $1";

/// The row of endurance.
pub fn measure(effort: Effort) -> Vec<Row> {
    let kills = effort.of(50, 2);
    let name = format!("the worker killed {kills} times, mails accepted twice: did / could");
    let mut row = Row::new(name, Unit::Count).aiming_at(Some(Target::RatioAtMost(1.0)));
    let receiver = Receiver::start(|_| Reaction::Late(Duration::from_millis(5), 200));
    let mut post = Post::start(&receiver, &ground::SETTINGS);
    let mut could = 0;
    for _ in 0..kills {
        // A killed worker takes all sessions with it.
        let mut offer = Load {
            script: OFFER,
            clients: 1,
            seconds: 2,
            rate: Some(OFFERED / 10),
        }
        .start(&post.cluster, "app");
        std::thread::sleep(Duration::from_secs(2));
        let worker = eventually("the worker", || cluster::find_worker(&mut post.client));
        could += number(&mut post.client, "SELECT claimed FROM mailroom_status()");
        could += receiver.open() as i64;
        signal("KILL", worker);
        let _ = offer.wait();
        // A server that has not noticed yet still takes connections.
        post.client = eventually("the next worker", || {
            let mut client = post.cluster.try_connect("app", "postgres").ok()?;
            client.query_opt(NEXT_WORKER, &[&worker]).ok()??;
            Some(client)
        });
    }
    eventually("every mail to end", || {
        std::thread::sleep(Duration::from_millis(100));
        let live = "SELECT count(*) FROM outbox WHERE state <> 'sent'";
        (number(&mut post.client, live) == 0).then_some(())
    });
    let accepted = receiver.accepted();
    let different: HashSet<&String> = accepted.iter().collect();
    for message in post
        .client
        .query("SELECT message_id::text FROM outbox", &[])
        .unwrap()
    {
        assert!(
            different.contains(&message.get::<_, String>(0)),
            "a mail was lost"
        );
    }
    eprintln!("{kills} kills, {} mails", different.len());
    row.add((accepted.len() - different.len()) as f64, could as f64);
    vec![row]
}
