//! Requests for links, and the worker that answers them.

use super::Random;
use crate::cluster::{Cluster, eventually, number};

#[test]
fn the_worker_answers_requests() {
    let (cluster, mut client) = Cluster::start_with_app(&["mailroom.poll_interval = '1h'"]);
    cluster.worker("app");
    client
        .batch_execute(
            "CREATE ROLE web LOGIN IN ROLE mailroom_app; \
             INSERT INTO accounts (email, login, status) VALUES ('a@example.com', 'a', 'active')",
        )
        .unwrap();
    let mut web = cluster.connect_as("app", "web");
    for address in ["nobody@example.com", "A@example.com", "a@example.com"] {
        web.execute("SELECT mailroom_request_recovery($1)", &[&address])
            .unwrap();
    }
    let row = eventually("the mail", || {
        client
            .query_opt(
                "SELECT secrets->>'token', secrets->>'code' FROM outbox WHERE state = 'scheduled'",
                &[],
            )
            .unwrap()
    });
    eventually("an answer to all", || {
        (number(&mut client, "SELECT count(*) FROM link_requests") == 0).then_some(())
    });
    assert_eq!(number(&mut client, "SELECT count(*) FROM outbox"), 1);
    let (token, code): (String, String) = (row.get(0), row.get(1));
    let outcome: String = web
        .query_one(
            "SELECT outcome FROM mailroom_redeem($1, $2)",
            &[&token, &code],
        )
        .unwrap()
        .get(0);
    assert_eq!(outcome, "ok");
    // The mail had not been sent yet, so redeeming the link cancelled it.
    assert_eq!(
        number(
            &mut client,
            "SELECT count(*) FROM outbox WHERE state = 'cancelled' AND secrets IS NULL"
        ),
        1
    );
}

/// Most requests are for unknown addresses and produce no mail. The worker answers the requests after them at once, not
/// at the next poll.
#[test]
fn strangers_do_not_hold_up_those_behind_them() {
    let (cluster, mut client) =
        Cluster::start_with_app(&["mailroom.poll_interval = '1h'", "mailroom.batch_limit = 10"]);
    cluster.worker("app");
    client
        .batch_execute(
            "INSERT INTO accounts (email, login, status) VALUES ('a@example.com', 'a', 'active'); \
             BEGIN; \
             SELECT mailroom_request_recovery(i || '@example.com') FROM generate_series(1, 35) i; \
             SELECT mailroom_request_recovery('a@example.com'); \
             COMMIT",
        )
        .unwrap();
    eventually("the mail", || {
        (number(
            &mut client,
            "SELECT count(*) FROM outbox WHERE state = 'scheduled'",
        ) == 1)
            .then_some(())
    });
    assert_eq!(number(&mut client, "SELECT count(*) FROM link_requests"), 0);
}

#[test]
fn a_request_for_an_account_in_use_is_answered_later() {
    let (cluster, mut client) = Cluster::start_with_app(&["mailroom.poll_interval = '100ms'"]);
    cluster.worker("app");
    client
        .batch_execute(
            "INSERT INTO accounts (email, login, status) \
             VALUES ('a@example.com', 'a', 'active'), ('b@example.com', 'b', 'active')",
        )
        .unwrap();
    let mut holder = cluster.connect("app");
    holder
        .batch_execute("BEGIN; UPDATE accounts SET login = 'c' WHERE login = 'a'")
        .unwrap();
    for address in ["a@example.com", "b@example.com"] {
        client
            .execute("SELECT mailroom_request_recovery($1)", &[&address])
            .unwrap();
    }
    // The mail of the other account does not wait for the lock.
    let mails = "SELECT count(*) FROM outbox WHERE state = 'scheduled'";
    eventually("the other mail", || {
        (number(&mut client, mails) == 1).then_some(())
    });
    assert_eq!(number(&mut client, "SELECT count(*) FROM link_requests"), 1);
    holder.batch_execute("COMMIT").unwrap();
    eventually("the mail", || {
        (number(&mut client, mails) == 2).then_some(())
    });
    assert_eq!(
        number(
            &mut client,
            "SELECT count(*) FROM job_runs WHERE error IS NOT NULL"
        ),
        0
    );
}

/// Requests, redemptions and changes of status at the same time cause no deadlock, and an account never has two open
/// links of one action.
#[test]
fn everything_at_once_ends_in_no_deadlock() {
    let (cluster, mut client) = Cluster::start_with_app(&[
        "mailroom.request_interval = 0",
        "mailroom.requests_per_hour = 1000",
        "mailroom.batch_timeout = 0",
        "deadlock_timeout = '100ms'",
    ]);
    cluster.worker("app");
    client
        .batch_execute(
            "INSERT INTO accounts (email, login, status) \
             SELECT i || '@example.com', i, 'active' FROM generate_series(1, 5) i",
        )
        .unwrap();
    std::thread::scope(|scope| {
        for session in 0..8_u64 {
            let cluster = &cluster;
            scope.spawn(move || {
                let mut client = cluster.connect("app");
                let mut random = Random(session + 1);
                for _ in 0..100 {
                    let account = i64::try_from(random.below(5) + 1).unwrap();
                    let statement = match random.below(4) {
                        0 => {
                            "SELECT r.outcome FROM tokens t, mailroom_redeem(mailroom_sign(t.action, t.secret, t.code), t.code) r \
                             WHERE t.account = $1 AND t.consumed_at IS NULL AND t.revoked_at IS NULL"
                        }
                        1 => {
                            "UPDATE accounts SET status = CASE status WHEN 'active' THEN 'suspended' \
                             ELSE 'active' END::account_status WHERE id = $1"
                        }
                        _ => {
                            "SELECT mailroom_request_recovery(email)::text FROM accounts WHERE id = $1"
                        }
                    };
                    client.query(statement, &[&account]).unwrap();
                    let open = number(
                        &mut client,
                        "SELECT coalesce(max(n), 0) FROM ( \
                             SELECT count(*) n FROM tokens \
                             WHERE consumed_at IS NULL AND revoked_at IS NULL \
                             GROUP BY account, action) t",
                    );
                    assert!(open <= 1, "{open} open links for one account");
                }
            });
        }
    });
    assert!(!cluster.log().contains("deadlock"));
    assert!(
        number(
            &mut client,
            "SELECT count(*) FROM tokens WHERE consumed_at IS NOT NULL"
        ) > 0
    );
    cluster.verify();
}

/// However many requests there are for accounts that another transaction holds, those behind them are answered.
#[test]
fn accounts_that_are_held_do_not_hold_up_those_behind_them() {
    let (cluster, mut client) = Cluster::start_with_app(&["shared_preload_libraries = ''"]);
    client
        .batch_execute(
            "INSERT INTO accounts (email, login, status) \
             SELECT 'a' || i || '@example.com', 'a' || i, 'active' FROM generate_series(0, 1500) i; \
             SELECT mailroom_request_recovery('a1@example.com') FROM generate_series(1, 1500); \
             SELECT mailroom_request_recovery('a0@example.com')",
        )
        .unwrap();
    let mut holder = cluster.connect("app");
    holder
        .batch_execute("BEGIN; SELECT FROM accounts WHERE login <> 'a0' FOR UPDATE")
        .unwrap();
    // Many for one account, of which one stays.
    let answer = "SELECT mailroom_answer_requests()";
    let made: i32 = client.query_one(answer, &[]).unwrap().get(0);
    assert_eq!(made, 0);
    let made: i32 = client.query_one(answer, &[]).unwrap().get(0);
    assert_eq!(made, 1);
    let left = "SELECT count(*) FROM link_requests";
    assert_eq!(number(&mut client, left), 1);
    // One for each of many accounts.
    client
        .batch_execute(
            "UPDATE tokens SET created_at = created_at - 7200, expires_at = created_at - 3600; \
             SELECT mailroom_request_recovery('a' || i || '@example.com') FROM generate_series(2, 1500) i; \
             SELECT mailroom_request_recovery('a0@example.com')",
        )
        .unwrap();
    let made: i32 = cluster
        .connect("app")
        .query_one(answer, &[])
        .unwrap()
        .get(0);
    assert_eq!(made, 1);
    assert_eq!(number(&mut client, left), 1500);
    holder.batch_execute("ROLLBACK").unwrap();
    while number(&mut client, left) > 0 {
        client.batch_execute(answer).unwrap();
    }
    let tokens = "SELECT count(DISTINCT account) FROM tokens";
    assert_eq!(number(&mut client, tokens), 1501);
}
