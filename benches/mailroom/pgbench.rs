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
        rate_of(self.command(cluster, database))
    }

    /// As [`Self::run`], with the milliseconds that each transaction took, sorted: with a rate, from the time at which it
    /// was due.
    pub fn run_timed(&self, cluster: &Cluster, database: &str) -> (f64, Vec<f64>) {
        let folder = cluster.scratch().join("times");
        let _ = std::fs::remove_dir_all(&folder);
        std::fs::create_dir(&folder).unwrap();
        let mut command = self.command(cluster, database);
        command.arg(format!("--log-prefix={}/log", folder.display()));
        command.arg("--log");
        // As the server's user, who runs it too.
        cluster.give_away(&folder);
        let rate = rate_of(command);
        let mut times = Vec::new();
        for entry in std::fs::read_dir(&folder).unwrap() {
            let log = std::fs::read_to_string(entry.unwrap().path()).unwrap();
            // The third column has microseconds.
            let time = |line: &str| line.split(' ').nth(2)?.parse::<f64>().ok();
            times.extend(log.lines().filter_map(time).map(|micros| micros / 1_000.0));
        }
        times.sort_by(f64::total_cmp);
        (rate, times)
    }

    /// Starts, to run beside something else.
    pub fn start(&self, cluster: &Cluster, database: &str) -> Child {
        self.command(cluster, database)
            .stdout(Stdio::null())
            .spawn()
            .unwrap()
    }
}

/// The transactions per second that it reports.
fn rate_of(mut command: Command) -> f64 {
    let output = command.output().unwrap();
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
