//! `mailroom send` beside a cluster without a worker, and a receiver of its mail.

#![allow(
    dead_code,
    reason = "each test program uses its own part of this module"
)]

use std::collections::HashMap;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus};
use std::time::{Duration, Instant};

use postgres::Client;

use crate::cluster::{Cluster, eventually_or_tell, number};
use crate::receiver::{Receiver, status};

/// The program that `make test` builds.
pub fn program() -> Command {
    let program = std::env::var("MAILROOM_SEND").unwrap_or_else(|_| {
        panic!("MAILROOM_SEND is not set: run the tests with `make test`, which builds it")
    });
    let mut command = Command::new(program);
    for variable in ["PGHOST", "PGPORT", "PGUSER", "PGPASSWORD", "PGDATABASE"] {
        command.env_remove(variable);
    }
    command
}

/// A running `mailroom send`, which ends with the test.
pub struct Sender {
    pub child: Child,
    log: PathBuf,
}

impl Sender {
    pub fn start(name: &str, scene: &Scene, arguments: &[&str]) -> Self {
        let log = scene.cluster.scratch().join(name);
        Self::start_with(log, &scene.transports, arguments)
    }

    /// Starts it with this log and this transports file.
    pub fn start_with(log: PathBuf, transports: &Path, arguments: &[&str]) -> Self {
        Self::start_program(program(), log, transports, arguments)
    }

    /// As [`Self::start_with`], with this command, whose environment may differ.
    pub fn start_program(
        program: Command,
        log: PathBuf,
        transports: &Path,
        arguments: &[&str],
    ) -> Self {
        Self::start_command((program, "send"), log, transports, arguments)
    }

    /// As [`Self::start_program`], another command of the program.
    pub fn start_command(
        (mut program, name): (Command, &str),
        log: PathBuf,
        transports: &Path,
        arguments: &[&str],
    ) -> Self {
        program.arg(name).arg("--transports").arg(transports);
        program.args(arguments);
        Self::spawn(program, log)
    }

    /// Starts any program, whose log goes to this file.
    pub fn spawn(mut program: Command, log: PathBuf) -> Self {
        program.stderr(std::fs::File::create(&log).unwrap());
        let child = program.spawn().unwrap();
        Self { child, log }
    }

    pub fn signal(&self, signal: &str) {
        let kill = Command::new("kill")
            .arg(signal)
            .arg(self.child.id().to_string())
            .status();
        assert!(kill.unwrap().success());
    }

    /// Stops it; returns its exit status and how long the stop took.
    pub fn stop(mut self) -> (ExitStatus, Duration) {
        let begin = Instant::now();
        self.signal("-TERM");
        let status = self.child.wait().unwrap();
        (status, begin.elapsed())
    }

    pub fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    pub fn log(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap()
    }

    /// Waits until its log contains this text at least `times` times.
    pub fn wait_for(&self, text: &str, times: usize) {
        eventually_or_tell(&format!("the log to tell of {text}"), || {
            let log = self.log();
            if log.matches(text).count() >= times {
                Ok(())
            } else {
                Err(log)
            }
        });
    }
}

impl Drop for Sender {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        if std::thread::panicking() {
            eprintln!("--- {} ---\n{}", self.log.display(), self.log());
        }
    }
}

/// A cluster without a worker, whose database `app` has mail for a transport `main`.
pub struct Scene {
    pub client: Client,
    pub cluster: Cluster,
    pub receiver: Receiver,
    pub transports: PathBuf,
}

impl Scene {
    pub fn start(settings: &[&str]) -> Self {
        Self::start_with(Receiver::start(|_| status(200)), settings)
    }

    pub fn start_with(receiver: Receiver, settings: &[&str]) -> Self {
        let mut all = vec![
            "shared_preload_libraries = ''",
            "mailroom.transport = 'main'",
        ];
        all.extend(settings);
        let (cluster, mut client) = Cluster::start_with_app(&all);
        client.batch_execute(ROLES).unwrap();
        let transports = cluster.scratch().join("transports.toml");
        write_transports(&transports, &receiver, "main");
        Self {
            client,
            cluster,
            receiver,
            transports,
        }
    }

    pub fn url(&self, user: &str, database: &str) -> String {
        url(&self.cluster, user, database)
    }

    /// Starts a sender that connects as a member of mailroom_sender.
    pub fn sender(&self, name: &str, arguments: &[&str]) -> Sender {
        let url = self.url("sender", "app");
        let mut all = vec!["--database", &url];
        all.extend(arguments);
        Sender::start(name, self, &all)
    }

    /// Inserts `count` due messages into the outbox by one statement.
    pub fn load(&mut self, count: i64) {
        load(&mut self.client, count);
    }

    pub fn count(&mut self, which: &str) -> i64 {
        number(
            &mut self.client,
            &format!("SELECT count(*) FROM outbox WHERE {which}"),
        )
    }

    pub fn wait_for(&mut self, which: &str, count: i64) {
        eventually_or_tell(&format!("{count} mails with {which}"), || {
            if self.count(which) >= count {
                return Ok(());
            }
            let states = "SELECT coalesce(string_agg(state || ' ' || n, ', '), 'none') \
                FROM (SELECT state, count(*) AS n FROM outbox GROUP BY state) s";
            Err(self
                .client
                .query_one(states, &[])
                .unwrap()
                .get::<_, String>(0))
        });
    }

    /// The number of arrivals of each mail that arrived more than once.
    pub fn copies(&self) -> Vec<usize> {
        let times = times(&self.receiver).into_values();
        times.filter(|&times| times > 1).collect()
    }
}

/// The roles as which senders connect.
pub const ROLES: &str = "CREATE ROLE sender LOGIN PASSWORD 'hunter2' IN ROLE mailroom_sender; \
    CREATE ROLE collector LOGIN IN ROLE mailroom_collector";

/// The connection string of a database, for a sender.
pub fn url(cluster: &Cluster, user: &str, database: &str) -> String {
    let socket = cluster.socket().display();
    format!("host={socket} user={user} password=hunter2 dbname={database}")
}

/// The number of arrivals of each mail.
pub fn times(receiver: &Receiver) -> HashMap<String, usize> {
    let mut times: HashMap<String, usize> = HashMap::new();
    for id in receiver.accepted() {
        *times.entry(id).or_default() += 1;
    }
    times
}

pub fn load(client: &mut Client, count: i64) {
    client
        .execute(
            "INSERT INTO outbox (kind, recipients, subject, body_text) \
             SELECT 'own', '{a@example.com}', 'Hello ' || i, 'Text' FROM generate_series(1, $1::bigint) i",
            &[&count],
        )
        .unwrap();
}

/// Writes, atomically, a file with a transport of this name to the receiver.
pub fn write_transports(path: &Path, receiver: &Receiver, name: &str) {
    write_webhook(path, &receiver.endpoint(), name, "");
}

/// Writes, atomically, a file with a transport of this name to this endpoint, with these additional keys.
pub fn write_webhook(path: &Path, endpoint: &str, name: &str, keys: &str) {
    let new = path.with_extension("new");
    let text = format!(
        "[transports.{name}]\nprovider = \"webhook\"\nendpoint = \"{endpoint}\"\nsecret = \"whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw\"\n\
         allowed_networks = [\"127.0.0.1\"]\n{keys}\n"
    );
    std::fs::write(&new, text).unwrap();
    std::fs::set_permissions(&new, std::fs::Permissions::from_mode(0o600)).unwrap();
    std::fs::rename(&new, path).unwrap();
}
