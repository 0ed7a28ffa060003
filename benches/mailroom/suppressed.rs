//! What many suppressed addresses add to claim and settle. None of the mail goes to one of them.

use std::time::Instant;

use postgres::Client;

use crate::ground;
use crate::plan::Effort;
use crate::table::{Row, Target, Unit};
use crate::turns::in_turn;

const PUT: &str = "INSERT INTO outbox (kind, recipients, subject, body_text) \
    SELECT 'own', ARRAY['user' || i || '@example.com'], 'Hello ' || i, 'Text' FROM generate_series(1, $1::integer) i";
const SUPPRESS: &str = "INSERT INTO suppressions (address, reason) \
    SELECT 'gone' || i || '@example.com', 'manual' FROM generate_series(1, $1::integer) i";
const CLAIM: &str = "SELECT id, message_id::text, recipients, cc, bcc, subject, body_text, body_html, data::text \
    FROM mailroom_claim($1)";

/// The rows of suppressions.
pub fn measure(effort: Effort) -> Vec<Row> {
    let many: i32 = effort.of(1_000_000, 20_000);
    let cluster = ground::without_workers();
    let mut clients = [many, 0].map(|number| {
        let mut client = ground::create_database(&cluster, &format!("suppressed_{number}"), &[]);
        client.execute(SUPPRESS, &[&number]).unwrap();
        client
    });
    [100, 1_000]
        .map(|size| {
            let name = format!("claim + settle, batch {size}: {many} suppressions / none");
            let mut row =
                Row::new(name, Unit::PerSecond).aiming_at(Some(Target::RatioAtLeast(0.93)));
            let batches = effort.of(20_000, 2_000) / size;
            for round in 0..effort.of(9, 1) {
                for client in &mut clients {
                    client.batch_execute("TRUNCATE outbox CASCADE").unwrap();
                    client.execute(PUT, &[&((batches + 5) * size)]).unwrap();
                    client.batch_execute("VACUUM (ANALYZE)").unwrap();
                    run(client, 5, size);
                }
                let [with, without] =
                    in_turn::<_, 2>(round, |which| run(&mut clients[which], batches, size));
                row.add(with, without);
            }
            row
        })
        .into()
}

/// Claims and settles batches of this size; returns mails a second.
fn run(client: &mut Client, batches: i32, size: i32) -> f64 {
    let claim = client.prepare(CLAIM).unwrap();
    let settle = "SELECT mailroom_mark_sent_many($1::bigint[])";
    let settle = client.prepare(settle).unwrap();
    let begin = Instant::now();
    for _ in 0..batches {
        let rows = client.query(&claim, &[&size]).unwrap();
        let ids: Vec<i64> = rows.iter().map(|row| row.get(0)).collect();
        assert_eq!(ids.len(), size as usize);
        client.query(&settle, &[&ids]).unwrap();
    }
    f64::from(batches * size) / begin.elapsed().as_secs_f64()
}
