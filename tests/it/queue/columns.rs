//! Columns that an application adds to the outbox, and drops, while sessions claim and settle.

use super::prepare;
use crate::cluster::{Cluster, number};
use postgres::Client;

fn sender(cluster: &Cluster) -> Client {
    let mut client = cluster.connect("app");
    client
        .batch_execute("SET client_min_messages = error; SET ROLE mailroom_sender")
        .unwrap();
    client
}

/// Claims all due mail; returns the ids and the subjects, which may come from a template.
fn claim(client: &mut Client, call: &str) -> Vec<(i64, String)> {
    client
        .query(call, &[])
        .unwrap_or_else(|error| panic!("{call}: {error}"))
        .iter()
        .map(|row| {
            // Clients may find columns by their position.
            assert_eq!(row.columns().len(), 41);
            assert_eq!(row.columns()[40].name(), "fallback_from");
            assert_eq!(row.get::<_, String>("claimed_by"), "me");
            (row.get(0), row.get("subject"))
        })
        .collect()
}

/// The life of mail: it is claimed, released, fails, is retried, fails permanently, is retried by hand and is sent.
fn live_a_life(owner: &mut Client, sender: &mut Client) {
    owner
        .batch_execute(
            "DELETE FROM outbox; \
             INSERT INTO outbox (kind, recipients, subject, body_text) VALUES ('own', '{a@example.com}', 'Given', 'Text'); \
             INSERT INTO outbox (kind, recipients) VALUES ('welcome', '{b@example.com}'); \
             INSERT INTO outbox (kind, recipients, subject, body_text, group_key) VALUES ('own', '{c@example.com}', 'Grouped', 'Text', 'g')",
        )
        .unwrap();
    let all = "SELECT * FROM mailroom_claim(10, '1 h', 'me')";
    let subjects = |claimed: &[(i64, String)]| -> Vec<String> {
        claimed.iter().map(|(_, subject)| subject.clone()).collect()
    };
    let settle = |sender: &mut Client, settle: &str, ids: &[i64]| {
        let settled: Vec<i64> = sender
            .query_one(settle, &[&ids])
            .unwrap_or_else(|error| panic!("{settle}: {error}"))
            .get(0);
        assert_eq!(settled, ids, "{settle}");
    };
    // The group alone, which takes the longer path, then the rest.
    let grouped = claim(
        sender,
        "SELECT * FROM mailroom_claim_group(10, '1 h', 'me')",
    );
    assert_eq!(subjects(&grouped), ["Grouped"]);
    assert_eq!(
        subjects(&claim(sender, all)),
        ["Given", "Welcome"],
        "by id, one of them rendered"
    );
    let ids: Vec<i64> = (0..3).map(|mail| grouped[0].0 - 2 + mail).collect();
    settle(sender, "SELECT mailroom_extend_many($1, '2 h', 'me')", &ids);
    settle(sender, "SELECT mailroom_release_many($1, 'me')", &ids);
    assert_eq!(claim(sender, all).len(), 3);
    settle(
        sender,
        "SELECT mailroom_mark_error_many($1, '{no,no,no}', claimant => 'me')",
        &ids,
    );
    owner
        .batch_execute("UPDATE outbox SET send_at = now()")
        .unwrap();
    // Complete mail alone takes the shortest path.
    assert_eq!(
        subjects(&claim(
            sender,
            "SELECT * FROM mailroom_claim(1, '1 h', 'me')"
        )),
        ["Given"]
    );
    assert_eq!(claim(sender, all).len(), 2);
    settle(
        sender,
        "SELECT mailroom_mark_error_many($1, '{no,no,no}', permanent => '{t,t,t}', claimant => 'me')",
        &ids,
    );
    assert_eq!(
        number(
            owner,
            "SELECT mailroom_retry_failed(since => '-infinity')::bigint"
        ),
        3
    );
    assert_eq!(claim(sender, all).len(), 3);
    settle(
        sender,
        "SELECT mailroom_mark_sent_many($1, claimant => 'me')",
        &ids,
    );
    assert_eq!(
        number(owner, "SELECT count(*) FROM outbox WHERE state = 'sent'"),
        3
    );
}

#[test]
fn columns_of_the_application_come_and_go_while_mail_is_claimed() {
    let (cluster, mut owner) = prepare();
    owner
        .batch_execute("INSERT INTO templates (kind, locale, subject, body_text) VALUES ('welcome', 'en', 'Welcome', 'Text')")
        .unwrap();
    let mut session = sender(&cluster);
    live_a_life(&mut owner, &mut session);
    for change in [
        "ALTER TABLE outbox ADD COLUMN tenant text",
        "ALTER TABLE outbox ADD COLUMN region text NOT NULL DEFAULT 'north'",
        "ALTER TABLE outbox DROP COLUMN tenant",
        "ALTER TABLE outbox DROP COLUMN region",
    ] {
        owner.batch_execute(change).unwrap();
        // A session that has plans already, and one that has none.
        live_a_life(&mut owner, &mut session);
        live_a_life(&mut owner, &mut sender(&cluster));
    }
}

#[test]
fn a_column_is_dropped_between_a_claim_and_its_settle() {
    let (cluster, mut owner) = prepare();
    let mut session = sender(&cluster);
    owner
        .batch_execute(
            "ALTER TABLE outbox ADD COLUMN tenant text; \
             INSERT INTO outbox (kind, recipients, subject, body_text, tenant) \
             SELECT 'own', '{a@example.com}', 'Given', 'Text', 't' FROM generate_series(1, 2)",
        )
        .unwrap();
    let one = "SELECT * FROM mailroom_claim(1, '1 h', 'me')";
    let (first, _) = claim(&mut session, one)[0];
    owner
        .batch_execute("ALTER TABLE outbox DROP COLUMN tenant")
        .unwrap();
    let (second, _) = claim(&mut session, one)[0];
    let settled: Vec<i64> = session
        .query_one(
            "SELECT mailroom_mark_sent_many($1, claimant => 'me')",
            &[&[first, second].as_slice()],
        )
        .unwrap()
        .get(0);
    assert_eq!(settled, [first, second]);
}
