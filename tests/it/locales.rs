//! Databases of other locales and encodings: an address is the same mailbox in each.

use crate::cluster::{Cluster, number, skip};
use postgres::Client;
use postgres::error::SqlState;

/// Locales in which lower() of `I`, `Ì` or `Ü` differs.
const LOCALES: [(&str, &str); 5] = [
    ("turkish", "LOCALE_PROVIDER icu ICU_LOCALE 'tr-TR'"),
    ("azeri", "LOCALE_PROVIDER icu ICU_LOCALE 'az'"),
    ("lithuanian", "LOCALE_PROVIDER icu ICU_LOCALE 'lt'"),
    ("root", "LOCALE_PROVIDER icu ICU_LOCALE 'und'"),
    ("plain", "LOCALE 'C'"),
];

/// The locales that this server supports.
fn locales(client: &mut Client) -> impl Iterator<Item = (&'static str, &'static str)> {
    let icu = number(
        client,
        "SELECT count(*) FROM pg_collation WHERE collname LIKE '%-x-icu'",
    );
    if icu == 0 {
        skip("the locales of ICU, with which this server was not built");
    }
    LOCALES
        .into_iter()
        .filter(move |(_, options)| icu > 0 || !options.contains("icu"))
}

fn create(cluster: &Cluster, name: &str, options: &str) -> Client {
    cluster
        .connect("postgres")
        .batch_execute(&format!(
            "CREATE DATABASE {name} {options} TEMPLATE template0"
        ))
        .unwrap_or_else(|error| panic!("{name}: {error:?}"));
    let mut client = cluster.connect(name);
    client.batch_execute("CREATE EXTENSION mailroom").unwrap();
    client
}

fn texts(client: &mut Client, query: &str) -> Vec<String> {
    client
        .query(query, &[])
        .unwrap_or_else(|error| panic!("{query}: {error:?}"))
        .iter()
        .map(|row| row.get(0))
        .collect()
}

#[test]
fn an_address_is_one_account_in_any_locale() {
    let cluster = Cluster::start(&["shared_preload_libraries = ''"]);
    let found: Vec<_> = locales(&mut cluster.connect("postgres")).collect();
    for (name, options) in found {
        let mut client = create(&cluster, name, &format!("ENCODING 'UTF8' {options}"));
        client
            .batch_execute(
                "INSERT INTO accounts (email, login) \
                 VALUES ('INFO@EXAMPLE.COM', 'INGRID'), ('ÌDA.MÜLLER@EXAMPLE.COM', 'ÌDA MÜLLER')",
            )
            .unwrap();
        assert_eq!(
            texts(
                &mut client,
                "SELECT email || ' ' || login FROM accounts ORDER BY id"
            ),
            [
                "info@example.com ingrid",
                "ìda.müller@example.com ìda müller"
            ],
            "{name}"
        );
        for (email, login) in [
            ("info@example.com", "another"),
            ("Info@Example.Com", "another"),
            ("another@example.com", "Ingrid"),
            ("another@example.com", "ìda müller"),
        ] {
            let error = client
                .execute(
                    "INSERT INTO accounts (email, login) VALUES ($1, $2)",
                    &[&email, &login],
                )
                .expect_err(name);
            assert_eq!(error.code(), Some(&SqlState::UNIQUE_VIOLATION), "{name}");
        }
        let added = client
            .execute(
                "INSERT INTO accounts (email, login) VALUES ('INFO@example.COM', 'another'), \
                 ('info@example.com', 'a third'), ('Ìda.Müller@example.com', 'a fourth') \
                 ON CONFLICT (email) DO NOTHING",
                &[],
            )
            .unwrap();
        assert_eq!(added, 0, "{name}");
        client.batch_execute("SELECT mailroom_collect()").unwrap();
        assert_eq!(
            texts(
                &mut client,
                "SELECT unnest(recipients)::text FROM outbox ORDER BY id"
            ),
            ["info@example.com", "ìda.müller@example.com"],
            "{name}"
        );
        // A request finds the account in any case.
        client
            .batch_execute("UPDATE accounts SET status = 'active'")
            .unwrap();
        for email in ["INFO@EXAMPLE.COM", "ÌDA.MÜLLER@EXAMPLE.COM"] {
            client
                .execute("SELECT mailroom_request_recovery($1)", &[&email])
                .unwrap();
        }
        client
            .batch_execute("SELECT mailroom_answer_requests()")
            .unwrap();
        assert_eq!(
            texts(
                &mut client,
                "SELECT a.login FROM tokens t JOIN accounts a ON a.id = t.account \
                 WHERE t.action = 'password_recovery' ORDER BY a.id"
            ),
            ["ingrid", "ìda müller"],
            "{name}"
        );
    }
}

#[test]
fn a_table_of_ones_own_is_attached_in_any_locale() {
    let cluster = Cluster::start(&["shared_preload_libraries = ''"]);
    let found: Vec<_> = locales(&mut cluster.connect("postgres")).collect();
    for (name, options) in found {
        let mut client = create(&cluster, name, &format!("ENCODING 'UTF8' {options}"));
        client
            .batch_execute(
                "CREATE TABLE people (mail text COLLATE \"C\", nick text); \
                 INSERT INTO people VALUES ('IVAN@EXAMPLE.COM', 'Ivan'), ('INES@EXAMPLE.COM', 'Ines'); \
                 INSERT INTO accounts (email, login, status) VALUES ('ivan@example.com', 'ivan', 'active')",
            )
            .unwrap();
        let query =
            "SELECT a.email || ' ' || a.login FROM accounts a ORDER BY a.email COLLATE \"C\"";
        assert_eq!(
            number(
                &mut client,
                "SELECT mailroom_attach('people', 'mail', 'nick')"
            ),
            2,
            "{name}"
        );
        assert_eq!(
            texts(&mut client, query),
            ["ines@example.com ines", "ivan@example.com ivan"],
            "{name}"
        );
        client
            .batch_execute(
                "UPDATE people SET nick = 'Isa' WHERE mail = 'INES@EXAMPLE.COM'; \
                 UPDATE people SET mail = 'ILSE@EXAMPLE.COM' WHERE nick = 'Ivan'; \
                 INSERT INTO people VALUES ('IRIS@EXAMPLE.COM', 'Iris'), ('INGE@EXAMPLE.COM', 'Inge'); \
                 UPDATE people SET mail = NULL WHERE mail = 'IRIS@EXAMPLE.COM'; \
                 DELETE FROM people WHERE mail = 'INGE@EXAMPLE.COM'",
            )
            .unwrap();
        assert_eq!(
            texts(&mut client, query),
            ["ilse@example.com ivan", "ines@example.com isa"],
            "{name}"
        );
        // Another table cannot get the account of the same address in another case.
        client
            .batch_execute(
                "CREATE TABLE others (mail text); INSERT INTO others VALUES ('Ines@Example.com')",
            )
            .unwrap();
        let error = client
            .batch_execute("SELECT mailroom_attach('others', 'mail')")
            .expect_err(name);
        assert_eq!(error.code(), Some(&SqlState::UNIQUE_VIOLATION), "{name}");
    }
}

#[test]
fn letters_are_folded_in_any_encoding() {
    let cluster = Cluster::start(&["shared_preload_libraries = ''"]);
    for (encoding, given, folded) in [
        ("UTF8", "4dc39c4c4c4552", "6dc3bc6c6c6572"),
        ("LATIN1", "4ddc4c4c4552", "6dfc6c6c6572"),
        ("WIN1252", "8adc9f", "9afcff"),
        // A dotted capital I has no lower-case letter in this encoding, and stays.
        ("LATIN5", "c7ddc74549", "e7dde76569"),
        // Full-width letters.
        ("EUC_JP", "41a3c1b0a1", "61a3e1b0a1"),
        ("EUC_TW", "41a4c1", "61a4db"),
        ("KOI8R", "f041", "d061"),
        // The encoding is unknown, so only ASCII is folded.
        ("SQL_ASCII", "4ddc4cc39c", "6ddc6cc39c"),
    ] {
        let name = format!("in_{}", encoding.to_lowercase());
        let options = format!("ENCODING '{encoding}' LOCALE 'C'");
        let mut client = create(&cluster, &name, &options);
        assert_eq!(
            texts(
                &mut client,
                &format!(
                    "SELECT encode(convert_to(_fold(convert_from('\\x{given}', '{encoding}')), '{encoding}'), 'hex')"
                )
            ),
            [folded],
            "{encoding}"
        );
        // Longer than what the conversions process at a time.
        assert_eq!(
            texts(
                &mut client,
                &format!(
                    "SELECT (_fold(repeat(convert_from('\\x{given}', '{encoding}'), 100000)) \
                             = repeat(convert_from('\\x{folded}', '{encoding}'), 100000))::text"
                )
            ),
            ["true"],
            "{encoding}"
        );
    }
    // By a client, which sends UTF-8.
    let mut client = cluster.connect("in_latin1");
    client
        .batch_execute("INSERT INTO accounts (email, login) VALUES ('A@EXAMPLE.COM', 'MÜLLER')")
        .unwrap();
    assert_eq!(texts(&mut client, "SELECT login FROM accounts"), ["müller"]);
}

/// Bounces, complaints and clicks find an address by its key.
#[test]
fn an_address_is_suppressed_in_any_locale_and_encoding() {
    let cluster = Cluster::start(&[
        "shared_preload_libraries = ''",
        "mailroom.link_base_url = 'https://example.com'",
    ]);
    let locales: Vec<_> = locales(&mut cluster.connect("postgres")).collect();
    let mut databases: Vec<(String, String)> = locales
        .iter()
        .map(|(name, options)| ((*name).to_owned(), format!("ENCODING 'UTF8' {options}")))
        .collect();
    for encoding in ["LATIN1", "SQL_ASCII"] {
        let options = format!("ENCODING '{encoding}' LOCALE 'C'");
        databases.push((encoding.to_lowercase(), options));
    }
    for (name, options) in databases {
        let mut client = create(&cluster, &name, &options);
        let written = [
            "Ìda Ilgin <ÌDA.ILGIN@BÜCHER.EXAMPLE>",
            "ìda.ilgin@xn--bcher-kva.example",
        ];
        for (one, other) in [(0, 1), (1, 0)] {
            client
                .batch_execute("TRUNCATE suppressions, delivery_events, outbox RESTART IDENTITY")
                .unwrap();
            let bare = "SELECT mailroom_suppress((_bare_addresses(ARRAY[$1]))[1], 'news')";
            let is_new = |client: &mut Client, address: &str| -> bool {
                client.query_one(bare, &[&address]).unwrap().get(0)
            };
            assert!(is_new(&mut client, written[one]), "{name}");
            assert!(!is_new(&mut client, written[other]), "{name}");
            let send = "SELECT mailroom_send($1, 'S', 'T', list => 'news')";
            client.execute(send, &[&written[other]]).unwrap();
            client.execute("SELECT mailroom_claim(1)", &[]).unwrap();
            let ended = "SELECT count(*) FROM outbox WHERE state = 'suppressed'";
            assert_eq!(number(&mut client, ended), 1, "{name}");
            // The link of one is that of the other.
            let link = "SELECT mailroom_unsubscribe(split_part(mailroom_unsubscribe_url((_bare_addresses(ARRAY[$1]))[1], 'Für alle'), '=', 2))";
            client.execute(link, &[&written[one]]).unwrap();
            client.execute(link, &[&written[other]]).unwrap();
            let rows = "SELECT count(*) FROM suppressions WHERE reason = 'unsubscribed'";
            assert_eq!(number(&mut client, rows), 1, "{name}");
        }
    }
}
