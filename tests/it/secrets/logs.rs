//! The log, statistics and activity.

use std::collections::BTreeSet;

use super::{prepare, traffic};

#[test]
fn logs_statistics_and_activity_show_no_secret() {
    let (cluster, mut client) = prepare();
    let (secrets, sessions) = traffic(&cluster, &mut client);
    let mut watcher = cluster.connect_as("app", "watcher");

    let statements: String = watcher
        .query_one(
            "SELECT string_agg(s::text, chr(10)) FROM pg_stat_statements s",
            &[],
        )
        .unwrap()
        .get(0);
    assert!(statements.contains("mailroom_redeem") && statements.contains("_sign("));
    secrets.assert_not_in("pg_stat_statements", statements.as_bytes());
    let activity: String = watcher
        .query_one(
            "SELECT string_agg(a::text, chr(10)) FROM pg_stat_activity a",
            &[],
        )
        .unwrap()
        .get(0);
    assert!(activity.contains("mailroom_dequeue(5)") && activity.contains("mailroom worker"));
    secrets.assert_not_in("pg_stat_activity", activity.as_bytes());
    let settings: String = client
        .query_one(
            "SELECT string_agg(s::text, chr(10)) FROM pg_settings s",
            &[],
        )
        .unwrap()
        .get(0);
    assert!(settings.contains("mailroom.key_file"));
    secrets.assert_not_in("pg_settings", settings.as_bytes());
    // What the monitor may read of the mails and of failures.
    for (query, told) in [
        (
            "SELECT string_agg(h::text, chr(10)) FROM outbox_history h",
            "[token]",
        ),
        (
            "SELECT string_agg(concat_ws(' ', o.id, o.kind, o.last_error, o.claimed_by), chr(10)) FROM outbox o",
            "[code]",
        ),
        (
            "SELECT string_agg(j::text, chr(10)) FROM job_runs j",
            "urgent",
        ),
    ] {
        let text: String = watcher.query_one(query, &[]).unwrap().get(0);
        assert!(text.contains(told), "{query}");
        secrets.assert_not_in(query, text.as_bytes());
    }
    drop(sessions);

    let log = cluster.log();
    for told in [
        "mailroom_redeem($1, $2)",
        "duration: ",
        "DEBUG",
        "division by zero",
        "that it does not hold",
    ] {
        assert!(log.contains(told), "the log has no {told}");
    }
    secrets.assert_not_in("the log", log.as_bytes());

    // A secret that a caller writes into the text of a statement is logged. This also shows that the search works.
    let mut web = cluster.connect_as("app", "web");
    let (token, code) = (&secrets.tokens[0], &secrets.codes[0]);
    web.batch_execute(&format!("SELECT mailroom_redeem('{token}', '{code}')"))
        .unwrap();
    let log = cluster.log();
    assert_eq!(
        secrets.shown(log.as_bytes()),
        BTreeSet::from([token.as_str(), code.as_str()])
    );
}
