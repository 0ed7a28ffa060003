//! Mail that wants out: what it contains may load nothing, run nothing and lead nowhere. Without any of the three layers that
//! keep it in, something gets out, so that these tests can fail.
// needs: browser

use std::net::SocketAddr;

use serde_json::{Value, json};

use super::proxy::{Layer, Tracker, without};
use super::scene::Scene;
use super::texts;
use crate::browser::{Browser, Seen};

/// What loads by itself, or runs.
const VECTORS: &str = include_str!("hostile.html");
/// What is clicked: bars of 60 pixels, one below the other.
const BAIT: &str = r#"
    <style>body { margin: 0 } a, button { display: block; box-sizing: border-box; width: 100%; height: 60px; border: 0; }</style>
    <a href="http://TRACKER/click">here</a>
    <a href="http://TRACKER/top" target="_top">top</a>
    <a href="http://TRACKER/blank" target="_blank">blank</a>
    <a href="http://TRACKER/pinging" ping="http://TRACKER/ping">ping</a>
    <form action="http://TRACKER/form" method="post"><button>Post</button></form>
    <form action="http://TRACKER/get" target="_top"><button>Get</button></form>
    <a href="javascript:parent.document.title='owned'">script</a>"#;
const BARS: u32 = 7;
/// Markup for what is no mail.
const MARKUP: &str = r#""'></title></script></textarea><img src=http://TRACKER/markup onerror="document.title='owned'" data-owned><script src="http://TRACKER/markup.js"></script>"#;

/// The database with the mails, and their ids: the vectors, those with a refresh, the bait.
struct Trap {
    scene: Scene,
    tracker: Tracker,
    ids: [i64; 3],
}

impl Trap {
    fn set() -> Self {
        let mut scene = Scene::start();
        let tracker = Tracker::start();
        let filled = |source: &str| source.replace("TRACKER", &tracker.address.to_string());
        let refresh =
            filled(r#"<meta http-equiv="refresh" content="0; url=http://TRACKER/refresh">"#);
        let bodies = [
            filled(VECTORS).replace("REFRESH", ""),
            filled(VECTORS).replace("REFRESH", &refresh),
            filled(BAIT),
        ];
        let ids = bodies.map(|body| {
            let inserted = scene.client.query_one(
                "INSERT INTO outbox (transport, kind, recipients, subject, body_html)
                 VALUES ('smtp', 'hostile', '{mallory@example.com}', 'Hostile', $1::text) RETURNING id",
                &[&body],
            );
            inserted.unwrap().get(0)
        });
        Self {
            scene,
            tracker,
            ids,
        }
    }

    /// Looks at the mails, and clicks what is in them.
    fn spring(&self, browser: &Browser, clicks: &[u32]) -> Seen {
        let mut steps = Vec::new();
        for id in &self.ids[..2] {
            steps.push(json!({"visit": format!("/messages/{id}?view=html"), "axe": false}));
            steps.push(json!({"pause": 700}));
            steps.push(json!({"evaluate": "document.title"}));
        }
        for bar in clicks {
            let path = format!("/messages/{}?view=html", self.ids[2]);
            steps.push(json!({"visit": path, "axe": false}));
            steps.push(json!({"pause": 200}));
            steps.push(json!({"click": "iframe", "at": [200, 60 * bar + 30]}));
            steps.push(json!({"pause": 400}));
            steps.push(json!({"evaluate": "document.title"}));
        }
        browser.try_run(&Value::from(steps))
    }
}

fn browser(name: &str, address: SocketAddr) -> Browser {
    Browser::new(name, &format!("http://{address}/app")).logged_in("ops", "hunter2")
}

#[test]
fn hostile_mail_loads_nothing_runs_nothing_and_leads_nowhere() {
    let trap = Trap::set();
    let all: Vec<u32> = (0..BARS).collect();
    let seen = trap.spring(&browser("hostile", trap.scene.address), &all);
    assert!(seen.0["failed"].is_null(), "{:#}", seen.0["failed"]);
    assert_eq!(trap.tracker.asked(), Vec::<String>::new());
    nothing_was_sent(&seen);
    let titles = texts(&seen);
    assert_eq!(titles.len(), 2 + all.len());
    assert!(
        titles
            .iter()
            .all(|title| title == "Hostile · app · mailroom"),
        "{titles:#?}"
    );
}

/// What the browser blocked before it was sent is noted, too.
fn nothing_was_sent(seen: &Seen) {
    let sent = seen.list("requests").iter();
    let sent: Vec<_> = sent.filter(|asked| asked["blocked"].is_null()).collect();
    assert!(sent.is_empty(), "{sent:#?}");
}

/// Something gets out once a layer is taken away.
fn gets_out(layer: Layer, clicks: &[u32]) -> Vec<String> {
    let trap = Trap::set();
    let proxy = without(layer, trap.scene.address);
    let seen = trap.spring(&browser("hostile-less", proxy), clicks);
    let asked = trap.tracker.asked();
    assert!(!asked.is_empty(), "{layer:?}: {:#}", seen.0);
    asked
}

#[test]
fn without_the_sandbox_a_link_takes_the_page_away() {
    let asked = gets_out(Layer::Sandbox, &[1]);
    assert!(asked.iter().any(|line| line.contains("/top")), "{asked:#?}");
}

#[test]
fn without_the_policy_of_the_mail_a_pixel_loads() {
    let asked = gets_out(Layer::MailPolicy, &[]);
    assert!(
        asked.iter().any(|line| line.contains("/pixel.gif")),
        "{asked:#?}"
    );
}

#[test]
fn without_frame_src_of_the_page_a_link_is_followed() {
    let asked = gets_out(Layer::FrameSource, &[0]);
    assert!(
        asked.iter().any(|line| line.contains("/click")),
        "{asked:#?}"
    );
}

#[test]
fn a_mail_by_itself_is_no_page() {
    let trap = Trap::set();
    let path = format!("/messages/{}/html", trap.ids[0]);
    let steps = json!([{"visit": path, "axe": false}, {"read": "body"}]);
    let seen = trap.scene.browser_of("hostile-alone", "ops").run(&steps);
    assert_eq!(seen.list("steps")[0]["status"], 403);
    assert_eq!(trap.tracker.asked(), Vec::<String>::new());
}

#[test]
fn markup_in_values_stays_text() {
    let mut scene = Scene::start();
    let tracker = Tracker::start();
    let markup = MARKUP.replace("TRACKER", &tracker.address.to_string());
    let person = format!("\"{}\" <mallory@example.com>", markup.replace('"', "\\\""));
    let id: i64 = {
        let sql = "INSERT INTO outbox (transport, kind, recipients, reply_to, subject, item_key, group_key, body_text, data, headers, state,
                ended_at, last_error, failed_attempts, provider_id, claimed_by, claimed_at)
            VALUES ('smtp', $1::text, ARRAY[$2::text], ARRAY[$2::text], $1::text, $1::text, $1::text, $1::text, jsonb_build_object($1::text, $1::text),
                jsonb_build_object('X-Markup', $1::text), 'error', now(), $1::text, 1, $1::text, $1::text, now()) RETURNING id";
        scene
            .client
            .query_one(sql, &[&markup, &person])
            .unwrap()
            .get(0)
    };
    let others = [
        "INSERT INTO outbox_attempts (outbox_id, attempt, outcome, started_at, ended_at, claimant, transport, error, response_code)
         SELECT id, 1, 'failed', now(), now(), claimed_by, 'smtp', last_error, 550 FROM outbox WHERE subject = $1::text",
        "INSERT INTO templates (kind, locale, subject, body_html, body_text)
         SELECT $1::text, 'en', $1::text, $1::text, $1::text",
        "INSERT INTO suppressions (address, list, reason) SELECT 'mallory@example.com', '', 'manual' WHERE $1::text <> ''",
        "INSERT INTO operator_actions (role, action, detail) SELECT 'ops', 'woken', jsonb_build_object($1::text, $1::text)",
        "INSERT INTO delivery_events (event_key, outbox_id, transport, type, recipient, status, detail, occurred_at)
         SELECT gen_random_uuid(), id, transport, 'bounced', $1::text, $1::text, $1::text, now() FROM outbox WHERE subject = $1::text",
        "UPDATE transports SET state = 'paused', reason = $1::text, provider = $1::text",
        "INSERT INTO accounts (email, login) SELECT 'mallory@example.com', left($1::text, 200)",
    ];
    for sql in others {
        scene
            .client
            .execute(sql, &[&markup])
            .unwrap_or_else(|error| panic!("{sql}: {error:?}"));
    }
    let kind: String = markup.bytes().map(|byte| format!("%{byte:02X}")).collect();
    let paths = [
        "/".to_owned(),
        "/messages".to_owned(),
        "/messages?q=mallory%40example.com".to_owned(),
        format!("/messages?q={kind}"),
        format!("/messages?kind={kind}&transport={kind}&state={kind}"),
        format!("/messages/{id}"),
        format!("/messages/{id}?view=text"),
        format!("/messages/{id}?view=data"),
        format!("/messages/{id}?view=headers"),
        format!("/messages/{id}?view={kind}&width={kind}"),
        "/failures".to_owned(),
        format!("/failures/retry?since={kind}&kind={kind}&transport={kind}"),
        "/delivery".to_owned(),
        "/templates".to_owned(),
        format!("/templates/{kind}"),
        format!("/templates/{kind}?locale={kind}&data={kind}"),
        "/suppressions".to_owned(),
        format!("/suppressions?q={kind}"),
        "/log".to_owned(),
        format!("/log?role={kind}"),
    ];
    let mut steps = Vec::new();
    for path in &paths {
        steps.push(json!({"visit": path, "axe": false}));
        steps.push(json!({"evaluate": FOREIGN}));
    }
    let seen = scene.browser_of("markup", "ops").run(&Value::from(steps));
    assert_eq!(tracker.asked(), Vec::<String>::new());
    for (path, found) in paths.iter().zip(texts(&seen)) {
        assert_eq!(found, "0", "{path}");
    }
    nothing_was_sent(&seen);
    // In the frame of the template a script was to run.
    let errors = seen.list("errors").iter();
    let errors = errors.filter(|error| {
        !error["text"]
            .as_str()
            .unwrap()
            .contains("the document's frame is sandboxed")
    });
    assert_eq!(errors.count(), 0, "{:#}", seen.0["errors"]);
    // The log-in, too, shows what a query says.
    let steps = json!([{"visit": format!("/login?next={kind}")}, {"evaluate": FOREIGN}]);
    let seen = scene.browser("markup-login").run(&steps);
    seen.assert_sound();
    assert_eq!(texts(&seen), ["0"]);
}

/// How many elements are not of the page, and whether a script ran.
const FOREIGN: &str = "document.querySelectorAll('[data-owned], script:not([src^=\"/-/\"]), img:not([src^=\"/-/\"])').length
    + Number(document.title.startsWith('owned'))";
