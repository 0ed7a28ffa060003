//! Databases in other encodings than UTF-8: mail contains what was written, and mail with invalid text ends alone (I8).

use std::sync::{Arc, Mutex};

use crate::cluster::{Cluster, eventually, number};
use crate::post::Post;
use crate::receiver::{Reaction, Receiver, Request, status};

/// Encodings, each with a text that it can represent, and the stored bytes in hexadecimal.
const ENCODINGS: [(&str, &str, &str); 5] = [
    ("LATIN1", "Grüße ÿ", "4772fcdf6520ff"),
    ("LATIN5", "İyi ğ", "dd796920f0"),
    ("WIN1252", "Grüße – €", "4772fcdf652096 2080"),
    ("EUC_JP", "日本 ü", "c6fccbdc208fabe4"),
    ("UTF8", "Grüße 日本", "4772c3bcc39f6520e697a5e69cac"),
];

#[test]
fn i8_words_are_sent_as_they_were_written_in_any_encoding() {
    let seen: Arc<Mutex<Vec<Request>>> = Arc::default();
    let log = Arc::clone(&seen);
    let receiver = Receiver::start(move |request| {
        log.lock().unwrap().push(request.clone());
        status(200)
    });
    let post = Post::start(
        &receiver,
        &["mailroom.batch_timeout = 0", "max_worker_processes = 20"],
    );
    for (encoding, words, stored) in ENCODINGS {
        let name = format!("in_{}", encoding.to_lowercase());
        post.cluster
            .connect("postgres")
            .batch_execute(&format!(
                "CREATE DATABASE {name} ENCODING '{encoding}' LOCALE 'C' TEMPLATE template0"
            ))
            .unwrap();
        let mut client = post.cluster.connect(&name);
        client
            .batch_execute(&format!(
                "CREATE EXTENSION mailroom; \
                 INSERT INTO templates (kind, locale, subject, body_text, body_html) \
                 VALUES ('greeting', 'en', '{words} {{{{ name }}}}', '{words}: {{{{ name }}}}', '<p>{words} {{{{ name }}}}</p>')"
            ))
            .unwrap();
        client
            .execute(
                "SELECT mailroom_send('plain@example.com', $1, $1, '<p>' || $1 || '</p>', data => jsonb_build_object('name', $1))",
                &[&words],
            )
            .unwrap();
        client
            .execute(
                "SELECT mailroom_send('rendered@example.com', kind => 'greeting', data => jsonb_build_object('name', $1::text))",
                &[&words],
            )
            .unwrap();
        client
            .execute(
                "INSERT INTO accounts (email, login) VALUES ('account@example.com', $1)",
                &[&words],
            )
            .unwrap();
        let kept: String = client
            .query_one(
                "SELECT encode(convert_to(subject, getdatabaseencoding()::name), 'hex') FROM outbox WHERE kind = 'message'",
                &[],
            )
            .unwrap()
            .get(0);
        assert_eq!(kept, stored.replace(' ', ""), "{encoding}");
        eventually("three mails", || {
            (number(
                &mut client,
                "SELECT count(*) FROM outbox WHERE state = 'sent'",
            ) == 3)
                .then_some(())
        });
        let ids: Vec<String> = client
            .query("SELECT message_id::text FROM outbox ORDER BY kind", &[])
            .unwrap()
            .iter()
            .map(|row| row.get(0))
            .collect();
        let seen = seen.lock().unwrap();
        let body = |id: &String| -> serde_json::Value {
            let request = seen.iter().find(|request| request.message_id() == id);
            serde_json::from_str(&request.unwrap().body).unwrap()
        };
        let (account, rendered, plain) = (body(&ids[0]), body(&ids[1]), body(&ids[2]));
        assert_eq!(plain["data"]["subject"], words, "{encoding}");
        assert_eq!(plain["data"]["text"], words, "{encoding}");
        assert_eq!(
            plain["data"]["html"],
            format!("<p>{words}</p>"),
            "{encoding}"
        );
        assert_eq!(plain["data"]["variables"]["name"], words, "{encoding}");
        assert_eq!(
            rendered["data"]["subject"],
            format!("{words} {words}"),
            "{encoding}"
        );
        assert_eq!(
            rendered["data"]["html"],
            format!("<p>{words} {words}</p>"),
            "{encoding}"
        );
        let login = account["data"]["variables"]["login"].as_str().unwrap();
        assert_eq!(
            login,
            words.to_lowercase().replace("i\u{307}", "İ"),
            "{encoding}"
        );
    }
}

#[test]
fn i8_what_is_no_text_ends_alone() {
    let receiver = Receiver::start(|_| status(200));
    let post = Post::start(&receiver, &[]);
    post.cluster
        .connect("postgres")
        .batch_execute(
            "CREATE DATABASE anything ENCODING 'SQL_ASCII' LOCALE 'C' TEMPLATE template0",
        )
        .unwrap();
    let mut client = post.cluster.connect("anything");
    client
        .batch_execute(
            "CREATE EXTENSION mailroom; \
             BEGIN; \
             INSERT INTO outbox (recipients, kind, subject, body_text, priority) VALUES \
             ('{a@example.com}', 'x', 'Gr' || chr(252) || 'n', 'T', -1), ('{a@example.com}', 'x', 'S', 'Gr' || chr(252) || 'n', -1); \
             SELECT mailroom_send('a@example.com', 'S', 'T', data => jsonb_build_object('a', chr(252)), priority => -1); \
             SELECT mailroom_send('a@example.com', 'Grün', 'T', kind => 'said'); \
             SELECT mailroom_send('a@example.com', 'S', 'T', kind => 'said'); \
             COMMIT",
        )
        .unwrap();
    for contents in [
        "'Gr' || chr(252) || 'n', 'T'",
        "'S', 'Gr' || chr(252) || 'n'",
    ] {
        let send = format!("SELECT mailroom_send('a@example.com', {contents})");
        let error = client.batch_execute(&send).unwrap_err();
        assert_eq!(
            error.code(),
            Some(&postgres::error::SqlState::INVALID_PARAMETER_VALUE)
        );
    }
    eventually("five mails to end", || {
        (number(
            &mut client,
            "SELECT count(*) FROM outbox WHERE ended_at IS NOT NULL",
        ) == 5)
            .then_some(())
    });
    let ends: Vec<String> = client
        .query(
            "SELECT concat_ws(': ', state, last_error) FROM outbox ORDER BY id",
            &[],
        )
        .unwrap()
        .iter()
        .map(|row| row.get(0))
        .collect();
    let refused = |column| {
        format!("error: {column} holds bytes that are no characters in the database's encoding")
    };
    assert_eq!(
        ends,
        [
            refused("subject"),
            refused("body_text"),
            refused("data"),
            "sent".to_owned(),
            "sent".to_owned()
        ]
    );
}

#[test]
fn i8_what_a_receiver_says_is_kept_as_far_as_the_database_can_say_it() {
    let receiver =
        Receiver::start(|_| Reaction::Answer(422, String::new(), "nicht gültig – 日本".to_owned()));
    let post = Post::start(&receiver, &[]);
    post.cluster
        .connect("postgres")
        .batch_execute("CREATE DATABASE latin ENCODING 'LATIN1' LOCALE 'C' TEMPLATE template0")
        .unwrap();
    let mut client = post.cluster.connect("latin");
    client
        .batch_execute("CREATE EXTENSION mailroom; SELECT mailroom_send('a@example.com', 'Grün', 'T', max_attempts => 1)")
        .unwrap();
    let told = eventually("the end", || {
        client
            .query_opt("SELECT last_error FROM outbox WHERE state = 'error'", &[])
            .unwrap()
            .map(|row| row.get::<_, String>(0))
    });
    assert!(!told.contains('\u{c3}'), "{told}");
}

/// The worker of the database with this name, for a session of the encoding in which the name was given.
const WORKER: &str = "SELECT FROM pg_database d JOIN pg_stat_activity a ON a.datid = d.oid \
     WHERE d.datname = $1::text AND a.backend_type = 'mailroom worker'";

#[test]
fn names_beyond_ascii_are_served_in_any_encoding() {
    let receiver = Receiver::start(|_| status(200));
    let databases = "databases = [\"größe_latin1\", \"größe_euc_jp\", \"größe_utf8\", \"größe_sql_ascii\", \"größe_copy\"]";
    let table = format!(
        "[transports.main]\nprovider = \"webhook\"\nendpoint = \"{}\"\nallowed_networks = [\"127.0.0.1\"]\n{}\"\n\
         allow_from = [\"*@bücher.example\"]\n{databases}\n",
        receiver.endpoint(),
        crate::post::SECRET.replace("= ", "= \""),
    );
    let cluster = Cluster::start_with_file(
        &[
            "mailroom.transports_file = 'transports.toml'",
            "mailroom.transport = 'main'",
            "max_worker_processes = 20",
        ],
        "transports.toml",
        &table,
    );
    let mut admin = cluster.connect("postgres");
    for encoding in ["LATIN1", "EUC_JP", "UTF8", "SQL_ASCII"] {
        let name = format!("größe_{}", encoding.to_lowercase());
        admin
            .batch_execute(&format!(
                "CREATE DATABASE \"{name}\" ENCODING '{encoding}' LOCALE 'C' TEMPLATE template0"
            ))
            .unwrap();
        let mut client = cluster.connect(&name);
        client
            .batch_execute(
                "CREATE SCHEMA \"Größe\"; CREATE EXTENSION mailroom SCHEMA \"Größe\"; SET search_path = \"Größe\"",
            )
            .unwrap();
        client
            .batch_execute("SELECT mailroom_send('a@example.com', 'S', 'T')")
            .unwrap();
        eventually(&format!("a mail from {name}"), || {
            (number(
                &mut client,
                "SELECT count(*) FROM outbox WHERE state = 'sent'",
            ) == 1)
                .then_some(())
        });
        // In this isolation level mailroom_revoke reads tokens by a function whose schema has this name.
        for statements in [
            "INSERT INTO accounts (email, login) VALUES ('b@example.com', 'b')",
            "BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT mailroom_revoke(id) FROM accounts; COMMIT",
        ] {
            client.batch_execute(statements).unwrap();
        }
        let worker = crate::cluster::find_worker(&mut client);
        let published =
            "SELECT count(*) FROM mailroom_transports WHERE allow_from = '{*@bücher.example}'";
        eventually(&format!("the transport in {name}"), || {
            (number(&mut client, published) == 1).then_some(())
        });
        admin
            .batch_execute(&format!(
                "ALTER DATABASE \"{name}\" SET mailroom.channel = 'größe'"
            ))
            .unwrap();
        cluster.reload();
        assert_eq!(
            crate::cluster::find_worker(&mut client),
            worker,
            "{encoding}"
        );
    }
    a_name_in_bytes_of_another_encoding_is_served(&cluster);
    let log = cluster.log();
    for bad in [
        "terminated by signal",
        "could not take up",
        "could not change its channel",
        "cannot start its work",
    ] {
        assert!(!log.contains(bad), "{log}");
    }
}

/// The name of a database was given in a session in another encoding than UTF-8, so for others its bytes are no valid
/// text.
fn a_name_in_bytes_of_another_encoding_is_served(cluster: &Cluster) {
    cluster
        .connect("postgres")
        .batch_execute("CREATE DATABASE latin ENCODING 'LATIN1' LOCALE 'C' TEMPLATE template0")
        .unwrap();
    let mut latin = cluster.connect("latin");
    for (name, template, told) in [
        ("größe_copy", "größe_latin1", "größe_copy"),
        ("größe_other", "größe_utf8", "gr\u{fffd}\u{fffd}e_other"),
    ] {
        // The template's name was given in UTF-8, whose bytes are these characters in LATIN1.
        let template: String = template.bytes().map(char::from).collect();
        latin
            .batch_execute(&format!(
                "CREATE DATABASE \"{name}\" TEMPLATE \"{template}\""
            ))
            .unwrap();
        eventually("its worker", || {
            latin.query_opt(WORKER, &[&name]).unwrap().map(|_| ())
        });
        eventually("the worker to say its name", || {
            let said = format!("mailroom worker started in database \"{told}\"");
            cluster.log().contains(&said).then_some(())
        });
    }
    // The transports file names one of the two databases.
    eventually("its transport", || {
        let said = "mailroom worker delivers through main";
        (cluster.log().matches(said).count() >= 5).then_some(())
    });
}
