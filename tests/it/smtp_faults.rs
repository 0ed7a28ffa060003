//! Delivery through SMTP servers of aiosmtpd, which fail on request and require each kind of AUTH, and through MailDev.
//! The Python of aiosmtpd is in MAILROOM_PYTHON.
//!
//! needs: aiosmtpd counterparts

use crate::cluster::transports::{FILE, write_secret};
use crate::cluster::{eventually, number};
use crate::counterparts::aiosmtpd::Aiosmtpd;
use crate::counterparts::http;
use crate::counterparts::maildev::MailDev;
use crate::counterparts::mails::{self, scheduled};
use crate::post::Post;

const PASSWORD: &str = "wJalrXUtnFEMI";
const WRONG: &str = "password = \"bPxRfiCYEXAMPLE\"\nusername = \"shop\"";

/// Schedules `count` mails to addresses that name the fault they meet. The mail that is lost within its content is
/// larger than the kernel's buffers for a connection.
fn send(post: &mut Post, transport: &str, name: &str, count: i64) {
    post.client
        .execute(
            "SELECT count(mailroom_send(format('%s-%s@example.com', $1::text, i), $1 || ' ' || i, \
                CASE $1 WHEN 'within' THEN repeat('A canary. ', 900000) ELSE E'A canary.\\n.\\n' END, transport => $2)) \
             FROM generate_series(1, $3::bigint) i",
            &[&name, &transport, &count],
        )
        .unwrap();
}

fn wait_for_pause(post: &mut Post, transport: &str) {
    let query = "SELECT count(*) FROM mailroom_transports WHERE state = 'paused' AND name = ";
    eventually("a pause", || {
        (number(&mut post.client, &format!("{query} '{transport}'")) == 1).then_some(())
    });
}

/// Fails unless each mail that was sent has arrived as it was scheduled, `times` times.
fn compare(post: &mut Post, server: &Aiosmtpd, which: &str, times: usize) {
    let arrived = server.mails();
    let sent = scheduled(&mut post.client, &format!("state = 'sent' AND {which}"));
    assert!(!sent.is_empty(), "no mail is {which}");
    for mail in sent {
        let copies: Vec<_> = arrived.iter().filter(|copy| copy.id == mail.id).collect();
        assert_eq!(copies.len(), times, "{mail:?}\n{}", server.output());
        copies.into_iter().for_each(|copy| mail.must_equal(copy));
    }
}

#[test]
fn a_relay_that_breaks_off_gets_nothing_twice_but_what_it_may_have_taken() {
    let mut server = Aiosmtpd::start(PASSWORD);
    let tables = [
        server.transport("faulty", "faulty", ""),
        server.transport("faulty", "careful", "max_ambiguous = 0"),
        server.transport("limited", "limited", ""),
    ];
    let mut post = Post::start_with(&tables, &[]);
    // Eight mails fail and four are throttled: after 16 failures in a row a pause would begin, and no attempt would count.
    for fault in ["before", "within", "after", "leave", "down", "full", "none"] {
        send(&mut post, "faulty", fault, 2);
    }
    post.hurry_until_ended(14);
    assert_eq!(post.count("state = 'sent'"), 14);
    compare(&mut post, &server, "subject NOT LIKE 'after%'", 1);
    compare(&mut post, &server, "subject LIKE 'after%'", 2);
    // Each failure was a failed attempt, because the relay accepts other mail. Only a loss after the content is ambiguous.
    // A relay that goes down (421 4.3.2) asks for less, which costs no attempt.
    let attempts = "SELECT split_part(o.subject, ' ', 1), a.outcome::text, split_part(a.error, ':', 1), count(*) \
         FROM outbox_attempts a JOIN outbox o ON o.id = a.outbox_id GROUP BY 1, 2, 3 ORDER BY 1";
    let attempts: Vec<(String, String, String, i64)> = post
        .client
        .query(attempts, &[])
        .unwrap()
        .iter()
        .map(|row| (row.get(0), row.get(1), row.get(2), row.get(3)))
        .collect();
    let expected = [
        ("after", "ambiguous", "may have been sent"),
        ("before", "failed", "before the mail was sent"),
        ("full", "failed", "smtp 452 4.3.1"),
        ("within", "failed", "before the end of the mail"),
    ]
    .map(|(fault, outcome, error)| (fault.to_owned(), outcome.to_owned(), error.to_owned(), 2));
    assert_eq!(attempts, expected);
    assert_eq!(post.count("ambiguous_attempts > 0"), 2);
    let log = post.cluster.log();
    assert!(log.contains("throttled: smtp 421 4.3.2"), "{log}");
    // Mail that must not be repeated ends. The first two addresses have met the fault before.
    send(&mut post, "careful", "after", 3);
    post.wait_for("transport = 'careful' AND state = 'sent'", 2);
    post.wait_for(
        "transport = 'careful' AND state = 'error' AND ambiguous_attempts = 1",
        1,
    );
    // A relay that closes each connection after some mails gets all of them, without a failed attempt.
    send(&mut post, "limited", "none", 60);
    post.wait_for("transport = 'limited' AND state = 'sent'", 60);
    assert_eq!(
        post.count("transport = 'limited' AND failed_attempts > 0"),
        0
    );
    compare(&mut post, &server, "transport = 'limited'", 1);
    let log = post.cluster.log();
    assert!(
        !log.contains("canary") && !log.contains("@example.com"),
        "{log}"
    );
}

#[test]
fn a_wrong_password_holds_the_mail_until_there_is_a_right_one() {
    let mut server = Aiosmtpd::start(PASSWORD);
    let right = format!("password = \"{PASSWORD}\"\nusername = \"shop\"");
    let token = "token_file = \"token\"\nusername = \"shop\"";
    let mut tables = vec![
        server.transport("plain", "plain", &right),
        server.transport("login", "login", &right),
        server.transport("xoauth2", "xoauth2", token),
        server.transport("plain", "wrong", WRONG),
    ];
    // The token file does not exist yet.
    let mut post = Post::start_with(&tables, &[]);
    for transport in ["plain", "login", "xoauth2", "wrong"] {
        send(&mut post, transport, "none", 20);
    }
    post.wait_for("state = 'sent' AND transport IN ('plain', 'login')", 40);
    compare(&mut post, &server, "true", 1);
    for transport in ["xoauth2", "wrong"] {
        wait_for_pause(&mut post, transport);
    }
    write_secret(&post.cluster, "token", "an-old-token");
    post.client
        .batch_execute("SELECT mailroom_wake_worker()")
        .unwrap();
    eventually("the relay to refuse the token", || {
        let log = post.cluster.log();
        log.lines()
            .any(|line| line.contains("xoauth2") && line.contains("535"))
            .then_some(())
    });
    assert_eq!(post.count("ended_at IS NOT NULL"), 40);
    assert_eq!(
        post.count("failed_attempts > 0 OR ambiguous_attempts > 0"),
        0
    );
    // A new token is read for the next connection, a new password with the file.
    write_secret(&post.cluster, "token", PASSWORD);
    tables[3] = server.transport("plain", "wrong", &right);
    write_secret(&post.cluster, FILE, &tables.concat());
    post.cluster.reload();
    post.wait_until_ended(80);
    assert_eq!(post.count("state = 'sent' AND failed_attempts = 0"), 80);
    compare(&mut post, &server, "true", 1);
    let log = post.cluster.log();
    for secret in [PASSWORD, "bPxRfiCYEXAMPLE", "an-old-token", "canary"] {
        assert!(!log.contains(secret), "{log}");
    }
}

#[test]
fn maildev_shows_a_mail_as_it_was_scheduled() {
    let catcher = MailDev::start();
    let table = mails::transport("catcher", catcher.smtp_port, "tls = \"none\"");
    let settings = [
        "mailroom.transport = 'catcher'",
        "mailroom.link_base_url = 'https://links.example.com/'",
        "mailroom.batch_timeout = 0",
    ];
    let mut post = Post::start_with(&[table], &settings);
    post.client
        .batch_execute("INSERT INTO accounts (email, login) VALUES ('ada@example.com', 'ada')")
        .unwrap();
    post.wait_for("state = 'sent'", 1);
    let mails = http::ask(catcher.web_port, "GET", "/api/email", None);
    let mails = mails.as_array().unwrap();
    assert_eq!(mails.len(), 1);
    let mail = &mails[0];
    assert_eq!(mail["from"][0]["name"], "Bücher, Ltd.");
    assert_eq!(mail["from"][0]["address"], "shop@bücher.example");
    assert_eq!(mail["to"][0]["address"], "ada@example.com");
    assert_eq!(mail["envelope"]["to"][0]["address"], "ada@example.com");
    assert!(!mail["subject"].as_str().unwrap().is_empty(), "{mail}");
    // The link activates the account.
    let text = mail["text"].as_str().unwrap();
    let (_, link) = text.split_once("https://links.example.com/").unwrap();
    let link = link.split_whitespace().next().unwrap();
    let token = link.rsplit(['/', '=']).next().unwrap();
    let outcome: String = post
        .client
        .query_one("SELECT outcome::text FROM mailroom_redeem($1)", &[&token])
        .unwrap()
        .get(0);
    assert_eq!(outcome, "ok", "{text}");
    assert!(mail["html"].as_str().unwrap().contains(link), "{mail}");
}
