//! Debian's pgbouncer in front of a cluster, in transaction mode.

use std::os::unix::fs::MetadataExt;
use std::process::{Child, Command, Stdio};

use postgres::{Client, NoTls};

use crate::cluster::{Cluster, eventually};

const PORT: u16 = 6432;
/// Sessions in a database.
const POOL: usize = 4;

/// A running pooler.
pub struct Pooler {
    process: Child,
    /// How to connect to a database `app` through it, in the form of libpq.
    pub url: String,
}

impl Pooler {
    /// Starts one that connects as this role. All its sessions with the database `app` exist, and each transaction gets
    /// another one.
    pub fn start(cluster: &Cluster, role: &str) -> Self {
        let directory = cluster.scratch();
        let file = directory.join("pgbouncer.ini");
        let text = format!(
            "[databases]\n* = host={socket} user={role}\n[pgbouncer]\nlisten_addr =\nlisten_port = {PORT}\nunix_socket_dir = {here}\n\
             auth_type = any\nauth_user = postgres\npool_mode = transaction\ndefault_pool_size = {POOL}\nserver_round_robin = 1\n\
             logfile = {here}/pgbouncer.log\n",
            socket = cluster.socket().display(),
            here = directory.display(),
        );
        std::fs::write(&file, text).unwrap();
        let mut command = Command::new("/usr/sbin/pgbouncer");
        if std::fs::metadata("/proc/self").unwrap().uid() == 0 {
            // pgbouncer refuses to run as root.
            command.args(["--user", "postgres"]);
        }
        let process = command.arg(&file).stderr(Stdio::null()).spawn().unwrap();
        let url = format!(
            "host={} port={PORT} user=postgres dbname=app",
            directory.display()
        );
        // The socket exists before pgbouncer listens.
        let connect = || Client::connect(&url, NoTls);
        let mut held = vec![eventually("the pooler", || connect().ok())];
        held.extend((1..POOL).map(|_| connect().unwrap()));
        for statement in ["BEGIN; SELECT 1", "COMMIT"] {
            for client in &mut held {
                client.batch_execute(statement).unwrap();
            }
        }
        Self { process, url }
    }
}

impl Drop for Pooler {
    fn drop(&mut self) {
        // It is gone if it could not start.
        drop(self.process.kill());
        drop(self.process.wait());
    }
}
