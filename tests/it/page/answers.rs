//! "Did she get it?", and what support finds of what it types.

use super::scene::{Scene, notice, words};

const SENT: &str = "
    INSERT INTO outbox (kind, recipients, cc, subject, body_text, state, transport, ended_at, provider_id)
    VALUES ('note', '{bounce@example.com}', '{ok@example.com}', 'To two', 'Text', 'sent', 'smtp', now() - interval '1 h', '<1.abc@mg.example.com>');
    INSERT INTO delivery_events (event_key, outbox_id, transport, type, recipient, status, detail, occurred_at)
    SELECT gen_random_uuid(), 1, 'smtp', t::event_type, r, s, d, now() + n * interval '1 s'
    FROM (VALUES ('bounced', 'bounce@example.com', '5.1.1', 'no such user', 1), ('delivered', 'ok@example.com', NULL, NULL, 2), ('delivered', NULL, NULL, NULL, 3))
        x (t, r, s, d, n);";

#[test]
fn a_bounce_is_not_hidden_by_what_came_of_others() {
    let mut scene = Scene::start();
    scene.client.batch_execute(SENT).unwrap();
    let server = scene.serve();
    let support = server.of("support");
    let page = support.page("messages/1");
    let said = words(&page);
    assert!(
        said.contains("Of 2 recipients: 1 bounced, 1 delivered."),
        "{said}"
    );
    assert!(page.contains("class=\"verdict bad\""), "{page}");
    // With recipient and reply.
    assert!(
        said.contains("bounce@example.com bounced 5.1.1") && said.contains("no such user"),
        "{said}"
    );
    let said = words(&support.page("messages?q=bounce@example.com"));
    assert!(said.contains("“To two”, bounced at"), "{said}");
    let said = words(&support.page("messages?q=ok@example.com"));
    assert!(said.contains("“To two”, was delivered at"), "{said}");
    // Of a person whom no event names, nothing is said.
    scene
        .client
        .batch_execute("DELETE FROM delivery_events WHERE recipient = 'ok@example.com'")
        .unwrap();
    let said = words(&support.page("messages?q=ok@example.com"));
    assert!(said.contains("“To two”, was accepted by smtp"), "{said}");
    // The list has the worst, and so has a file.
    let list = support.page("messages");
    let said = words(&list);
    assert!(
        said.contains("bounced reported of a recipient") && list.contains("class=\"state bad\""),
        "{list}"
    );
    let file = support.page("messages.csv");
    assert!(file.contains(",0,,bounced"), "{file}");
    // A monitor sees the worst, and no address.
    let page = server.of("monitor").page("messages/1");
    let said = words(&page);
    assert!(said.contains("Reported of a recipient: bounced."), "{said}");
    assert!(!page.contains("bounce@") && !page.contains("ok@"), "{said}");
}

#[test]
fn the_answer_is_about_what_was_sent_and_names_what_waits() {
    let mut scene = Scene::start();
    scene
        .client
        .batch_execute(
            "INSERT INTO outbox (kind, recipients, subject, body_text, state, transport, ended_at)
             VALUES ('note', '{ann@example.com}', 'Welcome', 'Text', 'sent', 'smtp', now() - interval '3 h');
             SELECT mailroom_send('ann@example.com', 'Digest', 'Text', send_at => now() + interval '3 days');",
        )
        .unwrap();
    let server = scene.serve();
    let said = words(&server.of("support").page("messages?q=ann@example.com"));
    assert!(
        said.contains("The last message to ann@example.com, “Welcome”, was accepted by smtp"),
        "{said}"
    );
    assert!(
        said.contains("Another message waits: “Digest”, due at"),
        "{said}"
    );
}

#[test]
fn what_is_pasted_is_found() {
    let mut scene = Scene::start();
    scene.client.batch_execute(SENT).unwrap();
    scene
        .client
        .batch_execute(
            "INSERT INTO outbox (id, kind, recipients, subject, body_text, state, ended_at, transport)
             VALUES (1234567, 'note', '{\"Ann Lee <ann@example.com>\"}', 'Far', 'Text', 'sent', now(), '');
             SELECT mailroom_send('z@example.com', 'Keyed', 'Text', item_key => 'item@example.com')",
        )
        .unwrap();
    let uuid = scene.text("SELECT message_id::text FROM outbox WHERE id = 1");
    let server = scene.serve();
    let support = server.of("support");
    support.page("messages");
    for (typed, subject) in [
        (format!("<{uuid}@example.com>"), "To two"),
        (uuid, "To two"),
        ("<1.abc@mg.example.com>".to_owned(), "To two"),
        ("1.abc@mg.example.com".to_owned(), "To two"),
        ("Ann Lee <ann@example.com>".to_owned(), "Far"),
        ("1,234,567".to_owned(), "Far"),
        ("1234567".to_owned(), "Far"),
        ("item@example.com".to_owned(), "Keyed"),
    ] {
        let query = super::scene::encoded(&[("q", &typed)]);
        let said = words(&support.page(&format!("messages?{query}")));
        assert!(said.contains("1 message."), "{typed}: {said}");
        assert!(said.contains(subject), "{typed}: {said}");
    }
}

#[test]
fn failed_mail_is_found_behind_much_that_was_sent() {
    let mut scene = Scene::start();
    scene
        .client
        .batch_execute(
            "INSERT INTO outbox (kind, recipients, subject, body_text, state, last_error, ended_at, transport)
             VALUES ('bill', '{a@example.com}', 'Old failure', 'Text', 'error', '550', now() - interval '1 h', 'smtp');
             INSERT INTO outbox (kind, recipients, subject, body_text, state, ended_at, transport)
             SELECT 'note', '{b@example.com}', 'S', 'T', 'sent', now(), 'smtp' FROM generate_series(1, 45000)",
        )
        .unwrap();
    let server = scene.serve();
    let support = server.of("support");
    for query in [
        "state=error",
        "state=error&kind=bill&transport=smtp",
        "kind=bill",
    ] {
        for (browser, name) in [(&support, "Old failure"), (&server.of("monitor"), "bill")] {
            let said = words(&browser.page(&format!("messages?{query}")));
            assert!(
                said.contains(name) && said.contains("1 message."),
                "{query}: {said}"
            );
        }
    }
    // A file goes through all of it, and says where it ends.
    let file = support.page("messages.csv?kind=bill");
    assert!(file.contains("Old failure"), "{file}");
    assert!(!file.contains("incomplete"), "{file}");
    let file = support.page("messages.csv");
    let last = file.trim_end().lines().last().unwrap();
    assert_eq!(file.lines().count(), 10_002);
    assert_eq!(last, "incomplete: continues before id 35002");
}

#[test]
fn text_of_strangers_stays_where_it_is() {
    let mut scene = Scene::start();
    scene
        .client
        .batch_execute(
            "INSERT INTO outbox (kind, recipients, subject, body_text, state, ended_at, last_error, transport)
             VALUES ('note', ARRAY[E'Ann \\u202E4301 <ann@example.com>'], E'Invoice \\u202E4301 gpj.exe', 'T', 'error', now(), E'no \\u2066such user', '')",
        )
        .unwrap();
    let server = scene.serve();
    let support = server.of("support");
    for path in ["messages", "messages/1", "messages?q=ann@example.com"] {
        let page = support.page(path);
        let rest: String = page
            .split("<bdi>")
            .map(|part| part.split_once("</bdi>").map_or(part, |(_, rest)| rest))
            .collect();
        assert!(
            page.contains('\u{202e}') && !rest.contains(['\u{202e}', '\u{2066}']),
            "{path}: {rest}"
        );
    }
    let file = support.page("messages.csv");
    assert!(file.starts_with("\u{feff}id,"), "{file}");
    assert!(!file.contains(['\u{202e}', '\u{2066}']), "{file}");
}

#[test]
fn what_cannot_be_taken_back_is_asked_and_done_once() {
    let mut scene = Scene::start();
    scene
        .client
        .batch_execute(
            "SELECT mailroom_send('a@example.com', 'Waits', 'Text', send_at => now() + interval '1 day');
             INSERT INTO outbox (kind, recipients, subject, body_text, state, last_error, ended_at, ambiguous_attempts, failed_attempts)
             VALUES ('note', '{b@example.com}', 'Perhaps', 'Text', 'error', 'timeout', now(), 1, 1);
             INSERT INTO outbox (kind, recipients, subject, body_text, state, last_error, ended_at)
             VALUES ('note', '{c@example.com}', 'Left out', 'Text', 'suppressed', 'suppressed', now());
             INSERT INTO accounts (email, login, status) VALUES ('ada@example.com', 'ada', 'provisioned');
             INSERT INTO tokens (account, action) VALUES (1, 'activation');
             INSERT INTO outbox (kind, recipients, token_id, account_id, state, ended_at)
             VALUES ('activation', '{ada@example.com}', 1, 1, 'sent', now());
             UPDATE accounts SET status = 'active', activated_at = extract(epoch FROM now());",
        )
        .unwrap();
    let server = scene.serve();
    let support = server.of("support");
    for (path, label) in [
        ("messages/1", "Cancel"),
        ("messages/2", "Retry"),
        ("messages/4", "End all links of the account"),
    ] {
        let page = support.page(path);
        assert!(
            page.contains(&format!("<summary>{label}</summary>")),
            "{path}: {page}"
        );
    }
    let page = server.of("admin").page("delivery");
    assert!(page.contains("<summary>Pause</summary>"), "{page}");
    let page = support.page("messages/3");
    assert!(page.contains("<button class=\"main\">Retry</button>"));
    // Of what the account may have now.
    let page = support.page("messages/4");
    assert!(page.contains("name=\"action\" value=\"password_recovery\""));
    // Two clicks.
    support.page("messages/2");
    let to = |_| {
        let answer = support.post("messages/2/send-again", &[("back", "messages/2")]);
        answer.header("location").unwrap().to_owned()
    };
    let copies: Vec<String> = (0..2).map(to).collect();
    assert_eq!(copies[0], copies[1]);
    let page = support.send("GET", &copies[0], &[], "").body;
    assert!(
        notice(&page).starts_with("Message 2 was sent again seconds ago"),
        "{}",
        notice(&page)
    );
    let count = "SELECT count(*) FROM operator_actions WHERE action = 'sent_again'";
    assert_eq!(scene.number(count), 1);
    // Words.
    let told = support.act("links/end", &[("account", ""), ("back", "messages/4")]);
    assert!(told.starts_with("No links were ended."), "{told}");
    for odd in ["", "infinity", "0001-01-01T00:00 BC"] {
        let fields = [("send_at", odd), ("back", "messages/1")];
        let told = support.act("messages/1/reschedule", &fields);
        assert!(
            told.starts_with("Not rescheduled. The time has to be"),
            "{told}"
        );
    }
    let missing = support.get("messages/999");
    assert_eq!(missing.status, 404);
    assert!(missing.body.contains("data-refresh=\"0\""));
}

#[test]
fn a_screen_without_addresses_names_none() {
    let scene = Scene::start_with(&["mailroom.redirect_to = 'qa@example.com'"]);
    let server = scene.serve();
    for path in ["", "delivery"] {
        let page = server.of("monitor").page(path);
        assert!(!page.contains("qa@example.com"), "{path}: {page}");
    }
    let page = server.of("monitor").page("delivery");
    assert!(page.contains("mailroom.redirect_to"), "{page}");
    let page = server.of("support").page("delivery");
    assert!(page.contains("qa@example.com"), "{page}");
}
