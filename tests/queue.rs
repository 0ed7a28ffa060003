//! The outbox as a queue under random operations, cut connections and killed senders: in the end every mail is
//! in a final state, and no mail and no group was in two hands at once.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

mod cluster;

use std::collections::{HashMap, HashSet};
use std::process::{Child, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use cluster::{Cluster, eventually, number};
use postgres::{Client, Error, Row};

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

/// A reproducible sequence (xorshift).
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

const SESSIONS: u64 = 4;
const OPERATIONS: u32 = 1_500;
const LEASE: Duration = Duration::from_millis(300);

/// Who holds what, as far as the senders know: until they settle it or, counted from before the claim, its
/// lease ends.
#[derive(Default)]
struct Hands {
    mails: HashMap<i64, (u64, Instant)>,
    groups: HashMap<String, (u64, Instant)>,
}

impl Hands {
    fn take(&mut self, who: u64, until: Instant, mail: &Held) {
        let now = Instant::now();
        if let Some((other, end)) = self.mails.insert(mail.id, (who, until)) {
            assert!(
                end <= now,
                "mail {} was in the hands of {other} and {who}",
                mail.id
            );
        }
        if let Some(group) = &mail.group {
            let before = self.groups.insert(group.clone(), (who, until));
            if let Some((other, end)) = before {
                assert!(
                    end <= now || other == who,
                    "group {group}: {other} and {who}"
                );
            }
        }
    }

    fn give(&mut self, mails: &[Held]) {
        for mail in mails {
            self.mails.remove(&mail.id);
            if let Some(group) = &mail.group {
                self.groups.remove(group);
            }
        }
    }
}

struct Held {
    id: i64,
    group: Option<String>,
}

/// What all sessions share.
#[derive(Default)]
struct World {
    hands: Mutex<Hands>,
    /// How often the provider accepted each mail.
    accepted: Mutex<HashMap<i64, u32>>,
    scheduled: Mutex<HashSet<i64>>,
    done: AtomicBool,
}

/// One sender: does random things until its operations are used up, whatever happens to its connections.
struct Sender<'a> {
    number: u64,
    cluster: &'a Cluster,
    world: &'a World,
    dice: Dice,
    /// Changes with each connection, as the default claimant does.
    claimant: String,
    held: Vec<Held>,
}

impl Sender<'_> {
    fn run(&mut self) {
        let mut left = OPERATIONS;
        let mut connections = 0;
        while left > 0 {
            let Ok(mut client) = self.cluster.try_connect("app", "postgres") else {
                continue;
            };
            connections += 1;
            self.claimant = format!("sender {}.{connections}", self.number);
            self.held.clear();
            while left > 0 && self.operate(&mut client).is_ok() {
                left -= 1;
            }
        }
    }

    fn operate(&mut self, client: &mut Client) -> Result<(), Error> {
        match self.dice.below(10) {
            0 | 1 => self.schedule(client),
            2 | 3 => {
                let limit = 1 + self.dice.number(20);
                let before = Instant::now();
                let rows = client.query(
                    "SELECT id, group_key FROM mailroom_claim($1, make_interval(secs => $2), $3)",
                    &[&limit, &LEASE.as_secs_f64(), &self.claimant],
                )?;
                self.receive(before, &rows);
                Ok(())
            }
            4 => {
                let before = Instant::now();
                let rows = client.query(
                    "SELECT id, group_key FROM mailroom_claim_group(NULL, make_interval(secs => $1), $2)",
                    &[&LEASE.as_secs_f64(), &self.claimant],
                )?;
                self.receive(before, &rows);
                Ok(())
            }
            5 | 6 => {
                let (ids, _) = self.put_down();
                for id in &ids {
                    *self.world.accepted.lock().unwrap().entry(*id).or_default() += 1;
                }
                let statement = "SELECT mailroom_mark_sent($1::bigint[], NULL, $2)";
                client.query_one(statement, &[&ids, &self.claimant])?;
                Ok(())
            }
            7 => {
                let (ids, errors) = self.put_down();
                let permanent: Vec<bool> = ids.iter().map(|id| id % 17 == 0).collect();
                client.query_one(
                    "SELECT mailroom_mark_error($1::bigint[], $2::text[], NULL, $3::boolean[], NULL, $4)",
                    &[&ids, &errors, &permanent, &self.claimant],
                )?;
                Ok(())
            }
            8 => {
                let (ids, _) = self.put_down();
                let statement = "SELECT mailroom_release($1::bigint[], $2)";
                client.query_one(statement, &[&ids, &self.claimant])?;
                Ok(())
            }
            _ => {
                client.query_one("SELECT mailroom_retry(row_limit => 3)", &[])?;
                // Time passes quickly here.
                client.execute(
                    "UPDATE outbox SET send_at = clock_timestamp() \
                     WHERE state = 'scheduled' AND attempts > 0 AND id % 4 = $1",
                    &[&i64::try_from(self.number).unwrap()],
                )?;
                Ok(())
            }
        }
    }

    fn schedule(&mut self, client: &mut Client) -> Result<(), Error> {
        let rows = client.query(
            "INSERT INTO outbox (kind, recipients, subject, body_text, priority, send_at, expires_at, max_attempts, group_key) \
             SELECT 'own', '{a@example.com}', CASE WHEN $1 % 3 > 0 THEN 'Hello' END, 'Text', ($1 % 3)::smallint, \
                    now() + ($1 % 5 - 2) * interval '50 ms', CASE WHEN $1 % 11 = 0 THEN now() + interval '400 ms' END, 3, \
                    CASE WHEN $1 % 2 = 0 THEN 'group ' || $1 % 8 END \
             FROM generate_series(1, 1 + $1 % 4) RETURNING id",
            &[&self.dice.number(1_000)],
        )?;
        let ids = rows.iter().map(|row| row.get::<_, i64>(0));
        self.world.scheduled.lock().unwrap().extend(ids);
        Ok(())
    }

    fn receive(&mut self, before: Instant, rows: &[Row]) {
        let mut hands = self.world.hands.lock().unwrap();
        for row in rows {
            let mail = Held {
                id: row.get(0),
                group: row.get(1),
            };
            hands.take(self.number, before + LEASE, &mail);
            self.held.push(mail);
        }
    }

    /// Everything that is held, about to be settled, with an error for each.
    fn put_down(&mut self) -> (Vec<i64>, Vec<String>) {
        self.world.hands.lock().unwrap().give(&self.held);
        let ids: Vec<i64> = self.held.drain(..).map(|mail| mail.id).collect();
        let errors = ids.iter().map(|id| format!("error of {id}")).collect();
        (ids, errors)
    }
}

#[test]
fn random_operations_and_cut_connections() {
    let (cluster, mut client) = prepare();
    let world = World::default();
    let cuts = std::thread::scope(|scope| {
        let senders: Vec<_> = (0..SESSIONS)
            .map(|number| {
                let mut sender = Sender {
                    number,
                    cluster: &cluster,
                    world: &world,
                    dice: Dice(0x9E37_79B9_7F4A_7C15 ^ (number + 1)),
                    claimant: String::new(),
                    held: Vec::new(),
                };
                scope.spawn(move || sender.run())
            })
            .collect();
        let cutter = scope.spawn(|| {
            let mut client = cluster.connect("app");
            let mut cuts = 0;
            while !world.done.load(Ordering::Relaxed) {
                cuts += client
                    .execute(
                        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity \
                         WHERE datname = 'app' AND pid <> pg_backend_pid() AND query LIKE '%mailroom_%' \
                         AND state = 'active' ORDER BY random() LIMIT 1",
                        &[],
                    )
                    .unwrap();
                std::thread::sleep(Duration::from_millis(30));
            }
            cuts
        });
        // A sender that fails must not keep the cutter going.
        let results: Vec<_> = senders.into_iter().map(|sender| sender.join()).collect();
        world.done.store(true, Ordering::Relaxed);
        for result in results {
            result.unwrap();
        }
        cutter.join().unwrap()
    });
    assert!(cuts > 0, "no connection was cut");
    drain(&mut client, &world);
    audit(&mut client, &world);
}

/// Sends what is left, once the last leases have ended.
fn drain(client: &mut Client, world: &World) {
    eventually("every mail to end", || {
        client
            .batch_execute(
                "UPDATE outbox SET send_at = clock_timestamp() WHERE state = 'scheduled'",
            )
            .unwrap();
        let rows = client
            .query("SELECT id FROM mailroom_claim(1000, '1 min', 'last')", &[])
            .unwrap();
        let ids: Vec<i64> = rows.iter().map(|row| row.get(0)).collect();
        for id in &ids {
            *world.accepted.lock().unwrap().entry(*id).or_default() += 1;
        }
        let lost: Vec<i64> = client
            .query_one(
                "SELECT mailroom_mark_sent($1::bigint[], NULL, 'last')",
                &[&ids],
            )
            .unwrap()
            .get(0);
        assert!(lost.is_empty());
        let live = "SELECT count(*) FROM outbox WHERE state IN ('scheduled', 'claimed')";
        (number(client, live) == 0).then_some(())
    });
}

fn audit(client: &mut Client, world: &World) {
    let rows = client
        .query(
            "SELECT o.id, o.state::text, \
                    count(a.id) FILTER (WHERE a.outcome = 'lapsed'), count(a.id) FILTER (WHERE a.outcome = 'failed'), \
                    o.attempts::bigint, o.ended_at IS NOT NULL AND o.claimed_until IS NULL, o.last_error \
             FROM outbox o LEFT JOIN attempts a ON a.outbox = o.id GROUP BY o.id",
            &[],
        )
        .unwrap();
    let accepted = world.accepted.lock().unwrap();
    let mut left = world.scheduled.lock().unwrap().clone();
    let mut states: HashMap<String, u32> = HashMap::new();
    for row in &rows {
        let (id, state): (i64, String) = (row.get(0), row.get(1));
        let (lapsed, failed, attempts): (i64, i64, i64) = (row.get(2), row.get(3), row.get(4));
        let reason: Option<String> = row.get(6);
        left.remove(&id);
        assert!(row.get::<_, bool>(5), "mail {id} has not ended well");
        assert_eq!(
            lapsed + failed,
            attempts,
            "mail {id}: attempts and their traces"
        );
        let times = i64::from(accepted.get(&id).copied().unwrap_or(0));
        match state.as_str() {
            "sent" => assert!(times >= 1, "mail {id} was not sent"),
            "error" | "expired" => assert!(reason.is_some(), "mail {id} has no reason"),
            other => panic!("mail {id} is {other}"),
        }
        // More than once only if a sender was not heard of in time.
        assert!(
            times <= lapsed + 1,
            "mail {id} went out {times} times, {lapsed} claims lapsed"
        );
        *states.entry(state).or_default() += 1;
    }
    assert!(left.is_empty(), "mails were lost: {left:?}");
    for state in ["sent", "error", "expired"] {
        assert!(states.contains_key(state), "nothing is {state}: {states:?}");
    }
}

const MAILS: i64 = 20_000;
const BATCH: usize = 20;
const KILLS: usize = 12;

/// A sender in a process of its own: claims, has each batch accepted, settles, again and again.
fn start_sender(cluster: &Cluster, number: usize) -> Child {
    let round = format!(
        "SELECT coalesce(array_agg(id), '{{}}') AS ids FROM mailroom_claim({BATCH}, '2 s', 'process {number}') \\gset\n\
         INSERT INTO accepted SELECT unnest(:'ids'::bigint[]);\n\
         SELECT mailroom_mark_sent(:'ids'::bigint[], claimant => 'process {number}');\n"
    );
    let script = cluster.scratch().join(format!("sender{number}.sql"));
    std::fs::write(&script, round.repeat(20_000)).unwrap();
    cluster
        .program("psql")
        .args(["-X", "-q", "-o", "/dev/null", "-d", "app", "-f"])
        .arg(script)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap()
}

#[test]
fn senders_are_killed_at_random() {
    let (cluster, mut client) = prepare();
    client
        .batch_execute(&format!(
            "CREATE TABLE accepted (id bigint); \
             INSERT INTO outbox (kind, recipients, subject, body_text) \
             SELECT 'own', '{{a@example.com}}', 'Hello', 'Text' FROM generate_series(1, {MAILS})"
        ))
        .unwrap();
    let mut dice = Dice(42);
    let mut senders: Vec<Child> = (0..4)
        .map(|number| start_sender(&cluster, number))
        .collect();
    for kill in 0..KILLS {
        let goal = i64::try_from(kill + 1).unwrap() * MAILS / 20;
        eventually("some mails to be sent", || {
            (number(&mut client, "SELECT count(*) FROM accepted") >= goal).then_some(())
        });
        let victim = usize::try_from(dice.below(4)).unwrap();
        senders[victim].kill().unwrap();
        senders[victim].wait().unwrap();
        senders[victim] = start_sender(&cluster, 4 + kill);
    }
    eventually("every mail to end", || {
        let live = "SELECT count(*) FROM outbox WHERE state IN ('scheduled', 'claimed')";
        (number(&mut client, live) == 0).then_some(())
    });
    for mut sender in senders {
        sender.kill().unwrap();
        sender.wait().unwrap();
    }
    let sent = number(
        &mut client,
        "SELECT count(*) FROM outbox WHERE state = 'sent'",
    );
    assert_eq!(sent, MAILS);
    let different = number(&mut client, "SELECT count(DISTINCT id) FROM accepted");
    assert_eq!(different, MAILS);
    let twice = number(&mut client, "SELECT count(*) FROM accepted") - MAILS;
    let bound = i64::try_from(KILLS * BATCH).unwrap();
    assert!(
        twice <= bound,
        "{twice} mails went out again; those who were killed held {bound} at most"
    );
    let lapsed = number(
        &mut client,
        "SELECT count(*) FROM attempts WHERE outcome = 'lapsed'",
    );
    assert!(
        twice <= lapsed && lapsed <= bound,
        "{lapsed} claims lapsed, {twice} mails went out again"
    );
}
