//! Which role gets which menus, pages and buttons, and what it may post: the whole of it.

use std::collections::BTreeSet;

use super::scene::{Browser, MEMBERS, Scene, words};

/// Mail 1 waits, 2 failed, 3 was sent, 4 is a link of the account 1; an address is suppressed.
const MAIL: &str = "
    SELECT mailroom_send('one@example.com', 'Waits', 'Text', 'HTML');
    INSERT INTO outbox (kind, recipients, subject, body_text, state, last_error, ended_at)
    VALUES ('bill', '{two@example.com}', 'Failed', 'Text', 'error', 'busy', now()), ('bill', '{three@example.com}', 'Sent', 'Text', 'sent', NULL, now());
    INSERT INTO accounts (email, login, status) VALUES ('four@example.com', 'four', 'active');
    INSERT INTO tokens (account, action) VALUES (1, 'password_recovery');
    INSERT INTO outbox (kind, recipients, token_id, account_id, state, last_error, ended_at)
    VALUES ('password_recovery', '{four@example.com}', 1, 1, 'error', 'busy', now());
    SELECT mailroom_suppress('five@example.com');
    SELECT mailroom_pause();";

/// The roles that can log in: those of a column.
const ROLES: [&str; 6] = ["monitor", "support", "admin", "app", "sender", "collector"];

const MENUS: [(&str, &str); 6] = [
    ("monitor", "Now Messages Failures Delivery"),
    (
        "support",
        "Now Messages Failures Delivery Templates Suppressions Log",
    ),
    (
        "admin",
        "Now Messages Failures Delivery Templates Suppressions Log",
    ),
    ("app", "Templates"),
    ("sender", "Templates"),
    ("collector", "Templates"),
];

/// The answer to each GET, in the order of the roles. 303: to its first page. Senders may read the outbox, but not why mail waits.
const PAGES: [(&str, [u16; 6]); 19] = [
    ("", [200, 200, 200, 303, 303, 303]),
    ("messages", [200, 200, 200, 403, 403, 403]),
    ("messages?q=one@example.com", [200, 200, 200, 403, 403, 403]),
    ("messages?q=1", [200, 200, 200, 403, 403, 403]),
    ("messages?state=error", [200, 200, 200, 403, 200, 200]),
    ("messages.csv", [200, 200, 200, 403, 403, 403]),
    ("messages/1", [200, 200, 200, 403, 403, 403]),
    ("messages/4", [200, 200, 200, 403, 200, 200]),
    ("messages/99", [404, 404, 404, 403, 404, 404]),
    ("messages/1/html", [403, 403, 200, 403, 200, 200]),
    ("failures", [200, 200, 200, 403, 200, 200]),
    ("failures/retry?kind=bill", [403, 200, 200, 403, 403, 403]),
    ("delivery", [200, 200, 200, 403, 403, 403]),
    ("templates", [403, 200, 200, 200, 200, 200]),
    ("templates/activation", [403, 200, 200, 200, 200, 200]),
    ("templates/activation/html", [403, 200, 200, 200, 200, 200]),
    ("suppressions", [403, 200, 200, 403, 403, 403]),
    ("suppressions.csv", [403, 200, 200, 403, 403, 403]),
    ("log", [403, 200, 200, 403, 403, 403]),
];

/// The buttons of all pages that a role sees.
const BUTTONS: [(&str, &str); 6] = [
    ("monitor", "logout"),
    (
        "support",
        "failures/retry links/end links/request logout messages/1/cancel messages/1/reschedule messages/2/retry messages/2/send-again \
         messages/3/send-again suppressions/suppress suppressions/unsuppress",
    ),
    (
        "admin",
        "delivery/resume delivery/wake failures/retry links/end links/request logout messages/1/cancel messages/1/reschedule \
         messages/2/retry messages/2/send-again messages/3/send-again messages/4/retry suppressions/suppress suppressions/unsuppress",
    ),
    ("app", "logout"),
    ("sender", "logout"),
    ("collector", "logout"),
];

/// What is posted, with its fields, and the roles that may: an application cancels its own mail, of which there is none here.
type Fields = &'static [(&'static str, &'static str)];

const ACTS: [(&str, Fields, &str); 14] = [
    (
        "messages/1/reschedule",
        &[("send_at", "2031-01-01T00:00")],
        "support admin app",
    ),
    ("messages/1/cancel", &[], "support admin app"),
    ("messages/2/retry", &[], "support admin"),
    ("messages/4/retry", &[], "admin"),
    ("messages/3/send-again", &[], "support admin"),
    (
        "failures/retry",
        &[
            ("kind", "bill"),
            ("since", "2000-01-01 00:00:00+00:00"),
            ("limit", "1"),
        ],
        "support admin",
    ),
    ("delivery/pause", &[], "admin"),
    ("delivery/resume", &[], "admin"),
    ("delivery/wake", &[], "admin"),
    (
        "links/request",
        &[("action", "activation"), ("address", "four@example.com")],
        "support admin app",
    ),
    ("links/end", &[("account", "1")], "support admin app"),
    (
        "suppressions/suppress",
        &[("address", "six@example.com")],
        "support admin",
    ),
    (
        "suppressions/suppress",
        &[("address", "six@example.com"), ("list", "news")],
        "support admin app",
    ),
    (
        "suppressions/unsuppress",
        &[("address", "five@example.com")],
        "support admin",
    ),
];

fn start() -> Scene {
    let mut scene = Scene::start();
    scene.client.batch_execute(MAIL).unwrap();
    scene
}

/// The titles of the menu.
fn menu(page: &str) -> String {
    let (_, rest) = page.split_once("<nav aria-label=\"Pages\">").unwrap();
    words(rest.split("</nav>").next().unwrap())
}

/// What the forms of a page post to.
fn posts(browser: &Browser<'_>, page: &str) -> BTreeSet<String> {
    let forms = page.split("<form ").skip(1);
    let forms = forms.filter(|form| form.contains("method=\"post\""));
    let actions = forms.filter_map(|form| form.split_once("action=\"")?.1.split('"').next());
    actions
        .map(|action| action.strip_prefix(&browser.base).unwrap().to_owned())
        .collect()
}

#[test]
fn each_role_has_its_menu_pages_and_buttons() {
    let scene = start();
    let server = scene.serve();
    let mut told = Vec::new();
    for (at, role) in ROLES.iter().enumerate() {
        let browser = server.of(role);
        let first = browser.get("");
        let first = match first.header("location") {
            Some(to) => browser.send("GET", to, &[], ""),
            None => first,
        };
        assert_eq!(first.status, 200, "{role}");
        let mut buttons = BTreeSet::new();
        for (page, expected) in PAGES {
            let answer = browser.get(page);
            if answer.status != expected[at] {
                told.push(format!(
                    "{role} {page}: {}: {}",
                    answer.status,
                    words(&answer.body)
                ));
            }
            buttons.extend(posts(&browser, &answer.body));
        }
        for page in ["messages/2", "messages/3", "messages?q=four@example.com"] {
            buttons.extend(posts(&browser, &browser.get(page).body));
        }
        let found = (*role, menu(&first.body));
        if found.1 != MENUS[at].1 {
            told.push(format!("{found:?}"));
        }
        let buttons = buttons.into_iter().collect::<Vec<_>>().join(" ");
        if buttons != BUTTONS[at].1 {
            told.push(format!("{role}: {buttons}"));
        }
    }
    assert!(told.is_empty(), "{told:#?}");
}

#[test]
fn each_role_posts_what_its_grants_allow() {
    let scene = start();
    let server = scene.serve();
    let mut told = Vec::new();
    // Those that change nothing first.
    for role in ["monitor", "sender", "collector", "app", "support", "admin"] {
        let browser = server.of(role);
        let back = match role {
            "monitor" => "messages",
            _ => "templates",
        };
        browser.page(back);
        for (act, fields, may) in ACTS {
            let answer = browser.post(act, &[&[("back", back)][..], fields].concat());
            assert_eq!(answer.status, 303, "{role} {act}");
            let page = browser.send("GET", answer.header("location").unwrap(), &[], "");
            let said = super::scene::notice(&page.body);
            let is_refused = said.starts_with("Your role may not do this.");
            if is_refused == may.split(' ').any(|one| one == role) || said.is_empty() {
                told.push(format!("{role} {act}: {said}"));
            }
        }
    }
    assert!(told.is_empty(), "{told:#?}");
}

#[test]
fn a_monitor_sees_no_address_and_no_subject() {
    let scene = start();
    let server = scene.serve();
    let monitor = server.of("monitor");
    for (page, _) in PAGES {
        let answer = monitor.get(page);
        // What was typed, and the example of the search, are not of the database.
        for hidden in ["@example.com", ">Waits<", ">Failed<", ">Sent<"] {
            let body = answer
                .body
                .replace("ann@example.com", "")
                .replace("one@example.com", "");
            assert!(!body.contains(hidden), "{page}: {hidden}");
        }
    }
    assert!(words(&monitor.page("messages")).contains("bill"));
    // Contents are for admin only.
    let support = server.of("support");
    for page in ["messages", "messages/1", "messages/2"] {
        assert!(!support.page(page).contains("<iframe"), "{page}");
    }
    let admin = server.of("admin").page("messages/1");
    assert!(admin.contains(
        "<iframe sandbox=\"\" referrerpolicy=\"no-referrer\" src=\"/app/messages/1/html\""
    ));
}

#[test]
fn without_a_session_there_is_nothing() {
    let scene = start();
    let server = scene.serve();
    let stranger = server.browser("app");
    for (page, _) in PAGES {
        let answer = stranger.get(page);
        assert_eq!(answer.status, 303, "{page}");
        assert!(
            answer.header("location").unwrap().starts_with("/app/login"),
            "{page}"
        );
    }
    for (act, fields, _) in ACTS {
        let answer = stranger.post(act, fields);
        assert_eq!(answer.status, 303, "{act}");
        assert!(
            answer.header("location").unwrap().starts_with("/app/login"),
            "{act}"
        );
    }
    assert_eq!(MEMBERS.len(), ROLES.len() + 1);
}
