//! Delivery through Debian's Postfix: TLS, AUTH, and each way in which a relay refuses or defers mail.
//! needs: counterparts

use crate::cluster::transports::{FILE, write_secret};
use crate::cluster::{eventually, number};
use crate::counterparts::mails::{self, Arrived, scheduled};
use crate::counterparts::postfix::{self, Postfix};
use crate::counterparts::tls::Authority;
use crate::post::Post;

/// The number of messages that pauses a transport which accepts none.
const ENOUGH: i64 = 20;

/// Schedules a mail to these recipients; its text must not be logged.
fn send(post: &mut Post, transport: &str, recipients: &str) {
    post.client
        .execute(
            "SELECT mailroom_send($1, 'To ' || $1, 'A canary.', transport => $2)",
            &[&recipients, &transport],
        )
        .unwrap();
}

/// Schedules `count` mails to different addresses of a domain.
fn send_many(post: &mut Post, transport: &str, domain: &str, count: i64) {
    post.client
        .execute(
            "SELECT count(mailroom_send(format('%s-%s@%s', $1::text, i, $2::text), 'To ' || i, 'A canary.', transport => $1)) \
             FROM generate_series(1, $3::bigint) i",
            &[&transport, &domain, &count],
        )
        .unwrap();
}

/// The number of mails for this transport that meet this condition.
fn count(post: &mut Post, transport: &str, which: &str) -> i64 {
    post.count(&format!("transport = '{transport}' AND {which}"))
}

fn state(post: &mut Post, transport: &str) -> String {
    let query = "SELECT state::text FROM mailroom_transports WHERE name = $1";
    post.client.query_one(query, &[&transport]).unwrap().get(0)
}

/// Fails unless each mail that was sent through this transport arrived as it was scheduled; returns what arrived.
fn compare(post: &mut Post, postfix: &Postfix, transport: &str, refused: &[&str]) -> Vec<Arrived> {
    let which = format!("transport = '{transport}' AND state = 'sent'");
    let sent = scheduled(&mut post.client, &which);
    let mut mails = postfix.mails();
    for mail in &sent {
        let copies: Vec<_> = mails.iter().filter(|copy| copy.id == mail.id).collect();
        mail.must_be(&copies, refused);
    }
    mails.retain(|mail| sent.iter().any(|sent| sent.id == mail.id));
    mails
}

fn says_nothing_of_mail(post: &Post) {
    let log = post.cluster.log();
    for said in [
        "canary",
        "@example.com",
        "unknown.example",
        postfix::LOGIN.1,
    ] {
        assert!(!log.contains(said), "the log tells of {said}:\n{log}");
    }
}

#[test]
fn mail_arrives_as_it_was_scheduled() {
    let Some(postfix) = Postfix::shared() else {
        return;
    };
    let (user, password) = postfix::LOGIN;
    let login = format!("username = \"{user}\"\npassword = \"{password}\"");
    let transports = ["relay", "implicit", "login", "ascii", "few"];
    let mut post = Post::start_with(
        &[
            postfix.transport("relay", ""),
            postfix.transport("implicit", "tls = \"implicit\""),
            postfix.transport("login", &login),
            postfix.transport("ascii", ""),
            postfix.transport("few", ""),
        ],
        &[],
    );
    for transport in transports {
        post.client
            .execute(
                "SELECT mailroom_send('ada@example.com, bob@bücher.example', E'Grüße \"{{n}}\", 😀 =?utf-8?q?x?=', \
                    E'A canary.\\n.\\n..dots\\r\\nFrom here\\rend ' || repeat('long ', 300), \
                    '<p title=\"a&amp;b\">' || repeat('ü', 2000) || '</p>', cc => 'carol@example.com, dan@example.com', \
                    bcc => 'eve@example.com', reply_to => 'help@bücher.example, desk@example.net', transport => $1), \
                mailroom_send('ada@example.com', 'Text', E'A canary.\\tIt \\x01 sings.', transport => $1), \
                mailroom_send('ada@example.com', 'HTML', body_html => '<p>A canary.</p>', transport => $1), \
                mailroom_send('jörg@bücher.example', 'UTF-8', 'A canary.', transport => $1)",
                &[&transport],
            )
            .unwrap();
    }
    post.wait_until_ended(20);
    assert_eq!(post.count("state = 'sent'"), 19);
    for transport in transports {
        let protocol = match transport {
            "login" => "ESMTPSA",
            _ => "ESMTPS",
        };
        for mail in compare(&mut post, postfix, transport, &[]) {
            let received = mail.received.unwrap();
            assert!(received.contains("using TLSv1.3"), "{received}");
            let protocol = if mail.subject == "UTF-8" {
                protocol.replace("ESMTP", "UTF8SMTP")
            } else {
                protocol.to_owned()
            };
            assert!(
                received.contains(&format!("with {protocol} id")),
                "{received}"
            );
        }
    }
    // A relay without SMTPUTF8 gets no mail to this address.
    let error = "transport = 'ascii' AND state = 'error' AND last_error LIKE '%no SMTPUTF8'";
    assert_eq!(post.count(error), 1);
    says_nothing_of_mail(&post);
}

#[test]
fn what_a_fallback_cannot_carry_goes_back_and_waits() {
    let Some(postfix) = Postfix::shared() else {
        return;
    };
    let first = mails::transport("first", 1, ""); // A closed port.
    let ascii = postfix.transport("ascii", "");
    let mut post = Post::start_with(&[first, ascii.clone()], &[]);
    send_many(&mut post, "first", "example.com", ENOUGH);
    eventually("a pause", || {
        (state(&mut post, "first") == "paused").then_some(())
    });
    post.client
        .batch_execute(
            "INSERT INTO routes (position, kind_pattern, transport, fallback, fallback_after) VALUES (1, 'code', 'first', 'ascii', '0 s'); \
             SELECT mailroom_send(a, 'Code', 'A canary.', kind => 'code') FROM unnest('{jörg@bücher.example,ada@example.com}'::text[]) a",
        )
        .unwrap();
    post.wait_for("transport = 'ascii' AND state = 'sent'", 1);
    let back = "transport = 'first' AND last_error LIKE '%no SMTPUTF8'";
    post.wait_for(&format!("{back} AND state = 'scheduled'"), 1);
    assert!(!post.log().contains("mail ended as error"));
    let file = postfix.transport_to("relay", "first", "") + &ascii;
    write_secret(&post.cluster, FILE, &file);
    post.reload();
    post.hurry_until_ended(ENOUGH + 2);
    assert_eq!(post.count(&format!("{back} AND state = 'sent'")), 1);
    assert_eq!(
        compare(&mut post, postfix, "first", &[]).len() as i64,
        ENOUGH + 1
    );
    let tries = "SELECT count(*) FROM outbox_attempts WHERE transport = 'ascii'";
    assert_eq!(number(&mut post.client, tries), 1);
}

#[test]
fn a_wrong_configuration_holds_all_mail_and_sends_none() {
    let Some(postfix) = Postfix::shared() else {
        return;
    };
    let other = Authority::create();
    let ca = format!("ca_file = \"{}\"", other.certificate.display());
    let transport =
        |service: &str, name: &str, more: &str| postfix.transport_to(service, name, more);
    let by_another = mails::transport("stranger", postfix.port("relay"), &ca);
    let mut post = Post::start_with(
        &[
            transport("relay", "relay", ""),
            by_another,
            transport("relay", "misnamed", "host = \"127.0.0.1\""),
            transport("clear", "clear", ""),
            transport("login", "nameless", ""),
            transport(
                "login",
                "misled",
                "username = \"shop\"\npassword = \"wrong-wrong\"",
            ),
            transport(
                "relay",
                "closed",
                "username = \"shop\"\npassword = \"wrong-wrong\"",
            ),
        ],
        &[],
    );
    let held = [
        ("stranger", "invalid peer certificate"),
        ("misnamed", "not valid for name"),
        ("clear", "does not offer STARTTLS"),
        ("nameless", "smtp 554 5.7.1"),
        ("misled", "smtp 535 5.7.8"),
        ("closed", "no supported AUTH mechanism"),
    ];
    for (transport, _) in held {
        send_many(&mut post, transport, "example.com", ENOUGH);
    }
    for (transport, reason) in held {
        let paused = format!("\"{transport}\" paused");
        eventually(&format!("{paused}: {reason}"), || {
            let log = post.log();
            let mut lines = log.lines().filter(|line| line.contains(&paused));
            lines.any(|line| line.contains(reason)).then_some(())
        });
        assert_eq!(count(&mut post, transport, "ended_at IS NOT NULL"), 0);
        assert_eq!(count(&mut post, transport, "ambiguous_attempts > 0"), 0);
    }
    // If STARTTLS or AUTH fails, no mail loses an attempt.
    for transport in ["clear", "misled", "closed"] {
        assert_eq!(count(&mut post, transport, "failed_attempts > 0"), 0);
    }
    // The mail is sent as soon as it has another transport.
    post.client
        .batch_execute("SELECT mailroom_reroute(transport, 'relay') FROM (SELECT DISTINCT transport FROM outbox) t")
        .unwrap();
    eventually("what was in a probe's hands to come back", || {
        post.client
            .batch_execute("SELECT mailroom_reroute(transport, 'relay') FROM (SELECT DISTINCT transport FROM outbox WHERE transport <> 'relay') t")
            .unwrap();
        (count(&mut post, "relay", "true") == ENOUGH * 6).then_some(())
    });
    post.hurry_until_ended(ENOUGH * 6);
    assert_eq!(
        compare(&mut post, postfix, "relay", &[]).len() as i64,
        ENOUGH * 6
    );
    says_nothing_of_mail(&post);
}

#[test]
fn a_refused_recipient_is_a_matter_of_that_recipient() {
    let Some(postfix) = Postfix::shared() else {
        return;
    };
    let mut post = Post::start_with(
        &[
            postfix.transport("refusing", ""),
            postfix.transport("impatient", ""),
        ],
        &[],
    );
    // One of three recipients is unknown: the others get the mail, and the refusal is logged.
    send(
        &mut post,
        "refusing",
        "ada@example.com, eve@unknown.example, bob@example.com",
    );
    post.wait_until_ended(1);
    assert_eq!(post.count("state = 'sent'"), 1);
    compare(&mut post, postfix, "refusing", &["eve@unknown.example"]);
    let told = post.cluster.log();
    assert!(told.contains("smtp 550 5.1.1"), "{told}");
    // The only recipient is unknown: the message ends.
    send(&mut post, "refusing", "mallory@unknown.example");
    post.wait_for("state = 'error' AND last_error = 'smtp 550 5.1.1'", 1);
    // Both are suppressed now, and no others.
    let suppressed = "SELECT string_agg(concat_ws(' ', s.address, e.type, e.status), ', ' ORDER BY s.address) \
         FROM suppressions s JOIN delivery_events e ON e.id = s.event_id";
    let suppressed: String = post.client.query_one(suppressed, &[]).unwrap().get(0);
    assert_eq!(
        suppressed,
        "eve@unknown.example rejected 5.1.1, mallory@unknown.example rejected 5.1.1"
    );
    // One of two is deferred: after nine failed attempts the other one gets the mail.
    send(&mut post, "refusing", "ada@example.com, eve@busy.example");
    post.hurry_until_ended(3);
    compare(
        &mut post,
        postfix,
        "refusing",
        &["eve@unknown.example", "eve@busy.example"],
    );
    let attempts = "SELECT count(*) FROM outbox_attempts WHERE outcome = 'failed' AND error = 'smtp 450 4.2.0'";
    assert_eq!(number(&mut post.client, attempts), 9);
    // A refusal for another reason ends the mail if it is repeated after the relay has accepted another mail.
    send(&mut post, "refusing", "eve@policy.example");
    post.wait_for("failed_attempts >= 1 AND last_error = 'smtp 554 5.7.1'", 1);
    send(&mut post, "refusing", "ada@example.com");
    post.hurry_until_ended(5);
    assert_eq!(
        post.count("state = 'error' AND last_error = 'smtp 554 5.7.1'"),
        1
    );
    // Sign-ups with invented addresses stop no mail, even if the relay closes the connection because of them.
    for transport in ["refusing", "impatient"] {
        send_many(&mut post, transport, "unknown.example", 50);
        send_many(&mut post, transport, "example.com", 200);
        post.wait_for(
            &format!(
                "transport = '{transport}' AND subject NOT LIKE '%@%' AND ended_at IS NOT NULL"
            ),
            250,
        );
        let unknown =
            "state = 'error' AND recipients[1] LIKE '%@unknown.example' AND subject NOT LIKE '%@%'";
        assert_eq!(count(&mut post, transport, unknown), 50);
        compare(
            &mut post,
            postfix,
            transport,
            &["eve@unknown.example", "eve@busy.example"],
        );
    }
    let log = post.cluster.log();
    assert!(!log.contains("paused"), "{log}");
    says_nothing_of_mail(&post);
}

#[test]
fn mail_that_is_deferred_arrives_once_it_is_taken() {
    let Some(postfix) = Postfix::shared() else {
        return;
    };
    let mut post = Post::start_with(
        &[
            postfix.transport("greylisting", ""),
            postfix.transport("narrow", ""),
            postfix.transport("slow", ""),
            postfix.transport("full", ""),
            postfix.transport("relay", ""),
        ],
        &[],
    );
    for transport in ["greylisting", "narrow", "slow", "full"] {
        send_many(&mut post, transport, "example.com", ENOUGH + 10);
    }
    for (transport, reply) in [("narrow", "421 4.7.0"), ("slow", "450 4.7.1")] {
        post.wait_for(
            &format!("transport = '{transport}' AND state = 'sent'"),
            ENOUGH + 10,
        );
        assert_eq!(
            compare(&mut post, postfix, transport, &[]).len() as i64,
            ENOUGH + 10
        );
        let log = post.cluster.log();
        assert!(log.contains(reply), "{log}");
        assert!(!log.contains(&format!("\"{transport}\" paused")), "{log}");
    }
    post.wait_for("transport = 'greylisting' AND state = 'sent'", ENOUGH + 10);
    let mails = compare(&mut post, postfix, "greylisting", &[]);
    assert_eq!(mails.len() as i64, ENOUGH + 10);
    let attempts = "SELECT count(DISTINCT outbox_id) FROM outbox_attempts WHERE error = 'smtp 450 4.2.0' AND outcome = 'failed'";
    assert!(number(&mut post.client, attempts) > 0);
    // The relay has no space left: all mail waits.
    eventually("a pause", || {
        (state(&mut post, "full") == "paused").then_some(())
    });
    assert_eq!(count(&mut post, "full", "ended_at IS NOT NULL"), 0);
    assert!(post.cluster.log().contains("smtp 452 4.3.1"));
    eventually("all of it to be given to another relay", || {
        post.client
            .batch_execute("SELECT mailroom_reroute('full', 'relay')")
            .unwrap();
        (count(&mut post, "relay", "true") == ENOUGH + 10).then_some(())
    });
    post.hurry_until_ended(4 * (ENOUGH + 10));
    assert_eq!(
        compare(&mut post, postfix, "relay", &[]).len() as i64,
        ENOUGH + 10
    );
    assert_eq!(post.count("ambiguous_attempts > 0"), 0);
    says_nothing_of_mail(&post);
}

#[test]
fn a_mail_that_is_too_large_ends_and_stops_no_other() {
    let Some(postfix) = Postfix::shared() else {
        return;
    };
    let mut post = Post::start_with(
        &[
            postfix.transport("small", ""),
            postfix.transport("silent", ""),
        ],
        &[],
    );
    for transport in ["small", "silent"] {
        post.client
            .execute(
                "SELECT mailroom_send('ada@example.com', 'Large', repeat('A canary. ', 1000), transport => $1)",
                &[&transport],
            )
            .unwrap();
        send_many(&mut post, transport, "example.com", 20);
    }
    post.hurry_until_ended(42);
    assert_eq!(post.count("state = 'sent'"), 40);
    // The relay announces its limit, or refuses the mail after reading it.
    for (transport, error) in [
        ("small", "%and the server takes 4000 at most"),
        ("silent", "smtp 552 5.3.4"),
    ] {
        let which = format!("subject = 'Large' AND state = 'error' AND last_error LIKE '{error}'");
        assert_eq!(count(&mut post, transport, &which), 1);
        assert_eq!(compare(&mut post, postfix, transport, &[]).len(), 20);
        assert_eq!(state(&mut post, transport), "healthy");
    }
    assert!(!postfix.log().contains("fatal"), "{}", postfix.log());
    says_nothing_of_mail(&post);
}
