//! Several databases, other encodings, policies of applications, odd schemas, standbys.

use super::scene::{Browser, PASSWORD, READ, Scene, Server, words};
use crate::cluster::{Cluster, eventually};

/// A browser in which a role has logged in to this database.
fn of<'a>(server: &'a Server, role: &str, database: &str) -> Browser<'a> {
    let browser = server.browser(database);
    assert_eq!(browser.log_in(role, PASSWORD).status, 303);
    browser
}

#[test]
fn two_databases_are_chosen_between_and_have_their_own_sessions() {
    let mut scene = Scene::start();
    let create = "CREATE DATABASE \"my \"\"<b>/odd\"";
    scene.client.batch_execute(create).unwrap();
    let mut odd = scene.cluster.connect("my \"<b>/odd");
    odd.batch_execute("CREATE EXTENSION mailroom").unwrap();
    let sent = "SELECT mailroom_send('odd@example.com', 'Hello', 'Text')";
    odd.batch_execute(sent).unwrap();
    let odd_url = format!(
        "host={} dbname='my \"<b>/odd'",
        scene.cluster.socket().display()
    );
    let server = scene.serve_at(&[scene.url("app"), odd_url], &[]);
    let stranger = server.browser("app");
    let choice = stranger.send("GET", "/", &[], "");
    assert_eq!(choice.status, 200);
    assert!(!choice.body.contains("<b>"), "{}", choice.body);
    let path = "/my%20%22%3Cb%3E%2Fodd/";
    let links: Vec<&str> = choice
        .body
        .split("href=\"")
        .skip(1)
        .filter_map(|rest| rest.split('"').next())
        .collect();
    assert!(
        links.contains(&"/app/") && links.contains(&path),
        "{links:?}"
    );
    assert!(stranger.page("login").contains("Other databases"));
    let mut browser = of(&server, "support", "app");
    let list = |browser: &Browser<'_>| browser.page("messages").contains("odd@example.com");
    assert!(!list(&browser));
    browser.base = path.to_owned();
    let to = format!("{path}login?next=messages");
    assert_eq!(
        browser.get("messages").header("location"),
        Some(to.as_str())
    );
    assert_eq!(browser.log_in("support", PASSWORD).status, 303);
    assert!(list(&browser));
    assert!(browser.page("messages").contains("my &quot;&lt;b&gt;/odd"));
    assert_eq!(
        browser.act("messages/1/cancel", &[("back", "messages/1")]),
        "Cancelled."
    );
    // Both are there at once, and end apart.
    assert_eq!(browser.cookies.borrow().len(), 2);
    browser.post("logout", &[]);
    browser.base = "/app/".to_owned();
    assert!(!list(&browser));
}

#[test]
fn other_encodings_are_shown() {
    let mut scene = Scene::start();
    for (name, encoding) in [("latin", "LATIN1"), ("ascii", "SQL_ASCII")] {
        let create =
            format!("CREATE DATABASE {name} ENCODING '{encoding}' LOCALE 'C' TEMPLATE template0");
        scene.client.batch_execute(&create).unwrap();
        let mut client = scene.cluster.connect(name);
        client
            .batch_execute(
                "CREATE EXTENSION mailroom; SELECT mailroom_send('Zoë <a@example.com>', 'Grüße ÿ', 'Größe', '<p>Größe</p>', kind => 'Größe')",
            )
            .unwrap();
    }
    // Bytes that are no text.
    let mut ascii = scene.cluster.connect("ascii");
    ascii
        .batch_execute("INSERT INTO outbox (kind, recipients, subject, body_text) VALUES ('bad', '{b@example.com}', convert_from('\\x41ff42', 'SQL_ASCII'), convert_from('\\xff', 'SQL_ASCII'))")
        .unwrap();
    let server = scene.serve_at(&[scene.url("latin"), scene.url("ascii")], &[]);
    for database in ["latin", "ascii"] {
        let admin = of(&server, "admin", database);
        for within in [
            "messages",
            "messages/1",
            "messages?q=a@example.com",
            "messages?kind=Gr%C3%B6%C3%9Fe",
            "messages.csv",
        ] {
            let page = admin.page(within);
            assert!(
                page.contains("Grüße ÿ"),
                "{database} {within}: {}",
                words(&page)
            );
        }
        assert!(admin.page("messages/1?view=text").contains("Größe"));
        assert!(admin.page("messages/1/html").contains("<p>Größe</p>"));
        // What the database has no character for is found nowhere.
        for within in [
            "messages?q=%E6%97%A5%40example.com",
            "messages?q=%E6%97%A5",
            "messages?kind=%E6%97%A5",
            "suppressions?q=%E6%97%A5%40example.com",
        ] {
            let answer = admin.get(within);
            let expected = if database == "latin" { 400 } else { 200 };
            assert_eq!(
                answer.status,
                expected,
                "{database} {within}: {}",
                words(&answer.body)
            );
        }
        assert_eq!(
            admin.act("messages/1/cancel", &[("back", "messages/1")]),
            "Cancelled."
        );
        assert!(
            !admin
                .act("suppressions/suppress", &[("address", "日@example.com")])
                .is_empty()
        );
    }
    let admin = of(&server, "admin", "ascii");
    for within in [
        "messages",
        "messages/2",
        "messages/2?view=text",
        "messages.csv",
    ] {
        let page = admin.page(within);
        assert!(page.contains('\u{fffd}'), "{within}: {}", words(&page));
    }
}

#[test]
fn the_policies_of_an_application_apply() {
    let mut scene = Scene::start();
    scene
        .client
        .batch_execute(
            "SELECT mailroom_send(k || '@example.com', 'To ' || k, 'Text', kind => k) FROM unnest('{mine,theirs}'::text[]) k;
             INSERT INTO outbox (kind, recipients, subject, body_text, state, last_error, ended_at)
             SELECT k, ARRAY[k || '@example.com'], 'Failed', 'Text', 'error', 'busy', now() FROM unnest('{mine,theirs}'::text[]) k;
             ALTER TABLE outbox ENABLE ROW LEVEL SECURITY;
             CREATE POLICY tenant ON outbox AS RESTRICTIVE TO support USING (kind = 'mine')",
        )
        .unwrap();
    let server = scene.serve();
    let (support, admin) = (server.of("support"), server.of("admin"));
    for within in [
        "messages",
        "messages?q=theirs@example.com",
        "messages?state=error",
        "messages.csv",
        "failures",
        "",
    ] {
        let answer = support.get(within);
        assert_eq!(answer.status, 200, "{within}");
        let body = answer
            .body
            .replace("theirs@example.com\"", "")
            .replace("theirs@example.com”", "");
        assert!(!body.contains("theirs"), "{within}: {}", words(&body));
        if !within.is_empty() && !within.contains("theirs") {
            assert!(body.contains("mine"), "{within}: {}", words(&body));
        }
    }
    assert!(admin.page("messages").contains("theirs"));
    for id in [2, 4] {
        assert_eq!(support.get(&format!("messages/{id}")).status, 404);
        assert_eq!(admin.get(&format!("messages/{id}")).status, 200);
    }
}

#[test]
fn the_extension_may_be_in_any_schema() {
    let mut scene = Scene::start();
    scene.client.batch_execute("CREATE DATABASE odd").unwrap();
    let mut client = scene.cluster.connect("odd");
    client
        .batch_execute(
            "CREATE SCHEMA \"My mail, pg_temp\"; CREATE EXTENSION mailroom SCHEMA \"My mail, pg_temp\";
             SELECT \"My mail, pg_temp\".mailroom_send('a@example.com', 'Hello', 'Text');
             CREATE SCHEMA support; GRANT ALL ON SCHEMA support, public TO support;
             CREATE TABLE support.outbox (); CREATE TABLE public.outbox (); CREATE FUNCTION support.now() RETURNS text LANGUAGE sql AS $$ SELECT 'never' $$;
             ALTER ROLE support SET search_path = support, public",
        )
        .unwrap();
    let server = scene.serve_at(&[scene.url("odd")], &[]);
    let browser = of(&server, "support", "odd");
    for within in READ {
        assert_eq!(browser.get(within).status, 200, "{within}");
    }
    assert!(browser.page("messages").contains("a@example.com"));
    assert_eq!(
        browser.act("messages/1/cancel", &[("back", "messages/1")]),
        "Cancelled."
    );
}

#[test]
fn settings_of_a_role_change_nothing_but_the_time_zone() {
    let mut scene = Scene::start();
    scene
        .client
        .batch_execute(
            "SELECT mailroom_send('a@example.com', 'Hello', 'Text');
             SELECT mailroom_suppress(i || '@example.com') FROM generate_series(1, 60) i;
             ALTER ROLE support SET DateStyle = 'German, DMY'; ALTER ROLE support SET IntervalStyle = 'sql_standard';
             ALTER ROLE support SET bytea_output = 'escape'; ALTER ROLE support SET extra_float_digits = -15;
             ALTER ROLE support SET default_transaction_read_only = on;
             ALTER ROLE support SET default_transaction_isolation = 'serializable'; ALTER ROLE support SET client_encoding = 'LATIN1';
             ALTER ROLE support SET standard_conforming_strings = off; ALTER ROLE support SET search_path = '';
             ALTER ROLE support SET timezone = 'America/St_Johns'; ALTER ROLE support SET row_security = off",
        )
        .unwrap();
    let server = scene.serve();
    let browser = server.of("support");
    for within in READ {
        let answer = browser.get(within);
        assert_eq!(answer.status, 200, "{within}: {}", words(&answer.body));
    }
    let page = words(&browser.page("messages/1"));
    assert!(
        page.contains("Times are in America/St_Johns (UTC-0"),
        "{page}"
    );
    let older = browser.page("suppressions");
    let older = older
        .split('"')
        .find(|part| part.contains("suppressions?at="))
        .unwrap();
    let answer = browser.send("GET", &older.replace("&amp;", "&"), &[], "");
    assert_eq!(
        (
            answer.status,
            answer.body.matches("suppressions/unsuppress").count()
        ),
        (200, 10)
    );
    let at = [("send_at", "2031-02-03T04:05"), ("back", "messages/1")];
    assert_eq!(browser.act("messages/1/reschedule", &at), "Rescheduled.");
    let at = "SELECT to_char(send_at AT TIME ZONE 'UTC', 'YYYY-MM-DD HH24:MI') FROM outbox";
    assert_eq!(scene.text(at), "2031-02-03 07:35");
}

#[test]
fn a_database_without_the_extension_is_said_to_be_unusable() {
    let scene = Scene::start();
    let server = scene.serve_at(&[scene.url("postgres")], &[]);
    let answer = server.browser("postgres").log_in("support", PASSWORD);
    assert!(
        words(&answer.body).contains("The database cannot be used now."),
        "{}",
        words(&answer.body)
    );
    assert_eq!(answer.status, 503);
    server.program.wait_for("does not have the extension", 1);
}

#[test]
fn on_a_standby_people_look_and_are_told_why_they_cannot_act() {
    let mut scene = Scene::start_with(&["wal_level = replica"]);
    scene
        .client
        .batch_execute("SELECT mailroom_send('a@example.com', 'Hello', 'Text'); ALTER ROLE support SET timezone = 'Asia/Tokyo'")
        .unwrap();
    let standby = Cluster::follow(&scene.cluster);
    let mut replica = standby.connect("app");
    eventually("the standby to have it", || {
        (crate::cluster::number(&mut replica, "SELECT count(*) FROM outbox") == 1).then_some(())
    });
    let url = format!("host={} dbname=app", standby.socket().display());
    let server = scene.serve_at(&[url], &[]);
    for role in ["admin", "support"] {
        let browser = server.of(role);
        for within in READ {
            let answer = browser.get(within);
            assert_eq!(
                answer.status,
                200,
                "{role} {within}: {}",
                words(&answer.body)
            );
        }
        let told = browser.act("messages/1/cancel", &[("back", "messages/1")]);
        assert!(told.contains("during recovery"), "{told}");
    }
    replica.batch_execute("SELECT pg_promote()").unwrap();
    let browser = server.of("support");
    assert_eq!(
        browser.act("messages/1/cancel", &[("back", "messages/1")]),
        "Cancelled."
    );
}
