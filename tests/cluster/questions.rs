//! Queries that many tests run.

use postgres::Client;

use super::eventually;

/// The process id of the worker of the client's database, if there is one.
pub fn find_worker(client: &mut Client) -> Option<i32> {
    client
        .query_opt(
            "SELECT pid FROM pg_stat_activity \
             WHERE backend_type = 'mailroom worker' AND datname = current_database()",
            &[],
        )
        .unwrap()
        .map(|row| row.get(0))
}

/// Waits for a worker of the client's database other than `old`; returns its process id.
pub fn another_worker(client: &mut Client, old: i32) -> i32 {
    eventually("another worker", || {
        find_worker(client).filter(|&pid| pid != old)
    })
}

/// One number from a query.
pub fn number(client: &mut Client, query: &str) -> i64 {
    client
        .query_one(&format!("SELECT ({query})::bigint"), &[])
        .unwrap()
        .get(0)
}
