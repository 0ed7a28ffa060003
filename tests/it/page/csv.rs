//! Lists that are taken away.

use super::scene::{Scene, words};

/// The fields of CSV (RFC 4180).
fn parsed(text: &str) -> Vec<Vec<String>> {
    let mut rows = vec![vec![String::new()]];
    let (mut is_quoted, mut rest) = (false, text.chars().peekable());
    while let Some(c) = rest.next() {
        let row = rows.last_mut().unwrap();
        match (c, is_quoted) {
            ('"', true) if rest.next_if_eq(&'"').is_some() => row.last_mut().unwrap().push('"'),
            ('\u{feff}', _) => {}
            ('"', _) => is_quoted = !is_quoted,
            (',', false) => row.push(String::new()),
            ('\r', false) => {}
            ('\n', false) => rows.push(vec![String::new()]),
            (c, _) => row.last_mut().unwrap().push(c),
        }
    }
    rows.retain(|row| row != &[""]);
    rows
}

#[test]
fn lists_are_taken_away_as_csv() {
    let mut scene = Scene::start();
    scene
        .client
        .batch_execute(
            "INSERT INTO outbox (kind, recipients, subject, body_text, state, last_error, ended_at)
             SELECT CASE WHEN n < 3 THEN 'bill' ELSE 'note' END, ARRAY['\"Doe, Ann\" <a@example.com>', 'b' || n || '@example.com'], s, 'Text', 'error',
                 E'550 no \"such\"\\nuser, ' || n, now()
             FROM unnest(ARRAY['=HYPERLINK(\"http://evil.example\")', '+1', '-1+cmd|''/C calc''!A0', '@SUM(1)', 'Grüße, \"Ann\"']) WITH ORDINALITY x (s, n);
             SELECT mailroom_send('c@example.com', 'Waits', 'Text');
             SELECT mailroom_suppress('=cmd@example.com'); SELECT mailroom_suppress('x@example.com', 'news');",
        )
        .unwrap();
    let server = scene.serve();
    let support = server.of("support");
    let answer = support.get("messages.csv");
    assert_eq!(
        answer.header("content-type"),
        Some("text/csv; charset=utf-8")
    );
    assert_eq!(
        answer.header("content-disposition"),
        Some("attachment; filename=\"messages.csv\"")
    );
    let rows = parsed(&answer.body);
    assert!(rows.iter().all(|row| row.len() == 12), "{rows:?}");
    assert_eq!(
        rows[0].join(" "),
        "id state kind transport subject recipients cc bcc at failed_attempts why reported"
    );
    let column =
        |at: usize| -> Vec<&str> { rows[1..].iter().map(|row| row[at].as_str()).collect() };
    assert_eq!(column(0), ["6", "5", "4", "3", "2", "1"]);
    let expected = [
        "Waits",
        "Grüße, \"Ann\"",
        "'@SUM(1)",
        "'-1+cmd|'/C calc'!A0",
        "'+1",
        "'=HYPERLINK(\"http://evil.example\")",
    ];
    assert_eq!(column(4), expected);
    assert_eq!(column(5)[1], "\"Doe, Ann\" <a@example.com>, b5@example.com");
    assert_eq!(column(10)[1], "550 no \"such\"\nuser, 5");
    assert!(answer.body.contains("\r\n"));
    // The filters of the list, which links to it.
    for (query, ids) in [
        ("?state=error&kind=bill", &["2", "1"][..]),
        ("?state=scheduled", &["6"]),
        ("?q=c@example.com", &["6"]),
        ("?q=b3@example.com", &["3"]),
        ("?before=3", &["2", "1"]),
        ("?kind=none", &[]),
        ("?transport=-&before=2", &["1"]),
    ] {
        let rows = parsed(&support.page(&format!("messages.csv{query}")));
        let found: Vec<&str> = rows[1..].iter().map(|row| row[0].as_str()).collect();
        assert_eq!(found, ids, "{query}");
        let page = support.page(&format!("messages{query}"));
        if !ids.is_empty() {
            let link = format!(
                "/app/messages.csv{}",
                query.replace('@', "%40").replace('&', "&amp;")
            );
            assert!(
                page.contains(&format!("href=\"{link}\"")),
                "{query}: {page}"
            );
        }
    }
    let monitor = parsed(&server.of("monitor").page("messages.csv"));
    assert_eq!(monitor.len(), 7);
    assert!(
        monitor[1..]
            .iter()
            .all(|row| row[4].is_empty() && row[5].is_empty()),
        "{monitor:?}"
    );
    let suppressed = parsed(&support.page("suppressions.csv"));
    assert_eq!(suppressed[0].join(" "), "address list reason since until");
    let mut found: Vec<&str> = suppressed[1..].iter().map(|row| row[0].as_str()).collect();
    found.sort_unstable();
    assert_eq!(found, ["'=cmd@example.com", "x@example.com"]);
    assert_eq!(
        parsed(&support.page("suppressions.csv?q=X@example.com"))[1][1],
        "news"
    );
    support.act("messages/6/cancel", &[("back", "log")]);
    let log = parsed(&support.page("log.csv"));
    assert_eq!(log[0].join(" "), "at role action message detail");
    let done: Vec<&str> = log.iter().skip(1).map(|row| row[2].as_str()).collect();
    assert_eq!(done[0], "cancelled");
    assert_eq!((&*log[1][1], &*log[1][3]), ("support", "6"));
    assert_eq!(parsed(&support.page("log.csv?message=5")).len(), 1);
    assert!(words(&support.page("log")).contains("cancelled 6"));
}
