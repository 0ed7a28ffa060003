//! `make demo`: a throw-away cluster, real accounts, and what becomes of them, as it happens.
//!
//! Everything shown is what the server said: psql's tables, the worker's log lines, rows of the outbox.
//! Anything unexpected ends the demonstration with an error.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "a program for the terminal that gives up on the first surprise"
)]

#[path = "../cluster/mod.rs"]
mod cluster;

use std::io::IsTerminal;
use std::time::{Duration, Instant};

use cluster::{Cluster, eventually, number};
use postgres::Client;

const FIVE_ACCOUNTS: &str = "INSERT INTO accounts (email, login) VALUES
    ('ada@example.com', 'ada'), ('grace@example.com', 'grace'), ('edsger@example.com', 'edsger'),
    ('barbara@example.com', 'barbara'), ('donald@example.com', 'donald')";

const OUTBOX: &str = "SELECT id, kind, recipients[1] AS recipient, state,
    left(secrets->>'token', 12) || '…' AS signed_token, secrets->>'code' AS code FROM outbox ORDER BY id";

fn main() {
    println!(
        "Starting a throw-away cluster with mailroom preloaded, batch_limit = 3, batch_timeout = 5 s.\n"
    );
    let cluster = Cluster::start(&[
        "mailroom.batch_limit = 3",
        "mailroom.batch_timeout = '5s'",
        "mailroom.link_base_url = 'https://example.com'",
        "log_min_messages = debug1",
    ]);
    cluster
        .connect("postgres")
        .batch_execute("CREATE DATABASE app")
        .unwrap();
    let mut demo = Demo {
        client: cluster.connect("app"),
        cluster,
        origin: Instant::now(),
        log_seen: 0,
    };
    demo.run();
}

struct Demo {
    cluster: Cluster,
    client: Client,
    origin: Instant,
    /// Bytes of the server's log that were looked at.
    log_seen: usize,
}

impl Demo {
    fn run(&mut self) {
        self.chapter("An empty database becomes a mail system");
        self.psql("CREATE EXTENSION mailroom");
        self.cluster.worker("app");

        self.chapter("Five accounts: three fill a batch and go at once, two wait for company until the timeout");
        self.origin = Instant::now();
        self.psql(FIVE_ACCOUNTS);
        self.watch("three rows in the outbox", 3);
        self.psql(OUTBOX);
        self.watch("all five rows in the outbox", 5);
        assert!(
            self.origin.elapsed() >= Duration::from_secs(4),
            "the two did not wait"
        );
        self.psql(OUTBOX);
        self.psql(
            "SELECT started_at::time(3), collected, skipped, trigger FROM job_runs ORDER BY id",
        );

        self.chapter("The lifecycle: consume the token, suspend, unsuspend");
        self.psql("UPDATE tokens SET consumed_at = extract(epoch FROM now()) WHERE account = 1 AND action = 'activation'");
        self.psql("SELECT login, status, activated_at, suspended_at, unsuspended_at FROM accounts WHERE id = 1");
        self.psql("UPDATE accounts SET status = 'suspended' WHERE id = 1");
        self.psql("UPDATE accounts SET status = 'active' WHERE id = 1");
        self.psql("SELECT login, status, activated_at, suspended_at, unsuspended_at FROM accounts WHERE id = 1");

        self.chapter("A password recovery does not wait for company");
        self.origin = Instant::now();
        self.psql("INSERT INTO tokens (account, action) VALUES (1, 'password_recovery')");
        self.watch("its row in the outbox", 6);
        self.psql("SELECT kind, recipients[1] AS recipient, jsonb_pretty(data) AS data FROM outbox WHERE kind = 'password_recovery'");

        self.chapter("The token is good for this action and code, and for nothing else");
        self.psql(
            "SELECT mailroom_verify(secrets->>'token', 'password_recovery', secrets->>'code') AS genuine,
       mailroom_verify(secrets->>'token', 'activation') AS other_action,
       mailroom_verify(secrets->>'token', 'password_recovery', lpad(((secrets->>'code')::int + 1) % 100000 || '', 5, '0')) AS wrong_code,
       mailroom_verify(overlay(secrets->>'token' PLACING 'forged' FROM 20), 'password_recovery', secrets->>'code') AS forged
FROM outbox WHERE kind = 'password_recovery'",
        );
        self.check_verdicts();
        self.farewell();
    }

    /// The demonstration must not merely look right.
    fn check_verdicts(&mut self) {
        let row = self
            .client
            .query_one(
                "SELECT mailroom_verify(secrets->>'token', 'password_recovery', secrets->>'code'), \
                 mailroom_verify(overlay(secrets->>'token' PLACING 'forged' FROM 20), 'password_recovery', secrets->>'code') \
                 FROM outbox WHERE kind = 'password_recovery'",
                &[],
            )
            .unwrap();
        assert!(row.get::<_, bool>(0), "the genuine token was refused");
        assert!(!row.get::<_, bool>(1), "the forged token was accepted");
    }

    fn chapter(&self, title: &str) {
        println!("── {title} ──\n");
    }

    /// Shows a statement and what psql makes of it.
    fn psql(&self, statement: &str) {
        println!("app=# {statement};");
        let output = self.cluster.psql("app", statement);
        assert!(
            output.status.success(),
            "{}",
            String::from_utf8_lossy(&output.stderr)
        );
        println!("{}\n", String::from_utf8_lossy(&output.stdout).trim_end());
    }

    /// Shows the worker's log lines as they come, until the outbox has so many rows.
    fn watch(&mut self, what: &str, rows: i64) {
        eventually(what, || {
            let there = number(&mut self.client, "SELECT count(*) FROM outbox") >= rows;
            let log = self.cluster.log();
            let fresh = log.get(self.log_seen..).unwrap_or_default();
            let whole = fresh.rfind('\n').map_or(0, |end| end + 1);
            self.log_seen += whole;
            for line in fresh[..whole]
                .lines()
                .filter(|line| line.contains("mailroom worker: collected"))
            {
                let message = line.split("mailroom worker:").last().unwrap_or(line);
                println!(
                    "  {:4.1} s  log: mailroom worker:{message}",
                    self.origin.elapsed().as_secs_f64()
                );
            }
            there.then_some(())
        });
        println!("  {:4.1} s  {what}\n", self.origin.elapsed().as_secs_f64());
    }

    fn farewell(&self) {
        let psql = self.cluster.program("psql");
        let command = format!(
            "{} -h {} -U postgres -d app",
            psql.get_program().to_string_lossy(),
            self.cluster.socket().display()
        );
        println!("── Go on by hand ──\n\n  {command}\n");
        if std::io::stdin().is_terminal() {
            println!("The cluster runs until you press Enter here.");
            let _ = std::io::stdin().read_line(&mut String::new());
        } else {
            println!("Run it from a terminal and the cluster waits for you; here it is gone now.");
        }
    }
}
