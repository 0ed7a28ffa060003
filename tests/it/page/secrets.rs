//! Links and codes of mail that is still to be sent are on no page, for any role.

use std::collections::{BTreeSet, VecDeque};

use super::scene::{Browser, Scene, Server, words};
use crate::receive::http::Answer;

/// Pages that no page leads to.
const MORE: [&str; 8] = [
    "messages?q=ada@example.com",
    "messages?q=ben@example.com",
    "messages.csv?q=ada@example.com",
    "templates/activation/html",
    "templates/password_recovery/html",
    "log.csv",
    "suppressions.csv?q=ada@example.com",
    "failures/retry?kind=activation",
];

/// Gets all pages that a browser is led to, and these; hands each answer to a judge.
pub fn crawl(
    browser: &Browser<'_>,
    more: &[String],
    mut judge: impl FnMut(&str, &Answer),
) -> usize {
    let mut found: VecDeque<String> = more
        .iter()
        .map(|within| format!("{}{within}", browser.base))
        .collect();
    found.push_front(browser.base.clone());
    let mut seen: BTreeSet<String> = found.iter().cloned().collect();
    while let Some(path) = found.pop_front() {
        let answer = browser.send("GET", &path, &[], "");
        judge(&path, &answer);
        let links = ["href=\"", "src=\""]
            .into_iter()
            .flat_map(|name| answer.body.split(name).skip(1));
        let links = links.filter_map(|rest| rest.split('"').next());
        let mut next: Vec<String> = links.map(|link| link.replace("&amp;", "&")).collect();
        next.extend(answer.header("location").map(str::to_owned));
        for link in next {
            if link.starts_with('/') && seen.insert(link.clone()) {
                found.push_back(link);
            }
        }
        assert!(seen.len() < 2_000, "the pages have no end: {path}");
    }
    seen.len()
}

#[test]
fn no_page_has_what_is_in_a_link() {
    let settings = ["mailroom.link_base_url = 'https://shop.example/link'"];
    let mut scene = Scene::start_with(&settings);
    scene
        .client
        .batch_execute(
            "INSERT INTO accounts (email, login) SELECT n || '@example.com', n FROM unnest('{ada,ben,cid}'::text[]) n;
             INSERT INTO accounts (email, login, status) VALUES ('dan@example.com', 'dan', 'active');
             SELECT mailroom_request_recovery('dan@example.com');
             SELECT mailroom_answer_requests();
             SELECT mailroom_collect();
             SELECT mailroom_claim(1, claimant => 'me');",
        )
        .unwrap();
    // One of them failed, with an error that quotes its link.
    scene
        .client
        .batch_execute("SELECT mailroom_mark_error(id, 'refused: ' || (SELECT s.secrets->>'token' FROM outbox s WHERE s.id = o.id), claimant => 'me') FROM outbox o WHERE state = 'claimed'")
        .unwrap();
    assert!(scene.number("SELECT count(*) FROM outbox WHERE secrets IS NOT NULL") >= 3);
    let secrets = "
        SELECT v FROM outbox o CROSS JOIN jsonb_each_text(o.secrets) e (k, v) WHERE o.secrets IS NOT NULL
        UNION SELECT split_part(secrets->>'token', '.', n) FROM outbox CROSS JOIN generate_series(1, 4) n
        UNION SELECT encode(secret, 'hex') FROM tokens UNION SELECT translate(encode(secret, 'base64'), E'\\n=', '') FROM tokens
        UNION SELECT translate(encode(secret, 'base64'), E'+/\\n=', '-_') FROM tokens
        UNION SELECT code FROM tokens";
    let rows = scene.client.query(secrets, &[]).unwrap();
    let secrets: BTreeSet<String> = rows
        .iter()
        .filter_map(|row| row.get::<_, Option<String>>(0))
        .collect();
    let mut secrets: BTreeSet<String> = secrets
        .into_iter()
        .filter(|secret| secret.len() >= 5)
        .collect();
    let key = std::fs::read(scene.cluster.data().join("mailroom.key")).unwrap();
    secrets.insert(String::from_utf8_lossy(&key).trim().to_owned());
    secrets.insert(key.iter().map(|byte| format!("{byte:02x}")).collect());
    assert!(secrets.len() >= 10, "{secrets:?}");
    let ids = scene.client.query("SELECT id FROM outbox", &[]).unwrap();
    let more = ids.iter().flat_map(|row| {
        let id: i64 = row.get(0);
        [
            "",
            "/html",
            "?view=data",
            "?view=text",
            "?view=headers",
            "?view=secrets",
        ]
        .map(|view| format!("messages/{id}{view}"))
    });
    let more: Vec<String> = more.chain(MORE.map(str::to_owned)).collect();
    let server = scene.serve();
    for role in ["monitor", "support", "admin", "app", "sender", "collector"] {
        let browser = server.of(role);
        let mut good = 0;
        let pages = crawl(&browser, &more, |path, answer| {
            good += usize::from(answer.status == 200);
            for secret in &secrets {
                let is_there = has(&answer.body, secret) || has(&answer.head, secret);
                assert!(
                    !is_there,
                    "{role} {path}: {secret} in {}",
                    words(&answer.body)
                );
            }
        });
        let least = if ["monitor", "support", "admin"].contains(&role) {
            20
        } else {
            5
        };
        assert!(pages >= good && good >= least, "{role}: {good} of {pages}");
    }
    let log = server.program.log();
    assert!(
        !secrets.iter().any(|secret| log.contains(secret.as_str())),
        "{log}"
    );
    shows_samples(&server);
}

/// Whether a text has a secret; a code of five digits is a word of its own.
fn has(text: &str, secret: &str) -> bool {
    match secret.len() {
        5 => text
            .split(|c: char| !c.is_alphanumeric())
            .any(|word| word == secret),
        _ => text.contains(secret),
    }
}

/// What is shown of such a mail is a sample.
fn shows_samples(server: &Server) {
    let admin = server.of("admin");
    let page = words(&admin.page("messages/1"));
    assert!(
        page.contains("With sample values: links and codes are never shown here."),
        "{page}"
    );
}

#[test]
fn no_statement_names_what_is_secret() {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("crates/mailroom/sql/page");
    let mut files = 0;
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let text = std::fs::read_to_string(&path).unwrap();
        let code = text
            .lines()
            .filter(|line| !line.trim_start().starts_with("--"));
        let names = code.flat_map(|line| line.split(|c: char| !c.is_alphanumeric() && c != '_'));
        for name in names {
            let is_secret = [
                "secret",
                "secrets",
                "code",
                "_mail_secrets",
                "_secrets",
                "_token_verdicts",
            ]
            .contains(&name);
            assert!(!is_secret, "{}: {name}", path.display());
        }
        files += 1;
    }
    assert!(files > 30);
}
