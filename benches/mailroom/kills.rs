//! Senders that are killed again and again, as they are by the kernel or a deployment: what is lost, and what
//! goes out twice.
//!
//! Mails are offered all the time; four senders, a process each, claim them with leases of two seconds, have
//! each batch accepted and settle it; twice a second one of them is killed and another one started. In the
//! end A is how many mails were accepted more than once, B how many those who were killed could hold.

use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use crate::cluster::{Cluster, eventually, number};
use crate::ground;
use crate::pgbench::Load;
use crate::plan::Effort;
use crate::table::{Row, Target, Unit};

const BATCH: u32 = 20;
const SENDERS: u32 = 4;
/// Mails offered in a second.
const OFFERED: u32 = 1_000;
const OFFER: &str = "INSERT INTO outbox (kind, recipients, subject, body_text) \
    SELECT 'own', '{a@example.com}', 'Hello', 'Text' FROM generate_series(1, 10);\n";

/// The row of kills.
pub fn measure(effort: Effort) -> Vec<Row> {
    let seconds = effort.of(60, 5);
    let name = format!("{seconds} s of senders killed, mails accepted twice: did / could");
    let mut row = Row::new(name, Unit::Count).aiming_at(Some(Target::RatioAtMost(1.0)));
    let cluster = ground::with_workers();
    let mut client = ground::create_database(&cluster, "kills", &[]);
    client
        .batch_execute("CREATE TABLE accepted (id bigint)")
        .unwrap();
    let mut offer = Load {
        script: OFFER,
        clients: 1,
        seconds,
        rate: Some(OFFERED / 10),
    }
    .start(&cluster, "kills");
    let mut senders: Vec<Child> = (0..SENDERS).map(|n| start_sender(&cluster, n)).collect();
    let begin = Instant::now();
    let mut kills = 0;
    while begin.elapsed() < Duration::from_secs(seconds.into()) {
        std::thread::sleep(Duration::from_millis(500));
        let victim = (kills % SENDERS) as usize;
        let _ = senders[victim].kill();
        let _ = senders[victim].wait();
        kills += 1;
        senders[victim] = start_sender(&cluster, SENDERS + kills);
    }
    let _ = offer.wait();
    eventually("every mail to end", || {
        std::thread::sleep(Duration::from_millis(100));
        let live = "SELECT count(*) FROM outbox WHERE state IN ('scheduled', 'claimed')";
        (number(&mut client, live) == 0).then_some(())
    });
    for mut sender in senders {
        let _ = sender.kill();
        let _ = sender.wait();
    }
    let lost = "SELECT count(*) FROM outbox o WHERE state <> 'sent' OR NOT EXISTS (SELECT FROM accepted a WHERE a.id = o.id)";
    assert_eq!(number(&mut client, lost), 0, "mails were lost");
    let twice = number(
        &mut client,
        "SELECT count(*) - count(DISTINCT id) FROM accepted",
    );
    row.add(twice as f64, f64::from(kills * BATCH));
    vec![row]
}

/// A sender in a process of its own, at it until it is killed.
fn start_sender(cluster: &Cluster, number: u32) -> Child {
    let round = format!(
        "SELECT coalesce(array_agg(id), '{{}}') AS ids FROM mailroom_claim({BATCH}, '2 s', 'process {number}') \\gset\n\
         INSERT INTO accepted SELECT unnest(:'ids'::bigint[]);\n\
         SELECT mailroom_mark_sent_many(:'ids'::bigint[], claimant => 'process {number}');\n"
    );
    let script = cluster.scratch().join(format!("sender{number}.sql"));
    std::fs::write(&script, round.repeat(20_000)).unwrap();
    cluster
        .program("psql")
        .args(["-X", "-q", "-o", "/dev/null", "-d", "kills", "-f"])
        .arg(script)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap()
}
