//! The server's own pgbench, as the application that writes.

use std::process::{Child, Command, Stdio};

use crate::cluster::Cluster;

/// A run of pgbench.
pub struct Load<'a> {
    /// The script, see pgbench's manual. `clients` is how many there are; `turn` is 0 at the start in each, for it to
    /// count in.
    pub script: &'a str,
    /// How many connections.
    pub clients: u32,
    /// For how long.
    pub seconds: u32,
    /// Transactions a second over all connections; `None` for as many as there can be.
    pub rate: Option<u32>,
}

impl Load<'_> {
    fn command(&self, cluster: &Cluster, database: &str) -> Command {
        let file = cluster.scratch().join(format!("{database}.pgbench"));
        std::fs::write(&file, self.script).unwrap();
        let threads = std::thread::available_parallelism().map_or(1, |cores| cores.get() as u32);
        let mut command = cluster.program("pgbench");
        command
            .args(["--no-vacuum", "--protocol=prepared", "--define=turn=0"])
            .arg(format!("--client={}", self.clients))
            .arg(format!("--define=clients={}", self.clients))
            .arg(format!("--jobs={}", threads.min(self.clients)))
            .arg(format!("--time={}", self.seconds))
            .args(self.rate.map(|rate| format!("--rate={rate}")))
            .arg("--file")
            .arg(file)
            .arg(database);
        command
    }

    /// Runs to the end; returns the transactions per second.
    pub fn run(&self, cluster: &Cluster, database: &str) -> f64 {
        let output = self.command(cluster, database).output().unwrap();
        let report = String::from_utf8_lossy(&output.stdout);
        assert!(
            output.status.success(),
            "pgbench, {}: {}\n{report}",
            output.status,
            String::from_utf8_lossy(&output.stderr)
        );
        let figure = report
            .lines()
            .find_map(|line| line.strip_prefix("tps = ")?.split(' ').next());
        figure
            .and_then(|figure| figure.parse().ok())
            .unwrap_or_else(|| panic!("no tps in:\n{report}"))
    }

    /// Starts, to run beside something else.
    pub fn start(&self, cluster: &Cluster, database: &str) -> Child {
        self.command(cluster, database)
            .stdout(Stdio::null())
            .spawn()
            .unwrap()
    }
}
