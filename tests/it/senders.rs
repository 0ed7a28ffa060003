//! Senders outside the server, as the guide describes them, with a real SMTP server. The server and the sender in
//! Python run in the Python that `MAILROOM_PYTHON` names.
//!
//! needs: aiosmtpd

use std::process::Child;

use crate::book::block;
use crate::cluster::{Cluster, eventually, number};
use crate::mailbox::{Smtp, python};
use postgres::Client;

/// A program that ends with the test.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The sender of the guide, unchanged except for the port.
fn start_sender(cluster: &Cluster, smtp: &Smtp) -> Running {
    let program = cluster.scratch().join("sender.py");
    let text = block("docs/guides/consumers.md", "python");
    assert!(text.lines().count() <= 32);
    let text = text.replace(
        "\"localhost\", 25",
        &format!("\"127.0.0.1\", {}", smtp.port),
    );
    assert!(text.contains(&smtp.port.to_string()));
    std::fs::write(&program, text).unwrap();
    let sender = python()
        .arg(&program)
        .env("PGHOST", cluster.socket())
        .env("PGUSER", "postgres")
        .env("PGDATABASE", "app")
        .spawn()
        .unwrap();
    Running(sender)
}

#[test]
fn the_python_sender_needs_no_worker() {
    let cluster = Cluster::start(&["shared_preload_libraries = ''", "mailroom.lease = '2s'"]);
    cluster
        .connect("postgres")
        .batch_execute("CREATE DATABASE app")
        .unwrap();
    let mut client = cluster.connect("app");
    // Due already, due soon, and claimed by a sender that died: none of these will be announced.
    client
        .batch_execute(
            "SET client_min_messages = error; CREATE EXTENSION mailroom; \
             SELECT mailroom_send('dead@example.com', 'S', 'T'); SELECT id FROM mailroom_claim(1); \
             SELECT mailroom_send('due@example.com', 'S', 'T'); \
             SELECT mailroom_send('soon@example.com', 'S', 'T', send_at => clock_timestamp() + interval '3 s')",
        )
        .unwrap();
    let smtp = Smtp::start();
    let _sender = start_sender(&cluster, &smtp);
    let sent =
        |client: &mut Client| number(client, "SELECT count(*) FROM outbox WHERE state = 'sent'");
    eventually("three mails to be sent", || {
        (sent(&mut client) == 3).then_some(())
    });
    // A mail that is scheduled while the sender knows of no other.
    client
        .batch_execute("SELECT mailroom_send('late@example.com', 'S', 'T')")
        .unwrap();
    eventually("the fourth to be sent", || {
        (sent(&mut client) == 4).then_some(())
    });
    assert_eq!(smtp.messages().len(), 4);
}

/// A row that a trigger of the application does not let go is first in the queue.
#[test]
fn the_python_sender_gets_the_mail_behind_a_row_that_cannot_be_claimed() {
    let (cluster, mut client) = Cluster::start_with_app(&["shared_preload_libraries = ''"]);
    client
        .batch_execute(
            "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE 'not this one'; END $$; \
             CREATE TRIGGER refuse BEFORE UPDATE ON outbox FOR EACH ROW \
                 WHEN (OLD.subject = 'bad') EXECUTE FUNCTION refuse(); \
             SELECT mailroom_send('a@example.com', s, 'T') FROM unnest(ARRAY['bad', 'good', 'good']) s",
        )
        .unwrap();
    let smtp = Smtp::start();
    let _sender = start_sender(&cluster, &smtp);
    eventually("the others to be sent", || {
        (number(
            &mut client,
            "SELECT count(*) FROM outbox WHERE state = 'sent'",
        ) == 2)
            .then_some(())
    });
    assert_eq!(
        number(
            &mut client,
            "SELECT count(*) FROM outbox WHERE state = 'scheduled'"
        ),
        1
    );
}

#[test]
fn the_python_sender_delivers_by_smtp() {
    let (cluster, mut client) = Cluster::start_with_app(&[
        "mailroom.batch_limit = 1",
        "mailroom.link_base_url = 'https://example.com'",
        // Only a notification can reach the sender in time.
        "mailroom.poll_interval = '1h'",
    ]);
    cluster.worker("app");
    let smtp = Smtp::start();
    let _sender = start_sender(&cluster, &smtp);
    eventually("the sender to listen", || {
        let listening = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'sender' AND state = 'idle'";
        (number(&mut client, listening) == 1).then_some(())
    });
    client
        .batch_execute(
            "INSERT INTO accounts (email, login) VALUES ('ada@example.com', 'ada'); \
             SELECT mailroom_send('bob@example.com', 'Später', 'Text', '<img src=\"cid:logo\">', cc => 'carol@example.com', bcc => 'dave@example.com', \
                 reply_to => 'Help <help@example.net>', from_address => 'Orders <orders@example.com>', send_at => clock_timestamp() + interval '300 ms', \
                 attachments => '[{\"filename\": \"bill.pdf\", \"content\": \"/wABAg==\"}, {\"filename\": \"logo.png\", \"content\": \"iVBORw0KGgo=\", \"content_id\": \"logo\"}]')",
        )
        .unwrap();
    eventually("two mails to be sent", || {
        (number(
            &mut client,
            "SELECT count(*) FROM outbox WHERE state = 'sent'",
        ) == 2)
            .then_some(())
    });
    let messages = smtp.messages();
    assert_eq!(messages.len(), 2, "{messages:#?}");
    let to = |address: &str| {
        let header = format!("To: {address}");
        messages
            .iter()
            .find(|message| message.lines().any(|line| line == header))
            .unwrap_or_else(|| panic!("no mail to {address}: {messages:#?}"))
    };
    assert!(to("ada@example.com").contains("https://example.com/activate?token=3D"));
    assert!(to("ada@example.com").contains("text/html"));
    let bob = to("bob@example.com");
    assert!(bob.contains("Cc: carol@example.com"));
    assert!(bob.contains("help@example.net"), "{bob}");
    assert!(bob.contains("From: Orders <orders@example.com>"), "{bob}");
    assert!(bob.contains("dave@example.com"), "X-RcptTo has everybody");
    assert!(!bob.contains("Bcc:"));
    has_files(bob);

    // Without an SMTP server an attempt fails, and is recorded.
    let port = smtp.port;
    drop(smtp);
    eventually("its port to be closed", || {
        std::net::TcpStream::connect(("127.0.0.1", port))
            .is_err()
            .then_some(())
    });
    client
        .batch_execute("SELECT mailroom_send('x@example.com', 'S', 'T', max_attempts => 1)")
        .unwrap();
    eventually("it to end as error", || {
        (number(
            &mut client,
            "SELECT count(*) FROM outbox WHERE state = 'error'",
        ) == 1)
            .then_some(())
    });
    let told =
        "SELECT count(*) FROM outbox_history WHERE outcome = 'failed' AND error LIKE '%refused%'";
    assert_eq!(number(&mut client, told), 1);
}

#[test]
fn the_rust_sender_delivers_by_smtp() {
    let file = crate::book::read("tests/consumer/sender.rs");
    assert_eq!(block("docs/guides/consumers.md", "rust"), file);
    let cluster = Cluster::start(&[]);
    let mut client = cluster.create_database("app");
    let smtp = Smtp::start();
    let relay = lettre::SmtpTransport::builder_dangerous("127.0.0.1")
        .port(smtp.port)
        .build();
    let mut db = cluster.connect("app");
    // The thread ends with its connection, when the server stops.
    std::thread::spawn(move || {
        crate::consumer::deliver(&mut db, &relay).map_err(|error| error.to_string())
    });
    client
        .batch_execute(
            "SELECT mailroom_send('bob@example.com, eve@example.com', 'Später', 'Text', cc => 'carol@example.com', \
                 bcc => 'dave@example.com', reply_to => 'Help <help@example.net>', from_address => 'Orders <orders@example.com>', send_at => clock_timestamp() + interval '300 ms', \
                 body_html => '<img src=\"cid:logo\">', \
                 attachments => '[{\"filename\": \"bill.pdf\", \"content\": \"/wABAg==\"}, {\"filename\": \"logo.png\", \"content\": \"iVBORw0KGgo=\", \"content_id\": \"logo\"}]'); \
             SELECT mailroom_send('ann@example.com', 'Both', 'Text', '<p>HTML</p>')",
        )
        .unwrap();
    eventually("two mails to be sent", || {
        (number(
            &mut client,
            "SELECT count(*) FROM outbox WHERE state = 'sent'",
        ) == 2)
            .then_some(())
    });
    let messages = smtp.messages();
    assert_eq!(messages.len(), 2, "{messages:#?}");
    let of = |address: &str| {
        messages
            .iter()
            .find(|message| message.contains(address))
            .unwrap_or_else(|| panic!("no mail to {address}: {messages:#?}"))
    };
    assert!(of("ann@example.com").contains("text/html"));
    let bob = of("bob@example.com");
    assert!(bob.contains("Cc: carol@example.com"), "{bob}");
    assert!(bob.contains("help@example.net"), "{bob}");
    assert!(bob.contains("From: Orders <orders@example.com>"), "{bob}");
    assert!(bob.contains("dave@example.com"), "X-RcptTo has everybody");
    assert!(!bob.contains("Bcc:"), "{bob}");
    has_files(bob);
}

/// Checks that a message has its attachment, and the image that its HTML shows.
pub fn has_files(message: &str) {
    for part in [
        "multipart/mixed",
        "multipart/related",
        "bill.pdf",
        "application/pdf",
        "/wABAg==",
        "image/png",
        "iVBORw0KGgo=",
        "<logo>",
    ] {
        assert!(message.contains(part), "no {part}: {message}");
    }
}

#[test]
fn change_data_capture_sees_each_mail_once_and_no_secret() {
    let (cluster, mut client) =
        Cluster::start_with_app(&["mailroom.batch_limit = 1", "wal_level = logical"]);
    cluster.worker("app");
    client
        .batch_execute(&block("docs/guides/change-streams.md", "sql cdc"))
        .unwrap();
    client
        .batch_execute("SELECT pg_create_logical_replication_slot('test', 'pgoutput')")
        .unwrap();
    client
        .batch_execute(
            "SELECT mailroom_send('a@example.com', 'S', 'T', data => '{\"order\": 7}'); \
             INSERT INTO accounts (email, login) VALUES ('b@example.com', 'b')",
        )
        .unwrap();
    eventually("the token mail", || {
        (number(&mut client, "SELECT count(*) FROM outbox") == 2).then_some(())
    });
    client
        .batch_execute("SELECT mailroom_mark_sent(id) FROM mailroom_claim(2)")
        .unwrap();
    // Messages that begin with I are inserts, in the protocol of logical replication.
    let inserts = |of: &str| {
        format!(
            "SELECT count(*) FROM pg_logical_slot_peek_binary_changes('test', NULL, NULL, \
                 'proto_version', '1', 'publication_names', 'outbox_cdc') c \
             WHERE get_byte(data, 0) = 73 AND position('{of}'::bytea IN data) > 0"
        )
    };
    assert_eq!(number(&mut client, &inserts("a@example.com")), 1);
    assert_eq!(number(&mut client, &inserts("\"order\": 7")), 1);
    assert_eq!(number(&mut client, &inserts("b@example.com")), 0);
    assert_eq!(number(&mut client, &inserts("")), 1);

    // Every column that the connector's configuration names is published.
    let published: Vec<String> = client
        .query(
            "SELECT unnest(attnames)::text FROM pg_publication_tables WHERE tablename = 'outbox'",
            &[],
        )
        .unwrap()
        .iter()
        .map(|row| row.get(0))
        .collect();
    let mut named = 0;
    for line in block("docs/guides/change-streams.md", "properties").lines() {
        let Some((key, value)) = line.split_once('=') else {
            continue;
        };
        let is_column = key.contains(".table.field") || key.ends_with(".route.by.field");
        for field in value.split(',').filter(|_| is_column) {
            let column = field.split(':').next().unwrap();
            assert!(published.iter().any(|name| name == column), "{line}");
            named += 1;
        }
    }
    assert!(named >= 5, "only {named} columns were named");
}
