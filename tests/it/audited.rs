//! I7 under extensions that log statements: pgaudit logs every statement with its parameters, and auto_explain every
//! plan, also of nested statements. The log must not contain a signed token, code, link or body of mailroom.
//!
//! needs: postgresql-15-pgaudit
//!
//! An application passes tokens to `mailroom_peek` and `mailroom_redeem` in its own statement, which the server logs as
//! configured. The test skips the log records of that statement, but not those of statements that run within it.

use std::sync::{Arc, Mutex};

use crate::cluster::{Cluster, eventually, number};
use crate::post::Post;
use crate::receiver::{Receiver, status};

const TALKATIVE: &[&str] = &[
    "shared_preload_libraries = 'mailroom, pgaudit, auto_explain'",
    "pgaudit.log = 'all'",
    "pgaudit.log_parameter = on",
    "pgaudit.log_catalog = on",
    "pgaudit.log_relation = on",
    "pgaudit.log_rows = on",
    "auto_explain.log_min_duration = 0",
    "auto_explain.log_nested_statements = on",
    "auto_explain.log_verbose = on",
    "auto_explain.log_analyze = on",
    "auto_explain.log_triggers = on",
    "log_min_messages = debug5",
    // Separates the records of the log, and names the role of each.
    "log_line_prefix = '@@%u@@ '",
    "mailroom.batch_timeout = 0",
    "mailroom.link_base_url = 'https://example.com'",
];

/// Statements that the application and the sender sent themselves. Their log records contain the parameters that these
/// roles passed.
const OWN: [(&str, &str); 2] = [
    ("web", "SELECT outcome FROM mailroom_"),
    ("mailer", "SELECT mailroom_mark_error($1"),
];

/// Returns the log without the statements that the application and the sender sent themselves.
fn nested(log: &str) -> String {
    let mut kept = String::new();
    let mut user = "";
    for (index, part) in log.split("@@").enumerate() {
        // The parts alternate: text, user, record, user, record …
        if index % 2 == 1 {
            user = part;
        } else if !OWN
            .iter()
            .any(|(who, own)| user == *who && part.contains(own))
        {
            kept.push_str(part);
        }
    }
    kept
}

#[test]
fn i7_no_secret_is_a_parameter_of_a_nested_statement() {
    let bodies = Arc::new(Mutex::new(Vec::<String>::new()));
    let log = Arc::clone(&bodies);
    let receiver = Receiver::start(move |request| {
        log.lock().unwrap().push(request.body.clone());
        status(204)
    });
    let mut post = Post::start(&receiver, TALKATIVE);
    post.client
        .batch_execute(
            "CREATE ROLE web LOGIN IN ROLE mailroom_app; CREATE ROLE mailer LOGIN IN ROLE mailroom_collector; \
             INSERT INTO templates (kind, locale, subject, body_text) VALUES ('note', 'en', 'Note', 'Rendered for {{ who }}')",
        )
        .unwrap();
    let mut web = post.cluster.connect_as("app", "web");
    web.batch_execute("INSERT INTO accounts (email, login) VALUES ('a@example.com', 'ann')")
        .unwrap();
    post.wait_until_ended(1);
    let mut secrets = vec![];
    let activation = carried(&bodies.lock().unwrap()[0]);
    let outcome = |web: &mut postgres::Client, token: &str, code: Option<&str>| -> String {
        web.query_one(
            "SELECT outcome FROM mailroom_redeem($1, $2)",
            &[&token, &code],
        )
        .unwrap()
        .get(0)
    };
    let peeked: String = web
        .query_one("SELECT outcome FROM mailroom_peek($1)", &[&activation.0])
        .unwrap()
        .get(0);
    assert_eq!(peeked, "ok");
    assert_eq!(outcome(&mut web, &activation.0, None), "ok");
    secrets.push(activation);

    web.batch_execute("SELECT mailroom_request_recovery('a@example.com')")
        .unwrap();
    post.wait_until_ended(2);
    let recovery = carried(bodies.lock().unwrap().last().unwrap());
    let wrong = if recovery.1 == "11111" {
        "22222"
    } else {
        "11111"
    };
    assert_eq!(outcome(&mut web, &recovery.0, Some(wrong)), "wrong_code");
    assert_eq!(outcome(&mut web, &recovery.0, Some(&recovery.1)), "ok");
    secrets.push(recovery);

    // While the worker is paused, a sender claims mail and a client dequeues tokens.
    post.client
        .batch_execute("SELECT mailroom_pause()")
        .unwrap();
    web.batch_execute("INSERT INTO accounts (email, login) VALUES ('b@example.com', 'ben'), ('c@example.com', 'cem')")
        .unwrap();
    let mut mailer = post.cluster.connect_as("app", "mailer");
    mailer.batch_execute("SELECT mailroom_collect(1)").unwrap();
    let row = mailer
        .query_one(
            "SELECT id, data ->> 'token', data ->> 'link', body_text FROM mailroom_claim(1, '5 min', 'me', '{main}')",
            &[],
        )
        .unwrap();
    assert!(row.get::<_, &str>(2).contains(row.get::<_, &str>(1)));
    assert!(row.get::<_, &str>(3).contains(row.get::<_, &str>(2)));
    let code: String = post
        .client
        .query_one(
            "SELECT t.code FROM tokens t JOIN outbox o ON o.token_id = t.id WHERE o.id = $1",
            &[&row.get::<_, i64>(0)],
        )
        .unwrap()
        .get(0);
    secrets.push((row.get(1), code.clone()));
    // The response of a relay may quote the mail.
    let quoted = format!("refused: {} of {}", code, row.get::<_, &str>(1));
    mailer
        .execute(
            "SELECT mailroom_mark_error($1::bigint, $2, claimant => 'me')",
            &[&row.get::<_, i64>(0), &quoted],
        )
        .unwrap();
    let told: String = mailer
        .query_one(
            "SELECT last_error FROM outbox WHERE id = $1",
            &[&row.get::<_, i64>(0)],
        )
        .unwrap()
        .get(0);
    assert_eq!(told, "refused: [code] of [token]");
    let row = mailer
        .query_one("SELECT secret, code FROM mailroom_dequeue(1)", &[])
        .unwrap();
    secrets.push((row.get(0), row.get(1)));

    // Constraints that the application added fail when mailroom writes. Where that is an error, the server quotes the columns
    // that the role may read.
    let recover = "INSERT INTO tokens (account, action) SELECT id, 'password_recovery' FROM accounts WHERE login = 'ann'";
    post.client
        .batch_execute(&format!(
            "ALTER TABLE tokens ADD CONSTRAINT guessed CHECK (wrong_codes < 1) NOT VALID; \
             ALTER TABLE outbox ADD CONSTRAINT unclaimed CHECK (state <> 'claimed') NOT VALID; {recover}"
        ))
        .unwrap();
    let row = mailer
        .query_one("SELECT secret, code FROM mailroom_dequeue(1)", &[])
        .unwrap();
    let (token, code): (String, String) = (row.get(0), row.get(1));
    let wrong = if code == "11111" { "22222" } else { "11111" };
    let guess = web
        .query_one(
            "SELECT outcome FROM mailroom_redeem($1, $2)",
            &[&token, &wrong],
        )
        .unwrap_err();
    secrets.push((token, code));
    post.client.batch_execute(recover).unwrap();
    mailer.batch_execute("SELECT mailroom_collect(1)").unwrap();
    let row = post
        .client
        .query_one(
            "SELECT secrets ->> 'token', secrets ->> 'code' FROM outbox WHERE kind = 'password_recovery' AND state = 'scheduled'",
            &[],
        )
        .unwrap();
    secrets.push((row.get(0), row.get(1)));
    // A claim passes by a mail that refuses the change, and does not quote it.
    let claimed = mailer
        .query(
            "SELECT FROM mailroom_claim(1, '5 min', 'me', '{main}')",
            &[],
        )
        .unwrap();
    assert!(claimed.is_empty());
    assert!(post.cluster.log().contains("SQLSTATE 23514"));
    let guess = guess.as_db_error().unwrap();
    assert_eq!(guess.constraint(), Some("guessed"));
    let detail = guess.detail().unwrap_or_default();
    for (token, code) in &secrets {
        assert!(
            !detail.contains(&token[..28]) && !detail.contains(code),
            "{detail}"
        );
    }
    post.client
        .batch_execute("ALTER TABLE tokens DROP CONSTRAINT guessed; ALTER TABLE outbox DROP CONSTRAINT unclaimed")
        .unwrap();
    post.client
        .batch_execute("SELECT mailroom_send('n@example.com', kind => 'note', data => '{\"who\": \"Nia\"}'); SELECT mailroom_resume()")
        .unwrap();
    eventually("the message", || {
        bodies
            .lock()
            .unwrap()
            .iter()
            .any(|body| body.contains("Rendered for Nia"))
            .then_some(())
    });
    assert_eq!(
        number(
            &mut post.client,
            "SELECT count(*) FROM outbox WHERE state = 'error'"
        ),
        0
    );

    let log = post.cluster.log();
    assert!(log.contains("AUDIT: "), "pgaudit logs nothing");
    assert!(log.contains("Query Text: "), "auto_explain logs nothing");
    assert!(
        log.contains(&secrets[0].0),
        "the application's own statement is in the log"
    );
    let nested = nested(&log);
    assert!(nested.contains("AUDIT: "), "no nested statement is left");
    for (token, code) in &secrets {
        for part in [&token[..28], &token[58..]] {
            assert!(
                !nested.contains(part),
                "a token is in the log: {}",
                line_with(&nested, part)
            );
        }
        for code in [
            format!(",{code}"),
            format!("\"{code}\""),
            format!("'{code}'"),
            format!("{code},"),
        ] {
            assert!(
                !nested.contains(&code),
                "a code is in the log: {}",
                line_with(&nested, &code)
            );
        }
    }
    for body in [
        "Rendered for Nia",
        "https://example.com/activate",
        "https://example.com/recover",
        "Hello ann",
    ] {
        assert!(
            !nested.contains(body),
            "a body is in the log: {}",
            line_with(&nested, body)
        );
    }
}

/// Returns the signed token and the code in the body of a webhook.
fn carried(body: &str) -> (String, String) {
    let event: serde_json::Value = serde_json::from_str(body).unwrap();
    let data = &event["data"]["variables"];
    let text = |name: &str| {
        data[name]
            .as_str()
            .unwrap_or_else(|| panic!("no {name} in {body}"))
            .to_owned()
    };
    // Mail of an activation has no code; the token takes its place.
    let code = data["code"].as_str().map(str::to_owned);
    (text("token"), code.unwrap_or_else(|| text("token")))
}

fn line_with<'a>(log: &'a str, part: &str) -> &'a str {
    log.lines()
        .find(|line| line.contains(part))
        .unwrap_or_default()
}

/// The search for mail of others reads all that was sent while a session holds an old snapshot. Afterwards, commits announce
/// such mail.
#[test]
fn mail_of_others_is_searched_for_once() {
    let receiver = Receiver::start(|_| status(200));
    let mut post = Post::start(
        &receiver,
        &[
            "shared_preload_libraries = 'mailroom, auto_explain'",
            "auto_explain.log_min_duration = 0",
            "auto_explain.log_nested_statements = on",
            "mailroom.poll_interval = '1s'",
        ],
    );
    let count = |post: &Post, part: &str| post.log().matches(part).count();
    let polls = |post: &Post, least: usize| {
        eventually("polls", || {
            (count(post, "Query Text: SELECT w.waiting") >= least).then_some(())
        });
    };
    eventually("a search", || {
        (count(&post, "o.transport > g.low") > 0).then_some(())
    });
    polls(&post, 3);
    let searched = count(&post, "o.transport > g.low");
    polls(&post, 8);
    post.send(3);
    post.wait_until_ended(3);
    assert_eq!(count(&post, "o.transport > g.low"), searched);
}

/// A plan that a session made for one account would compare each of many with each.
#[test]
fn many_accounts_are_suspended_by_no_plan_for_one() {
    let cluster = Cluster::start(&[
        "shared_preload_libraries = 'auto_explain'",
        "auto_explain.log_min_duration = 0",
        "auto_explain.log_nested_statements = on",
        "auto_explain.log_analyze = on",
    ]);
    let mut client = cluster.create_database("app");
    client
        .batch_execute(
            "INSERT INTO accounts (email, login, status) SELECT i || '@example.com', i, 'active' FROM generate_series(1, 1000) i; \
             INSERT INTO tokens (account, action) SELECT id, 'password_recovery' FROM accounts",
        )
        .unwrap();
    for id in 1..=8 {
        let suspend = format!("UPDATE accounts SET status = 'suspended' WHERE id = {id}");
        client.batch_execute(&suspend).unwrap();
    }
    client
        .batch_execute("UPDATE accounts SET status = 'suspended'")
        .unwrap();
    let revoked = "SELECT count(*) FROM tokens WHERE revoked_at IS NOT NULL";
    assert_eq!(number(&mut client, revoked), 1000);
    let log = cluster.log();
    assert!(log.contains("FROM old_accounts"));
    let compared: Vec<i64> = log
        .split("Rows Removed by Join Filter: ")
        .skip(1)
        .map(|rest| rest.split_once('\n').unwrap().0.parse().unwrap())
        .collect();
    let most = compared.into_iter().max().unwrap_or_default();
    assert!(most < 10_000, "{most} rows were compared");
}
