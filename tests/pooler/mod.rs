//! Debian's pgbouncer in front of a cluster, in transaction mode.

#![allow(
    dead_code,
    reason = "each test program uses its own part of this module"
)]

use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::process::Command;

use postgres::{Client, NoTls};

use crate::cluster::{Cluster, eventually};
use crate::process::Process;

/// Sessions in a database.
const POOL: usize = 4;

/// A running pooler.
pub struct Pooler {
    _process: Process,
    /// The directory of its socket.
    pub socket: PathBuf,
}

impl Pooler {
    /// The number of its socket.
    pub const PORT: u16 = 6432;

    /// Starts one that connects as this role.
    pub fn start(cluster: &Cluster, role: &str) -> Self {
        Self::start_with(cluster, &format!("user={role}"), "any")
    }

    /// Starts one that asks for the passwords of the server's roles, and connects as these.
    pub fn start_asking(cluster: &Cluster) -> Self {
        Self::start_with(cluster, "", "scram-sha-256")
    }

    fn start_with(cluster: &Cluster, database: &str, auth_type: &str) -> Self {
        let socket = cluster.scratch();
        let file = socket.join("pgbouncer.ini");
        let text = format!(
            "[databases]\n* = host={server} {database}\n[pgbouncer]\nlisten_addr =\nlisten_port = {port}\nunix_socket_dir = {here}\n\
             auth_type = {auth_type}\nauth_user = postgres\npool_mode = transaction\ndefault_pool_size = {POOL}\nserver_round_robin = 1\n\
             logfile = {here}/pgbouncer.log\n",
            server = cluster.socket().display(),
            port = Self::PORT,
            here = socket.display(),
        );
        std::fs::write(&file, text).unwrap();
        let mut command = Command::new("/usr/sbin/pgbouncer");
        if std::fs::metadata("/proc/self").unwrap().uid() == 0 {
            // It refuses to run as root.
            command.args(["--user", "postgres"]);
        }
        command.arg(&file);
        Self {
            _process: Process::start(&command),
            socket,
        }
    }

    /// How to connect to a database through it, in the form of libpq.
    pub fn url(&self, database: &str) -> String {
        format!(
            "host={} port={} user=postgres dbname={database}",
            self.socket.display(),
            Self::PORT
        )
    }

    /// Connects to a database, of which the pooler then has all its sessions, so that each transaction gets another one.
    pub fn connect(&self, database: &str) -> Client {
        let url = self.url(database);
        // The socket exists before pgbouncer listens.
        let connect = || eventually("the pooler", || Client::connect(&url, NoTls).ok());
        let mut at_once = [(); POOL].map(|()| connect());
        for statement in ["BEGIN; SELECT 1", "COMMIT"] {
            for client in &mut at_once {
                client.batch_execute(statement).unwrap();
            }
        }
        connect()
    }
}
