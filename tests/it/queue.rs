//! The outbox as a queue under random operations, cut connections and killed senders: in the end every mail is in a
//! final state, and no two senders held the same mail or group at the same time.

mod bad_rows;
mod columns;
mod groups;
mod hands;
mod kills;
mod lapses;
mod obstacles;
mod random;
pub mod refusals;
mod retries;
mod triggers;

use crate::cluster::Cluster;
use postgres::Client;

fn prepare() -> (Cluster, Client) {
    let cluster = Cluster::start(&["shared_preload_libraries = ''"]);
    cluster
        .connect("postgres")
        .batch_execute("CREATE DATABASE app")
        .unwrap();
    let mut client = cluster.connect("app");
    client
        .batch_execute("SET client_min_messages = error; CREATE EXTENSION mailroom")
        .unwrap();
    (cluster, client)
}

/// A reproducible sequence of numbers (xorshift).
struct Dice(u64);

impl Dice {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % bound
    }

    fn number(&mut self, bound: u64) -> i32 {
        i32::try_from(self.below(bound)).unwrap()
    }
}

const BATCH: usize = 20;
