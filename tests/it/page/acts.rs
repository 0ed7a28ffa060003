//! What people do to a message: done once, told, and recorded under the role that logged in.

use super::scene::{Scene, words};

/// Mail in all states: 1 and 2 wait, 3 to 6 failed, 7 was sent, 8 is of the account 1.
const MAIL: &str = "
    SELECT mailroom_send(r || '@example.com', 'To ' || r, 'Text') FROM unnest('{one,two}'::text[]) r;
    INSERT INTO outbox (kind, recipients, subject, body_text, state, last_error, ended_at, item_key)
    SELECT k, '{failed@example.com}', 'Failed', 'Text', 'error', '550 no such user', now(), i
    FROM unnest('{bill,bill,note,note}'::text[], '{a,b,c,d}'::text[]) x (k, i);
    INSERT INTO outbox (kind, recipients, subject, body_text, state, ended_at, attachment_bytes)
    VALUES ('note', '{sent@example.com}', 'Sent', 'Text', 'sent', now(), 0);
    INSERT INTO accounts (email, login, status) VALUES ('ada@example.com', 'ada', 'active');
    INSERT INTO tokens (account, action) VALUES (1, 'password_recovery');
    INSERT INTO outbox (kind, recipients, token_id, account_id, state, ended_at)
    VALUES ('password_recovery', '{ada@example.com}', 1, 1, 'sent', now());
    ALTER ROLE support SET timezone = 'Asia/Tokyo';
    ALTER ROLE admin SET timezone = 'America/New_York';";

pub fn start() -> Scene {
    let mut scene = Scene::start();
    scene.client.batch_execute(MAIL).unwrap();
    scene
}

/// Who did what, in order.
pub fn recorded(scene: &mut Scene) -> String {
    let all = "SELECT coalesce(string_agg(concat_ws(' ', role, action, outbox_id), ', ' ORDER BY id), '') FROM operator_actions";
    scene.text(all)
}

fn state(scene: &mut Scene, id: i64) -> String {
    scene.text(&format!("SELECT state::text FROM outbox WHERE id = {id}"))
}

#[test]
fn acts_on_a_message_are_done_once_told_and_recorded() {
    let mut scene = start();
    let server = scene.serve();
    let support = server.of("support");
    let back = |id: i64| format!("messages/{id}");
    let act = |id: i64, act: &str, fields: &[(&str, &str)]| {
        let back = back(id);
        let all = [&[("back", back.as_str())][..], fields].concat();
        support.act(&format!("messages/{id}/{act}"), &all)
    };
    support.page("messages/1");
    assert_eq!(act(1, "cancel", &[]), "Cancelled.");
    // It is said once.
    assert_eq!(super::scene::notice(&support.page("messages/1")), "");
    assert_eq!(state(&mut scene, 1), "cancelled");
    let told = act(1, "cancel", &[]);
    assert!(
        told.starts_with("Not cancelled. It does not wait any more"),
        "{told}"
    );
    assert_eq!(act(3, "retry", &[]), "Retried. It is due now.");
    assert_eq!(state(&mut scene, 3), "scheduled");
    let told = act(3, "retry", &[]);
    assert!(told.starts_with("Not retried. It has not failed"), "{told}");
    // In the time zone of the role.
    let page = words(&support.page("messages/2"));
    assert!(page.contains("Send at (Asia/Tokyo)"), "{page}");
    assert_eq!(
        act(2, "reschedule", &[("send_at", "2031-02-03T04:05")]),
        "Rescheduled."
    );
    let at = scene.text(
        "SELECT to_char(send_at AT TIME ZONE 'UTC', 'YYYY-MM-DD HH24:MI') FROM outbox WHERE id = 2",
    );
    assert_eq!(at, "2031-02-02 19:05");
    let page = support.page("messages/2");
    assert!(
        page.contains("2031-02-03T04:05:00+09:00"),
        "{}",
        words(&page)
    );
    assert!(words(&page).contains("Times are in Asia/Tokyo (UTC+09:00)"));
    let admin = server.of("admin");
    let page = admin.page("messages/2");
    assert!(
        page.contains("2031-02-02T14:05:00-05:00"),
        "{}",
        words(&page)
    );
    for odd in ["", "tomorrow night", "2031-02-30T00:00", "infinity"] {
        let told = act(2, "reschedule", &[("send_at", odd)]);
        assert!(!told.is_empty() && told != "Rescheduled.", "{odd}: {told}");
    }
    let told = act(1, "reschedule", &[("send_at", "2031-02-03T04:05")]);
    assert!(told.starts_with("Not rescheduled."), "{told}");
    // A copy of what was sent, on whose page one is then.
    let answer = support.post("messages/7/send-again", &[("back", "messages/7")]);
    let to = answer.header("location").unwrap().to_owned();
    let copy: i64 = to.strip_prefix("/app/messages/").unwrap().parse().unwrap();
    assert!(copy > 8);
    let page = support.page(&format!("messages/{copy}"));
    assert_eq!(
        super::scene::notice(&page),
        "Message 7 is sent again: this is its copy."
    );
    let found = scene.text(&format!(
        "SELECT concat_ws(' ', state, subject, recipients) FROM outbox WHERE id = {copy}"
    ));
    assert_eq!(found, "scheduled Sent {sent@example.com}");
    let expected =
        "support cancelled 1, support retried 3, support rescheduled 2, support sent_again 7";
    assert_eq!(recorded(&mut scene), expected);
    let log = words(&support.page("log"));
    for done in ["cancelled 1", "retried 3", "rescheduled 2", "sent again 7"] {
        assert!(log.contains(&format!("support {done}")), "{done}: {log}");
    }
    let history = words(&support.page("messages/1"));
    assert!(history.contains("Cancelled by support"), "{history}");
    let log = server.program.log();
    for done in [
        "cancelled message 1",
        "did not cancel message 1",
        "retried message 3",
        "rescheduled message 2",
    ] {
        assert!(
            log.contains(&format!("role \"support\" {done}")),
            "{done}: {log}"
        );
    }
    assert!(!log.contains("@example.com"), "{log}");
}

#[test]
fn what_the_database_refuses_is_said_as_it_says_it() {
    let mut scene = start();
    scene
        .client
        .batch_execute(
            "SELECT mailroom_send('x@example.com', 'S', 'T', kind => 'note', item_key => 'c')",
        )
        .unwrap();
    let server = scene.serve();
    let support = server.of("support");
    let act = |within: &str, fields: &[(&str, &str)]| {
        support.act(within, &[&[("back", "messages")][..], fields].concat())
    };
    // What psql says.
    let mut psql = scene.cluster.connect("app");
    psql.batch_execute("SET SESSION AUTHORIZATION support")
        .unwrap();
    let mut said = |statement: &str| {
        let error = psql.batch_execute(statement).unwrap_err();
        let error = error.as_db_error().unwrap();
        let parts = [error.detail(), error.hint()]
            .into_iter()
            .flatten()
            .map(str::to_owned);
        (
            error.code().code().to_owned(),
            error.message().to_owned(),
            parts.collect::<Vec<_>>(),
        )
    };
    for (within, statement, code) in [
        ("messages/5/retry", "SELECT mailroom_retry(5)", "23505"),
        (
            "messages/8/send-again",
            "SELECT mailroom_send_again(8)",
            "55000",
        ),
        (
            "messages/2/send-again",
            "SELECT mailroom_send_again(2)",
            "55000",
        ),
    ] {
        let (sqlstate, message, parts) = said(statement);
        assert_eq!(sqlstate, code, "{message}");
        let told = act(within, &[]);
        assert!(
            told.to_lowercase().starts_with(&message.to_lowercase()),
            "{told} / {message}"
        );
        for part in parts {
            assert!(told.contains(&part), "{told} / {part}");
        }
    }
    // Five copies of a mail an hour.
    let mut times = Vec::new();
    for _ in 0..6 {
        times.push(act("messages/7/send-again", &[]));
        // Not seconds ago.
        scene
            .client
            .batch_execute("UPDATE operator_actions SET at = at - interval '11 s'")
            .unwrap();
    }
    assert!(times[4].starts_with("Message 7 is sent again"), "{times:?}");
    let (_, message, _) = said("SELECT mailroom_send_again(7)");
    assert!(
        times[5].to_lowercase().starts_with(&message.to_lowercase()),
        "{times:?}"
    );
    assert!(act("messages/99/send-again", &[]).starts_with("There is no such message."));
    for (within, fields) in [
        ("suppressions/suppress", &[("address", "no address")][..]),
        (
            "suppressions/suppress",
            &[("address", "a@example.com"), ("until", "soon")],
        ),
        ("suppressions/suppress", &[]),
        ("failures/retry", &[("outcome", "made up")]),
        ("links/end", &[]),
        (
            "links/request",
            &[("action", "made up"), ("address", "ada@example.com")],
        ),
    ] {
        let told = act(within, fields);
        assert!(!told.is_empty(), "{within}");
        assert!(
            !told.contains("panicked") && !told.contains("pg_catalog"),
            "{within}: {told}"
        );
    }
    // Of a link, a support role may not: it takes admin.
    scene
        .client
        .batch_execute("UPDATE outbox SET state = 'error', last_error = 'busy' WHERE id = 8")
        .unwrap();
    assert!(act("messages/8/retry", &[]).starts_with("Your role may not do this."));
    assert_eq!(recorded(&mut scene).matches("sent_again").count(), 5);
    assert_eq!(recorded(&mut scene).split(", ").count(), 5);
}
