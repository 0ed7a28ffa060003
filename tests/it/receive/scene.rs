//! `mailroom receive` beside a cluster without a worker.

use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use postgres::Client;

use super::http::{self, Answer};
use crate::cluster::{Cluster, eventually, number};
use crate::sender_scene::{Sender, program};

/// `mailroom:hunter2` and `mailroom:hunter3`.
pub const PASSWORD: &str = "Authorization: Basic bWFpbHJvb206aHVudGVyMg==";
pub const OTHER_PASSWORD: &str = "Authorization: Basic bWFpbHJvb206aHVudGVyMw==";

/// A transports file with a transport `main`, whose events have the first password.
pub const TRANSPORTS: &str = "[transports.main]\nprovider = \"postmark\"\nevent_secret = \"mailroom:hunter2\"\n\
    [transports.silent]\nprovider = \"postmark\"\n";

/// A cluster whose database `app` knows the transport `main`.
pub struct Scene {
    pub client: Client,
    pub cluster: Cluster,
    pub transports: PathBuf,
}

impl Scene {
    pub fn start() -> Self {
        let (cluster, mut client) = Cluster::start_with_app(&[
            "shared_preload_libraries = ''",
            "mailroom.transport = 'main'",
        ]);
        client
            .batch_execute(
                "CREATE ROLE receiver LOGIN IN ROLE mailroom_receiver; CREATE ROLE other LOGIN",
            )
            .unwrap();
        let transports = cluster.scratch().join("transports.toml");
        let scene = Self {
            client,
            cluster,
            transports,
        };
        scene.write(TRANSPORTS);
        scene
    }

    /// Writes the transports file.
    pub fn write(&self, content: &str) {
        let new = self.transports.with_extension("new");
        std::fs::write(&new, content).unwrap();
        std::fs::set_permissions(&new, std::fs::Permissions::from_mode(0o600)).unwrap();
        std::fs::rename(&new, &self.transports).unwrap();
    }

    /// The connection string of a database.
    pub fn url(&self, user: &str, database: &str) -> String {
        let socket = self.cluster.socket().display();
        format!("host={socket} user={user} dbname={database}")
    }

    /// Starts the program for these databases.
    pub fn listen(&self, databases: &[&str]) -> Listening {
        self.listen_under(databases, &[])
    }

    /// As [`Self::listen`], with variables in its environment.
    pub fn listen_under(&self, databases: &[&str], environment: &[(&str, &str)]) -> Listening {
        let urls = databases.iter().map(|name| self.url("receiver", name));
        self.listen_at(&urls.collect::<Vec<_>>(), environment)
    }

    /// As [`Self::listen_under`], with the connection strings of the databases.
    pub fn listen_at(&self, urls: &[String], environment: &[(&str, &str)]) -> Listening {
        let log = self.cluster.scratch().join("receive.log");
        let mut program = program();
        program.envs(environment.iter().copied());
        Listening::start(program, log, &self.transports, urls)
    }

    /// Schedules a mail to a recipient; returns what Postmark posts when that mail is delivered.
    pub fn schedule(&mut self, recipient: &str) -> Vec<u8> {
        schedule(&mut self.client, recipient)
    }

    /// A session that keeps others from recording events until it ends its transaction.
    pub fn locked(&self) -> Client {
        let mut client = self.cluster.connect("app");
        let lock = "BEGIN; LOCK TABLE delivery_events";
        client.batch_execute(lock).unwrap();
        client
    }

    /// Waits until the program waits for that session.
    pub fn wait_for_lock(&mut self) {
        let waits = "SELECT count(*) FROM pg_stat_activity WHERE usename = 'receiver' AND wait_event_type = 'Lock'";
        eventually("the request to wait", || {
            (number(&mut self.client, waits) == 1).then_some(())
        });
    }

    pub fn events(&mut self) -> i64 {
        events(&mut self.client)
    }
}

pub fn schedule(client: &mut Client, recipient: &str) -> Vec<u8> {
    let send = "SELECT mailroom_send($1, 'S', 'Text')";
    let id: i64 = client.query_one(send, &[&recipient]).unwrap().get(0);
    let mail = "SELECT message_id::text, id::text FROM outbox WHERE id = $1";
    let row = client.query_one(mail, &[&id]).unwrap();
    let (message_id, id): (String, String) = (row.get(0), row.get(1));
    format!(
        r#"{{"RecordType": "Delivery", "MessageID": "p-{id}", "Recipient": "{recipient}", "DeliveredAt": "2026-01-01T00:00:00Z",
            "Details": "250 2.0.0 taken", "Metadata": {{"message_id": "{message_id}", "outbox_id": "{id}"}}}}"#
    )
    .into_bytes()
}

pub fn events(client: &mut Client) -> i64 {
    number(client, "SELECT count(*) FROM delivery_events")
}

/// The running program.
pub struct Listening {
    pub program: Sender,
    pub address: SocketAddr,
}

impl Listening {
    fn start(program: Command, log: PathBuf, transports: &Path, urls: &[String]) -> Self {
        let mut arguments = vec!["--listen", "127.0.0.1:0"];
        for url in urls {
            arguments.extend(["--database", url]);
        }
        let command = (program, "receive");
        let program = Sender::start_command(command, log, transports, &arguments);
        program.wait_for("listens on", 1);
        let log = program.log();
        let (_, rest) = log.split_once("listens on ").unwrap();
        let address = rest.lines().next().unwrap().trim();
        Self {
            address: address.parse().unwrap(),
            program,
        }
    }

    /// Posts what Postmark does.
    pub fn post(&self, transport: &str, password: &str, body: &[u8]) -> Answer {
        let path = format!("/events/{transport}");
        let headers = [password, "Content-Type: application/json"];
        http::request(self.address, "POST", &path, &headers, body)
    }

    /// A figure of /proc/PID/status, in kB.
    pub fn memory(&self, figure: &str) -> u64 {
        let status = format!("/proc/{}/status", self.program.child.id());
        let status = std::fs::read_to_string(status).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix(figure));
        let figure = line.unwrap().trim_start_matches(':').split_whitespace();
        figure.into_iter().next().unwrap().parse().unwrap()
    }
}
