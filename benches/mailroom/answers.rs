//! Whether answering requests for links depends on the number of accounts: a web form makes as many as it is sent.
//!
//! The requests are made in the transaction that answers them, which is rolled back; only the answering is timed.

use std::time::{Duration, Instant};

use postgres::Client;

use crate::ground;
use crate::plan::Effort;
use crate::table::{Row, Target, Unit};
use crate::turns::in_turn;

/// Accounts of the small database, and requests at most.
const FEW: u32 = 1_000;

/// The rows of answers.
pub fn measure(effort: Effort) -> Vec<Row> {
    let cluster = ground::without_workers();
    let many = effort.of(1_000_000, 5_000);
    let sizes = [many, FEW];
    let mut clients = sizes.map(|accounts| {
        let mut client = ground::create_database(&cluster, &format!("accounts_{accounts}"), &[]);
        client
            .batch_execute(&format!(
                "SET session_replication_role = replica; \
                 INSERT INTO accounts (email, login, status, created_at, activated_at) \
                 SELECT 'a' || i || '@example.com', 'a' || i, 'active', _epoch() - 864000, _epoch() - 864000 \
                 FROM generate_series(0, {accounts} - 1) i; \
                 RESET session_replication_role"
            ))
            .unwrap();
        ground::vacuum(&mut client);
        client
    });
    let mut rows = Vec::new();
    for requests in [300, FEW] {
        for (kind, domain) in [("known", "example.com"), ("unknown", "example.org")] {
            let name = format!(
                "answering {requests} requests for {kind} addresses: {many} accounts / {FEW}"
            );
            let mut row = Row::new(name, Unit::Millis).aiming_at(Some(Target::RatioAtMost(1.2)));
            for round in 0..effort.of(10, 2) {
                let [a, b] = in_turn::<_, 2>(round, |which| {
                    // Evenly over all of them.
                    let step = sizes[which] / FEW;
                    answer(&mut clients[which], requests, step, domain).as_secs_f64() * 1_000.0
                });
                // The first round fills caches and makes plans.
                if round > 0 {
                    row.add(a, b);
                }
            }
            rows.push(row);
        }
    }
    rows
}

fn answer(client: &mut Client, requests: u32, step: u32, domain: &str) -> Duration {
    client
        .batch_execute(&format!(
            "BEGIN; SELECT mailroom_request_recovery('a' || i * {step} || '@{domain}') FROM generate_series(0, {requests} - 1) i"
        ))
        .unwrap();
    let begin = Instant::now();
    client
        .batch_execute(&format!("SELECT mailroom_answer_requests({requests})"))
        .unwrap();
    let took = begin.elapsed();
    client.batch_execute("ROLLBACK").unwrap();
    took
}
