//! `mailroom report`: what a mail server pipes to it.

use std::io::Write;
use std::process::{Output, Stdio};

use super::scene::Scene;
use crate::book::block;
use crate::cluster::{Stop, number};
use crate::sender_scene::program;

/// Pipes a mail to the command of the guide, for this database.
fn pipe(url: &str, mail: &str) -> Output {
    let line = block("docs/guides/events.md", "text aliases");
    let command = line.split('"').nth(1).unwrap().trim_start_matches('|');
    let (path, arguments) = command.split_once(' ').unwrap();
    assert_eq!(path, "/usr/bin/mailroom");
    let database = "postgresql://events@db1.internal/shop";
    assert!(arguments.contains(database), "{arguments}");
    let mut program = program();
    program.args(
        arguments
            .split(' ')
            .map(|one| if one == database { url } else { one }),
    );
    let mut child = program
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut input = child.stdin.take().unwrap();
    // Large mail that the program does not read to its end would block here.
    input.write_all(mail.as_bytes()).unwrap();
    drop(input);
    child.wait_with_output().unwrap()
}

#[test]
fn a_report_of_a_relay_is_read_as_in_the_book() {
    let mut scene = Scene::start();
    let send = "SELECT mailroom_send('Ann <ann@example.com>, bob@example.com', 'S', 'T')";
    scene.client.batch_execute(send).unwrap();
    let row = scene
        .client
        .query_one("SELECT message_id::text FROM outbox", &[])
        .unwrap();
    let message_id: String = row.get(0);
    let report = |recipient: &str| {
        format!(
            "Date: Thu, 01 Jan 2026 12:00:00 +0000\nFrom: MAILER-DAEMON@relay.example\n\
             Content-Type: multipart/report; report-type=delivery-status; boundary=b\n\n\
             --b\nContent-Type: text/plain\n\nIt failed.\n--b\nContent-Type: message/delivery-status\n\n\
             Reporting-MTA: dns; relay.example\n\nFinal-Recipient: rfc822; {recipient}\nAction: failed\nStatus: 5.1.1\n\
             Diagnostic-Code: smtp; 550 5.1.1 <{recipient}>: unknown\n\n\
             --b\nContent-Type: message/rfc822\n\nMessage-ID: <{message_id}@example.com>\nSubject: S\n\n{}\n--b--\n",
            "a line of the mail\n".repeat(200_000)
        )
    };
    let url = scene.url("receiver", "app");
    for (mail, expected) in [
        (report("Bob@example.com"), "1 events recorded\n"),
        (report("bob@example.com"), "0 events recorded\n"),
        (report("eve@example.com"), "0 events recorded\n"),
        (
            "Subject: Out of office\n\nBack on Monday.\n".to_owned(),
            "the mail is no report of delivery as in RFC 3464\n",
        ),
    ] {
        let output = pipe(&url, &mail);
        assert!(output.status.success(), "{output:?}");
        assert_eq!(String::from_utf8_lossy(&output.stdout), expected);
    }
    let seen = "SELECT concat_ws(' ', type, is_permanent, reason, recipient, status, transport, occurred_at AT TIME ZONE 'UTC') FROM delivery_events";
    let seen: String = scene.client.query_one(seen, &[]).unwrap().get(0);
    assert_eq!(
        seen,
        "bounced t bounced bob@example.com 5.1.1 relay 2026-01-01 12:00:00"
    );
    // What cannot be recorded now is piped again later.
    let other = pipe(&scene.url("other", "app"), &report("ann@example.com"));
    assert_eq!(other.status.code(), Some(75), "{other:?}");
    scene.cluster.stop_server(Stop::Fast);
    let down = pipe(&url, &report("ann@example.com"));
    assert_eq!(down.status.code(), Some(75), "{down:?}");
    scene.cluster.start_server();
    let up = pipe(&url, &report("ann@example.com"));
    assert!(up.status.success(), "{up:?}");
    scene.client = scene.cluster.connect("app");
    let events = number(&mut scene.client, "SELECT count(*) FROM delivery_events");
    assert_eq!(events, 2);
}
