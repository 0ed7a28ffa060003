//! Files of mail from the database to a receiver: what arrives, what ends alone (I8), and what encodings, row-level
//! security, dumps and publications make of them.

use std::sync::{Arc, Mutex};

use postgres::Client;
use postgres::error::SqlState;
use serde_json::{Value, json};

use crate::book::block;
use crate::cluster::{Cluster, eventually, number};
use crate::post::Post;
use crate::receiver::{Receiver, status};
use crate::sender_scene::{Scene, Sender, url};

const AT_ONCE: &[&str] = &["mailroom.batch_timeout = 0"];

/// The `data` of each webhook that arrived.
#[derive(Clone, Default)]
struct Arrived(Arc<Mutex<Vec<Value>>>);

impl Arrived {
    /// A receiver that keeps what arrives, and accepts it.
    fn receiver() -> (Self, Receiver) {
        let arrived = Self::default();
        let log = arrived.clone();
        let receiver = Receiver::start(move |request| {
            let mut event: Value = serde_json::from_str(&request.body).unwrap();
            log.0.lock().unwrap().push(event["data"].take());
            status(200)
        });
        (arrived, receiver)
    }

    /// The mails with this subject.
    fn with(&self, subject: &str) -> Vec<Value> {
        let all = self.0.lock().unwrap();
        let found = all.iter().filter(|mail| mail["subject"] == subject);
        found.cloned().collect()
    }

    /// The only mail with this subject.
    fn one(&self, subject: &str) -> Value {
        let mut found = self.with(subject);
        assert_eq!(found.len(), 1, "{subject}: {found:#?}");
        found.remove(0)
    }
}

/// Waits until `count` mails of a database have ended; returns subject, state and error of all.
fn ends(client: &mut Client, count: i64) -> Vec<String> {
    eventually("the mails to end", || {
        let ended = "SELECT count(*) FROM outbox WHERE ended_at IS NOT NULL";
        (number(client, ended) == count).then_some(())
    });
    let told = "SELECT concat_ws(' ', subject, state, last_error) FROM outbox ORDER BY id";
    let rows = client.query(told, &[]).unwrap();
    rows.iter().map(|row| row.get(0)).collect()
}

/// Schedules a mail with a file of this name and these contents.
fn send_file(client: &mut Client, subject: &str, filename: &str, contents: &[u8]) {
    let send = "SELECT mailroom_send('a@example.com', $1, 'T', attachments => jsonb_build_array( \
                    jsonb_build_object('filename', $2::text, 'file_id', mailroom_add_file($3))))";
    let values: [&(dyn postgres::types::ToSql + Sync); 3] = [&subject, &filename, &contents];
    client.execute(send, &values).unwrap();
}

#[test]
fn files_and_images_arrive_as_they_were_attached_redirected_or_not() {
    let (arrived, receiver) = Arrived::receiver();
    let mut post = Post::start(&receiver, AT_ONCE);
    let contents = b"\x00\xff\n".repeat(100_000);
    let encoded = "AP8K".repeat(100_000);
    let send = "SELECT mailroom_send('ann@example.com', $1, 'T', '<img src=\"cid:logo\">', attachments => jsonb_build_array( \
                    jsonb_build_object('filename', 'Größe 1.pdf', 'file_id', mailroom_add_file($2)), \
                    '{\"filename\": \"logo.png\", \"content\": \"iVBORw0KGgo=\", \"content_id\": \"logo\"}'::jsonb, \
                    '{\"filename\": \"day.ics\", \"content\": \"QkVHSU4=\", \"content_type\": \"text/calendar; method=REQUEST\"}'::jsonb))";
    let expected = json!([
        {"filename": "Größe 1.pdf", "content_type": "application/pdf", "content_id": null, "content": encoded},
        {"filename": "logo.png", "content_type": "image/png", "content_id": "logo", "content": "iVBORw0KGgo="},
        {"filename": "day.ics", "content_type": "text/calendar; method=REQUEST", "content_id": null, "content": "QkVHSU4="},
    ]);
    post.client.execute(send, &[&"usual", &contents]).unwrap();
    assert_eq!(ends(&mut post.client, 1), ["usual sent"]);
    let mail = arrived.one("usual");
    assert_eq!(mail["recipients"], json!(["ann@example.com"]));
    assert!(mail["attachments"] == expected, "{:#}", mail["attachments"]);

    post.client
        .batch_execute("ALTER DATABASE app SET mailroom.redirect_to = 'dev@example.org'")
        .unwrap();
    post.client
        .execute(send, &[&"redirected", &contents])
        .unwrap();
    assert_eq!(ends(&mut post.client, 2), ["usual sent", "redirected sent"]);
    let mail = arrived.one("redirected");
    assert_eq!(mail["recipients"], json!(["dev@example.org"]));
    assert_eq!(mail["original_recipients"], json!(["ann@example.com"]));
    assert!(mail["attachments"] == expected, "{:#}", mail["attachments"]);
}

#[test]
fn i8_a_mail_whose_file_is_gone_ends_alone() {
    let (arrived, receiver) = Arrived::receiver();
    let mut post = Post::start(&receiver, AT_ONCE);
    post.client.batch_execute("BEGIN").unwrap();
    for subject in ["before", "no file", "no attachment", "after"] {
        send_file(&mut post.client, subject, "a.txt", subject.as_bytes());
    }
    post.client
        .batch_execute(
            "DELETE FROM outbox_files WHERE content = 'no file'; \
             DELETE FROM outbox_attachments a USING outbox o WHERE o.id = a.outbox_id AND o.subject = 'no attachment'; \
             SELECT mailroom_send('a@example.com', 'plain', 'T'); \
             COMMIT",
        )
        .unwrap();
    assert_eq!(
        ends(&mut post.client, 5),
        [
            "before sent",
            "no file error a file of it was deleted",
            "no attachment error its attachments were deleted",
            "after sent",
            "plain sent",
        ]
    );
    for (subject, encoded) in [("before", "YmVmb3Jl"), ("after", "YWZ0ZXI=")] {
        let content = &arrived.one(subject)["attachments"][0]["content"];
        assert_eq!(content, encoded);
    }
    assert_eq!(arrived.one("plain")["attachments"], Value::Null);
    assert_eq!(arrived.0.lock().unwrap().len(), 3);
}

/// Creates a database in this encoding, and named after it, with the extension.
fn create(cluster: &Cluster, encoding: &str) -> Client {
    let create =
        format!("CREATE DATABASE {encoding} ENCODING '{encoding}' LOCALE 'C' TEMPLATE template0");
    cluster.connect("postgres").batch_execute(&create).unwrap();
    let mut client = cluster.connect(&encoding.to_lowercase());
    client.batch_execute("CREATE EXTENSION mailroom").unwrap();
    client
}

/// Fills a database whose encoding has no character for this byte, and checks what became of its mail. The errors name
/// these columns.
fn check_bytes(client: &mut Client, arrived: &Arrived, byte: u8, columns: [&str; 3]) {
    client.batch_execute("BEGIN").unwrap();
    for subject in ["name", "type", "id", "good"] {
        send_file(client, subject, "Größe.pdf", subject.as_bytes());
    }
    let change = |of: &str, to: &str| {
        format!(
            "UPDATE outbox_attachments a SET {to} FROM outbox o WHERE o.id = a.outbox_id AND o.subject = '{of}'"
        )
    };
    let bad = [
        change(
            "name",
            &format!("filename = 'Gr' || chr({byte}) || 'n.pdf'"),
        ),
        change(
            "type",
            &format!("content_type = 'application/pdf; name=' || chr({byte})"),
        ),
        change("id", &format!("content_id = 'gr' || chr({byte}) || 'n'")),
    ];
    client.batch_execute(&bad.join("; ")).unwrap();
    client.batch_execute("COMMIT").unwrap();
    let unread = "holds bytes that are no characters in the database's encoding";
    assert_eq!(
        ends(client, 4),
        [
            format!("name error {} {unread}", columns[0]),
            format!("type error {} {unread}", columns[1]),
            format!("id error {} {unread}", columns[2]),
            "good sent".to_owned(),
        ]
    );
    assert_eq!(
        arrived.one("good")["attachments"][0]["filename"],
        "Größe.pdf"
    );
    for subject in ["name", "type", "id"] {
        assert_eq!(arrived.with(subject).len(), 0, "{subject}");
    }
    arrived.0.lock().unwrap().clear();
}

/// Sends a file whose name is stored in LATIN1.
fn check_latin1(client: &mut Client, arrived: &Arrived) {
    client.batch_execute("BEGIN").unwrap();
    send_file(client, "latin", "Größe.pdf", b"bill");
    let stored = "SELECT count(*) FROM outbox_attachments WHERE convert_to(filename, 'LATIN1') = '\\x4772f6df652e706466'";
    assert_eq!(number(client, stored), 1);
    client.batch_execute("COMMIT").unwrap();
    assert_eq!(ends(client, 1), ["latin sent"]);
    let file = &arrived.one("latin")["attachments"][0];
    assert_eq!(file["filename"], "Größe.pdf");
    assert_eq!(file["content"], "YmlsbA==");
}

const NAMED: [&str; 3] = ["filename", "content_type", "content_id"];

// needs: worker
#[test]
fn i8_the_worker_reads_names_of_files_in_any_encoding() {
    let (arrived, receiver) = Arrived::receiver();
    let post = Post::start(&receiver, AT_ONCE);
    for (encoding, byte) in [("SQL_ASCII", 252), ("WIN1252", 129)] {
        let mut client = create(&post.cluster, encoding);
        check_bytes(&mut client, &arrived, byte, NAMED);
    }
    check_latin1(&mut create(&post.cluster, "LATIN1"), &arrived);
}

// needs: worker
#[test]
fn i8_mailroom_send_reads_names_of_files_in_any_encoding() {
    let (arrived, receiver) = Arrived::receiver();
    let scene = Scene::start_with(receiver, &[]);
    let create = |encoding: &str| {
        let client = create(&scene.cluster, encoding);
        let url = url(&scene.cluster, "sender", &encoding.to_lowercase());
        let arguments = ["--database", &url, "--poll", "1"];
        (client, Sender::start(encoding, &scene, &arguments))
    };
    // The server does not say which column it cannot convert.
    let unnamed = ["a name of a file"; 3];
    for (encoding, byte, columns) in [("SQL_ASCII", 252, NAMED), ("WIN1252", 129, unnamed)] {
        let (mut client, sender) = create(encoding);
        check_bytes(&mut client, &arrived, byte, columns);
        assert!(!sender.log().contains("could not"), "{}", sender.log());
    }
    let (mut client, _sender) = create("LATIN1");
    check_latin1(&mut client, &arrived);
}

#[test]
fn files_are_found_in_a_schema_that_is_not_on_the_search_path() {
    let (arrived, receiver) = Arrived::receiver();
    let mut post = Post::start(&receiver, AT_ONCE);
    post.client
        .batch_execute(
            "DROP EXTENSION mailroom; CREATE SCHEMA apart; CREATE EXTENSION mailroom SCHEMA apart",
        )
        .unwrap();
    post.client
        .batch_execute("SET search_path = apart")
        .unwrap();
    send_file(&mut post.client, "apart", "a.txt", b"bill");
    assert_eq!(ends(&mut post.client, 1), ["apart sent"]);
    let file = &arrived.one("apart")["attachments"][0];
    assert_eq!(file["content"], "YmlsbA==");
}

#[test]
fn files_go_with_mail_under_row_level_security() {
    let (arrived, receiver) = Arrived::receiver();
    let mut post = Post::start(&receiver, AT_ONCE);
    for table in ["outbox_files", "outbox_attachments"] {
        post.client
            .batch_execute(&format!(
                "ALTER TABLE {table} ENABLE ROW LEVEL SECURITY; ALTER TABLE {table} FORCE ROW LEVEL SECURITY"
            ))
            .unwrap();
    }
    post.client
        .batch_execute("CREATE ROLE web LOGIN IN ROLE mailroom_app")
        .unwrap();
    let mut web = post.cluster.connect_as("app", "web");
    send_file(&mut web, "secured", "a.txt", b"bill");
    assert_eq!(ends(&mut post.client, 1), ["secured sent"]);
    let file = &arrived.one("secured")["attachments"][0];
    assert_eq!(file["content"], "YmlsbA==");
    let error = web.batch_execute("SELECT FROM outbox_files").unwrap_err();
    assert_eq!(error.code(), Some(&SqlState::INSUFFICIENT_PRIVILEGE));

    // A purge sees the files, too.
    post.client
        .batch_execute("UPDATE outbox_files SET created_at = '2000-01-01'; SELECT mailroom_purge()")
        .unwrap();
    assert_eq!(
        number(&mut post.client, "SELECT count(*) FROM outbox_files"),
        0
    );
}

// needs: worker
#[test]
fn a_dump_has_the_files_and_its_mail_is_sent_with_them() {
    let (arrived, receiver) = Arrived::receiver();
    let post = Post::start(&receiver, AT_ONCE);
    let mut old = post.cluster.create_database("old");
    let add = "CREATE TABLE f AS SELECT mailroom_add_file('\\x00ff0a') AS id";
    old.batch_execute(add).unwrap();
    old.batch_execute(
        "SELECT mailroom_send('a@example.com', s, 'T', send_at => now() + interval '1 day', attachments => jsonb_build_array( \
             jsonb_build_object('filename', s || '.pdf', 'file_id', f.id))) FROM f, unnest(ARRAY['one', 'two']) s",
    )
    .unwrap();
    let rows = |client: &mut Client| -> String {
        let all = "SELECT string_agg(t, E'\\n') FROM (SELECT f::text FROM outbox_files f \
                   UNION ALL (SELECT a::text FROM outbox_attachments a ORDER BY id)) x (t)";
        client.query_one(all, &[]).unwrap().get(0)
    };
    let kept = rows(&mut old);
    assert_eq!(kept.lines().count(), 3, "{kept}");
    let file = post.cluster.scratch().join("old.dump");
    let file = file.to_str().unwrap();
    for (program, arguments) in [
        ("pg_dump", &["--format=custom", "--file", file, "old"][..]),
        ("createdb", &["--template=template0", "new"]),
        (
            "pg_restore",
            &[
                "--exit-on-error",
                "--single-transaction",
                "--dbname=new",
                file,
            ],
        ),
    ] {
        let output = post
            .cluster
            .program(program)
            .args(arguments)
            .output()
            .unwrap();
        assert!(output.status.success(), "{program}: {output:?}");
    }
    let mut new = post.cluster.connect("new");
    assert_eq!(rows(&mut new), kept);
    new.batch_execute("SELECT mailroom_reschedule(id, now()) FROM outbox")
        .unwrap();
    assert_eq!(ends(&mut new, 2), ["one sent", "two sent"]);
    for subject in ["one", "two"] {
        let file = &arrived.one(subject)["attachments"][0];
        assert_eq!(file["filename"], format!("{subject}.pdf"));
        assert_eq!(file["content"], "AP8K");
    }
    // New files continue from the restored ones.
    assert_eq!(number(&mut new, "SELECT mailroom_add_file('x')"), 2);
}

// needs: worker
#[test]
fn the_publications_of_the_guide_carry_no_file() {
    let (_cluster, mut client) =
        Cluster::start_with_app(&["wal_level = logical", "mailroom.collect = off"]);
    let page = "docs/guides/change-streams.md";
    for info in ["sql cdc", "sql"] {
        client.batch_execute(&block(page, info)).unwrap();
    }
    client
        .batch_execute("CREATE PUBLICATION everything FOR ALL TABLES")
        .unwrap();
    client
        .batch_execute("SELECT pg_create_logical_replication_slot('test', 'pgoutput')")
        .unwrap();
    send_file(
        &mut client,
        "of the order",
        "secret-name.pdf",
        b"secret contents",
    );
    let mut changes = |publication: &str, of: &str| {
        let found = format!(
            "SELECT count(*) FROM pg_logical_slot_peek_binary_changes('test', NULL, NULL, 'proto_version', '1', \
                 'publication_names', '{publication}') WHERE position('{of}'::bytea IN data) > 0"
        );
        number(&mut client, &found)
    };
    // The protocol has a bytea in hexadecimal. A publication of all tables carries both, so they would be found.
    let contents: String = b"secret contents"
        .map(|byte| format!("{byte:02x}"))
        .concat();
    for of in ["secret-name.pdf", &contents] {
        assert_eq!(changes("everything", of), 1, "{of}");
        assert_eq!(changes("outbox_cdc", of), 0, "{of}");
        assert_eq!(changes("outbox_states", of), 0, "{of}");
    }
    assert_eq!(changes("outbox_cdc", "of the order"), 1);
    assert!(changes("outbox_states", "scheduled") > 0);
}
