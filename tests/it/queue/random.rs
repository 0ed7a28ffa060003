//! Random operations of many sessions, some of which are terminated.

use std::collections::{HashMap, HashSet};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use super::hands::{Hands, Held};
use super::{Dice, prepare};
use crate::cluster::{Cluster, eventually, number};
use postgres::{Client, Error, Row};

const SESSIONS: u64 = 4;

const OPERATIONS: u32 = 1_500;

const LEASE: Duration = Duration::from_millis(300);

/// The state that all sessions share.
#[derive(Default)]
struct World {
    hands: Mutex<Hands>,
    /// The number of times that the provider accepted each mail.
    accepted: Mutex<HashMap<i64, u32>>,
    scheduled: Mutex<Vec<i64>>,
    /// Mails that a session may have cancelled.
    cancelled: Mutex<HashSet<i64>>,
    done: AtomicBool,
}

/// One sender: performs random operations until it has done all, no matter what happens to its connections.
struct Sender<'a> {
    number: u64,
    cluster: &'a Cluster,
    world: &'a World,
    dice: Dice,
    /// Changes with each connection, as does the default claimant.
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
        match self.dice.below(15) {
            0 | 1 => self.schedule(client),
            10 => self.cancel(client),
            11 => self.reschedule(client),
            12 => self.extend(client),
            13 => self.retry(client),
            14 => {
                let due = client
                    .query_one("SELECT coalesce(isfinite(mailroom_next_due()), true)", &[])?;
                assert!(due.get::<_, bool>(0), "infinity is no time to wait for");
                Ok(())
            }
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
                let limit = (self.dice.below(2) == 0).then_some(1 + self.dice.number(3));
                let before = Instant::now();
                let rows = client.query(
                    "SELECT id, group_key FROM mailroom_claim_group($1, make_interval(secs => $2), $3)",
                    &[&limit, &LEASE.as_secs_f64(), &self.claimant],
                )?;
                assert!(limit.is_none_or(|limit| rows.len() <= usize::try_from(limit).unwrap()));
                self.receive(before, &rows);
                Ok(())
            }
            5 | 6 => {
                let (ids, _) = self.put_down();
                for id in &ids {
                    *self.world.accepted.lock().unwrap().entry(*id).or_default() += 1;
                }
                let statement = "SELECT mailroom_mark_sent_many($1::bigint[], NULL, $2)";
                client.query_one(statement, &[&ids, &self.claimant])?;
                Ok(())
            }
            7 => {
                let (ids, errors) = self.put_down();
                let permanent: Vec<bool> = ids.iter().map(|id| id % 17 == 0).collect();
                client.query_one(
                    "SELECT mailroom_mark_error_many($1::bigint[], $2::text[], NULL, $3::boolean[], NULL, $4)",
                    &[&ids, &errors, &permanent, &self.claimant],
                )?;
                Ok(())
            }
            8 => {
                let (ids, _) = self.put_down();
                let statement = "SELECT mailroom_release_many($1::bigint[], $2)";
                client.query_one(statement, &[&ids, &self.claimant])?;
                Ok(())
            }
            _ => {
                client.query_one(
                    "SELECT mailroom_retry_failed(since => '-infinity', batch_limit => 3)",
                    &[],
                )?;
                // Mail that failed is due again at once.
                client.execute(
                    "UPDATE outbox SET send_at = clock_timestamp() \
                     WHERE state = 'scheduled' AND failed_attempts > 0 AND id % 4 = $1",
                    &[&i64::try_from(self.number).unwrap()],
                )?;
                Ok(())
            }
        }
    }

    /// A random mail of all that were scheduled, if there are any.
    fn any_mail(&mut self) -> Option<i64> {
        let scheduled = self.world.scheduled.lock().unwrap();
        let count = u64::try_from(scheduled.len()).unwrap();
        let index = usize::try_from(self.dice.below(count.max(1))).unwrap();
        scheduled.get(index).copied()
    }

    fn cancel(&mut self, client: &mut Client) -> Result<(), Error> {
        let Some(id) = self.any_mail() else {
            return Ok(());
        };
        // Before the call, which may succeed without our learning it. Not undone: an earlier call may have succeeded.
        self.world.cancelled.lock().unwrap().insert(id);
        client.query_one("SELECT mailroom_cancel($1::bigint)", &[&id])?;
        Ok(())
    }

    fn reschedule(&mut self, client: &mut Client) -> Result<(), Error> {
        let Some(id) = self.any_mail() else {
            return Ok(());
        };
        client.query_one(
            "SELECT mailroom_reschedule(o.id, least(now() + interval '30 ms', o.expires_at - interval '1 ms')) \
             FROM outbox o WHERE o.id = $1",
            &[&id],
        )?;
        Ok(())
    }

    /// Extends or shortens the lease of all held mail.
    fn extend(&mut self, client: &mut Client) -> Result<(), Error> {
        let lease = LEASE / 2 * u32::try_from(1 + self.dice.below(4)).unwrap();
        let until = Instant::now() + lease;
        let ids: Vec<i64> = self.held.iter().map(|mail| mail.id).collect();
        // No matter how the call ends, they are held until then, unless their lease ends before.
        self.world
            .hands
            .lock()
            .unwrap()
            .keep(&self.held, |end| end.min(until));
        let row = client.query_one(
            "SELECT mailroom_extend_many($1::bigint[], make_interval(secs => $2), $3)",
            &[&ids, &lease.as_secs_f64(), &self.claimant],
        )?;
        let extended: Vec<i64> = row.get(0);
        let (kept, gone): (Vec<Held>, Vec<Held>) = self
            .held
            .drain(..)
            .partition(|mail| extended.contains(&mail.id));
        self.held = kept;
        let mut hands = self.world.hands.lock().unwrap();
        hands.forget(self.number, &gone);
        hands.keep(&self.held, |_| until);
        Ok(())
    }

    fn retry(&mut self, client: &mut Client) -> Result<(), Error> {
        let Some(id) = self.any_mail() else {
            return Ok(());
        };
        client.query_one("SELECT mailroom_retry($1::bigint)", &[&id])?;
        Ok(())
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

    /// All held mail, which is about to be settled: the ids, with an error for each.
    fn put_down(&mut self) -> (Vec<i64>, Vec<String>) {
        self.world.hands.lock().unwrap().give(&self.held);
        let ids: Vec<i64> = self.held.drain(..).map(|mail| mail.id).collect();
        let errors = ids.iter().map(|id| format!("error of {id}")).collect();
        (ids, errors)
    }
}

/// I1, I2: no mail is lost, and no two senders hold the same mail.
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
                std::thread::sleep(Duration::from_millis(60));
            }
            cuts
        });
        // If a sender fails, the cutter must stop nevertheless.
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
    cluster.verify();
}

/// Sends the remaining mail, once the last leases have expired.
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
        let settled: Vec<i64> = client
            .query_one(
                "SELECT mailroom_mark_sent_many($1::bigint[], NULL, 'last')",
                &[&ids],
            )
            .unwrap()
            .get(0);
        assert_eq!(settled, ids);
        let live = "SELECT count(*) FROM outbox WHERE state IN ('scheduled', 'claimed')";
        (number(client, live) == 0).then_some(())
    });
}

fn audit(client: &mut Client, world: &World) {
    let rows = client
        .query(
            "SELECT o.id, o.state::text, \
                    count(a.id) FILTER (WHERE a.outcome = 'lease_expired'), count(a.id) FILTER (WHERE a.outcome = 'failed'), \
                    o.failed_attempts::bigint, o.ended_at IS NOT NULL AND o.claimed_until IS NULL, o.last_error \
             FROM outbox o LEFT JOIN outbox_attempts a ON a.outbox_id = o.id GROUP BY o.id",
            &[],
        )
        .unwrap();
    let accepted = world.accepted.lock().unwrap();
    let cancelled = world.cancelled.lock().unwrap();
    let mut left: HashSet<i64> = world.scheduled.lock().unwrap().iter().copied().collect();
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
            "cancelled" => assert!(
                cancelled.contains(&id) && times <= lapsed && reason.is_some(),
                "mail {id} was cancelled"
            ),
            other => panic!("mail {id} is {other}"),
        }
        // More than once only if a sender settled too late, or not at all.
        assert!(
            times <= lapsed + 1,
            "mail {id} went out {times} times, {lapsed} claims lapsed"
        );
        *states.entry(state).or_default() += 1;
    }
    assert!(left.is_empty(), "mails were lost: {left:?}");
    for state in ["sent", "error", "expired", "cancelled"] {
        assert!(states.contains_key(state), "nothing is {state}: {states:?}");
    }
}
