//! Triggers of the application that change what a change does, or refuse it.

use crate::cluster::{Cluster, number};
use postgres::Client;

fn start() -> (Cluster, Client) {
    Cluster::start_with_app(&["shared_preload_libraries = ''"])
}

fn send(client: &mut Client, count: i32) {
    let send =
        format!("SELECT mailroom_send('a@example.com', 'S', 'T') FROM generate_series(1, {count})");
    client.batch_execute(&send).unwrap();
}

/// Has this body run for each row of the outbox that is updated.
fn on_update(client: &mut Client, time: &str, body: &str) {
    client
        .batch_execute(&format!(
            "CREATE OR REPLACE FUNCTION own() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN {body} END $$; \
             CREATE OR REPLACE TRIGGER own {time} UPDATE OF state ON outbox FOR EACH ROW EXECUTE FUNCTION own()"
        ))
        .unwrap();
}

#[test]
fn a_claim_returns_mail_that_a_trigger_updates_again() {
    let (_cluster, mut client) = start();
    send(&mut client, 3);
    on_update(
        &mut client,
        "AFTER",
        "IF NEW.state = 'claimed' THEN UPDATE public.outbox SET updated_at = now() WHERE id = NEW.id; END IF; RETURN NULL;",
    );
    let claim = "SELECT count(*) FROM mailroom_claim(10, '1 h', 'me')";
    assert_eq!(number(&mut client, claim), 3);
}

#[test]
fn a_claim_returns_no_mail_that_a_trigger_keeps_as_it_was() {
    let (_cluster, mut client) = start();
    send(&mut client, 3);
    for body in ["RETURN OLD;", "RETURN NULL;"] {
        on_update(&mut client, "BEFORE", body);
        let claim = "SELECT count(*) FROM mailroom_claim(10, '1 h', 'me')";
        assert_eq!(number(&mut client, claim), 0, "{body}");
    }
}

#[test]
fn a_lease_that_a_trigger_keeps_is_recorded_as_no_attempt() {
    let (_cluster, mut client) = start();
    send(&mut client, 1);
    let claim = "SELECT count(*) FROM mailroom_claim(1, '1 ms', 'me')";
    assert_eq!(number(&mut client, claim), 1);
    for body in ["RETURN OLD;", "RETURN NULL;"] {
        on_update(&mut client, "BEFORE", body);
        client.batch_execute("SELECT pg_sleep(0.01)").unwrap();
        let expire = "SELECT _expire_leases(clock_timestamp(), 10)";
        assert_eq!(number(&mut client, expire), 0, "{body}");
        let attempts = "SELECT count(*) FROM outbox_attempts";
        assert_eq!(number(&mut client, attempts), 0, "{body}");
    }
}

/// All claims of one call have the same lease end.
#[test]
fn more_refusals_than_one_call_looks_at_keep_no_other_lease() {
    let (_cluster, mut client) = start();
    send(&mut client, 2_500);
    let claim = "SELECT count(*) FROM mailroom_claim(2500, '1 ms', 'me')";
    assert_eq!(number(&mut client, claim), 2_500);
    on_update(
        &mut client,
        "BEFORE",
        "IF OLD.state = 'claimed' AND NEW.id <= 1200 THEN RAISE 'no'; END IF; RETURN NEW;",
    );
    client.batch_execute("SELECT pg_sleep(0.01)").unwrap();
    let expire = "SELECT _expire_leases(clock_timestamp(), 1000)";
    let taken: i64 = (0..3).map(|_| number(&mut client, expire)).sum();
    assert_eq!(taken, 1_300);
}

#[test]
fn what_is_refused_in_the_first_second_of_a_period_is_returned_to_the_budget() {
    let (_cluster, mut client) = start();
    send(&mut client, 1);
    client
        .batch_execute(
            "INSERT INTO budgets (period, amount) VALUES ('minute', 60); SELECT _consume_budget('{1}', false); \
             SELECT _refund_unclaimed('{1}', 'me', date_trunc('minute', clock_timestamp()) + interval '0.1 s')",
        )
        .unwrap();
    let spent = "SELECT spent FROM mailroom_budgets";
    assert_eq!(number(&mut client, spent), 0);
}
