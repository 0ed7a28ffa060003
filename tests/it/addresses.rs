//! What an address is: accounts, mail and the deliverer take the same ones, in any encoding, and what a claimant gets
//! is read by parsers in the Python of MAILROOM_PYTHON as the mailbox that it names.

use std::collections::BTreeSet;
use std::io::Write;
use std::process::{Command, Stdio};

use mailroom_core::address;
use mailroom_core::address::mailbox::Mailbox;
use postgres::Client;
use postgres::error::SqlState;

use crate::accounts::Random;
use crate::cluster::{Cluster, number};

mod mailboxes;
mod search;

/// Texts that are compared.
const TEXTS: usize = 10_000;

/// Letters, marks, digits, signs, blanks and invisible characters: some of each general category of Unicode.
const ODD: &str = "äÄßøΣςЖжא中あ한ａｄ１²Ⅷ्́⃝\u{34f}\u{fe0f}–—‿«»„§€¬^˘¨±→☎😀\u{a0}\u{3000}\u{2028}\u{2029}\
     \u{85}\u{7f}\u{1}\t\r\n\u{ad}\u{200b}\u{200c}\u{200d}\u{200e}\u{202e}\u{2060}\u{2066}\u{feff}\u{e000}\u{378}\
     \u{fffd}\u{e0041}\u{10ffff}ǅʰƻİıȺ。．＠，；：＜＞（）℀\u{301}\u{308}";

/// Characters with a meaning in the syntax of mail.
const SYNTAX: &str = "\"()<>[]@,;:\\ .'=%!";

/// Text that is an address, or nearly.
fn text(random: &mut Random, odd: &[char], syntax: &[char]) -> String {
    let mut part = |longest: usize| -> String {
        let length = 1 + random.below(longest);
        let character = |random: &mut Random| match random.below(24) {
            0 => odd[random.below(odd.len())],
            1 if random.below(3) == 0 => syntax[random.below(syntax.len())],
            2 => char::from_u32(1 + u32::try_from(random.below(0x1_1000)).unwrap()).unwrap_or('x'),
            _ => char::from(b"abcdefgXYZ019-"[random.below(14)]),
        };
        (0..length).map(|_| character(random)).collect()
    };
    let (local, label, other) = (part(8), part(6), part(6));
    match random.below(16) {
        0 => format!("\"{local}\"@{label}.example"),
        1 => format!("<{local}@evil.example>.{label}.example"),
        2 => format!("{local}@{other}@{label}.example"),
        3 => format!("mailto:{local}@{label}.example"),
        4 => format!("{local}@{label}.example."),
        5 => format!("{local}({other})@{label}.example"),
        6 => format!("{other} <{local}@{label}.example>"),
        7 => format!("{local}@{label}..example"),
        8 => format!("{local}@[127.0.0.1]"),
        _ => format!("{local}@{label}.example"),
    }
}

fn texts() -> Vec<String> {
    let mut random = Random(0x5eed_add8_e55e);
    let odd: Vec<char> = ODD.chars().collect();
    let syntax: Vec<char> = SYNTAX.chars().collect();
    (0..TEXTS)
        .map(|_| text(&mut random, &odd, &syntax))
        .collect()
}

/// The address that a parser of Python finds in each text, or an empty one: of the header of a mail, as the senders of
/// the guide write it, of a header of old, and for RCPT.
fn read_by_python(texts: &[String]) -> Vec<[String; 3]> {
    const SCRIPT: &str = "\
import email.message, email.policy, email.utils, json, smtplib, sys

def header(text):
    message = email.message.EmailMessage(policy=email.policy.SMTPUTF8)
    message['To'] = text
    return ','.join(address.addr_spec for address in message['To'].addresses)

def read(text):
    return [header(text), email.utils.parseaddr(text)[1], smtplib.quoteaddr(text)[1:-1]]

json.dump([read(text) for text in json.load(sys.stdin)], sys.stdout)
";
    let output = python(SCRIPT, &serde_json::to_string(texts).unwrap());
    serde_json::from_slice(&output).unwrap()
}

/// What a script of the Python of MAILROOM_PYTHON writes that reads this.
fn python(script: &str, read: &str) -> Vec<u8> {
    let python = std::env::var("MAILROOM_PYTHON").unwrap();
    let mut child = Command::new(python)
        .args(["-B", "-c", script])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut input = child.stdin.take().unwrap();
    input.write_all(read.as_bytes()).unwrap();
    drop(input);
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success());
    output.stdout
}

/// Functions that try a text as an address, and leave nothing behind.
const TRIES: &str = "\
    CREATE FUNCTION account_key(given text) RETURNS text LANGUAGE plpgsql AS $$ \
    DECLARE key text; \
    BEGIN \
        INSERT INTO accounts (email, login) VALUES (given, 'tried') RETURNING email INTO key; \
        RAISE SQLSTATE 'TRY00'; \
    EXCEPTION \
        WHEN SQLSTATE 'TRY00' THEN RETURN key; \
        WHEN check_violation THEN RETURN NULL; \
    END $$; \
    CREATE FUNCTION may_be_sent_to(given text) RETURNS boolean LANGUAGE plpgsql AS $$ \
    BEGIN \
        PERFORM mailroom_send_many(jsonb_build_array(jsonb_build_object( \
            'recipients', jsonb_build_array(given), 'subject', 'S', 'body_text', 'T'))); \
        RAISE SQLSTATE 'TRY00'; \
    EXCEPTION \
        WHEN SQLSTATE 'TRY00' THEN RETURN true; \
        WHEN invalid_text_representation THEN RETURN false; \
    END $$";

#[test]
fn accounts_mail_and_deliverer_accept_the_same_addresses() {
    let (_cluster, mut client) = Cluster::start_with_app(&["shared_preload_libraries = ''"]);
    client.batch_execute(TRIES).unwrap();
    let texts = texts();
    let rows = client
        .query(
            "SELECT account_key(t), may_be_sent_to(t), mailroom_address_key(t) \
             FROM unnest($1::text[]) WITH ORDINALITY u (t, place) ORDER BY place",
            &[&texts],
        )
        .unwrap();
    let mut keys = BTreeSet::new();
    for (text, row) in texts.iter().zip(&rows) {
        let key: Option<String> = row.get(0);
        let expected = address::key(text).ok();
        assert_eq!(key.as_deref(), expected.as_deref(), "{text:?}");
        let is_mailbox = Mailbox::parse(text).is_ok();
        assert_eq!(row.get::<_, bool>(1), is_mailbox, "{text:?}");
        assert!(is_mailbox || key.is_none(), "{text:?}");
        let public: Option<String> = row.get(2);
        let trimmed = text.trim_matches([' ', '\t']);
        assert_eq!(
            public.as_deref(),
            address::key(trimmed).ok().as_deref(),
            "{text:?}"
        );
        keys.extend(key);
    }
    assert!((2_000..9_000).contains(&keys.len()), "{}", keys.len());
    assert!(keys.iter().filter(|key| !key.is_ascii()).count() > 300);

    // What a claimant gets for these accounts.
    let keys: Vec<String> = keys.into_iter().collect();
    client
        .execute(
            "INSERT INTO accounts (email, login) SELECT k, 'login ' || place FROM unnest($1::text[]) WITH ORDINALITY u (k, place)",
            &[&keys],
        )
        .unwrap();
    client
        .batch_execute("SELECT mailroom_collect(100000)")
        .unwrap();
    let claimed: BTreeSet<String> = client
        .query(
            "SELECT unnest(recipients::text[]) FROM mailroom_claim(100000)",
            &[],
        )
        .unwrap()
        .iter()
        .map(|row| row.get(0))
        .collect();
    assert_eq!(claimed, keys.iter().cloned().collect());
    for (key, read) in keys.iter().zip(read_by_python(&keys)) {
        // A parser may refuse it, and then finds nothing.
        for found in read.iter().filter(|found| !found.is_empty()) {
            assert_eq!(found, key, "{read:?}");
        }
        // A program that splits a list at commas, and takes what is in angle brackets.
        let naive = key
            .split(',')
            .next()
            .and_then(|first| first.split('<').next_back());
        assert_eq!(naive.map(str::trim), Some(key.as_str()));
    }
    let read = read_by_python(&keys[..100]);
    assert!(
        read.iter()
            .flatten()
            .filter(|found| !found.is_empty())
            .count()
            > 200
    );
}

/// A database with this encoding, and text in its bytes.
fn database(cluster: &Cluster, encoding: &str) -> Client {
    let name = format!("in_{}", encoding.to_lowercase());
    cluster
        .connect("postgres")
        .batch_execute(&format!(
            "CREATE DATABASE {name} ENCODING '{encoding}' LOCALE 'C' TEMPLATE template0"
        ))
        .unwrap();
    let mut client = cluster.connect(&name);
    client.batch_execute("CREATE EXTENSION mailroom").unwrap();
    client
}

#[test]
fn one_mailbox_is_one_account_in_any_encoding() {
    let cluster = Cluster::start(&["shared_preload_libraries = ''"]);
    for (encoding, address, key) in [
        ("UTF8", "Ü@Bücher.example", "ü@xn--bcher-kva.example"),
        ("LATIN1", "Ü@Bücher.example", "ü@xn--bcher-kva.example"),
        ("LATIN5", "İ@Bücher.example", "İ@xn--bcher-kva.example"),
        ("EUC_JP", "日本@例え。example", "日本@xn--r8jz45g.example"),
        ("SQL_ASCII", "Ü@Bücher.example", "ü@xn--bcher-kva.example"),
    ] {
        let mut client = database(&cluster, encoding);
        let insert = "INSERT INTO accounts (email, login, status) VALUES ($1, $2, 'active')";
        client.execute(insert, &[&address, &"one"]).unwrap();
        let stored: String = client
            .query_one("SELECT email FROM accounts", &[])
            .unwrap()
            .get(0);
        assert_eq!(stored, key, "{encoding}");
        let error = client
            .execute(insert, &[&key, &"other"])
            .expect_err(encoding);
        assert_eq!(
            error.code(),
            Some(&SqlState::UNIQUE_VIOLATION),
            "{encoding}"
        );
        client
            .execute("SELECT mailroom_request_recovery($1 || ' ')", &[&address])
            .unwrap();
        assert_eq!(
            number(&mut client, "SELECT mailroom_answer_requests()::bigint"),
            1,
            "{encoding}"
        );
        assert_eq!(
            number(&mut client, "SELECT mailroom_collect()::bigint"),
            1,
            "{encoding}"
        );
    }
}

#[test]
fn text_that_cannot_be_read_is_no_address_and_no_login() {
    let cluster = Cluster::start(&["shared_preload_libraries = ''"]);
    let mut client = database(&cluster, "SQL_ASCII");
    for (email, login, rule) in [
        (
            "'a' || chr(252) || '@example.com'",
            "'a'",
            "accounts_email_must_be_an_address",
        ),
        (
            "'a@b' || chr(252) || 'cher.example'",
            "'a'",
            "accounts_email_must_be_an_address",
        ),
        (
            "'a@example.com'",
            "'a' || chr(252)",
            "accounts_login_must_be_text",
        ),
    ] {
        let error = client
            .batch_execute(&format!(
                "INSERT INTO accounts (email, login) VALUES ({email}, {login})"
            ))
            .unwrap_err();
        let error = error.as_db_error().unwrap();
        assert_eq!(error.constraint(), Some(rule), "{error:?}");
    }
    // The control characters of an encoding are those of Unicode.
    let mut client = database(&cluster, "LATIN1");
    for (statement, code) in [
        (
            "INSERT INTO accounts (email, login) VALUES ('a@example.com', 'a' || chr(133))",
            SqlState::CHECK_VIOLATION,
        ),
        (
            "SELECT mailroom_send('a@example.com', 'a' || chr(133), 'T')",
            SqlState::INVALID_PARAMETER_VALUE,
        ),
        (
            "INSERT INTO outbox (kind, recipients, subject) VALUES ('x', '{a@example.com}', 'a' || chr(133))",
            SqlState::CHECK_VIOLATION,
        ),
        (
            "SELECT mailroom_send('a' || chr(173) || '@example.com', 'S', 'T')",
            SqlState::INVALID_TEXT_REPRESENTATION,
        ),
    ] {
        let error = client.batch_execute(statement).expect_err(statement);
        assert_eq!(error.code(), Some(&code), "{statement}");
    }
}

/// A rule of today refuses no row of a dump.
#[test]
fn a_restored_account_is_as_it_was_and_ends_where_it_would_be_handed_out() {
    let (cluster, mut client) = Cluster::start_with_app(&["shared_preload_libraries = ''"]);
    client
        .batch_execute(
            "ALTER TABLE accounts DISABLE TRIGGER accounts_normalise; \
             INSERT INTO accounts (email, login) VALUES ('ada@example.com.', ' ada'), ('bob@example.com', 'bob'); \
             ALTER TABLE accounts ENABLE TRIGGER accounts_normalise",
        )
        .unwrap();
    let dump = cluster.program("pg_dump").arg("app").output().unwrap();
    cluster
        .connect("postgres")
        .batch_execute("CREATE DATABASE restored TEMPLATE template0")
        .unwrap();
    let mut psql = cluster
        .program("psql")
        .args(["-X", "-q", "-v", "ON_ERROR_STOP=1", "-d", "restored"])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    psql.stdin.take().unwrap().write_all(&dump.stdout).unwrap();
    assert!(psql.wait().unwrap().success());
    let mut client = cluster.connect("restored");
    let emails =
        "SELECT count(*) FROM accounts WHERE email IN ('ada@example.com.', 'bob@example.com')";
    assert_eq!(number(&mut client, emails), 2);
    assert_eq!(number(&mut client, "SELECT mailroom_collect()::bigint"), 1);
    let ended = "SELECT count(*) FROM outbox WHERE state = 'error' AND last_error = 'email of the account is not an address'";
    assert_eq!(number(&mut client, ended), 1);
}
