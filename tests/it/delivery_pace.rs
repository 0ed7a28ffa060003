//! The pace of delivery: rates of transports, and budgets, which survive a crash and a failover.

mod budgets;
mod rates;
mod standbys;

use std::time::Duration;

use crate::cluster::number;
use postgres::Client;

/// Waits until the month has lasted for 2 s and lasts for 10 min more, so that all that a test counts is of one month.
fn within_a_month(client: &mut Client) {
    let query = "SELECT (extract(epoch FROM date_trunc('month', clock_timestamp(), 'UTC') \
                 + interval '1 month' - clock_timestamp()) > 600 \
                 AND clock_timestamp() - date_trunc('month', clock_timestamp(), 'UTC') > interval '2 s')::integer::bigint";
    while number(client, query) == 0 {
        std::thread::sleep(Duration::from_secs(1));
    }
}

fn spent(client: &mut Client) -> i64 {
    number(client, "SELECT spent FROM mailroom_budgets")
}
