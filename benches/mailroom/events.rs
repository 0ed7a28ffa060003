//! What it costs to record what a provider reports of a mail, among many mails that have ended: a commit for each event.
//!
//! The partner does the least that finds the mail and recognises a repetition, in plain SQL on bare tables.

use postgres::Client;

use crate::ground;
use crate::pgbench::Load;
use crate::plan::Effort;
use crate::table::{Row, Target, Unit, percentile};
use crate::turns::in_turn;

const CLIENTS: u32 = 8;
/// Events a second of the row with a rate.
const RATE: u32 = 1000;
/// Milliseconds after which few of these may be recorded.
const LATE: f64 = 50.0;

/// The `message_id` of the mail with this id.
const MESSAGE_ID: &str =
    "('0197c5d0-0000-7000-8000-' || lpad(to_hex((:mail)::bigint), 12, '0'))::uuid";

/// The rows of events.
pub fn measure(effort: Effort) -> Vec<Row> {
    let mails = effort.of(2_000_000, 20_000);
    let cluster = ground::with_workers();
    let mut client =
        ground::create_database(&cluster, "mailroom", &["mailroom.retention = '30 d'"]);
    let mut bare = ground::create_plain_database(
        &cluster,
        "bare",
        &[
            "CREATE TABLE mail (id bigint PRIMARY KEY, message_id uuid UNIQUE); \
            CREATE TABLE events (id bigserial PRIMARY KEY, event_key uuid UNIQUE, outbox_id bigint, type text, recipient text, \
                detail text, occurred_at timestamptz, received_at timestamptz DEFAULT now()); \
            CREATE INDEX ON events (outbox_id)",
        ],
    );
    let id = MESSAGE_ID.replace(":mail", "i");
    fill(
        &mut client,
        &format!(
            "INSERT INTO outbox (message_id, kind, recipients, subject, body_text, state, claimed_at, ended_at) \
             SELECT {id}, 'own', '{{a@example.com}}', 'Hello', 'Text', 'sent', now(), now() FROM generate_series(1, {mails}) i"
        ),
    );
    fill(
        &mut bare,
        &format!("INSERT INTO mail SELECT i, {id} FROM generate_series(1, {mails}) i"),
    );
    let draw = format!("\\set mail random(1, {mails})\n\\set event random(1, 1000000000000)\n");
    let report = format!(
        "{draw}SELECT mailroom_report('', jsonb_build_array(jsonb_build_object('type', 'delivered', 'event_id', (:event)::text, \
            'message_id', {MESSAGE_ID}, 'recipient', 'a@example.com', 'detail', '250 2.0.0 OK')));"
    );
    let plain = format!(
        "{draw}INSERT INTO events (event_key, outbox_id, type, recipient, detail, occurred_at) \
         SELECT md5((:event)::text)::uuid, m.id, 'delivered', 'a@example.com', '250 2.0.0 OK', now() \
         FROM mail m WHERE m.message_id = {MESSAGE_ID} ON CONFLICT (event_key) DO NOTHING;"
    );
    let name = format!(
        "events of {mails} mails, {CLIENTS} clients: mailroom_report / INSERT into bare tables"
    );
    let mut row = Row::new(name, Unit::PerSecond);
    for round in 0..effort.of(5, 1) {
        let [mailroom, bare] = in_turn::<_, 2>(round, |which| {
            let (database, script) = [("mailroom", &report), ("bare", &plain)][which];
            load(script, effort.of(4, 1), None).run(&cluster, database)
        });
        row.add(mailroom, bare);
    }
    let seconds = effort.of(60, 2);
    let name = format!("events, {RATE}/s for {seconds} s: recorded / reported");
    let mut kept_up = Row::new(name, Unit::PerSecond)
        .against(f64::from(RATE))
        .aiming_at(Some(Target::RatioAtLeast(0.98)));
    let name = format!("events, {RATE}/s for {seconds} s: p99 of a report / {LATE} ms");
    let mut late = Row::new(name, Unit::Millis)
        .against(LATE)
        .aiming_at(Some(Target::RatioAtMost(1.0)));
    let (rate, took) = load(&report, seconds, Some(RATE)).run_timed(&cluster, "mailroom");
    kept_up.add_one(rate);
    late.add_one(percentile(&took, 0.99));
    vec![row, kept_up, late]
}

fn load(script: &str, seconds: u32, rate: Option<u32>) -> Load<'_> {
    Load {
        script,
        clients: CLIENTS,
        seconds,
        rate,
    }
}

fn fill(client: &mut Client, rows: &str) {
    client.batch_execute(rows).unwrap();
    client.batch_execute("VACUUM (ANALYZE)").unwrap();
}
