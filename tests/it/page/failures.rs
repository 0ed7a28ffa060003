//! What failed, and the retry of many: of what was counted, by conditions that say what they include.

use super::scene::{Browser, Scene, words};

/// Mail that failed an hour ago: by a transport with and without a code, by clients, and without an attempt.
const MAIL: &str = "
    CREATE FUNCTION fail(n integer, kind text, transport text, outcome attempt_outcome, code integer, error text) RETURNS void LANGUAGE sql AS $$
        WITH mail AS (
            INSERT INTO outbox (kind, transport, recipients, subject, body_text, state, last_error, failed_attempts, ended_at)
            SELECT fail.kind, coalesce(fail.transport, 'smtp'), '{a@example.com}', 'S', 'T', 'error', fail.error, (outcome IS NOT NULL)::integer,
                now() - interval '30 min'
            FROM generate_series(1, n)
            RETURNING id, ended_at
        )
        INSERT INTO outbox_attempts (outbox_id, attempt, outcome, ended_at, transport, response_code, error)
        SELECT m.id, 1, fail.outcome, m.ended_at, fail.transport, fail.code, fail.error FROM mail m WHERE fail.outcome IS NOT NULL
    $$;
    SELECT fail(3, 'bill', 'smtp', 'failed', 550, 'no such user');
    SELECT fail(2, 'bill', 'smtp', 'failed', NULL, 'connection refused');
    SELECT fail(4, 'bill', '', 'failed', NULL, 'client gave up');
    SELECT fail(1, 'note', 'smtp', 'failed', 550, 'no such user');";

/// The row of the list with these words: its links, and its text.
fn row(page: &str, holds: &[&str]) -> (Vec<String>, String) {
    let rows = page.split("<tr>").map(|row| (row, words(row)));
    let mut rows = rows.filter(|(_, text)| holds.iter().all(|one| text.contains(one)));
    let (row, text) = rows.next().unwrap_or_else(|| panic!("{}", words(page)));
    let links = row.split("href=\"").skip(1);
    let links = links.map(|rest| rest.split('"').next().unwrap().replace("&amp;", "&"));
    (links.collect(), text)
}

fn follow(browser: &Browser<'_>, link: &str) -> String {
    let answer = browser.send("GET", link, &[], "");
    assert_eq!(answer.status, 200, "{link}: {}", words(&answer.body));
    answer.body
}

/// The fields of the form that retries.
fn fields(page: &str) -> Vec<(String, String)> {
    let (_, form) = page.split_once("failures/retry\">").unwrap();
    let form = form.split("</form>").next().unwrap();
    let inputs = form.split("name=\"").skip(1).map(|rest| {
        let (name, rest) = rest.split_once('"').unwrap();
        let (_, value) = rest.split_once("value=\"").unwrap();
        (name.to_owned(), value.split('"').next().unwrap().to_owned())
    });
    inputs.filter(|(name, _)| name != "csrf").collect()
}

fn answer(browser: &Browser<'_>, fields: &[(String, String)]) -> String {
    let fields: Vec<(&str, &str)> = fields
        .iter()
        .map(|(name, value)| (name.as_str(), value.as_str()))
        .collect();
    browser.act("failures/retry", &fields)
}

#[test]
fn no_more_is_retried_than_was_counted() {
    let mut scene = Scene::start();
    scene.client.batch_execute(MAIL).unwrap();
    let server = scene.serve();
    let support = server.of("support");
    let (links, _) = row(&support.page("failures"), &["bill", "550"]);
    let question = follow(&support, links.last().unwrap());
    let given = fields(&question);
    assert_eq!(given.iter().filter(|(name, _)| name == "back").count(), 1);
    assert!(
        given.contains(&("limit".to_owned(), "3".to_owned())),
        "{given:?}"
    );
    // Some more fail before the answer.
    scene
        .client
        .batch_execute("SELECT fail(500, 'bill', 'smtp', 'failed', 550, 'no such user')")
        .unwrap();
    assert_eq!(answer(&support, &given), "3 messages are due now.");
    let left = "SELECT count(*) FROM outbox WHERE state = 'error' AND kind = 'bill' AND id > 10";
    assert_eq!(scene.number(left), 500);
    // The time is that of the question.
    let since = &given.iter().find(|(name, _)| name == "since").unwrap().1;
    let age = format!("SELECT extract(epoch FROM now() - '{since}'::timestamptz)::bigint");
    let age = scene.number(&age);
    assert!((86_400..86_700).contains(&age), "{since}");
    // Without what the question says, nothing is done.
    for odd in [
        &[("kind", "note")][..],
        &[("kind", "note"), ("since", "2020-01-01")],
        &[("kind", "note"), ("limit", "1")],
        &[("kind", "note"), ("since", "24 hours"), ("limit", "1")],
        &[("kind", "note"), ("since", "2020-01-01"), ("limit", "0")],
        &[
            ("kind", "note"),
            ("since", "2020-01-01"),
            ("limit", "10001"),
        ],
        &[
            ("kind", "note"),
            ("since", "2020-01-01"),
            ("limit", "1"),
            ("code", "x"),
        ],
        &[("kind", "n\0"), ("since", "2020-01-01"), ("limit", "1")],
    ] {
        let told = support.act("failures/retry", odd);
        assert!(!told.is_empty() && !told.contains("due now"), "{told}");
    }
    let notes = "SELECT count(*) FROM outbox WHERE state = 'error' AND kind = 'note'";
    assert_eq!(scene.number(notes), 1);
}

#[test]
fn a_condition_is_neither_lost_nor_claimed() {
    let mut scene = Scene::start();
    scene.client.batch_execute(MAIL).unwrap();
    let server = scene.serve();
    let support = server.of("support");
    let list = support.page("failures");
    let of = |holds: &[&str]| {
        let (links, text) = row(&list, holds);
        (links.last().unwrap().clone(), text)
    };
    // Without a code, the mail with one matches as well.
    let (link, text) = of(&["bill", "connection refused"]);
    assert!(text.ends_with("Retry…"), "{text}");
    let said = words(&follow(&support, &link));
    for expected in [
        "Retry 5 messages?",
        "whatever its error says",
        "Kind bill",
        "Transport smtp",
        "Outcome failed",
        "Code any",
        "Error any",
    ] {
        assert!(said.contains(expected), "{expected}: {said}");
    }
    let (link, text) = of(&["bill", "no such user"]);
    assert!(text.ends_with("Retry 3…"), "{text}");
    assert!(words(&follow(&support, &link)).contains("Code 550"));
    // That of clients is not that of any transport.
    let (link, text) = of(&["client gave up"]);
    assert!(
        text.ends_with("Retry 4…") && link.contains("transport=-"),
        "{link}: {text}"
    );
    let question = follow(&support, &link);
    let said = words(&question);
    assert!(
        said.contains("Retry 4 messages?") && said.contains("Transport none (clients)"),
        "{said}"
    );
    assert_eq!(
        answer(&support, &fields(&question)),
        "4 messages are due now."
    );
    let transports = "SELECT string_agg(DISTINCT a.error, ',') FROM outbox o JOIN outbox_attempts a ON a.outbox_id = o.id WHERE o.state = 'scheduled'";
    assert_eq!(scene.text(transports), "client gave up");
    for odd in [
        "code=abc",
        "code=99999999999",
        "outcome=made+up",
        "kind=%00",
        "since=99",
    ] {
        let answer = support.get(&format!("failures/retry?transport=smtp&{odd}"));
        let said = words(&answer.body);
        assert_eq!(answer.status, 400, "{odd}: {said}");
        assert!(said.contains("Nothing is retried"), "{odd}: {said}");
        assert!(
            !answer
                .body
                .contains("method=\"post\" action=\"/app/failures")
        );
    }
}

#[test]
fn a_group_leads_to_messages_that_are_there() {
    let mut scene = Scene::start();
    scene.client.batch_execute(MAIL).unwrap();
    // The search of a list goes back by 20,000 ids.
    scene
        .client
        .batch_execute("SELECT setval('outbox_id_seq', 100000); SELECT mailroom_send('b@example.com', 'S', 'T', kind => 'bill')")
        .unwrap();
    let server = scene.serve();
    let support = server.of("support");
    let list = support.page("failures");
    let (links, _) = row(&list, &["note"]);
    assert_eq!(links[0], "/app/messages/10");
    let (links, _) = row(&list, &["bill", "550"]);
    assert_eq!(links[0], "/app/messages?state=error&kind=bill&before=4");
    assert!(words(&follow(&support, &links[0])).contains("no such user"));
}
