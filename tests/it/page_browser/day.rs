//! A day of support, by clicks; its core without scripts, and by the keyboard alone.
// needs: browser

use serde_json::json;

use super::scene::Scene;
use super::texts;

/// What people did, without what they did before.
fn actions(scene: &mut Scene) -> Vec<String> {
    scene.lines(
        "SELECT concat_ws(' ', a.role, a.action, o.subject, nullif(a.detail, '{}')->'mails')
         FROM operator_actions a LEFT JOIN outbox o ON o.id = a.outbox_id
         WHERE a.at > now() - interval '20 minutes' ORDER BY a.id",
    )
}

#[test]
fn support_finds_and_acts_by_clicks_and_all_is_recorded() {
    let mut scene = Scene::start();
    let invoice = scene.id("subject = 'Your invoice 1043'");
    let next_week = "to_char(now() + interval '7 days', 'YYYY-MM-DD') || 'T09:30'";
    let next_week = scene.lines(&format!("SELECT {next_week}")).remove(0);
    let steps = json!([
        // Did she get it?
        {"fill": "#search", "with": "Ann@Example.com"},
        {"click": ".search button"},
        {"read": "#answer .verdict"},
        {"click": format!("#rows a[href$='/messages/{invoice}']")},
        {"read": "#verdict"},
        {"read": "#history"},
        {"click": "#acts button:text-is('Send again')"},
        {"read": ".note"},
        {"read": "h1"},
        // Another one did not.
        {"fill": "#search", "with": "bert@example.net"},
        {"press": "Enter"},
        {"wait_url": "/messages?q=bert%40example.net"},
        {"read": "#answer .verdict >> nth=-1"},
        {"click": "#rows a"},
        {"read": "#verdict"},
        // A failed one, by the filter.
        {"click": "nav a[data-key=m]"},
        {"select": "#f-state", "with": "error"},
        {"click": ".filters button"},
        {"click": "#rows a:has-text('Order 906 is on its way')"},
        {"click": "#acts button:text-is('Retry')"},
        {"read": ".note"},
        // One that waits, by its key.
        {"fill": "#search", "with": "reminder-ann"},
        {"press": "Enter"},
        {"click": "#rows a"},
        {"click": "#acts details:has(.harm) summary"},
        {"click": "#acts .harm"},
        {"read": ".note"},
        {"read": "#verdict"},
        {"fill": "#search", "with": "reminder-max"},
        {"press": "Enter"},
        {"click": "#rows a"},
        {"click": "#acts summary"},
        {"fill": "#f-send-at", "with": next_week},
        {"click": "#acts details button.main"},
        {"read": ".note"},
        // What does it look like?
        {"click": "nav a[data-key=t]"},
        {"click": "#main a[href*='order_confirmation?locale=de']"},
        {"read": ".panel h2 >> nth=0"},
        {"evaluate": "document.querySelector('iframe').clientWidth"},
        {"click": "nav[aria-label=Width] a:text-is('375')"},
        {"evaluate": "document.querySelector('iframe').clientWidth"},
        {"click": "nav[aria-label=Locale] a:text-is('en')"},
        {"read": ".panel h2 >> nth=0"},
        // All that failed for one reason; one has been retried.
        {"click": "nav a[data-key=f]"},
        {"click": "#groups a[href*='shipping_notice'].button"},
        {"read": "h1"},
        {"click": "#main form button"},
        {"read": ".note"},
        {"wait_url": "/failures"},
    ]);
    let seen = scene.browser_of("day-support", "maria").run(&steps);
    seen.assert_sound();
    let texts = texts(&seen);
    let expected = [
        "“Your invoice 1043”, was delivered at",
        "This message was delivered. The recipient's server took it.",
        "Delivered: the recipient's server took it",
        &format!("Message {invoice} is sent again: this is its copy."),
        "Your invoice 1043",
        "“Your invoice 1031”, bounced at",
        "This message bounced. The recipient's server refused it.",
        "Retried. It is due now.",
        "Cancelled.",
        "This message was not sent: it is cancelled",
        "Rescheduled.",
        "Danke für Ihre Bestellung 1043",
        "700",
        "375",
        "Thank you for order 1043",
        "Retry 5 messages?",
        "5 messages are due now.",
    ];
    assert_eq!(texts.len(), expected.len(), "{texts:#?}");
    for (text, expected) in texts.iter().zip(expected) {
        assert!(
            text.contains(expected),
            "{text:?} has no {expected:?}: {texts:#?}"
        );
    }
    let steps = json!([
        {"click": "nav a[data-key=d]"},
        {"click": "#worker details summary"},
        {"click": "#worker .harm"},
        {"read": ".note"},
        {"click": "nav a[data-key=n]"},
        {"read": "#problems"},
        {"click": "nav a[data-key=d]"},
        {"click": "#worker button:text-is('Resume')"},
        {"read": ".note"},
        {"click": "nav a[data-key=l]"},
        {"read": "#main tbody"},
        {"click": ".who button:text-is('Log out')"},
        {"wait": "#f-password"},
    ]);
    let seen = scene.browser_of("day-admin", "ops").run(&steps);
    seen.assert_sound();
    let log = texts_of_admin(&seen);
    assert!(log.contains("maria") && log.contains("ops"), "{log}");
    assert_eq!(
        actions(&mut scene),
        [
            "maria sent_again Your invoice 1043",
            "maria retried Order 906 is on its way",
            "maria cancelled See you on Friday",
            "maria rescheduled See you on Tuesday",
            "maria retried 5",
            "ops paused",
            "ops resumed",
        ]
    );
}

/// What an administrator was told; returns the operator log.
fn texts_of_admin(seen: &crate::browser::Seen) -> String {
    let texts = texts(seen);
    let expected = ["Paused.", "The worker was paused by ops.", "Resumed.", ""];
    for (text, expected) in texts.iter().zip(expected) {
        assert!(text.contains(expected), "{texts:#?}");
    }
    texts[3].clone()
}

#[test]
fn the_core_works_without_scripts() {
    let mut scene = Scene::start();
    let browser = scene.browser_of("no-scripts", "maria");
    let steps = json!([
        {"fill": "#search", "with": "ann@example.com"},
        {"click": ".search button"},
        {"read": "#answer .verdict"},
        {"click": "#rows a:has-text('See you on Friday')"},
        {"click": "#acts summary"},
        {"wait": "#f-send-at"},
        {"click": "#acts details:has(.harm) summary"},
        {"click": "#acts .harm"},
        {"read": ".note"},
        {"shot": "no-scripts"},
        {"click": ".who form button"},
        {"wait": "#f-password"},
    ]);
    let shots = std::env::var("MAILROOM_BROWSER_SHOTS");
    let shots = shots.unwrap_or_else(|_| scene.cluster.scratch().display().to_string());
    let browser = browser.with("javascript", false).with("shots", shots);
    let seen = browser.run(&steps);
    seen.assert_sound();
    assert!(texts(&seen)[1].contains("Cancelled."));
    assert_eq!(actions(&mut scene), ["maria cancelled See you on Friday"]);
}

#[test]
fn the_core_works_by_keys_alone() {
    let mut scene = Scene::start();
    let steps = json!([
        {"visit": "/login"},
        // The field has the focus.
        {"type": "maria"},
        {"press": "Tab"},
        {"type": "hunter2"},
        {"press": "Enter"},
        {"wait": "#rows, #problems"},
        // Letters in a field are text; Escape leaves it.
        {"press": "/"},
        {"type": "fjk@example.com"},
        {"press": "Escape"},
        {"press": "m"},
        {"wait_url": "/messages"},
        {"press": "?"},
        {"wait": "#help"},
        {"press": "Escape"},
        {"wait": "#help", "gone": true},
        {"press": "/"},
        {"type": "ann@example.com"},
        {"press": "Enter"},
        {"wait_url": "/messages?q=ann%40example.com"},
        {"press": "j"}, {"press": "j"}, {"press": "j"}, {"press": "k"}, {"press": "j"},
        {"evaluate": "document.activeElement.textContent"},
        {"press": "Enter"},
        {"wait": "#verdict"},
        {"tab_to": "#acts summary"},
        {"press": "Enter"},
        {"tab_to": "#f-send-at"},
        {"tab_to": "#acts details:has(.harm) summary"},
        {"press": "Enter"},
        {"tab_to": "#acts .harm"},
        {"press": "Enter"},
        {"wait": ".note"},
        {"read": ".note"},
        {"read": "#verdict"},
        // Every page by its key.
        {"press": "f"}, {"wait_url": "/failures"},
        {"press": "d"}, {"wait_url": "/delivery"},
        {"press": "t"}, {"wait_url": "/templates"},
        {"press": "j"}, {"press": "Enter"}, {"wait": "iframe, .note, pre"},
        {"press": "s"}, {"wait_url": "/suppressions"},
        {"press": "l"}, {"wait_url": "/log"},
        {"press": "n"}, {"wait_url": "/"},
        {"tab_to": ".skip"},
        {"press": "Enter"},
        {"evaluate": "document.activeElement.id"},
    ]);
    let seen = scene.browser("keys").run(&steps);
    seen.assert_sound();
    let texts = texts(&seen);
    let expected = ["See you on Friday", "Cancelled.", "was not sent", "main"];
    for (text, expected) in texts.iter().zip(expected) {
        assert!(text.contains(expected), "{texts:#?}");
    }
    assert_eq!(texts.len(), expected.len());
    assert_eq!(actions(&mut scene), ["maria cancelled See you on Friday"]);
}
