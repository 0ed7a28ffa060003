//! A cluster whose mail is delivered to a receiver: by the worker, or, with MAILROOM_DELIVERER=send, by `mailroom send`
//! while the worker has no transports. `tests/run` runs the scenarios of policy and failure both ways.
//!
//! These tests are about the worker only, and are marked by `// needs: worker`:
//!
//! - those of `attachments` that have several databases or start `mailroom send` themselves, or that deliver nothing;
//! - `delivery_pauses::a_pause_keeps_mail_in_from_its_commit_on` blocks the worker in a batch that it collects, after
//!   which it would deliver;
//! - `delivery_doubt::signs::the_key_differs_between_databases_and_not_between_attempts` has two databases;
//! - `delivery_faults::dropping_the_extension_while_mail_is_under_way_ends_the_worker`: the program tries to connect as
//!   long as it runs;
//! - `delivery_transports::those_of_the_worker_stay_however_long_nothing_changes` reads what the worker publishes.

#![allow(
    dead_code,
    reason = "each test program uses its own part of this module"
)]

mod program;

use std::collections::HashSet;
use std::time::{Duration, Instant};

use postgres::Client;

use self::program::Program;
use crate::cluster::transports::{self, Transports};
use crate::cluster::{self, Cluster, Stop, eventually, eventually_or_tell, number, signal};
use crate::receiver::Receiver;

/// A secret in the format of Standard Webhooks.
pub const SECRET: &str = "secret = whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";

/// A database `app` with the extension, whose mail is delivered through a transport `main`.
pub struct Post {
    /// The program that delivers instead of the worker. It ends before the server does.
    program: Option<Program>,
    pub client: Client,
    pub cluster: Cluster,
    pub transports: Transports,
}

impl Post {
    /// Starts it, delivering to this receiver, with additional settings: of the server, or `transport.KEY = VALUE`.
    pub fn start(receiver: &Receiver, settings: &[&str]) -> Self {
        Self::start_at(&receiver.endpoint(), settings)
    }

    /// As [`Self::start`], for any endpoint.
    pub fn start_at(endpoint: &str, settings: &[&str]) -> Self {
        let mut settings = settings.to_vec();
        let by_program = std::env::var("MAILROOM_DELIVERER").is_ok_and(|name| name == "send");
        if by_program {
            settings.push("mailroom.transports_file = ''");
        }
        let (transports, others) = to_endpoint(endpoint, &settings);
        let others: Vec<&str> = others.iter().map(String::as_str).collect();
        let (cluster, client) =
            Cluster::start_with_app_and_file(&others, transports::FILE, &transports.render());
        cluster.worker("app");
        let program = by_program.then(|| Program::start(&cluster));
        Self {
            program,
            client,
            cluster,
            transports,
        }
    }

    /// Starts it with these tables of the transports file; mail must name its transport.
    pub fn start_with(tables: &[String], settings: &[&str]) -> Self {
        let (transports, mut others) = Transports::take(settings);
        others.retain(|line| line != "mailroom.transport = 'main'");
        let others: Vec<&str> = others.iter().map(String::as_str).collect();
        let (cluster, mut client) =
            Cluster::start_with_app_and_file(&others, transports::FILE, &tables.concat());
        cluster.worker("app");
        eventually_or_tell("the transports to be published", || {
            let known = number(&mut client, "SELECT count(*) FROM mailroom_transports");
            if known == tables.len() as i64 {
                Ok(())
            } else {
                Err(cluster.log())
            }
        });
        Self {
            program: None,
            client,
            cluster,
            transports,
        }
    }

    /// Schedules `count` messages.
    pub fn send(&mut self, count: i64) {
        self.client
            .execute(
                "SELECT count(mailroom_send('a@example.com', 'Hello ' || i, 'Text')) \
                 FROM generate_series(1, $1::bigint) i",
                &[&count],
            )
            .unwrap();
    }

    /// Inserts `count` due messages into the outbox by one statement.
    pub fn load(&mut self, count: i64) {
        self.client
            .execute(
                "INSERT INTO outbox (kind, recipients, subject, body_text) \
                 SELECT 'own', '{a@example.com}', 'Hello ' || i, 'Text' FROM generate_series(1, $1::bigint) i",
                &[&count],
            )
            .unwrap();
        self.client
            .batch_execute("SELECT _mail_due(now(), false, false)")
            .unwrap();
    }

    /// The number of rows of the outbox that meet this condition.
    pub fn count(&mut self, which: &str) -> i64 {
        let query = format!("SELECT count(*) FROM outbox WHERE {which}");
        number(&mut self.client, &query)
    }

    /// Waits until at least `count` rows of the outbox meet this condition.
    pub fn wait_for(&mut self, which: &str, count: i64) {
        eventually_or_tell(&format!("{count} mails with {which}"), || {
            if self.count(which) >= count {
                return Ok(());
            }
            Err(self.states())
        });
    }

    /// The number of mails in each state with the latest errors, for the message of a failed test.
    fn states(&mut self) -> String {
        let query = "SELECT coalesce(string_agg(format('%s %s %s', n, state, errors), ', '), 'no mail') FROM ( \
             SELECT state, count(*) AS n, left(string_agg(DISTINCT last_error, '; '), 300) AS errors \
             FROM outbox GROUP BY state) s";
        self.client.query_one(query, &[]).unwrap().get(0)
    }

    /// Waits until `count` mails have reached a final state.
    pub fn wait_until_ended(&mut self, count: i64) {
        self.wait_for("ended_at IS NOT NULL", count);
    }

    /// As [`Self::wait_until_ended`], but skips the back-off between attempts.
    pub fn hurry_until_ended(&mut self, count: i64) {
        eventually_or_tell(&format!("{count} mails to end"), || {
            self.client
                .batch_execute(
                    "UPDATE outbox SET send_at = now() WHERE state = 'scheduled' AND send_at > now(); \
                     SELECT mailroom_wake_worker()",
                )
                .unwrap();
            std::thread::sleep(Duration::from_millis(50));
            if self.count("ended_at IS NOT NULL") >= count {
                return Ok(());
            }
            Err(self.states())
        });
    }

    /// A column of mailroom_status(), as text.
    pub fn status(&mut self, column: &str) -> String {
        let query = format!("SELECT coalesce({column}::text, '') FROM mailroom_status()");
        self.client.query_one(&query, &[]).unwrap().get(0)
    }

    /// Waits until a column of mailroom_status() contains this text.
    pub fn wait_for_status(&mut self, column: &str, text: &str) {
        eventually_or_tell(&format!("{column} to tell of {text}"), || {
            let told = self.status(column);
            if told.contains(text) {
                Ok(())
            } else {
                Err(told)
            }
        });
    }

    /// The process id of the deliverer, once it runs.
    pub fn worker(&self) -> i32 {
        match &self.program {
            None => self.cluster.worker("app"),
            Some(program) => eventually("mailroom send", || program.pid()),
        }
    }

    /// The process id of the deliverer that follows `old`, once it runs.
    pub fn another_worker(&mut self, old: i32) -> i32 {
        match &self.program {
            None => cluster::another_worker(&mut self.client, old),
            Some(program) => eventually("another mailroom send", || {
                program.pid().filter(|&pid| pid != old)
            }),
        }
    }

    /// The server process that executes the deliverer's statements.
    pub fn backend(&mut self) -> i32 {
        if self.program.is_none() {
            return self.worker();
        }
        let query = "SELECT pid FROM pg_stat_activity WHERE usename = 'sender'";
        let client = &mut self.client;
        eventually("the session of mailroom send", || {
            client.query_opt(query, &[]).unwrap().map(|row| row.get(0))
        })
    }

    /// Kills the deliverer, and returns when it is gone. If that is the worker, the server restarts.
    pub fn kill(&mut self) {
        if let Some(program) = &self.program {
            let pid = self.worker();
            program.signal("KILL");
            eventually("it to be gone", || {
                (program.pid() != Some(pid)).then_some(())
            });
            return;
        }
        let client = &mut self.client;
        let worker = eventually("the worker", || cluster::find_worker(client));
        signal("KILL", worker);
        eventually("the server to notice", || {
            client.batch_execute("SELECT").err()
        });
        self.reconnect();
    }

    /// Connects as soon as the server accepts connections again.
    fn reconnect(&mut self) {
        self.client = eventually("a connection", || {
            self.cluster.try_connect("app", "postgres").ok()
        });
    }

    /// The logs of the server and of the program.
    pub fn log(&self) -> String {
        let log = self.program.as_ref().map(Program::log);
        self.cluster.log() + &log.unwrap_or_default()
    }

    /// Makes the server and the program read their configuration again.
    pub fn reload(&self) {
        self.cluster.reload();
        if let Some(program) = &self.program {
            program.signal("HUP");
        }
    }

    /// Transactions that the deliverer begins within this time, as pg_stat_activity shows them: most of them, unless they
    /// follow each other at once. The statistics of the database would also show earlier ones, which a session reports
    /// up to a second late.
    pub fn transactions_within(&mut self, time: Duration) -> i64 {
        let whose = match self.program {
            None => "backend_type = 'mailroom worker'",
            Some(_) => "usename = 'sender'",
        };
        let latest = format!("SELECT state_change::text FROM pg_stat_activity WHERE {whose}");
        let mut seen = HashSet::new();
        let end = Instant::now() + time;
        while Instant::now() < end {
            let row = self.client.query_one(&latest, &[]).unwrap();
            seen.insert(row.get::<_, String>(0));
            std::thread::sleep(Duration::from_millis(5));
        }
        seen.len().try_into().unwrap()
    }

    /// A value of the worker's `/proc/PID/status`, in kB.
    pub fn worker_memory(&self, figure: &str) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.worker())).unwrap();
        let line = status
            .lines()
            .find(|line| line.starts_with(figure))
            .unwrap();
        line.split_whitespace().nth(1).unwrap().parse().unwrap()
    }

    /// Changes a setting of the server or, as `transport.KEY`, of the transport, and reloads.
    pub fn set(&mut self, setting: &str, value: &str) {
        if let Some(key) = setting.strip_prefix("transport.") {
            self.transports.put(key, value);
            self.transports.write(&self.cluster);
        } else if self.program.is_some() && setting == "mailroom.transports_file" {
            assert!(value.is_empty(), "the program has one file");
            transports::write_secret(&self.cluster, transports::FILE, "");
        } else {
            self.client
                .batch_execute(&format!("ALTER SYSTEM SET {setting} = '{value}'"))
                .unwrap();
        }
        self.reload();
    }

    /// Stops the deliverer and the server, which must take less than `limit`.
    pub fn stop_promptly(&self, limit: Duration) {
        let begin = Instant::now();
        if let Some(program) = &self.program {
            program.stop();
        }
        self.cluster.stop_server(Stop::Fast);
        let took = begin.elapsed();
        assert!(took < limit, "stopping took {took:?}");
    }

    /// Starts the server and the deliverer again.
    pub fn start_again(&mut self) {
        self.cluster.start_server();
        if let Some(program) = &self.program {
            program.resume();
        }
        self.reconnect();
    }
}

/// A cluster whose workers deliver webhooks to this endpoint.
pub fn start_cluster(endpoint: &str, settings: &[&str]) -> (Cluster, Transports) {
    let (transports, others) = to_endpoint(endpoint, settings);
    let others: Vec<&str> = others.iter().map(String::as_str).collect();
    let cluster = Cluster::start_with_file(&others, transports::FILE, &transports.render());
    (cluster, transports)
}

/// A transport to this endpoint, by default for webhooks, and the server's settings.
fn to_endpoint(endpoint: &str, settings: &[&str]) -> (Transports, Vec<String>) {
    let endpoint = format!("transport.endpoint = {endpoint}");
    let secret = format!("transport.{SECRET}");
    let mut all = vec![
        "transport.allowed_networks = 127.0.0.1",
        // The receiver is slow if the machine is.
        "transport.timeout = 60 s",
        "transport.connect_timeout = 30 s",
        &endpoint,
    ];
    all.extend(settings);
    if !all.iter().any(|one| one.starts_with("transport.provider")) {
        all.extend(["transport.provider = webhook", &secret]);
    }
    Transports::take(&all)
}
