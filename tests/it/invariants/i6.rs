//! I6: a commit takes no lock of the cluster.

use super::{NOTIFY_LOCK, Outcome, outcome};
use crate::cluster::{Cluster, eventually, number};

/// A NOTIFY that also writes WAL: without that, its commit would not wait for a standby.
const NOTIFY: &str =
    "SELECT pg_notify('elsewhere', ''), pg_logical_emit_message(true, 'mailroom', 'x')";

/// With a worker, a commit takes no lock of the whole cluster. A session that holds the lock of NOTIFY, while it waits
/// for a standby that never connects, blocks the sessions that NOTIFY, and no others.
#[test]
fn i6_a_commit_takes_no_lock_of_the_cluster() {
    let (cluster, mut client) = Cluster::start_with_app(&[
        "mailroom.batch_timeout = 0",
        "mailroom.request_interval = 0",
    ]);
    cluster.worker("app");
    client
        .batch_execute(
            "SET synchronous_commit = local; \
             INSERT INTO accounts (email, login, status) VALUES ('in@use.example', 'used', 'active'); \
             SELECT mailroom_send('a@example.com', 'Later', 'Text', send_at => now() + interval '1 day')",
        )
        .unwrap();
    client
        .batch_execute("ALTER SYSTEM SET synchronous_standby_names = 'nobody'")
        .unwrap();
    cluster.reload();
    let held = format!(
        "SELECT count(*) FROM pg_locks l JOIN pg_stat_activity a USING (pid) \
         WHERE a.wait_event = 'SyncRep' AND l.granted AND {NOTIFY_LOCK}"
    );
    // A commit does not wait before the processes have read the new setting, so this is repeated.
    let mut waiting = eventually("a session that waits while it holds the lock", || {
        let mut session = cluster.connect("app");
        let thread = std::thread::spawn(move || session.batch_execute(NOTIFY).unwrap());
        eventually("the session to wait or to be through", || {
            if thread.is_finished() {
                Some(false)
            } else {
                (number(&mut client, &held) == 1).then_some(true)
            }
        })
        .then_some(vec![thread])
    });

    for statement in [
        "INSERT INTO accounts (email, login) VALUES ('one@example.com', 'one')",
        "INSERT INTO accounts (email, login) SELECT i || '@example.com', i FROM generate_series(1, 1000) i",
        "UPDATE accounts SET status = 'suspended' WHERE login = '1'",
        "INSERT INTO tokens (account, action) SELECT id, 'password_recovery' FROM accounts WHERE login = 'used'",
        "SELECT mailroom_request_recovery('in@use.example')",
        "SELECT mailroom_request_recovery('un@known.example')",
        "SELECT mailroom_send('b@example.com', 'Now', 'Text')",
        "SELECT mailroom_reschedule(id, now()) FROM outbox WHERE subject = 'Later'",
        "UPDATE tokens SET revoked_at = extract(epoch FROM now()) WHERE account = (SELECT id FROM accounts WHERE login = 'used')",
        "SELECT FROM mailroom_claim(1, '1 h', 'me')",
        "DELETE FROM accounts WHERE login = '2'",
    ] {
        let (outcome, thread) = outcome(&cluster, &mut client, statement);
        assert_eq!(outcome, Outcome::Returned, "{statement}");
        thread.join().unwrap();
    }
    // What the other statements would do without a worker. It shows that the lock is held, so that this test can fail.
    let (outcome, thread) = outcome(
        &cluster,
        &mut client,
        "SET mailroom.notify = 'commit'; \
         INSERT INTO accounts (email, login) VALUES ('last@example.com', 'last')",
    );
    assert_eq!(outcome, Outcome::WaitsForTheLock);
    waiting.push(thread);
    assert_eq!(number(&mut client, &held), 1, "it was held all the time");

    client
        .batch_execute("ALTER SYSTEM RESET synchronous_standby_names")
        .unwrap();
    cluster.reload();
    for thread in waiting {
        thread.join().unwrap();
    }
    // The worker does what it was woken for.
    eventually("the queue to empty", || {
        (number(&mut client, "SELECT count(*) FROM pending") == 0).then_some(())
    });
}
