//! `mailroom report`: what a mail server pipes to it.

use std::io::Write;
use std::path::Path;
use std::process::{Output, Stdio};

use super::scene::Scene;
use crate::book::block;
use crate::cluster::{Stop, eventually_or_tell, number};
use crate::counterparts::postfix::{GONE, LOCAL, Postfix};
use crate::post::Post;
use crate::sender_scene::program;

/// The program and the database of the guide.
const PROGRAM: &str = "/usr/bin/mailroom";
const DATABASE: &str = "postgresql://events@db1.internal/shop";

/// The line of the guide for `/etc/aliases`.
fn line() -> String {
    let line = block("docs/guides/events.md", "text aliases");
    assert!(line.contains(&format!("\"|{PROGRAM} ")) && line.contains(DATABASE));
    line
}

/// Pipes a mail to the command of the guide, for this database.
fn pipe(url: &str, mail: &str) -> Output {
    let line = line();
    let command = line.split('"').nth(1).unwrap().trim_start_matches('|');
    let arguments = command.split(' ').skip(1);
    let mut program = program();
    program.args(arguments.map(|one| if one == DATABASE { url } else { one }));
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

/// Postfix takes a mail, learns from the next server that there is no such user, and mails its report to the address that
/// the transport names, whose alias is that of the guide.
// needs: counterparts
#[test]
fn a_report_that_postfix_makes_is_recorded() {
    let Some(postfix) = Postfix::shared() else {
        return;
    };
    let transport = postfix.transport("relay", &format!("bounce_address = \"bounces@{LOCAL}\""));
    let mut post = Post::start_with(&[transport], &[]);
    let role = "CREATE ROLE receiver LOGIN IN ROLE mailroom_receiver";
    post.client.batch_execute(role).unwrap();
    let copy = postfix.copy_program(Path::new(program().get_program()));
    let socket = post.cluster.socket().display().to_string();
    let url = format!("postgresql://receiver@{}/app", socket.replace('/', "%2F"));
    let line = line().replace(DATABASE, &url);
    postfix.alias(&line.replace(PROGRAM, &copy.display().to_string()));
    let send = format!(
        "SELECT mailroom_send('ada@example.com', 'Other', 'T', transport => 'relay'), \
         mailroom_send('ada@example.com, eve@{GONE}', 'Both', 'T', transport => 'relay')"
    );
    post.client.batch_execute(&send).unwrap();
    post.wait_until_ended(2);
    assert_eq!(post.count("state = 'sent'"), 2);
    let events = "SELECT count(*) FROM delivery_events";
    eventually_or_tell("the report of Postfix", || {
        match number(&mut post.client, events) {
            0 => Err(postfix.log()),
            _ => Ok(()),
        }
    });
    let seen = "SELECT concat_ws(' ', e.type, e.is_permanent, e.reason, e.recipient, e.status, e.transport, o.subject), e.detail \
         FROM delivery_events e JOIN outbox o ON o.id = e.outbox_id";
    let row = post.client.query_one(seen, &[]).unwrap();
    let (seen, detail): (String, String) = (row.get(0), row.get(1));
    assert_eq!(
        seen,
        format!("bounced t bounced eve@{GONE} 5.1.1 relay Both")
    );
    assert!(detail.contains("There is no such user"), "{detail}");
}
