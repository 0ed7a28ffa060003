//! What it costs to schedule a mail: a call of `mailroom_send` a commit, or of `mailroom_send_many` with a hundred.
//!
//! Partners are the calls of others that put a message into a queue in the same database: pgmq's, which does not notify,
//! and graphile-worker's, which notifies; and an INSERT into a bare table that has the columns of `outbox`, in plain types,
//! and of its indexes those that a new mail enters. The messages are not consumed; mailroom's worker is at work as
//! installed, and tells senders that mail is due.

use crate::cluster::Cluster;
use crate::ground;
use crate::partners;
use crate::pgbench::Load;
use crate::plan::Effort;
use crate::table::{Row, Target, Unit};
use crate::turns::in_turn;

/// A queue: the database it is in, and its calls.
struct Queue {
    database: &'static str,
    one: &'static str,
    many: &'static str,
    /// Turns the hundred messages of [`MESSAGES`] into the argument of the second call.
    argument: &'static str,
    empty: &'static str,
}

const QUEUES: [Queue; 4] = [
    Queue {
        database: "mailroom",
        one: "SELECT mailroom_send('user@example.com', 'Hello', 'Dear user, this is the text of a message.');",
        many: "SELECT count(*) FROM arguments a, mailroom_send_many(a.argument);",
        argument: "jsonb_agg(message)",
        empty: "TRUNCATE outbox CASCADE",
    },
    Queue {
        database: "pgmq",
        one: "SELECT pgmq.send('bench', '{\"recipient\": \"user@example.com\", \"subject\": \"Hello\", \
            \"body_text\": \"Dear user, this is the text of a message.\"}');",
        many: "SELECT count(*) FROM arguments a, pgmq.send_batch('bench', a.argument);",
        argument: "array_agg(message)",
        empty: "TRUNCATE pgmq.q_bench",
    },
    Queue {
        database: "graphile",
        one: "SELECT graphile_worker.add_job('deliver', '{\"recipient\": \"user@example.com\", \"subject\": \"Hello\", \
            \"body_text\": \"Dear user, this is the text of a message.\"}');",
        many: "SELECT count(*) FROM arguments a, graphile_worker.add_jobs(a.argument);",
        argument: "array_agg(ROW('deliver', message::json, NULL, NULL, NULL, NULL, NULL, NULL)::graphile_worker.job_spec)",
        empty: "TRUNCATE graphile_worker._private_jobs",
    },
    Queue {
        database: "bare",
        one: "INSERT INTO mail (recipients, subject, body_text) \
            VALUES (ARRAY['user@example.com'], 'Hello', 'Dear user, this is the text of a message.');",
        many: "INSERT INTO mail (recipients, subject, body_text) \
            SELECT ARRAY[m ->> 'recipients'], m ->> 'subject', m ->> 'body_text' \
            FROM arguments a, jsonb_array_elements(a.argument) m;",
        argument: "jsonb_agg(message)",
        empty: "TRUNCATE mail",
    },
];

/// The partners, in the order of [`QUEUES`], with the ratio to reach with eight clients.
const PARTNERS: [(&str, f64); 3] = [
    ("pgmq send", 0.6),
    ("graphile-worker add_job", 2.0),
    ("INSERT into a bare table", 0.4),
];

/// A hundred messages.
const MESSAGES: &str = "SELECT jsonb_build_object('recipients', 'user' || i || '@example.com', 'subject', 'Hello ' || i, \
    'body_text', 'Dear user, this is text number ' || i || '.') FROM generate_series(1, 100) i";

/// The rows of send.
pub fn measure(effort: Effort) -> Vec<Row> {
    let cluster = ground::with_workers();
    let mut clients = [
        ground::create_database(&cluster, QUEUES[0].database, &[]),
        ground::create_plain_database(&cluster, QUEUES[1].database, &[&partners::pgmq_sql()]),
        partners::create_graphile_database(&cluster, QUEUES[2].database),
        ground::create_plain_database(
            &cluster,
            QUEUES[3].database,
            &[include_str!("plain_mail.sql")],
        ),
    ];
    clients[1]
        .batch_execute("SELECT pgmq.create('bench')")
        .unwrap();
    for (client, queue) in clients.iter_mut().zip(&QUEUES) {
        let make = format!(
            "CREATE TABLE arguments AS SELECT {} AS argument FROM ({MESSAGES}) m (message)",
            queue.argument
        );
        client.batch_execute(&make).unwrap();
    }
    cluster.worker(QUEUES[0].database);
    let mut rows = Vec::new();
    for clients in [1, 8] {
        let plural = if clients == 1 { "" } else { "s" };
        let compared = PARTNERS.map(|(partner, least)| {
            let name = format!("send, {clients} client{plural}: mailroom_send / {partner}");
            let target = (clients == 8).then_some(Target::RatioAtLeast(least));
            Row::new(name, Unit::PerSecond).aiming_at(target)
        });
        rows.extend(compare(&cluster, effort, compared, |queue| {
            (queue.one, clients, 1)
        }));
    }
    let compared = [
        "pgmq send_batch",
        "graphile-worker add_jobs",
        "INSERT of as many rows",
    ]
    .map(|partner| {
        let name = format!("send 100 at a time: mailroom_send_many / {partner}");
        Row::new(name, Unit::PerSecond)
    });
    rows.extend(compare(&cluster, effort, compared, |queue| {
        (queue.many, 1, 100)
    }));
    rows
}

/// `calls` tells what is called, by how many clients, and how many messages a call sends.
fn compare(
    cluster: &Cluster,
    effort: Effort,
    mut rows: [Row; 3],
    calls: impl Fn(&Queue) -> (&'static str, u32, u32),
) -> [Row; 3] {
    for round in 0..effort.of(5, 1) {
        let [mailroom, partners @ ..] = in_turn::<_, 4>(round, |which| {
            let queue = &QUEUES[which];
            let (script, clients, messages) = calls(queue);
            let mut client = cluster.connect(queue.database);
            client.batch_execute(queue.empty).unwrap();
            client.batch_execute("VACUUM (ANALYZE)").unwrap();
            let load = Load {
                script,
                clients,
                seconds: effort.of(4, 1),
                rate: None,
            };
            load.run(cluster, queue.database) * f64::from(messages)
        });
        for (row, partner) in rows.iter_mut().zip(partners) {
            row.add(mailroom, partner);
        }
    }
    rows
}
