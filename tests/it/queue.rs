//! The outbox as a queue under random operations, cut connections and killed senders: in the end every mail is
//! in a final state, and no mail and no group was in two hands at once.

use std::collections::{HashMap, HashSet};
use std::process::{Child, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::cluster::{Cluster, eventually, number};
use postgres::fallible_iterator::FallibleIterator;
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
        if until <= now {
            // It heard of its claim too late; somebody else may have it by now.
            return;
        }
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

    /// Changes until when these are held.
    fn keep(&mut self, mails: &[Held], change: impl Fn(Instant) -> Instant) {
        for mail in mails {
            if let Some((_, end)) = self.mails.get_mut(&mail.id) {
                *end = change(*end);
            }
            let group = mail
                .group
                .as_ref()
                .and_then(|group| self.groups.get_mut(group));
            if let Some((_, end)) = group {
                *end = change(*end);
            }
        }
    }

    /// Drops those that were lost; somebody else may have them by now.
    fn forget(&mut self, who: u64, mails: &[Held]) {
        for mail in mails {
            self.mails
                .retain(|id, (holder, _)| *id != mail.id || *holder != who);
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

#[derive(Debug)]
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
    scheduled: Mutex<Vec<i64>>,
    /// Those that somebody may have cancelled.
    cancelled: Mutex<HashSet<i64>>,
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
                // Time passes quickly here.
                client.execute(
                    "UPDATE outbox SET send_at = clock_timestamp() \
                     WHERE state = 'scheduled' AND failed_attempts > 0 AND id % 4 = $1",
                    &[&i64::try_from(self.number).unwrap()],
                )?;
                Ok(())
            }
        }
    }

    /// Any mail that was ever scheduled, if there is one.
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
        // Before, for it may have happened though we never hear of it; not undone, for it may have happened before.
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

    /// A longer lease for all that is held, or a shorter one.
    fn extend(&mut self, client: &mut Client) -> Result<(), Error> {
        let lease = LEASE / 2 * u32::try_from(1 + self.dice.below(4)).unwrap();
        let until = Instant::now() + lease;
        let ids: Vec<i64> = self.held.iter().map(|mail| mail.id).collect();
        // Whatever becomes of the call, they are held until then at least, if not less long already.
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

    /// Everything that is held, about to be settled, with an error for each.
    fn put_down(&mut self) -> (Vec<i64>, Vec<String>) {
        self.world.hands.lock().unwrap().give(&self.held);
        let ids: Vec<i64> = self.held.drain(..).map(|mail| mail.id).collect();
        let errors = ids.iter().map(|id| format!("error of {id}")).collect();
        (ids, errors)
    }
}

/// I1, I2: no mail is lost, and no two hold one.
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
    cluster.verify();
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
        // More than once only if a sender was not heard of in time.
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

const MAILS: i64 = 20_000;
const BATCH: usize = 20;
const KILLS: usize = 12;

/// A sender in a process of its own: claims, has each batch accepted, settles, again and again.
fn start_sender(cluster: &Cluster, number: usize) -> Child {
    let round = format!(
        "SELECT coalesce(array_agg(id), '{{}}') AS ids FROM mailroom_claim({BATCH}, '5 s', 'process {number}') \\gset\n\
         INSERT INTO accepted SELECT unnest(:'ids'::bigint[]);\n\
         SELECT mailroom_mark_sent_many(:'ids'::bigint[], claimant => 'process {number}');\n"
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

/// I1, I2: what goes out again is what somebody held who was killed.
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
        "SELECT count(*) FROM outbox_attempts WHERE outcome = 'lease_expired'",
    );
    assert!(
        twice <= lapsed && lapsed <= bound,
        "{lapsed} claims lapsed, {twice} mails went out again"
    );
    cluster.verify();
}

/// Claims as one session does and returns what it got, with how many pages it looked at.
fn claim_counting(client: &mut Client, limit: i32) -> (Vec<i64>, i64) {
    let looked = "SELECT heap_blks_read + heap_blks_hit + idx_blks_read + idx_blks_hit \
                  FROM pg_statio_user_tables WHERE relname = 'outbox'";
    let statistics = |client: &mut Client| {
        client
            .batch_execute("SELECT pg_stat_force_next_flush(), pg_stat_clear_snapshot()")
            .unwrap();
        number(client, looked)
    };
    let before = statistics(client);
    let rows = client
        .query(
            "SELECT id FROM mailroom_claim($1, '1 min', 'me')",
            &[&limit],
        )
        .unwrap();
    let after = statistics(client);
    (rows.iter().map(|row| row.get(0)).collect(), after - before)
}

#[test]
fn what_lies_behind_a_large_held_group_is_reached() {
    const HELD: i64 = 30_000;
    let (cluster, mut client) = prepare();
    client
        .batch_execute(&format!(
            "INSERT INTO outbox (kind, recipients, subject, body_text, priority, group_key) \
             SELECT 'own', '{{a@example.com}}', 'Hello', 'Text', -10, 'large' FROM generate_series(1, {HELD}); \
             SELECT id FROM mailroom_claim_group(1, '1 h', 'holder'); \
             INSERT INTO outbox (kind, recipients, subject, body_text, priority, group_key) \
             VALUES ('own', '{{a@example.com}}', 'Hello', 'Text', -10, NULL), \
                    ('own', '{{a@example.com}}', 'Hello', 'Text', -10, 'other'), \
                    ('own', '{{a@example.com}}', 'Hello', 'Text', 0, NULL)"
        ))
        .unwrap();
    let behind = [HELD + 1, HELD + 2, HELD + 3];

    // What is less urgent gets its turn in the first call of a session; the rest takes as many as there are
    // bounds full of rows to step over.
    let mut found = Vec::new();
    let mut calls = 0;
    let mut most = 0;
    while found.len() < behind.len() {
        // Each call comes 5,000 rows further, or is a sweep that follows one that did.
        assert!(calls < 14, "only {found:?} were found");
        let (ids, pages) = claim_counting(&mut client, 10);
        if calls == 0 {
            assert_eq!(ids, [HELD + 3], "the first call");
        }
        most = most.max(pages);
        found.extend(ids);
        calls += 1;
    }
    found.sort_unstable();
    assert_eq!(found, behind);
    // A look at a row is a look at its page, and there are 10,000 looks at most, twice if it starts over.
    assert!(most < 30_000, "a call looked at {most} pages");

    // Claims of whole groups step over it as well.
    client
        .batch_execute("SELECT mailroom_release(id, 'me') FROM outbox WHERE claimed_by = 'me'")
        .unwrap();
    let mut other = cluster.connect("app");
    let group = (0..20).find_map(|_| {
        let statement = "SELECT id FROM mailroom_claim_group(claimant => 'other')";
        let rows = other.query(statement, &[]).unwrap();
        rows.first().map(|row| row.get::<_, i64>(0))
    });
    assert_eq!(group, Some(HELD + 2));

    // Nothing that was stepped over is lost: once the holder is done it is handed out.
    client
        .batch_execute(
            "SELECT mailroom_release(id, 'holder') FROM outbox WHERE claimed_by = 'holder'",
        )
        .unwrap();
    let mut sent = HashSet::new();
    for _ in 0..100 {
        let (ids, _) = claim_counting(&mut client, 2_000);
        let settle = "SELECT mailroom_mark_sent_many($1::bigint[], claimant => 'me')";
        client.query(settle, &[&ids]).unwrap();
        sent.extend(ids);
    }
    let left = "SELECT count(*) FROM outbox WHERE state = 'scheduled'";
    assert_eq!(number(&mut client, left), 0);
    assert_eq!(sent.len(), usize::try_from(HELD).unwrap() + 2);
}

/// I4: what was claimed and given up costs no later claim anything.
#[test]
fn the_dead_claims_of_a_group_cost_nothing_once_their_lease_is_over() {
    const ROUNDS: i64 = 60;
    const BATCH: i64 = 50;
    let (cluster, mut client) = prepare();
    let put = format!(
        "INSERT INTO outbox (kind, recipients, subject, body_text, group_key) \
         SELECT 'own', '{{a@example.com}}', 'Hello', 'Text', 'group ' || i % 5 FROM generate_series(1, {BATCH}) i"
    );
    let limit = i32::try_from(BATCH).unwrap();
    client.batch_execute(&put).unwrap();
    let (ids, fresh) = claim_counting(&mut client, limit);
    assert_eq!(i64::try_from(ids.len()).unwrap(), BATCH);
    client
        .batch_execute("SELECT mailroom_mark_sent_many(array_agg(id), claimant => 'me') FROM outbox WHERE claimed_by = 'me'")
        .unwrap();

    // Nothing that dies from now on can be removed.
    let mut holder = cluster.connect("app");
    let mut snapshot = holder.transaction().unwrap();
    snapshot
        .batch_execute(
            "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM outbox",
        )
        .unwrap();
    for _ in 0..ROUNDS {
        client.batch_execute(&put).unwrap();
        client
            .batch_execute(&format!(
                "WITH c AS (SELECT id FROM mailroom_claim({BATCH}, '1 ms', 'me')) \
                 SELECT mailroom_mark_sent_many(array_agg(id), claimant => 'me') FROM c"
            ))
            .unwrap();
    }
    // Each row died twice by now, and the session's positions are behind the last 100 ms of them.
    eventually("a claim to cost what it did", || {
        client.batch_execute(&put).unwrap();
        let (ids, pages) = claim_counting(&mut client, limit);
        let settle = "SELECT mailroom_mark_sent_many($1::bigint[], claimant => 'me')";
        client.query(settle, &[&ids]).unwrap();
        assert_eq!(i64::try_from(ids.len()).unwrap(), BATCH);
        // Asking once a row, past all that is dead, took BATCH * ROUNDS * BATCH / 5 looks.
        (pages < 3 * fresh.max(1_000)).then_some(())
    });
    snapshot.commit().unwrap();
}

#[test]
fn a_lease_that_is_cut_short_is_announced() {
    let (cluster, mut client) = prepare();
    client
        .batch_execute(
            "SELECT mailroom_send('a@example.com', 'S', 'T'); SELECT id FROM mailroom_claim(1, '1 h', 'me')",
        )
        .unwrap();
    let mut listener = cluster.connect("app");
    listener.batch_execute("LISTEN outbox_due").unwrap();
    for (lease, expected) in [("2 h", 0), ("1 h", 1), ("30 min", 1), ("3 h", 0)] {
        client
            .batch_execute(&format!(
                "SELECT mailroom_extend(id, '{lease}', 'me') FROM outbox; NOTIFY outbox_due, 'end'"
            ))
            .unwrap();
        let mut told = 0;
        eventually("the last notification", || {
            let mut notifications = listener.notifications();
            let mut arriving = notifications.timeout_iter(Duration::from_millis(100));
            while let Some(notification) = arriving.next().unwrap() {
                if notification.payload() == "end" {
                    return Some(());
                }
                told += 1;
            }
            None
        });
        assert_eq!(told, expected, "a lease of {lease} from now");
    }
}
