//! What people do to many messages, addresses, links and the worker.

use super::acts::{recorded, start};
use super::scene::words;

#[test]
fn many_are_retried_after_they_were_counted() {
    let mut scene = start();
    scene
        .client
        .batch_execute(
            "SELECT mailroom_send('x@example.com', 'S', 'T', kind => 'bill', item_key => 'b')",
        )
        .unwrap();
    let server = scene.serve();
    let support = server.of("support");
    let list = support.page("failures");
    let link = list
        .split('"')
        .find(|part| part.contains("failures/retry?") && part.contains("kind=bill"));
    let link = link
        .unwrap_or_else(|| panic!("{list}"))
        .replace("&amp;", "&");
    let question = support.send("GET", &link, &[], "");
    let said = words(&question.body);
    // The other one's item key is taken.
    assert!(
        said.contains("Retry 1 message?") && said.contains("Kind bill"),
        "{said}"
    );
    assert_eq!(
        scene.number("SELECT count(*) FROM outbox WHERE state = 'error'"),
        4
    );
    let since = scene.text("SELECT (now() - interval '1 day')::text");
    let fields = [
        ("kind", "bill"),
        ("since", &since),
        ("limit", "1"),
        ("back", "failures"),
    ];
    assert_eq!(
        support.act("failures/retry", &fields),
        "1 message is due now."
    );
    assert!(
        support
            .act("failures/retry", &fields)
            .starts_with("0 messages are due now. Of the 1 that were counted")
    );
    assert_eq!(
        scene.number("SELECT count(*) FROM outbox WHERE state = 'error'"),
        3
    );
    let fields = [
        ("kind", "note"),
        ("transport", ""),
        ("since", &since),
        ("limit", "2"),
        ("back", "failures"),
    ];
    assert_eq!(
        support.act("failures/retry", &fields),
        "2 messages are due now."
    );
    let detail = "SELECT string_agg(concat_ws(' ', role, action, detail->>'kind', detail->>'mails'), ', ' ORDER BY id) FROM operator_actions";
    assert_eq!(
        scene.text(detail),
        "support retried bill 1, support retried note 2"
    );
    assert!(words(&support.page("failures")).contains("1 message failed in the last 24 hours"));
}

#[test]
fn addresses_and_links_are_acted_upon_without_being_recorded() {
    let mut scene = start();
    let server = scene.serve();
    let support = server.of("support");
    let act = |within: &str, fields: &[(&str, &str)]| {
        support.act(within, &[&[("back", "suppressions")][..], fields].concat())
    };
    support.page("suppressions");
    let address = [("address", "Ann@Example.com"), ("list", ""), ("until", "")];
    assert_eq!(
        act("suppressions/suppress", &address),
        "Suppressed for all mail: no end."
    );
    let told = act("suppressions/suppress", &address);
    assert!(
        told.starts_with("It was suppressed for all mail before, since "),
        "{told}"
    );
    assert!(support.page("suppressions").contains("ann@example.com"));
    assert!(
        words(&support.page("messages?q=ann@example.com"))
            .contains("Mail to ann@example.com is suppressed since")
    );
    let lifted = [("address", "ann@example.com"), ("list", "")];
    assert_eq!(
        act("suppressions/unsuppress", &lifted),
        "Lifted for all mail (manual). Mail to it goes out again."
    );
    assert_eq!(
        act("suppressions/unsuppress", &lifted),
        "It was not suppressed."
    );
    let of_list = [
        ("address", "ann@example.com"),
        ("list", "news"),
        ("until", "2031-01-01"),
    ];
    assert_eq!(
        act("suppressions/suppress", &of_list),
        "Suppressed for the list “news”: until 2031-01-01 00:00."
    );
    let until = "SELECT to_char(until AT TIME ZONE 'UTC', 'YYYY-MM-DD HH24:MI') FROM suppressions WHERE list = 'news'";
    assert_eq!(scene.text(until), "2030-12-31 15:00");
    assert_eq!(
        act(
            "suppressions/unsuppress",
            &[("address", "ann@example.com"), ("list", "news")]
        ),
        "Lifted for the list “news” (manual). Mail of that list to it goes out again."
    );
    // Links.
    let page = support.page("messages?q=ada@example.com");
    let said = words(&page);
    assert!(
        said.contains("Account ada active") && said.contains("password recovery, not used, until"),
        "{said}"
    );
    assert_eq!(act("links/end", &[("account", "1")]), "Ended 1 link.");
    assert_eq!(act("links/end", &[("account", "1")]), "Ended 0 links.");
    let told = act(
        "links/request",
        &[
            ("action", "password_recovery"),
            ("address", "ada@example.com"),
        ],
    );
    assert!(
        told.starts_with("Requested. A mail goes out if the account may have one now."),
        "{told}"
    );
    // Nothing is said of whether there is such an account.
    let other = act(
        "links/request",
        &[("action", "activation"), ("address", "nobody@example.com")],
    );
    assert_eq!(other, told);
    assert_eq!(scene.number("SELECT count(*) FROM link_requests"), 2);
    let expected = "support suppressed, support unsuppressed, support suppressed, support unsuppressed, \
                    support links_ended, support link_requested, support link_requested";
    assert_eq!(
        recorded(&mut scene).replace(
            "support suppressed, support suppressed",
            "support suppressed"
        ),
        expected
    );
    let addresses = "SELECT count(*) FROM operator_actions WHERE detail::text LIKE '%@%'";
    assert_eq!(scene.number(addresses), 0);
    assert!(
        !server.program.log().contains('@'),
        "{}",
        server.program.log()
    );
}

#[test]
fn the_worker_is_paused_resumed_and_woken() {
    let mut scene = start();
    let server = scene.serve();
    let admin = server.of("admin");
    let act = |act: &str| admin.act(&format!("delivery/{act}"), &[("back", "delivery")]);
    assert_eq!(act("resume"), "It was not paused.");
    assert!(act("pause").starts_with("Paused. Requests in flight end"));
    assert_eq!(act("pause"), "It was paused before.");
    let page = words(&admin.page("delivery"));
    assert!(
        page.contains("Worker paused") && page.contains("by admin since"),
        "{page}"
    );
    let now = words(&server.of("monitor").page(""));
    assert!(now.to_lowercase().contains("paused"), "{now}");
    assert_eq!(act("resume"), "Resumed.");
    let told = act("wake");
    assert!(
        told.starts_with("There is no worker.") || told.starts_with("Woken."),
        "{told}"
    );
    let expected = "admin paused, admin resumed";
    assert!(
        recorded(&mut scene).starts_with(expected),
        "{}",
        recorded(&mut scene)
    );
}
