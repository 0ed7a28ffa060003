//! What administrators write into the outbox by hand.

use crate::cluster::{Cluster, number};

/// Without its token a mail would count as one without secrets: it would be dumped, and no revocation would find it.
#[test]
fn what_is_written_by_hand_does_not_part_secrets_from_their_token() {
    let (cluster, mut client) = Cluster::start_with_app(&[
        "shared_preload_libraries = ''",
        "mailroom.link_base_url = 'https://example.com'",
    ]);
    client
        .batch_execute(
            "CREATE ROLE chief LOGIN IN ROLE mailroom_admin; \
             INSERT INTO accounts (email, login) VALUES ('a@example.com', 'a'); SELECT mailroom_collect(); \
             SELECT mailroom_send('b@example.com', 'S', 'T')",
        )
        .unwrap();
    let mut chief = cluster.connect_as("app", "chief");
    for attempt in [
        "UPDATE outbox SET token_id = NULL WHERE token_id IS NOT NULL",
        "UPDATE outbox SET token_id = 42 WHERE token_id IS NOT NULL",
        "UPDATE outbox o SET secrets = s.secrets FROM outbox s WHERE o.token_id IS NULL AND s.token_id IS NOT NULL",
        "INSERT INTO outbox (kind, recipients, secrets) SELECT 'note', recipients, secrets FROM outbox WHERE token_id IS NOT NULL",
    ] {
        let error = chief.batch_execute(attempt).expect_err(attempt);
        let error = error.as_db_error().unwrap();
        assert_eq!(error.code().code(), "23514", "{attempt}: {error:?}");
        assert_eq!(
            error.constraint(),
            Some("outbox_secrets_must_have_their_token")
        );
        assert!(error.detail().unwrap().starts_with("It is mail "));
    }
    // The error of a CHECK constraint would quote the row to roles that may read it.
    for attempt in [
        "UPDATE outbox SET failed_attempts = -1",
        "UPDATE outbox SET max_attempts = 0",
        "UPDATE outbox SET state = 'claimed'",
        "UPDATE outbox SET claimed_until = now()",
        "UPDATE outbox SET ended_at = now()",
    ] {
        let error = client
            .batch_execute(&format!("{attempt} WHERE token_id IS NOT NULL"))
            .expect_err(attempt);
        let error = error.as_db_error().unwrap();
        assert_eq!(error.code().code(), "23514", "{attempt}: {error:?}");
        assert!(!format!("{error:?}").contains("link"), "{error:?}");
    }
    // The check fires even where other triggers do not, as in an apply worker.
    let error = client
        .batch_execute("BEGIN; SET LOCAL session_replication_role = replica; UPDATE outbox SET state = 'claimed'")
        .unwrap_err();
    assert_eq!(error.code().unwrap().code(), "23514");
    client.batch_execute("ROLLBACK").unwrap();
    // Mail that has ended has no secrets, no matter what ended it.
    client
        .batch_execute(
            "CREATE FUNCTION ending() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN NEW.state := 'cancelled'; RETURN NEW; END $$; \
             CREATE TRIGGER ending BEFORE UPDATE ON outbox FOR EACH ROW WHEN (NEW.state = 'scheduled') EXECUTE FUNCTION ending()",
        )
        .unwrap();
    chief
        .batch_execute("UPDATE outbox SET priority = 1 WHERE token_id IS NOT NULL")
        .unwrap();
    let kept = "SELECT count(*) FROM outbox WHERE state = 'cancelled' AND (secrets IS NOT NULL OR ended_at IS NULL)";
    assert_eq!(number(&mut client, kept), 0);
}
