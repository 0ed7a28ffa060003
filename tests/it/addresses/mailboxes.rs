//! Addresses with names, and lists of them: by another reader, and in any encoding.

use mailroom_core::address::mailbox::{Mailbox, elements};

use super::{TEXTS, database, python};
use crate::accounts::Random;
use crate::cluster::Cluster;

/// A list of mailboxes, of which some characters were changed.
fn list(random: &mut Random) -> String {
    const ONES: [&str; 9] = [
        "ann@example.com",
        "Ann Lee <ann@example.com>",
        "<bob@example.com>",
        "\"Lee, Bob\" <bob@example.com>",
        "\"a \\\"b\\\" \\\\ c\" <c@example.com>",
        "Ann M. Lee <a.m.lee+x@sub.example.com>",
        "\"Ann\" Lee <ann@example.com>",
        "Team: ann@example.com;",
        "Ann (work) <\"a b\"@example.com>",
    ];
    const CHANGES: &str = "\"<>(),.@:;[] \\ab";
    let ones = (0..=random.below(3)).map(|_| ONES[random.below(ONES.len())]);
    let mut text: Vec<char> = ones.collect::<Vec<_>>().join(", ").chars().collect();
    let changes: Vec<char> = CHANGES.chars().collect();
    for _ in 0..random.below(4) {
        let place = random.below(text.len());
        match random.below(3) {
            0 => drop(text.remove(place)),
            1 => text.insert(place, changes[random.below(changes.len())]),
            _ => text[place] = changes[random.below(changes.len())],
        }
    }
    text.into_iter().collect()
}

#[test]
fn a_list_is_refused_or_read_as_the_email_package_of_python_reads_it() {
    const SCRIPT: &str = "\
import email.utils, json, sys
json.dump([email.utils.getaddresses([text]) for text in json.load(sys.stdin)], sys.stdout)
";
    let mut random = Random(0x0011_570f_b0e5);
    let mut read: Vec<(String, Vec<(String, String)>)> = Vec::new();
    for _ in 0..TEXTS {
        let text = list(&mut random);
        let ones = elements(text.as_bytes());
        let ones = ones
            .into_iter()
            .map(|one| std::str::from_utf8(one).unwrap());
        let mailboxes: Result<Vec<_>, _> = ones.map(Mailbox::parse).collect();
        if let Ok(mailboxes) = mailboxes {
            let person = |one: &Mailbox| {
                let name = one.name().unwrap_or_default().to_owned();
                (name, one.address().to_owned())
            };
            let people = mailboxes.iter().map(person).collect();
            read.push((text, people));
        }
    }
    assert!((1_000..9_000).contains(&read.len()), "{}", read.len());
    let texts: Vec<&String> = read.iter().map(|(text, _)| text).collect();
    let output = python(SCRIPT, &serde_json::to_string(&texts).unwrap());
    let by_python: Vec<Vec<(String, String)>> = serde_json::from_slice(&output).unwrap();
    for ((text, people), others) in read.iter().zip(&by_python) {
        assert_eq!(people, others, "{text}");
    }
}

#[test]
fn names_headers_and_senders_are_judged_in_any_encoding() {
    let cluster = Cluster::start(&["shared_preload_libraries = ''"]);
    for encoding in ["UTF8", "LATIN1", "SQL_ASCII"] {
        let mut client = database(&cluster, encoding);
        let send =
            "SELECT mailroom_send($1, 'S', 'T', from_address => $2, headers => $3::text::jsonb)";
        let (to, from) = (
            "\"Müller, Zoë\" <zoe@example.com>, b@example.com",
            "Bücher <b@example.com>",
        );
        client
            .execute(send, &[&to, &from, &"{\"X-A\": \"Grüße\"}"])
            .unwrap();
        let read = "SELECT o.recipients::text[], o.from_address::text, o.headers ->> 'X-A', a.addresses \
             FROM outbox o JOIN _mail_addresses a USING (id)";
        let row = client.query_one(read, &[]).unwrap();
        assert_eq!(
            row.get::<_, Vec<String>>(0),
            ["\"Müller, Zoë\" <zoe@example.com>", "b@example.com"],
            "{encoding}"
        );
        assert_eq!(row.get::<_, String>(1), from, "{encoding}");
        assert_eq!(row.get::<_, String>(2), "Grüße", "{encoding}");
        assert_eq!(
            row.get::<_, Vec<String>>(3),
            ["zoe@example.com", "b@example.com"],
            "{encoding}"
        );
        for (to, from, headers) in [
            ("Zoë\u{85} <zoe@example.com>", from, "{}"),
            ("Zoë <zoe@example.com> (ü)", from, "{}"),
            (to, "Bücher\n <b@example.com>", "{}"),
            (to, from, "{\"X-A\": \"Grüße\\n\"}"),
            (to, from, "{\"List-Id\": \"Grüße\"}"),
        ] {
            let error = client.execute(send, &[&to, &from, &headers]).unwrap_err();
            let expected = if headers == "{}" { "22P02" } else { "22023" };
            assert_eq!(
                error.code().unwrap().code(),
                expected,
                "{encoding}: {to} {from} {headers}"
            );
        }
    }
    // Bytes that are no characters.
    let mut client = cluster.connect("in_sql_ascii");
    for field in [
        "recipients => E'Zo\\xeb <a@example.com>'",
        "recipients => 'a@example.com', from_address => E'Zo\\xeb <a@example.com>'",
        "recipients => 'a@example.com', headers => jsonb_build_object('X-A', E'Zo\\xeb')",
        "recipients => 'a@example.com', unsubscribe_url => E'https://example.com/\\xeb'",
    ] {
        let query = format!("SELECT mailroom_send({field}, subject => 'S', body_text => 'T')");
        let error = client.batch_execute(&query).unwrap_err();
        let code = error.code().unwrap().code();
        assert!(["22P02", "22023"].contains(&code), "{field}: {error}");
    }
}
