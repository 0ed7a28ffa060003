//! Senders that are killed.

use std::process::{Child, Stdio};

use super::{BATCH, Dice, prepare};
use crate::cluster::{Cluster, eventually, number};

const MAILS: i64 = 20_000;

const KILLS: usize = 12;

/// A sender in a process of its own: it claims, records the batch as accepted, settles, and repeats that.
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

/// I1, I2: only mail that a killed sender held is sent again.
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
