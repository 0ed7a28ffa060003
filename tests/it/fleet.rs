//! Four clusters, and two `mailroom send` (in MAILROOM_SEND), each of which serves all four: a failure of one of these
//! does not affect the others (I1, I2). `make bench`, row fleet, measures the throughput of the others.

use std::collections::{HashMap, HashSet};
use std::path::PathBuf;
use std::time::Duration;

use crate::cluster::{Cluster, Stop, eventually, eventually_or_tell, number};
use crate::receiver::{Reaction, Receiver};
use crate::sender_scene::{ROLES, Sender, load, times, url, write_webhook};
use postgres::Client;

/// Number of mails that each cluster gets at a time.
const MAILS: i64 = 200;

struct Fleet {
    clusters: Vec<Cluster>,
    clients: Vec<Client>,
    receiver: Receiver,
    transports: PathBuf,
}

impl Fleet {
    /// Starts clusters without a worker, and a receiver that is slow enough for mail to be in flight at any time.
    fn start() -> Self {
        let receiver = Receiver::start(|_| Reaction::Late(Duration::from_millis(50), 200));
        let settings = [
            "shared_preload_libraries = ''",
            "mailroom.transport = 'main'",
            "mailroom.lease = '3s'",
        ];
        let clusters: Vec<Cluster> = (0..4)
            .map(|_| Cluster::start_with_app(&settings).0)
            .collect();
        let mut clients = Vec::new();
        for cluster in &clusters {
            let mut client = cluster.connect("app");
            client.batch_execute(ROLES).unwrap();
            clients.push(client);
        }
        let transports = clusters[0].scratch().join("transports.toml");
        // Few concurrent requests, so that the mail of a phase takes seconds.
        write_webhook(&transports, &receiver.endpoint(), "main", "concurrency = 4");
        Self {
            clusters,
            clients,
            receiver,
            transports,
        }
    }

    /// Starts a sender that serves all clusters.
    fn sender(&self, name: &str) -> Sender {
        let urls = self.clusters.iter().map(|one| url(one, "sender", "app"));
        let urls: Vec<String> = urls.collect();
        let arguments: Vec<&str> = urls.iter().flat_map(|url| ["--database", url]).collect();
        let log = self.clusters[0].scratch().join(name);
        let sender = Sender::start_with(log, &self.transports, &arguments);
        sender.wait_for("mailroom send started", self.clusters.len());
        sender
    }

    /// Schedules `MAILS` mails in each of these clusters.
    fn load(&mut self, which: &[usize]) {
        for &which in which {
            load(&mut self.clients[which], MAILS);
        }
    }

    fn count(&mut self, which: usize, condition: &str) -> i64 {
        let query = format!("SELECT count(*) FROM outbox WHERE {condition}");
        number(&mut self.clients[which], &query)
    }

    /// Waits until all mail of these clusters is sent.
    fn wait_until_sent(&mut self, which: &[usize]) {
        for &which in which {
            eventually_or_tell(&format!("the mail of cluster {which}"), || {
                match self.count(which, "state <> 'sent'") {
                    0 => Ok(()),
                    left => Err(format!("{left} are left")),
                }
            });
        }
    }

    /// Returns the claimants of the mail that meets the condition, in all clusters.
    fn claimants(&mut self, condition: &str) -> HashSet<String> {
        let query = format!(
            "SELECT DISTINCT claimed_by FROM outbox WHERE claimed_by IS NOT NULL AND {condition}"
        );
        let rows = self.clients.iter_mut();
        let rows = rows.flat_map(|client| client.query(&query, &[]).unwrap());
        rows.map(|row| row.get(0)).collect()
    }

    /// Waits until one of these claimants holds mail.
    fn wait_until_held_by(&mut self, claimants: &HashSet<String>) {
        eventually("it to hold mail", || {
            let holders = self.claimants("state = 'claimed'");
            (!holders.is_disjoint(claimants)).then_some(())
        });
    }

    /// Number of claims that have expired so far, in all clusters.
    fn lapsed(&mut self) -> i64 {
        let query = "SELECT count(*) FROM outbox_attempts WHERE outcome = 'lease_expired'";
        let clients = self.clients.iter_mut();
        clients.map(|client| number(client, query)).sum()
    }

    /// Checks that each mail arrived, at most once more than it has attempts that may have sent it.
    fn judge(&mut self) {
        let query = "SELECT o.message_id::text, \
             (SELECT count(*) FROM outbox_attempts a WHERE a.outbox_id = o.id AND a.outcome IN ('ambiguous', 'lease_expired')) \
             FROM outbox o";
        let rows = self.clients.iter_mut();
        let rows = rows.flat_map(|client| client.query(query, &[]).unwrap());
        let counted: HashMap<String, i64> = rows.map(|row| (row.get(0), row.get(1))).collect();
        let arrived = times(&self.receiver);
        assert_eq!(arrived.len(), counted.len(), "each arrived");
        for (message, times) in arrived {
            let allowed = 1 + counted[&message];
            assert!(times as i64 <= allowed, "{message}: {times} times");
        }
    }
}

#[test]
fn what_befalls_a_cluster_or_a_sender_keeps_no_other_waiting() {
    const ALL: [usize; 4] = [0, 1, 2, 3];
    const OTHERS: [usize; 3] = [1, 2, 3];
    let mut fleet = Fleet::start();
    let first = fleet.sender("first");
    fleet.load(&ALL);
    fleet.wait_until_sent(&ALL);
    let of_first = fleet.claimants("true");
    assert_eq!(of_first.len(), 4, "a claimant for each database");
    let second = fleet.sender("second");

    // A cluster is stopped while it has claimed mail; the others' mail is sent before it is back.
    fleet.load(&ALL);
    eventually("its mail to be claimed", || {
        (fleet.count(0, "state = 'claimed'") > 0).then_some(())
    });
    fleet.clusters[0].stop_server(Stop::Immediate);
    fleet.load(&OTHERS);
    fleet.wait_until_sent(&OTHERS);
    fleet.clusters[0].start_server();
    fleet.clients[0] = fleet.clusters[0].connect("app");
    fleet.load(&[0]);
    fleet.wait_until_sent(&ALL);

    // A sender is killed: the mail that it held is sent when its leases have expired, other mail at once.
    fleet.load(&ALL);
    fleet.wait_until_held_by(&of_first);
    first.kill();
    fleet.load(&ALL);
    fleet.wait_until_sent(&ALL);
    let lapsed = fleet.lapsed();
    assert!(lapsed > 0, "it held nothing");

    // The second sender is frozen for longer than its leases while a third sends everything; then it continues alone.
    fleet.load(&ALL);
    eventually("it to hold mail", || {
        let holders = fleet.claimants("state = 'claimed'");
        (!holders.is_empty()).then_some(())
    });
    second.signal("-STOP");
    let third = fleet.sender("third");
    fleet.load(&ALL);
    fleet.wait_until_sent(&ALL);
    assert!(fleet.lapsed() > lapsed, "it held nothing");
    second.signal("-CONT");
    third.kill();
    fleet.load(&ALL);
    fleet.wait_until_sent(&ALL);
    fleet.judge();
    for cluster in &fleet.clusters {
        cluster.verify();
    }
}
