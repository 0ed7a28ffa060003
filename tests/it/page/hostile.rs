//! What strangers may write is shown as text, and looking changes nothing.

use super::scene::{Scene, words};
use super::secrets::crawl;

/// Beginnings of what must not come out as it is.
const TEXTS: [&str; 5] = [
    "<script>evil()</script>",
    "\"><img src=x onerror=evil()>",
    "'><svg/onload=evil()>",
    "</textarea></title></style></script><xss>",
    "\u{202e}gnp.exe&lt;script&gt;{{ evil }}${evil}",
];

/// What of them would be in a page that does not escape.
const RAW: [&str; 8] = [
    "<script>evil",
    "\"><img src=x",
    "<img src=x",
    "'><svg",
    "<svg/onload",
    "</textarea></title>",
    "<xss",
    "onerror=evil()\"",
];

/// Hostile text in all that is not of the application.
const MAIL: &str = "
    INSERT INTO outbox (kind, recipients, cc, reply_to, from_address, subject, body_text, body_html, data, headers, state, last_error, ended_at, item_key, group_key, provider_id, claimed_by)
    SELECT k, ARRAY[format('%s <%s@example.com>', to_json(left(t, 200)), 'a' || n)], ARRAY['c@example.com'], ARRAY[format('%s <r@example.com>', to_json(left(t, 200)))],
        'f@example.com', left(t, 200), t || E'\\n' || t, t || '<a href=\"https://evil.example/' || n || '?\"\"><script>\">x</a><img src=\"cid:x\">',
        jsonb_build_object('k' || t, t, 'long', repeat('x', 10000), t, ARRAY[t]), jsonb_build_object('X-A', left(t, 100)),
        CASE n % 2 WHEN 1 THEN 'error'::outbox_state ELSE 'scheduled' END, t || repeat('e', 10000), CASE n % 2 WHEN 1 THEN now() END,
        left(t, 200) || n, left(t, 200), t, t
    FROM unnest($1::text[]) WITH ORDINALITY x (t, n)
    CROSS JOIN LATERAL (SELECT left(t, 200) AS k) k";

fn scene() -> (Scene, Vec<String>) {
    let mut scene = Scene::start_with(&["autovacuum = off"]);
    let texts: Vec<&str> = TEXTS.to_vec();
    scene.client.execute(MAIL, &[&texts]).unwrap();
    let others = [
        "INSERT INTO templates (kind, locale, subject, body_text, body_html) SELECT left($1, 200), 'en', left($1, 200), $1, $1 || '<p>' WHERE $1 !~ '[{]'",
        "INSERT INTO accounts (email, login, status) VALUES ('acc' || length($1) || '@example.com', $1, 'active')",
        "SELECT mailroom_suppress('s@example.com', left($1, 60))",
        "INSERT INTO outbox_attempts (outbox_id, attempt, outcome, started_at, ended_at, claimant, transport, error) VALUES (1, 1, 'failed', now(), now(), left($1, 60), '', $1)",
        "INSERT INTO delivery_events (event_key, outbox_id, transport, type, recipient, detail, occurred_at) \
         VALUES (md5($1)::uuid, 1, 'main', 'bounced', 'a1@example.com', $1, now())",
        "INSERT INTO operator_actions (role, action, outbox_id, detail) VALUES (left($1, 20), 'cancelled', 1, jsonb_build_object('kind', $1, $1, 1))",
    ];
    for text in TEXTS {
        for other in others {
            // Some columns take only some of it.
            let _ = scene.client.execute(other, &[&text]);
        }
    }
    let all = [
        "SELECT count(*) FROM outbox",
        "SELECT count(*) FROM templates",
        "SELECT count(*) FROM operator_actions",
        "SELECT count(*) FROM accounts",
        "SELECT count(*) FROM outbox_attempts",
        "SELECT count(*) FROM delivery_events",
    ];
    for query in all {
        assert!(scene.number(query) >= 1, "{query}");
    }
    let mut more: Vec<String> = (1..=5)
        .flat_map(|id| {
            ["", "?view=data", "?view=text", "?view=headers"]
                .map(|view| format!("messages/{id}{view}"))
        })
        .collect();
    for text in TEXTS {
        let text = super::scene::encoded(&[("q", text)]);
        let value = text.strip_prefix("q=").unwrap();
        for within in [
            "messages?q=",
            "messages?q=a@",
            "messages?state=",
            "messages?kind=",
            "messages?transport=",
            "suppressions?q=",
            "failures?since=",
            "failures/retry?kind=",
            "log?message=",
            "templates/activation?locale=",
            "templates/activation?view=",
            "messages.csv?kind=",
        ] {
            more.push(format!("{within}{value}"));
        }
        more.push(format!("templates/{value}"));
        more.push(format!("login?next={value}"));
        more.push(value.to_owned());
    }
    (scene, more)
}

#[test]
fn hostile_text_is_shown_as_text() {
    let (scene, more) = scene();
    let server = scene.serve();
    for role in ["admin", "support", "monitor"] {
        let browser = server.of(role);
        let mut escaped = 0;
        crawl(&browser, &more, |path, answer| {
            if !answer
                .header("content-type")
                .is_some_and(|kind| kind.starts_with("text/html"))
            {
                return;
            }
            if path.ends_with("/html") || path.contains("/html?") {
                let policy = answer.header("content-security-policy").unwrap();
                let is_mail = policy.starts_with("default-src 'none'; img-src data:;")
                    && policy.ends_with("sandbox");
                assert!(is_mail || answer.status != 200, "{path}: {policy}");
                return;
            }
            for raw in RAW {
                assert!(
                    !answer.body.contains(raw),
                    "{role} {path}: {raw} in {}",
                    answer.body
                );
            }
            // The script of the page, and no other.
            assert_eq!(answer.body.matches("<script").count(), 1, "{path}");
            let title = answer.body.split_once("</title>").unwrap().0;
            assert!(title.ends_with("· mailroom"), "{path}: {title}");
            escaped += answer.body.matches("&lt;script&gt;evil").count();
        });
        assert!(escaped > 20, "{role}: {escaped}");
    }
    for refused in ["x\"><script>evil()</script>", "<img src=x onerror=evil()>"] {
        let told = server.browser("app").log_in(refused, "x");
        assert!(
            !RAW.iter().any(|raw| told.body.contains(raw)),
            "{}",
            told.body
        );
        let next = server.browser("app").get(&format!(
            "login?{}",
            super::scene::encoded(&[("next", refused)])
        ));
        assert!(
            !RAW.iter().any(|raw| next.body.contains(raw)),
            "{}",
            next.body
        );
    }
}

#[test]
fn a_mail_is_shown_in_its_frame_only() {
    let (scene, _) = scene();
    let server = scene.serve();
    let admin = server.of("admin");
    let ask = |headers: &[&str]| admin.send("GET", "/app/messages/2/html", headers, "");
    for destination in [
        "document", "frame", "embed", "object", "script", "style", "image", "empty", "worker", "",
    ] {
        let answer = ask(&[&format!("Sec-Fetch-Dest: {destination}")]);
        assert_eq!(answer.status, 403, "{destination}");
        assert!(!answer.body.contains("evil"), "{destination}");
    }
    let answer = ask(&["Sec-Fetch-Dest: iframe"]);
    assert_eq!(answer.status, 200);
    assert!(answer.body.contains("onerror=evil()"), "{}", answer.body);
    let policy = "default-src 'none'; img-src data:; style-src 'unsafe-inline'; font-src data:; form-action 'none'; \
                  base-uri 'none'; frame-ancestors 'self'; sandbox";
    assert_eq!(answer.header("content-security-policy"), Some(policy));
    assert_eq!(ask(&[]).header("content-security-policy"), Some(policy));
    let template = admin.send(
        "GET",
        "/app/templates/activation/html",
        &["Sec-Fetch-Dest: document"],
        "",
    );
    assert_eq!(template.status, 403);
    // Links are text.
    let page = admin.page("messages/2");
    assert!(
        page.contains("<code>https://evil.example/2?</code>")
            || words(&page).contains("https://evil.example/2"),
        "{page}"
    );
    assert!(!page.contains("href=\"https://"), "{page}");
}

#[test]
fn looking_changes_nothing() {
    let (mut scene, more) = scene();
    scene
        .client
        .batch_execute(
            "CREATE FUNCTION complain() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE 'written to %', TG_TABLE_NAME; END $$;
             DO $$
             DECLARE t regclass;
             BEGIN
                 FOR t IN SELECT c.oid FROM pg_class c WHERE c.relkind = 'r' AND c.relnamespace = 'public'::regnamespace LOOP
                     EXECUTE format('CREATE TRIGGER complain BEFORE INSERT OR UPDATE OR DELETE OR TRUNCATE ON %s EXECUTE FUNCTION complain()', t);
                 END LOOP;
             END $$;",
        )
        .unwrap();
    // The next transaction that writes gets the next id, and each that writes anything has one.
    let id = "SELECT pg_current_xact_id()::text::bigint";
    let sequences = "SELECT sum(coalesce(last_value, 0)) FROM pg_sequences";
    let server = scene.serve();
    let browsers = ["admin", "support", "monitor", "app"].map(|role| server.of(role));
    let before = (scene.number(id), scene.number(sequences));
    let mut faults = Vec::new();
    for browser in &browsers {
        crawl(browser, &more, |path, answer| {
            if answer.status >= 500 {
                faults.push(format!("{path}: {} {}", answer.status, words(&answer.body)));
            }
        });
    }
    assert!(faults.is_empty(), "{faults:#?}");
    assert_eq!((scene.number(id) - 1, scene.number(sequences)), before);
    assert!(!scene.cluster.log().contains("written to"));
}
