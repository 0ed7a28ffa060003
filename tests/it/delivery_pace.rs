//! The pace of delivery: one rate for all databases of the server, and budgets that survive what the server does
//! not.

mod budgets;
mod rates;
mod standbys;

use std::time::Duration;

use crate::cluster::number;
use postgres::Client;

/// Waits until the month lasts for a while, and has lasted for a moment: what the tests count must be of one.
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
