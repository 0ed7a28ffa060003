//! `make bench`: what mailroom costs on this machine, next to a program of others or to plain SQL.
//!
//! A row is one comparison: A and B, in turn, round after round, another one first each time. The table shows the
//! median of each over the rounds, the median of the rounds' ratios, and their range. Where B is a number ("= 1280/s"),
//! it is not measured: the table shows A's median and range. Where A and B are mailroom under two conditions, with and
//! without history for example, the row asks for what the condition costs. A target that is missed is information and
//! nothing more: the exit code says whether everything could be measured, and that what must be alike is (links, requests).
//!
//! No checkpoint falls into a measurement, and autovacuum is off where it would disturb: what both cost is in no row.
//!
//! Arguments select rows by name (all when there is none); `--quick` shortens everything until it is a
//! smoke test and the figures mean little.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a benchmark fails by panicking"
)]
#![allow(clippy::print_stdout, reason = "the table is the product")]

#[path = "mailroom/alike.rs"]
mod alike;
#[path = "mailroom/answers.rs"]
mod answers;
#[path = "mailroom/arrival.rs"]
mod arrival;
#[path = "mailroom/claim.rs"]
mod claim;
#[path = "../tests/cluster/mod.rs"]
mod cluster;
#[path = "mailroom/deliver.rs"]
mod deliver;
#[path = "mailroom/due.rs"]
mod due;
#[path = "mailroom/endure.rs"]
mod endure;
#[path = "mailroom/enqueue.rs"]
mod enqueue;
#[path = "mailroom/events.rs"]
mod events;
#[path = "mailroom/flatness.rs"]
mod flatness;
#[path = "mailroom/fleet.rs"]
mod fleet;
#[path = "mailroom/footprint.rs"]
mod footprint;
#[path = "mailroom/ground.rs"]
mod ground;
#[path = "mailroom/handout.rs"]
mod handout;
#[allow(
    dead_code,
    reason = "only some of what the tests ask for is asked here"
)]
#[path = "../tests/counterparts/http.rs"]
mod http;
#[path = "mailroom/kills.rs"]
mod kills;
#[path = "mailroom/latency.rs"]
mod latency;
#[path = "mailroom/links.rs"]
mod links;
#[path = "mailroom/memory.rs"]
mod memory;
#[path = "mailroom/page.rs"]
mod page;
#[path = "mailroom/partners.rs"]
mod partners;
#[path = "mailroom/pgbench.rs"]
mod pgbench;
#[path = "mailroom/plan.rs"]
mod plan;
#[path = "../tests/pooler/mod.rs"]
mod pooler;
#[path = "../tests/post/mod.rs"]
mod post;
#[path = "../tests/counterparts/process.rs"]
mod process;
#[path = "mailroom/proxy.rs"]
mod proxy;
#[path = "mailroom/rate.rs"]
mod rate;
#[path = "../tests/receiver/mod.rs"]
mod receiver;
#[path = "mailroom/redeem.rs"]
mod redeem;
#[path = "mailroom/requests.rs"]
mod requests;
#[path = "mailroom/scale.rs"]
mod scale;
#[path = "mailroom/send.rs"]
mod send;
#[path = "mailroom/sender.rs"]
mod sender;
#[path = "../tests/sender_scene/mod.rs"]
mod sender_scene;
#[path = "mailroom/smtp.rs"]
mod smtp;
#[path = "mailroom/snapshot.rs"]
mod snapshot;
#[path = "mailroom/suppressed.rs"]
mod suppressed;
#[path = "mailroom/table.rs"]
mod table;
#[allow(dead_code, reason = "nothing here reads key stores")]
#[path = "../tests/counterparts/tls.rs"]
mod tls;
#[path = "mailroom/transports.rs"]
mod transports;
#[path = "mailroom/turns.rs"]
mod turns;
#[path = "../tests/volume/mod.rs"]
mod volume;
#[path = "mailroom/watch.rs"]
mod watch;

use plan::{Effort, Plan};
use table::Row;

/// Measures one subject, which may give several rows.
type Measure = fn(Effort) -> Vec<Row>;

/// What there is to measure, by the name that selects it.
const SUBJECTS: [(&str, Measure); 27] = [
    ("enqueue", enqueue::measure),
    ("send", send::measure),
    ("handout", handout::measure),
    ("flatness", flatness::measure),
    ("claim", claim::measure),
    ("suppressed", suppressed::measure),
    ("snapshot", snapshot::measure),
    ("latency", latency::measure),
    ("arrival", arrival::measure),
    ("footprint", footprint::measure),
    ("due", due::measure),
    ("kills", kills::measure),
    ("redeem", redeem::measure),
    ("requests", requests::measure),
    ("answers", answers::measure),
    ("links", links::measure),
    ("deliver", deliver::measure),
    ("memory", memory::measure),
    ("endure", endure::measure),
    ("events", events::measure),
    ("rate", rate::measure),
    ("transports", transports::measure),
    ("smtp", smtp::measure),
    ("scale", scale::measure),
    ("sender", sender::measure),
    ("fleet", fleet::measure),
    ("page", page::measure),
];

fn main() {
    let names = SUBJECTS.map(|(name, _)| name);
    let plan = Plan::from_arguments(std::env::args().skip(1), &names).unwrap_or_else(|message| {
        eprintln!("{message}");
        std::process::exit(2)
    });
    let settings = ground::describe();
    let load_before = ground::load_average();
    let mut rows = Vec::new();
    for (name, measure) in SUBJECTS {
        if plan.includes(name) {
            eprintln!("-- {name}");
            rows.extend(measure(plan.effort));
        }
    }
    println!("{settings}");
    println!(
        "load average {load_before} before the start{}",
        plan.effort.of("", "; --quick: the figures mean little")
    );
    println!("a row: the medians of A and of B over the rounds, the median of A/B, its range\n");
    table::print(&rows);
    if rows.iter().any(Row::failed) {
        eprintln!("what must be alike is not");
        std::process::exit(1);
    }
}
