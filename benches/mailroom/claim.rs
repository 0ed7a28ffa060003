//! What the outbox costs as a queue: claim and settle with nothing sent in between, against pgmq's read and
//! archive, by one consumer and by many; and what history, mails for tomorrow and an old snapshot add.
//!
//! Both sides fetch what a sender needs and say that it is done, a transaction each. A message of pgmq holds all that a
//! claimed mail does: mailroom renders a template when the mail is claimed, where pgmq is given the text.

use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use postgres::{Client, Statement};

use crate::cluster::{self, Cluster};
use crate::ground;
use crate::partners;
use crate::pgbench::Load;
use crate::plan::Effort;
use crate::table::{Row, Target, Unit};
use crate::turns::in_turn;

const PUT: &str = "INSERT INTO outbox (kind, recipients, subject, body_text, data, send_at) \
    SELECT 'own', ARRAY['user' || i || '@example.com'], 'Hello ' || i, 'Dear user, this is text number ' || i || '.', \
           jsonb_build_object('n', i), now() + $2 * interval '1 day' \
    FROM generate_series(1, $1) i";
const PUT_PGMQ: &str = "SELECT count(*) FROM pgmq.send_batch('bench', ARRAY( \
    SELECT $2::text::jsonb || jsonb_build_object('n', i) FROM generate_series(1, $1) i))";
/// What a sender gets of the first mail.
const SAMPLE: &str = "SELECT jsonb_build_object('to', recipients, 'subject', subject, 'body_text', body_text, \
    'body_html', body_html, 'data', data)::text FROM mailroom_claim(1)";

/// A kind of mail, and how to put so many into the outbox.
struct Kind {
    name: &'static str,
    put: fn(&mut Client, i32),
}

const KINDS: [Kind; 3] = [
    Kind {
        name: "plain message",
        put: |client, mails| {
            client.execute(PUT, &[&mails, &0.0]).unwrap();
        },
    },
    Kind {
        name: "token mail",
        put: |client, mails| {
            ground::add_accounts(client, mails.into());
            let collected = client.query_one("SELECT mailroom_collect($1)", &[&mails]);
            assert_eq!(collected.unwrap().get::<_, i32>(0), mails);
        },
    },
    Kind {
        name: "template mail",
        put: |client, mails| {
            let put = "INSERT INTO outbox (kind, recipients, data) \
                SELECT 'welcome', ARRAY['user' || i || '@example.com'], jsonb_build_object('name', 'User ' || i) \
                FROM generate_series(1, $1) i";
            client.execute(put, &[&mails]).unwrap();
        },
    },
];

const TEMPLATE: &str = "INSERT INTO templates (kind, locale, subject, body_text, body_html) VALUES \
    ('welcome', 'en', 'Welcome, {{ name }}', E'Dear {{ name }},\\n\\nthank you for joining us.\\n', \
     '<p>Dear {{ name }},</p><p>thank you for joining us.</p>')";

/// A queue: how to take a batch, and how to say that it is done.
struct Queue {
    take: Statement,
    done: Statement,
}

impl Queue {
    fn mailroom(client: &mut Client) -> Self {
        let take = "SELECT id, message_id::text, recipients, cc, bcc, subject, body_text, body_html, data::text \
                    FROM mailroom_claim($1)";
        Self {
            take: client.prepare(take).unwrap(),
            done: client
                .prepare("SELECT mailroom_mark_sent_many($1::bigint[])")
                .unwrap(),
        }
    }

    fn pgmq(client: &mut Client) -> Self {
        let take = "SELECT msg_id, read_ct, enqueued_at::text, vt::text, message::text, headers::text \
                    FROM pgmq.read('bench', 60, $1)";
        Self {
            take: client.prepare(take).unwrap(),
            done: client
                .prepare("SELECT count(*) FROM pgmq.archive('bench', $1::bigint[])")
                .unwrap(),
        }
    }

    /// Takes and settles a batch; returns how many it was and how long each took.
    fn turn(&self, client: &mut Client, size: i32) -> (usize, Duration, Duration) {
        let begin = Instant::now();
        let rows = client.query(&self.take, &[&size]).unwrap();
        let taken = begin.elapsed();
        let ids: Vec<i64> = rows.iter().map(|row| row.get(0)).collect();
        if ids.is_empty() {
            return (0, taken, Duration::ZERO);
        }
        let begin = Instant::now();
        client.query(&self.done, &[&ids]).unwrap();
        (ids.len(), taken, begin.elapsed())
    }
}

/// The rows of claim.
pub fn measure(effort: Effort) -> Vec<Row> {
    let cluster = ground::without_workers();
    let link = "mailroom.link_base_url = 'https://example.com/account'";
    let mut client = ground::create_database(&cluster, "claim", &[link]);
    client.batch_execute(&partners::pgmq_sql()).unwrap();
    client.batch_execute("SELECT pgmq.create('bench')").unwrap();
    client.batch_execute(TEMPLATE).unwrap();
    let mut rows = Vec::new();
    for kind in &KINDS {
        for size in [10, 100, 1_000] {
            rows.push(against_pgmq(&mut client, effort, kind, size));
        }
    }
    rows.push(many_consumers(&cluster, &mut client, effort));
    rows.extend(behind(&cluster, effort));
    rows.extend(while_a_snapshot_is_held(effort));
    rows
}

/// As many mails of a kind for both, and nothing else.
fn fill(client: &mut Client, kind: &Kind, mails: i32) {
    client
        .batch_execute(
            "TRUNCATE accounts, tokens, pending, outbox CASCADE; TRUNCATE pgmq.q_bench, pgmq.a_bench",
        )
        .unwrap();
    (kind.put)(client, mails);
    let mut transaction = client.transaction().unwrap();
    let sample: String = transaction.query_one(SAMPLE, &[]).unwrap().get(0);
    transaction.rollback().unwrap();
    client.query(PUT_PGMQ, &[&mails, &sample]).unwrap();
    client
        .batch_execute("VACUUM (ANALYZE) accounts, tokens, outbox, pgmq.q_bench, pgmq.a_bench")
        .unwrap();
}

fn against_pgmq(client: &mut Client, effort: Effort, kind: &Kind, size: i32) -> Row {
    let queues = [Queue::mailroom(client), Queue::pgmq(client)];
    let name = format!(
        "claim + settle, {}, batch {size}: mailroom / pgmq read + archive",
        kind.name
    );
    let mut row = Row::new(name, Unit::PerSecond).aiming_at(Some(Target::RatioAtLeast(1.0)));
    let batches = effort.of(4_000, 1_000) / size;
    const TURNS: i32 = 5;
    const WARM_UP: i32 = 10;
    for _ in 0..effort.of(9, 1) {
        fill(client, kind, (TURNS * batches + WARM_UP) * size);
        for queue in &queues {
            for _ in 0..WARM_UP {
                queue.turn(client, size);
            }
        }
        let mut total = [Duration::ZERO; 2];
        for turn in 0..TURNS {
            let took = in_turn::<_, 2>(turn as usize, |which| {
                let begin = Instant::now();
                for _ in 0..batches {
                    assert_eq!(queues[which].turn(client, size).0, size as usize);
                }
                begin.elapsed()
            });
            for (total, took) in total.iter_mut().zip(took) {
                *total += took;
            }
        }
        let messages = f64::from(TURNS * batches * size);
        row.add(
            messages / total[0].as_secs_f64(),
            messages / total[1].as_secs_f64(),
        );
    }
    row
}

fn many_consumers(cluster: &Cluster, client: &mut Client, effort: Effort) -> Row {
    let name =
        "claim + settle, plain message, batch 100, 8 consumers: mailroom / pgmq read + archive";
    let mut row = Row::new(name, Unit::PerSecond).aiming_at(Some(Target::RatioAtLeast(1.0)));
    let mails = effort.of(100_000, 8_000);
    for round in 0..effort.of(9, 1) {
        fill(client, &KINDS[0], mails);
        let [mailroom, pgmq] = in_turn::<_, 2>(round, |which| {
            drain(cluster, [Queue::mailroom, Queue::pgmq][which], mails)
        });
        let twice = "SELECT count(*) FROM outbox WHERE failed_attempts > 0 OR state <> 'sent'";
        assert_eq!(cluster::number(client, twice), 0);
        row.add(mailroom, pgmq);
    }
    row
}

/// Mails per second of eight consumers until none is left.
fn drain(cluster: &Cluster, queue: fn(&mut Client) -> Queue, mails: i32) -> f64 {
    const CONSUMERS: usize = 8;
    let start = Barrier::new(CONSUMERS + 1);
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..CONSUMERS)
            .map(|_| {
                let mut client = cluster.connect("claim");
                let queue = queue(&mut client);
                let start = &start;
                scope.spawn(move || {
                    start.wait();
                    let mut sent = 0;
                    loop {
                        match queue.turn(&mut client, 100).0 {
                            0 => return sent,
                            some => sent += some,
                        }
                    }
                })
            })
            .collect();
        start.wait();
        let begin = Instant::now();
        let sent: usize = threads
            .into_iter()
            .map(|thread| thread.join().unwrap())
            .sum();
        assert_eq!(sent, mails as usize, "a mail went twice or not at all");
        f64::from(mails) / begin.elapsed().as_secs_f64()
    })
}

/// A claim, without its commit, in databases that differ in what else is in the outbox.
fn behind(cluster: &Cluster, effort: Effort) -> Vec<Row> {
    let many = effort.of(1_000_000, 20_000);
    let mut clients = [(0, 0.0), (many, 0.0), (many, 1.0)].map(|(others, days)| {
        let name = format!("behind_{others}_{days}");
        let mut client = ground::create_database(cluster, &name, &[]);
        client.execute(PUT, &[&others, &days]).unwrap();
        if days == 0.0 {
            ground::settle(&mut client);
        }
        client.batch_execute("VACUUM (ANALYZE) outbox").unwrap();
        client
    });
    let mut rows = ["finished mails", "mails for tomorrow"].map(|what| {
        Row::new(
            format!("claim of 100, without commit: {many} {what} / none"),
            Unit::Millis,
        )
        .aiming_at(Some(Target::RatioAtMost(1.1)))
    });
    let turns = effort.of(20, 3);
    for _ in 0..effort.of(9, 1) {
        for client in &mut clients {
            client
                .execute(PUT, &[&((turns + 2) * 1_000), &0.0])
                .unwrap();
            client.batch_execute("VACUUM (ANALYZE) outbox").unwrap();
        }
        let mut total = [Duration::ZERO; 3];
        for turn in 0..turns + 2 {
            for (client, total) in clients.iter_mut().zip(&mut total) {
                for _ in 0..10 {
                    let duration = claim_and_settle(client);
                    if turn >= 2 {
                        *total += duration;
                    }
                }
            }
        }
        let [none, finished, tomorrow] =
            total.map(|total| total.as_secs_f64() * 1_000.0 / f64::from(turns * 10));
        rows[0].add(finished, none);
        rows[1].add(tomorrow, none);
    }
    rows.into()
}

/// Takes a batch of 100 and settles it; returns how long the claim took.
fn claim_and_settle(client: &mut Client) -> Duration {
    let mut transaction = client.transaction().unwrap();
    let claim = transaction
        .prepare("SELECT array_agg(id) FROM mailroom_claim(100)")
        .unwrap();
    let begin = Instant::now();
    let ids: Vec<i64> = transaction.query_one(&claim, &[]).unwrap().get(0);
    let duration = begin.elapsed();
    assert_eq!(ids.len(), 100);
    transaction
        .execute("SELECT mailroom_mark_sent_many($1::bigint[])", &[&ids])
        .unwrap();
    transaction.commit().unwrap();
    duration
}

/// Mails offered a second, ten a transaction.
const OFFERED: u32 = 5_000;
const STREAM: &str = "INSERT INTO outbox (kind, recipients, subject, body_text) \
    SELECT 'own', '{a@example.com}', 'Hello', 'Text' FROM generate_series(1, 10);\n";

/// A stream of mails, one consumer, and another session that holds a snapshot or does not.
fn while_a_snapshot_is_held(effort: Effort) -> Vec<Row> {
    let length = effort.of(60, 6);
    let name = |what: &str| format!("claim, {OFFERED}/s for {length} s, {what}");
    let mut rows = [
        Row::new(name("cost of 100 mails, held: last / first"), Unit::Millis)
            .aiming_at(Some(Target::RatioAtMost(1.5))),
        Row::new(
            name("largest backlog, in input: held / none held"),
            Unit::Seconds,
        )
        .aiming_at(Some(Target::NeverAbove(1.0))),
    ];
    for _ in 0..effort.of(3, 1) {
        let (first, last, held) = stream(length, true);
        let (_, _, none) = stream(length, false);
        rows[0].add(last, first);
        rows[1].add(held, none);
    }
    rows.into()
}

/// Milliseconds that claiming 100 mails took in the first and the last sixth, and the largest backlog.
fn stream(length: u32, held: bool) -> (f64, f64, f64) {
    let cluster = ground::without_workers();
    let mut client = ground::create_database(&cluster, "stream", &[]);
    let mut other = cluster.connect("stream");
    if held {
        other
            .batch_execute("BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM jobs")
            .unwrap();
    }
    let load = Load {
        script: STREAM,
        clients: 4,
        seconds: length,
        rate: Some(OFFERED / 10),
    };
    let mut watcher = cluster.connect("stream");
    let queue = Queue::mailroom(&mut client);
    let over = AtomicBool::new(false);
    let mut pgbench = load.start(&cluster, "stream");
    let begin = Instant::now();
    std::thread::scope(|scope| {
        let consumer = scope.spawn(|| {
            let mut claims = Vec::new();
            while !over.load(Ordering::Relaxed) {
                let (count, cost, _) = queue.turn(&mut client, 1_000);
                claims.push((begin.elapsed(), count, cost));
                if count < 1_000 {
                    std::thread::sleep(Duration::from_millis(10));
                }
            }
            claims
        });
        let mut largest = 0;
        let waiting = "SELECT coalesce(max(id), 0) - (SELECT count(*) FROM outbox WHERE state = 'sent') FROM outbox";
        while pgbench.try_wait().unwrap().is_none() {
            largest = largest.max(cluster::number(&mut watcher, waiting));
            std::thread::sleep(Duration::from_millis(500));
        }
        over.store(true, Ordering::Relaxed);
        let claims = consumer.join().unwrap();
        let window = Duration::from_secs(u64::from(length) / 6);
        let end = Duration::from_secs(length.into());
        let cost = |from: Duration, to: Duration| {
            let within = claims.iter().filter(|claim| (from..to).contains(&claim.0));
            let (mails, time) = within.fold((0, Duration::ZERO), |sum, claim| {
                (sum.0 + claim.1, sum.1 + claim.2)
            });
            time.as_secs_f64() * 100_000.0 / mails as f64
        };
        (
            cost(Duration::ZERO, window),
            cost(end - window, end),
            largest as f64 / f64::from(OFFERED),
        )
    })
}
