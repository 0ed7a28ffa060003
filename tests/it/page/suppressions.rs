//! The suppressions: one row for each address and list, which are lifted, looked for and suppressed without a false word.

use super::scene::{Scene, notice, words};

/// The value of a field of the form that suppresses.
fn value<'a>(page: &'a str, name: &str) -> &'a str {
    let (_, form) = page.split_once("suppressions/suppress\"").unwrap();
    let (_, rest) = form.split_once(&format!("name=\"{name}\"")).unwrap();
    let tag = rest.split('>').next().unwrap();
    let value = tag.split_once("value=\"");
    value.map_or("", |(_, value)| value.split('"').next().unwrap())
}

#[test]
fn a_lift_is_of_an_address_and_a_list_and_says_what_holds_still() {
    let mut scene = Scene::start();
    scene
        .client
        .batch_execute(
            "SELECT mailroom_suppress('ann@example.com', l, r::suppression_reason)
             FROM (VALUES ('', 'manual'), ('', 'complained'), ('news', 'manual'), ('news', 'unsubscribed')) x (l, r)",
        )
        .unwrap();
    let server = scene.serve();
    let support = server.of("support");
    let page = support.page("suppressions");
    assert_eq!(page.matches("suppressions/unsuppress\"").count(), 2);
    assert_eq!(page.matches("<summary").count(), 2);
    // Rows must not move under the pointer.
    let (_, main) = page.split_once("<main").unwrap();
    assert!(!main.split("</main>").next().unwrap().contains("data-live"));
    assert!(page.contains("data-refresh=\"0\""));
    assert!(words(&page).contains("2 suppressions."), "{}", words(&page));
    // Other reasons than those that were shown are not lifted.
    let lift = |list: &str, reasons: &str| {
        let fields = [
            ("address", "ann@example.com"),
            ("list", list),
            ("reasons", reasons),
            ("back", "suppressions"),
        ];
        support.act("suppressions/unsuppress", &fields)
    };
    let told = lift("news", "manual");
    assert!(
        told.starts_with("Not lifted: the reasons are others by now (unsubscribed, manual)."),
        "{told}"
    );
    let count = "SELECT count(*) FROM suppressions";
    assert_eq!(scene.number(count), 4);
    assert_eq!(
        lift("news", "unsubscribed,manual"),
        "Lifted for the list “news” (unsubscribed, manual). All mail to it is still suppressed."
    );
    assert_eq!(scene.number(count), 2);
    assert!(words(&support.page("suppressions")).contains("1 suppression."));
    scene
        .client
        .batch_execute("SELECT mailroom_suppress('ann@example.com', 'news')")
        .unwrap();
    assert_eq!(
        lift("", "complained,manual"),
        "Lifted for all mail (complained, manual). Mail of the list “news” to it is still suppressed."
    );
    assert_eq!(
        lift("news", ""),
        "Lifted for the list “news” (manual). Mail of that list to it goes out again."
    );
    assert_eq!(lift("news", ""), "It was not suppressed.");
    assert_eq!(lift("news", "manual"), "It is not suppressed any more.");
    let page = words(&support.page("suppressions"));
    assert!(page.contains("None Bounces"), "{page}");
    assert!(!page.contains("here."), "{page}");
}

#[test]
fn no_row_is_lost_between_pages() {
    let mut scene = Scene::start();
    scene
        .client
        .batch_execute(
            "INSERT INTO suppressions (address, list, reason, since)
             SELECT 'a' || i / 3 || '@example.com', CASE WHEN i % 3 = 0 THEN '' ELSE 'l' || i END, r, '2026-11-29 10:00'
             FROM generate_series(1, 149) i, unnest('{manual,complained}'::suppression_reason[]) r
             WHERE r = 'manual' OR i % 2 = 0",
        )
        .unwrap();
    let server = scene.serve();
    let support = server.of("support");
    let (mut seen, mut pages, mut at) = (0, 0, "/app/suppressions".to_owned());
    loop {
        let page = support.send("GET", &at, &[], "").body;
        seen += page.matches("suppressions/unsuppress\"").count();
        pages += 1;
        let Some((_, next)) = page.split_once("rel=\"next\" href=\"") else {
            assert!(
                words(&page).contains("The last 49 suppressions."),
                "{}",
                words(&page)
            );
            break;
        };
        at = next.split('"').next().unwrap().replace("&amp;", "&");
    }
    assert_eq!((seen, pages), (149, 3));
    let csv = support.page("suppressions.csv");
    assert_eq!(csv.lines().count(), 1 + 149 + 74);
}

#[test]
fn an_address_is_found_as_people_write_it() {
    let mut scene = Scene::start();
    scene
        .client
        .batch_execute("SELECT mailroom_suppress('three@example.org')")
        .unwrap();
    let server = scene.serve();
    let support = server.of("support");
    for (text, expected) in [
        ("Three%20<three@example.org>", "three@example.org manual"),
        ("%20THREE@example.org", "three@example.org manual"),
        ("three", "“three” is not an address"),
        ("three@", "“three@” is not an address"),
        (
            "Four%20<four@example.org>",
            "“four@example.org” is not suppressed Mail to it goes out.",
        ),
    ] {
        let text = text.replace('<', "%3C").replace('>', "%3E");
        let page = words(&support.page(&format!("suppressions?q={text}")));
        assert!(page.contains(expected), "{text}: {page}");
    }
}

#[test]
fn what_holds_after_a_suppression_is_said() {
    let mut scene = Scene::start();
    let server = scene.serve();
    let support = server.of("support");
    support.page("suppressions");
    let suppress = |list: &str, until: &str| {
        let fields = [
            ("address", "ann@example.com"),
            ("list", list),
            ("until", until),
            ("back", "suppressions"),
        ];
        support.act("suppressions/suppress", &fields)
    };
    let told = suppress("", "2020-01-01");
    assert!(
        told.starts_with("Not suppressed: 2020-01-01 00:00 has passed."),
        "{told}"
    );
    assert_eq!(scene.number("SELECT count(*) FROM suppressions"), 0);
    assert_eq!(
        suppress("", "2100-01-01"),
        "Suppressed for all mail: until 2100-01-01 00:00."
    );
    let told = suppress("", "2090-01-01");
    assert!(
        told.contains("Now: until 2100-01-01 00:00. The end has not changed"),
        "{told}"
    );
    let told = suppress("", "");
    assert!(
        told.ends_with("Now: no end. Before: until 2100-01-01 00:00."),
        "{told}"
    );
    let told = suppress("", "");
    assert!(
        told.starts_with("It was suppressed for all mail before, since ")
            && told.ends_with("Now: no end."),
        "{told}"
    );
    assert_eq!(
        suppress("news", ""),
        "Suppressed for the list “news”: no end."
    );
}

#[test]
fn a_refused_suppression_keeps_what_was_typed() {
    let scene = Scene::start();
    let server = scene.serve();
    let support = server.of("support");
    support.page("suppressions");
    for (address, list, until) in [
        ("ann@exa mple", "news", "2100-01-01"),
        ("ann@example.com", "news", "31.12.2100 25:00"),
        ("jörg@example.com", "", "2020-01-01"),
    ] {
        let fields = [
            ("address", address),
            ("list", list),
            ("until", until),
            ("back", "suppressions"),
        ];
        let answer = support.post("suppressions/suppress", &fields);
        let page = support.send("GET", answer.header("location").unwrap(), &[], "");
        assert!(!notice(&page.body).is_empty(), "{address}");
        for (name, typed) in &fields[..3] {
            assert_eq!(value(&page.body, name), *typed, "{name}");
        }
        assert!(page.body.contains("name=\"back\" value=\"suppressions\""));
        assert!(!page.body.contains("type=\"email\""));
    }
    let page = support.page("suppressions");
    assert_eq!(value(&page, "address"), "");
}
