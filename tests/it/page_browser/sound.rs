//! Every page in light and dark, on a phone and at a desk: accessible, no wider than its window, without complaints of scripts
//! and policies, and without a request to another host.
// needs: browser

use serde_json::{Value, json};

use super::scene::Scene;
use crate::browser::Browser;

const WIDTHS: [u32; 2] = [375, 1280];

/// Visits pages, each in both widths, and judges them. With `MAILROOM_BROWSER_SHOTS` it leaves pictures in that folder.
fn look(browser: Browser, of: &str, scheme: &str, pages: &[(String, String)]) {
    let shots = std::env::var("MAILROOM_BROWSER_SHOTS").ok();
    let mut steps = Vec::new();
    for (name, path) in pages {
        for width in WIDTHS {
            let mut step = json!({"visit": path, "width": width, "height": 800, "scheme": scheme});
            if shots.is_some() {
                step["shot"] = format!("{of}-{name}-{scheme}-{width}").into();
            }
            steps.push(step);
        }
    }
    let browser = match &shots {
        Some(shots) => browser.with("shots", shots.as_str()),
        None => browser,
    };
    let seen = browser.run(&Value::from(steps));
    seen.assert_sound();
    assert_eq!(seen.pages().count(), pages.len() * WIDTHS.len());
}

fn named(pages: &[(&str, &str)]) -> Vec<(String, String)> {
    let pages = pages.iter();
    pages
        .map(|(name, path)| ((*name).to_owned(), (*path).to_owned()))
        .collect()
}

/// The pages that need no id.
const PAGES: [(&str, &str); 14] = [
    ("now", "/"),
    ("messages", "/messages"),
    ("answer", "/messages?q=ann%40example.com"),
    ("answer-none", "/messages?q=nobody%40example.com"),
    ("filtered", "/messages?state=cancelled&transport=ses"),
    ("failures", "/failures"),
    (
        "confirm",
        "/failures/retry?since=24+hours&kind=shipping_notice&transport=smtp&outcome=failed&code=550",
    ),
    ("delivery", "/delivery"),
    ("templates", "/templates"),
    (
        "preview",
        "/templates/order_confirmation?locale=de&width=375",
    ),
    ("preview-fault", "/templates/appointment_reminder?locale=en"),
    ("suppressions", "/suppressions"),
    ("log", "/log"),
    ("no-message", "/messages/999999"),
];

/// Those of a message of each state, and of its parts.
fn messages(scene: &mut Scene) -> Vec<(String, String)> {
    let newest = "SELECT state || '=' || max(id) FROM outbox GROUP BY state ORDER BY state";
    let mut pages: Vec<_> = scene
        .lines(newest)
        .iter()
        .map(|line| line.split_once('=').unwrap())
        .map(|(state, id)| (state.to_owned(), format!("/messages/{id}")))
        .collect();
    assert_eq!(pages.len(), 7, "{pages:?}");
    let sent = scene.id("subject = 'Your invoice 1043'");
    for view in ["html&width=375&colours=dark", "text"] {
        let name = format!("message-{}", &view[..4]);
        pages.push((name, format!("/messages/{sent}?view={view}")));
    }
    pages
}

fn all_are_sound(scheme: &str) {
    let mut scene = Scene::start();
    let browser = scene.browser(&format!("log-in-{scheme}"));
    let databases = format!("http://{}/", scene.address);
    let nowhere = format!("http://{}/nowhere", scene.address);
    let outside = [
        ("login", "/login"),
        ("databases", &databases),
        ("no-page", &nowhere),
    ];
    look(browser, "shop", scheme, &named(&outside));
    let mut pages = named(&PAGES);
    pages.extend(messages(&mut scene));
    let browser = scene.browser_of(&format!("pages-{scheme}"), "ops");
    look(browser, "shop", scheme, &pages);
    scene.client.batch_execute(TROUBLE).unwrap();
    let browser = scene.browser_of(&format!("trouble-{scheme}"), "ops");
    let pages = [("now", "/"), ("delivery", "/delivery")];
    look(browser, "trouble", scheme, &named(&pages));
}

/// A provider refuses the credentials, and mail for it waits.
const TROUBLE: &str = r#"
    SELECT _publish_transports('mailroom send/mx1.shop.example/6b0c22813dcc', '[
        {"name": "smtp", "provider": "smtp", "state": "throttled", "reason": "421 4.7.0 too many connections from your host"},
        {"name": "ses", "provider": "ses", "state": "paused", "reason": "401 the credentials were refused: the token included in the request is invalid"},
        {"name": "crm", "provider": "webhook"}
    ]');
    UPDATE transports SET since = now() - interval '72 minutes', next_probe_at = now() + interval '40 seconds' WHERE state = 'paused';
    INSERT INTO outbox (transport, kind, recipients, subject, body_text, send_at)
    SELECT 'ses', 'newsletter', '{nora@example.com}', 'Winter tea', 'Tea.', now() - interval '70 minutes' FROM generate_series(1, 1203);
    SELECT mailroom_pause();
    ANALYZE outbox;"#;

#[test]
fn pages_are_sound_in_light() {
    all_are_sound("light");
}

#[test]
fn pages_are_sound_in_dark() {
    all_are_sound("dark");
}

#[test]
fn pages_without_mail_are_sound() {
    let scene = Scene::empty();
    let mut pages = named(&PAGES);
    pages.retain(|(name, _)| !["confirm", "preview", "preview-fault"].contains(&name.as_str()));
    for scheme in ["light", "dark"] {
        let browser = scene.browser_of("empty", "ops");
        look(browser, "empty", scheme, &pages);
    }
}

#[test]
fn pages_with_10000_mails_are_sound() {
    let mut scene = Scene::start();
    scene.client.batch_execute(MANY).unwrap();
    let mut pages = named(&PAGES);
    let long = scene.id("subject LIKE 'A subject that%'");
    pages.push(("long".to_owned(), format!("/messages/{long}")));
    look(scene.browser_of("many", "ops"), "many", "light", &pages);
    // A role that sees no address.
    let pages = [
        ("now", "/"),
        ("messages", "/messages"),
        ("message", &format!("/messages/{long}")),
        ("failures", "/failures"),
        ("delivery", "/delivery"),
    ];
    look(
        scene.browser_of("monitor", "tv"),
        "monitor",
        "light",
        &named(&pages),
    );
}

/// Ten thousand mails, of which some fail for several reasons, and one with values as long as they may be.
const MANY: &str = "
    INSERT INTO outbox (created_at, send_at, ended_at, state, transport, kind, recipients, subject, body_text, failed_attempts, last_error)
    SELECT at, at, at + interval '1 second', CASE WHEN i % 50 = 0 THEN 'error' ELSE 'sent' END::outbox_state,
        (ARRAY['smtp', 'ses', 'crm'])[1 + i % 3], (ARRAY['invoice', 'order_confirmation', 'shipping_notice', 'newsletter'])[1 + i % 4],
        ARRAY['customer' || i || '@example.com'], 'Order ' || i, 'Text', CASE WHEN i % 50 = 0 THEN 1 ELSE 0 END,
        CASE WHEN i % 50 = 0 THEN (ARRAY['550 5.1.1 mailbox unavailable', '552 5.2.2 mailbox is full', '554 5.7.1 refused by policy'])[1 + i % 3] END
    FROM generate_series(1, 10000) i
    CROSS JOIN LATERAL (SELECT now() - make_interval(secs => 30000 - 3 * i) AS at) t;
    INSERT INTO outbox_attempts (outbox_id, attempt, outcome, started_at, ended_at, claimant, transport, response_code, error)
    SELECT id, 1, 'failed', created_at, ended_at, 'mailroom send/mx1.shop.example/6b0c22813dcc', transport, 550, last_error
    FROM outbox WHERE state = 'error' AND subject LIKE 'Order %' AND failed_attempts = 1 AND item_key IS NULL;
    INSERT INTO outbox (transport, kind, recipients, subject, item_key, body_text, data, state, ended_at, last_error, failed_attempts)
    SELECT 'smtp', repeat('kind_without_an_end_', 12), ARRAY[repeat('a', 60) || '@' || repeat('sub.', 40) || 'example.com']
        || ARRAY(SELECT 'person' || i || '@example.com' FROM generate_series(1, 30) i),
        'A subject that does not end: ' || repeat('and goes on ', 40) || repeat('W', 200), repeat('k', 200), repeat('x', 500) || E'\\n' || repeat('words and ', 200),
        '{}', 'error', now(), '550 ' || repeat('y', 300) || repeat(' more of the reason', 40), 1;
    INSERT INTO suppressions (address, reason, since) SELECT 'gone' || i || '@example.com', 'bounced', now() - make_interval(mins => i) FROM generate_series(1, 200) i;
    INSERT INTO operator_actions (at, role, action, detail) SELECT now() - make_interval(mins => i), 'ops', 'woken', '{}' FROM generate_series(1, 200) i;
    ANALYZE;";
