//! `mailroom serve` beside a cluster without a worker, in whose database a shop sends its mail.

use std::net::SocketAddr;
use std::process::{Child, Stdio};

use postgres::Client;

use crate::browser::Browser;
use crate::cluster::{Cluster, eventually_or_tell};
use crate::process::free_port;
use crate::sender_scene::program;

/// Superusers need no password, all others do.
const HBA: &str =
    "local all postgres trust\nlocal replication postgres trust\nlocal all all scram-sha-256\n";

/// People, all with the password `hunter2`, and the role of the shop.
const ROLES: &str = "
    SET password_encryption = 'scram-sha-256';
    CREATE ROLE ops LOGIN PASSWORD 'hunter2' IN ROLE mailroom_admin;
    CREATE ROLE maria LOGIN PASSWORD 'hunter2' IN ROLE mailroom_support;
    CREATE ROLE tv LOGIN PASSWORD 'hunter2' IN ROLE mailroom_monitor;
    CREATE ROLE shop_web LOGIN IN ROLE mailroom_app;";

/// A database, and the program before it.
pub struct Scene {
    pub client: Client,
    pub cluster: Cluster,
    pub address: SocketAddr,
    program: Child,
}

impl Scene {
    /// With the mail of a shop.
    pub fn start() -> Self {
        let mut scene = Self::empty();
        scene
            .client
            .batch_execute(include_str!("shop.sql"))
            .unwrap();
        scene
    }

    /// Without any mail.
    pub fn empty() -> Self {
        let settings = [
            "shared_preload_libraries = ''",
            "mailroom.transport = 'smtp'",
            "mailroom.link_base_url = 'https://shop.example/'",
            "timezone = 'Europe/Berlin'",
        ];
        let (cluster, mut client) = Cluster::start_with_app(&settings);
        client.batch_execute(ROLES).unwrap();
        std::fs::write(cluster.data().join("pg_hba.conf"), HBA).unwrap();
        cluster.reload();
        let (program, address) = serve(&cluster, "serve.log");
        Self {
            client,
            cluster,
            address,
            program,
        }
    }

    /// The address of the page of the database.
    pub fn url(&self) -> String {
        format!("http://{}/app", self.address)
    }

    /// A browser, at the log-in.
    pub fn browser(&self, name: &str) -> Browser {
        Browser::new(name, &self.url())
    }

    /// A browser in which a role has logged in.
    pub fn browser_of(&self, name: &str, role: &str) -> Browser {
        self.browser(name).logged_in(role, "hunter2")
    }

    /// What a query returns in each row, in lines.
    pub fn lines(&mut self, query: &str) -> Vec<String> {
        let rows = self.client.query(query, &[]).unwrap();
        rows.iter().map(|row| row.get(0)).collect()
    }

    /// The id of the one mail like this.
    pub fn id(&mut self, which: &str) -> i64 {
        let query = format!("SELECT id FROM outbox WHERE {which}");
        self.client.query_one(&query, &[]).unwrap().get(0)
    }
}

impl Drop for Scene {
    fn drop(&mut self) {
        let _ = self.program.kill();
        let _ = self.program.wait();
    }
}

/// Starts the program for two databases of the cluster, the second one a name only; returns where it listens.
fn serve(cluster: &Cluster, log: &str) -> (Child, SocketAddr) {
    let log = cluster.scratch().join(log);
    let mut program = program();
    let listen = format!("127.0.0.1:{}", free_port());
    program.args(["serve", "--listen", &listen]);
    for database in ["app", "staging"] {
        let url = format!("host={} dbname={database}", cluster.socket().display());
        program.args(["--database", &url]);
    }
    program.stdin(Stdio::null());
    program.stderr(std::fs::File::create(&log).unwrap());
    let program = program.spawn().unwrap();
    let address = eventually_or_tell("mailroom serve to listen", || {
        let told = std::fs::read_to_string(&log).unwrap();
        let address = told
            .split_once("listens on ")
            .and_then(|(_, rest)| rest.lines().next()?.trim().parse().ok());
        address.ok_or(told)
    });
    (program, address)
}
