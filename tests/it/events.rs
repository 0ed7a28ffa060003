//! What providers post to a webhook, as the application passes it on: verified by the transports file, recorded once, and
//! what it settles. The deliverer is the worker.
//!
//! needs: worker

use postgres::Client;

use crate::cluster::transports::FILE;
use crate::cluster::{Cluster, Stop, eventually, number};
use crate::post::Post;
use crate::receiver::{Reaction, Receiver};

/// `mailroom:hunter2` and `mailroom:hunter3`.
const PASSWORD: &str = "Basic bWFpbHJvb206aHVudGVyMg==";
const OTHER_PASSWORD: &str = "Basic bWFpbHJvb206aHVudGVyMw==";

/// What Postmark posts about the mail with this subject.
fn payload(client: &mut Client, subject: &str, record: &str) -> Vec<u8> {
    let mail = "SELECT message_id::text, id::text FROM outbox WHERE subject = $1";
    let row = client.query_one(mail, &[&subject]).unwrap();
    let (message_id, id): (String, String) = (row.get(0), row.get(1));
    format!(
        r#"{{"RecordType": {record}, "MessageID": "p-{id}", "Recipient": "a@example.com", "DeliveredAt": "2026-01-01T00:00:00Z",
            "BouncedAt": "2026-01-01T00:00:00Z", "Metadata": {{"message_id": "{message_id}", "outbox_id": "{id}"}}}}"#
    )
    .into_bytes()
}

const DELIVERY: &str = r#""Delivery", "Details": "250 2.0.0 taken""#;
const BOUNCE: &str =
    r#""Bounce", "ID": 7, "Type": "HardBounce", "Details": "550 5.1.1 a@example.com unknown""#;

/// Passes a request on; returns the outcome, and how many events were news.
fn receive(client: &mut Client, transport: &str, password: &str, body: &[u8]) -> (String, i32) {
    let headers =
        serde_json::json!({"authorization": [password], "Content-Type": "application/json"});
    let row = client
        .query_one(
            "SELECT outcome::text, recorded FROM mailroom_receive($1, $2::text::jsonb, $3)",
            &[&transport, &headers.to_string(), &body],
        )
        .unwrap();
    (row.get(0), row.get(1))
}

fn news(outcome: &str, recorded: i32) -> (String, i32) {
    (outcome.to_owned(), recorded)
}

/// A worker that delivers by Postmark's API to this receiver.
fn by_postmark(receiver: &Receiver, settings: &[&str]) -> Post {
    let mut all = vec![
        "transport.provider = postmark",
        "transport.from = noreply@example.com",
        "transport.api_key = 0123456789abcdef",
        "transport.event_secret = mailroom:hunter2",
        "mailroom.batch_timeout = 0",
    ];
    all.extend(settings);
    Post::start_at(&format!("http://{}", receiver.address), &all)
}

fn send(client: &mut Client, subject: &str) {
    let send = "SELECT mailroom_send('a@example.com', $1, 'Text')";
    client.execute(send, &[&subject]).unwrap();
}

/// The history of a mail, a line for each row.
fn history(client: &mut Client, subject: &str) -> Vec<String> {
    let history = "SELECT concat_ws(' ', h.attempt, h.outcome, h.error) FROM outbox_history h \
         JOIN outbox o ON o.id = h.outbox_id WHERE o.subject = $1 ORDER BY h.attempt NULLS LAST, h.outcome";
    let rows = client.query(history, &[&subject]).unwrap();
    rows.iter().map(|row| row.get(0)).collect()
}

#[test]
fn a_provider_that_does_not_answer_tells_by_its_webhook_and_gets_no_copy() {
    let receiver = Receiver::start(|_| Reaction::Hang);
    let mut post = by_postmark(&receiver, &["transport.timeout = 5 s"]);
    // The event may come while the answer is waited for, and afterwards.
    for (subject, is_early) in [("early", true), ("late", false)] {
        let before = receiver.requests();
        send(&mut post.client, subject);
        eventually("the request", || {
            (receiver.requests() > before).then_some(())
        });
        if !is_early {
            post.wait_for("subject = 'late' AND state = 'scheduled'", 1);
            // It waits for the event.
            let waits = "subject = 'late' AND send_at > now() + interval '30 s'";
            assert_eq!(post.count(waits), 1);
        }
        let body = payload(&mut post.client, subject, DELIVERY);
        assert_eq!(
            receive(&mut post.client, "main", PASSWORD, &body),
            news("recorded", 1)
        );
        assert_eq!(
            receive(&mut post.client, "main", PASSWORD, &body),
            news("duplicate", 0)
        );
        post.wait_for(&format!("subject = '{subject}' AND state = 'sent'"), 1);
        let lines = history(&mut post.client, subject);
        assert_eq!(lines.len(), 3, "{lines:?}");
        assert!(
            lines[0].starts_with("1 ambiguous may have been sent: "),
            "{lines:?}"
        );
        assert_eq!(lines[1], "delivered 2.0.0");
        assert!(
            lines[2].starts_with("sent settled by delivery_events "),
            "{lines:?}"
        );
        assert_eq!(receiver.requests(), before + 1);
    }
}

#[test]
fn parked_mail_is_ended_by_what_the_provider_tells() {
    let receiver = Receiver::start(|_| Reaction::Close);
    let mut post = by_postmark(&receiver, &["transport.max_ambiguous = 0"]);
    for subject in ["taken", "refused"] {
        send(&mut post.client, subject);
    }
    post.wait_for("state = 'error'", 2);
    let bounce = payload(&mut post.client, "taken", BOUNCE);
    assert_eq!(
        receive(&mut post.client, "main", PASSWORD, &bounce),
        news("recorded", 1)
    );
    // A bounce proves that the provider had it.
    assert_eq!(post.count("subject = 'taken' AND state = 'sent'"), 1);
    let spam = r#""Bounce", "ID": 8, "Type": "SpamNotification""#;
    let refused = payload(&mut post.client, "refused", spam);
    assert_eq!(
        receive(&mut post.client, "main", PASSWORD, &refused),
        news("recorded", 1)
    );
    assert_eq!(post.count("subject = 'refused' AND state = 'error'"), 1);
    let seen = "SELECT string_agg(concat_ws(' ', type, is_permanent, reason, recipient, status, detail), '; ' ORDER BY id) FROM delivery_events";
    let seen: String = post.client.query_one(seen, &[]).unwrap().get(0);
    assert_eq!(
        seen,
        "bounced t bounced a@example.com 5.1.1 550 5.1.1 a@example.com unknown; rejected f spam a@example.com"
    );
}

/// The worker is killed while a request is under way; its lease ends after the event came.
#[test]
fn what_a_killed_worker_had_sent_is_not_sent_again() {
    let receiver = Receiver::start(|_| Reaction::Hang);
    let mut post = by_postmark(&receiver, &[]);
    send(&mut post.client, "S");
    eventually("the request", || (receiver.requests() == 1).then_some(()));
    // The next worker takes it back at once, and sends it.
    post.cluster.stop_server(Stop::Immediate);
    post.cluster
        .append("postgresql.auto.conf", "mailroom.transports_file = ''\n");
    post.cluster.start_server();
    post.client = post.cluster.connect("app");
    let body = payload(&mut post.client, "S", DELIVERY);
    // So that it does not send before the event has come.
    let pause = "SELECT mailroom_pause()";
    post.client.batch_execute(pause).unwrap();
    post.cluster.append(
        "postgresql.auto.conf",
        &format!("mailroom.transports_file = '{FILE}'\n"),
    );
    post.reload();
    eventually("the setting", || {
        let shown: String = post
            .client
            .query_one("SHOW mailroom.transports_file", &[])
            .unwrap()
            .get(0);
        (shown == FILE).then_some(())
    });
    assert_eq!(
        receive(&mut post.client, "main", PASSWORD, &body),
        news("recorded", 1)
    );
    post.client
        .batch_execute("SELECT mailroom_resume()")
        .unwrap();
    post.wait_for("state = 'sent'", 1);
    assert_eq!(receiver.requests(), 1);
}

#[test]
fn what_is_not_the_providers_is_refused_and_told_once_a_minute() {
    let receiver = Receiver::start(|_| Reaction::Hang);
    let mut post = by_postmark(&receiver, &[]);
    send(&mut post.client, "S");
    let body = payload(&mut post.client, "S", DELIVERY);
    let client = &mut post.client;
    for _ in 0..3 {
        assert_eq!(
            receive(client, "main", OTHER_PASSWORD, &body),
            news("forged", 0)
        );
    }
    for odd in [&b"{"[..], b"", b"\xff\\x00", b"[]"] {
        let (outcome, recorded) = receive(client, "main", PASSWORD, odd);
        assert!(
            ["malformed", "ignored"].contains(&outcome.as_str()),
            "{outcome}"
        );
        assert_eq!(recorded, 0);
    }
    assert_eq!(number(client, "SELECT count(*) FROM delivery_events"), 0);
    let log = post.cluster.log();
    assert_eq!(
        log.matches("a request for events was refused").count(),
        1,
        "{log}"
    );
    for secret in ["hunter", "bWFpbHJvb206", "a@example.com"] {
        assert!(!log.contains(secret), "{secret}");
    }
}

/// No statement within the function has the password as a parameter, which extensions would log.
#[test]
fn the_password_is_in_no_nested_statement() {
    let receiver = Receiver::start(|_| Reaction::Hang);
    let mut post = by_postmark(&receiver, &[]);
    send(&mut post.client, "S");
    let body = payload(&mut post.client, "S", DELIVERY);
    post.client
        .batch_execute(
            "LOAD 'auto_explain'; SET auto_explain.log_min_duration = 0; SET auto_explain.log_nested_statements = on",
        )
        .unwrap();
    // Only from PostgreSQL 16 on does it log parameters.
    let parameters = "SELECT set_config(name, '-1', false) FROM pg_settings WHERE name = 'auto_explain.log_parameter_max_length'";
    post.client.batch_execute(parameters).unwrap();
    assert_eq!(
        receive(&mut post.client, "main", PASSWORD, &body),
        news("recorded", 1)
    );
    let log = post.cluster.log();
    assert!(log.contains("_record_events"), "{log}");
    // The application's own statement has it, if parameters are logged.
    assert!(log.matches("bWFpbHJvb206").count() <= 1, "{log}");
}

#[test]
fn the_transports_file_says_who_is_believed() {
    let table = |name: &str, keys: &str| {
        format!(
            "[transports.{name}]\nprovider = \"postmark\"\nfrom = \"a@example.com\"\napi_key = \"0123\"\n{keys}\n"
        )
    };
    let tables = [
        table(
            "main",
            "event_secrets = [\"mailroom:hunter3\", \"mailroom:hunter2\"]",
        ),
        table("silent", ""),
        table(
            "elsewhere",
            "event_secret = \"mailroom:hunter2\"\ndatabases = [\"other\"]",
        ),
    ];
    let setting = format!("mailroom.transports_file = '{FILE}'");
    let (cluster, mut client) =
        Cluster::start_with_app_and_file(&[&setting], FILE, &tables.concat());
    send(&mut client, "S");
    let body = payload(&mut client, "S", DELIVERY);
    // Both of a rotation, by an application.
    client
        .batch_execute("CREATE ROLE web LOGIN IN ROLE mailroom_app")
        .unwrap();
    let mut web = cluster.connect_as("app", "web");
    assert_eq!(
        receive(&mut web, "main", PASSWORD, &body),
        news("recorded", 1)
    );
    assert_eq!(
        receive(&mut web, "main", OTHER_PASSWORD, &body),
        news("duplicate", 0)
    );
    let refused = |client: &mut Client, transport: &str| {
        let error = client
            .execute("SELECT mailroom_receive($1, '{}', '')", &[&transport])
            .unwrap_err();
        let error = error.as_db_error().unwrap();
        assert!(
            error.detail().is_some() && error.hint().is_some(),
            "{error}"
        );
        error.code().code().to_owned()
    };
    assert_eq!(refused(&mut web, "silent"), "55000");
    assert_eq!(refused(&mut web, "elsewhere"), "42704");
    assert_eq!(refused(&mut web, "main'; --"), "42704");
    let headers = web
        .execute("SELECT mailroom_receive('main', '[]', '')", &[])
        .unwrap_err();
    assert_eq!(headers.code().unwrap().code(), "22023");
    // A changed file is in force with the next request.
    let path = cluster.data().join(FILE);
    let changed = std::fs::read_to_string(&path)
        .unwrap()
        .replace("hunter2", "hunter4");
    std::fs::write(&path, changed).unwrap();
    assert_eq!(
        receive(&mut web, "main", PASSWORD, &body),
        news("forged", 0)
    );
    std::fs::write(&path, "[transports.main]\nprovider = 1\n").unwrap();
    assert_eq!(refused(&mut web, "main"), "55000");
}

/// What the encoding of the database cannot represent becomes a question mark, in what people read only.
#[test]
fn events_fit_the_encoding_of_the_database() {
    let file = "[transports.main]\nprovider = \"postmark\"\nfrom = \"a@example.com\"\napi_key = \"0123\"\nevent_secret = \"mailroom:hunter2\"\n";
    let setting = format!("mailroom.transports_file = '{FILE}'");
    let (cluster, mut admin) = Cluster::start_with_app_and_file(&[&setting], FILE, file);
    for encoding in ["LATIN1", "SQL_ASCII"] {
        admin
            .batch_execute(&format!("CREATE DATABASE d_{encoding} ENCODING '{encoding}' TEMPLATE template0 LC_COLLATE 'C' LC_CTYPE 'C'"))
            .unwrap();
        let mut client = cluster.connect(&format!("d_{}", encoding.to_lowercase()));
        client.batch_execute("CREATE EXTENSION mailroom").unwrap();
        send(&mut client, "S");
        let bounce =
            r#""Bounce", "ID": 7, "Type": "HardBounce", "Details": "550 5.1.1 \u00fc \u20ac""#;
        let body = payload(&mut client, "S", bounce);
        assert_eq!(
            receive(&mut client, "main", PASSWORD, &body),
            news("recorded", 1),
            "{encoding}"
        );
        let detail =
            "SELECT convert_to(detail, current_setting('server_encoding')) FROM delivery_events";
        let detail: Vec<u8> = client.query_one(detail, &[]).unwrap().get(0);
        let expected = match encoding {
            "LATIN1" => b"550 5.1.1 \xfc ?".to_vec(),
            _ => "550 5.1.1 ü €".as_bytes().to_vec(),
        };
        assert_eq!(detail, expected, "{encoding}");
    }
}
