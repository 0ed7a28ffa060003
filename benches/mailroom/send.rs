//! What it costs to schedule a mail: a call of `mailroom_send` a commit, or of `mailroom_send_many` with a hundred.
//!
//! Partners are the calls of others that put a message into a queue in the same database: pgmq's, which does not notify,
//! and graphile-worker's, which notifies. The messages are not consumed; mailroom's worker is at work as installed, and
//! tells senders that mail is due.

use crate::cluster::Cluster;
use crate::ground;
use crate::partners;
use crate::pgbench::Load;
use crate::plan::Effort;
use crate::table::{Row, Unit};
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

const QUEUES: [Queue; 3] = [
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
        let names = ["pgmq send", "graphile-worker add_job"]
            .map(|partner| format!("send, {clients} client{plural}: mailroom_send / {partner}"));
        rows.extend(compare(&cluster, effort, names, |queue| {
            (queue.one, clients, 1)
        }));
    }
    let names = ["pgmq send_batch", "graphile-worker add_jobs"]
        .map(|partner| format!("send 100 at a time: mailroom_send_many / {partner}"));
    rows.extend(compare(&cluster, effort, names, |queue| {
        (queue.many, 1, 100)
    }));
    rows
}

/// `calls` tells what is called, by how many clients, and how many messages a call sends.
fn compare(
    cluster: &Cluster,
    effort: Effort,
    names: [String; 2],
    calls: impl Fn(&Queue) -> (&'static str, u32, u32),
) -> [Row; 2] {
    let mut rows = names.map(|name| Row::new(name, Unit::PerSecond));
    for round in 0..effort.of(5, 1) {
        let [mailroom, partners @ ..] = in_turn::<_, 3>(round, |which| {
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
