//! `make demo`: the demonstration on the terminal. It fails if a step does not have the result that it is to show.
//! `make psql` passes `psql` as the argument: psql on a cluster whose mail goes to the server's log. `make demo STAY=1` passes
//! `stay`: a mailbox and the page of `mailroom serve`, until the user ends them.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "a program for the terminal that ends at the first error"
)]

mod application;
#[path = "../cluster/mod.rs"]
mod cluster;
#[path = "mod.rs"]
mod demo;
#[path = "../mailbox/mod.rs"]
mod mailbox;
#[path = "../counterparts/maildev.rs"]
mod maildev;
#[allow(dead_code, reason = "tests use more of this module")]
#[path = "../counterparts/process.rs"]
mod process;
#[path = "../counterparts/programs.rs"]
mod programs;
mod stay;

use std::io::IsTerminal;

use cluster::Cluster;
use demo::Demo;
use stay::Stay;

/// Runs psql for the user at the terminal, on a cluster that exists until psql ends.
fn psql() {
    let transports =
        "[transports.log]\nprovider = \"log\"\nfrom = \"Example <noreply@example.com>\"\n";
    let settings = [
        "mailroom.transports_file = 'transports.toml'",
        "mailroom.transport = 'log'",
        "mailroom.link_base_url = 'https://example.com'",
    ];
    let cluster = Cluster::start_with_file(&settings, "transports.toml", transports);
    drop(cluster.create_database_with_schema("app"));
    println!(
        "Mail goes to the server's log, {}/log",
        cluster.socket().display()
    );
    let mut psql = cluster.program("psql");
    psql.arg("app").status().unwrap();
}

/// Runs a mailbox and the page until the user ends them.
fn stay() {
    let stay = Stay::start();
    stay.tell(&mut std::io::stdout());
    stay::wait();
}

fn main() {
    match std::env::args().nth(1).as_deref() {
        Some("psql") => return psql(),
        Some("stay") => return stay(),
        _ => (),
    }
    let mut shown = std::io::stdout();
    let mut demo = Demo::start(&mut shown);
    demo.run();
    let psql = demo.cluster.program("psql");
    println!(
        "── Go on by hand ──\n\n  {} -h {} -U postgres -d app\n",
        psql.get_program().to_string_lossy(),
        demo.cluster.socket().display()
    );
    if std::io::stdin().is_terminal() {
        println!("The cluster runs until you press Enter here.");
        let _ = std::io::stdin().read_line(&mut String::new());
    } else {
        println!("Run it from a terminal and the cluster waits for you; here it is gone now.");
    }
}
