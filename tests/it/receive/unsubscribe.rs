//! The link of a list: a GET shows a button, a POST unsubscribes.

use postgres::Client;

use super::http::{Answer, request};
use super::scene::{Listening, Scene};
use crate::cluster::transports::write_secret;
use crate::cluster::{Stop, eventually, number};

/// The path and query of the link of an address, in mail of the list `news`.
fn link(client: &mut Client, base: &str, address: &str) -> String {
    let url = "SELECT set_config('mailroom.link_base_url', $1, false), mailroom_unsubscribe_url($2, 'news')";
    let base = format!("https://mail.example.com{base}");
    let url: String = client.query_one(url, &[&base, &address]).unwrap().get(1);
    url.replace("https://mail.example.com", "")
}

fn ask(listening: &Listening, method: &str, path: &str) -> Answer {
    request(listening.address, method, path, &[], b"")
}

/// As a mail program does.
fn one_click(listening: &Listening, path: &str) -> Answer {
    let form = "Content-Type: application/x-www-form-urlencoded";
    let body = b"List-Unsubscribe=One-Click";
    request(listening.address, "POST", path, &[form], body)
}

fn unsubscribed(client: &mut Client) -> i64 {
    let rows = "SELECT count(*) FROM suppressions WHERE reason = 'unsubscribed' AND list = 'news' AND until IS NULL";
    number(client, rows)
}

#[test]
fn only_a_post_unsubscribes_and_only_once() {
    let mut scene = Scene::start();
    let listening = scene.listen(&["app"]);
    let path = link(&mut scene.client, "", "Ann@example.com");
    let shown = ask(&listening, "GET", &path);
    assert_eq!(shown.status, 200);
    assert!(shown.body.contains("<form method=\"post\"><button>"));
    let policy = shown.header("content-security-policy").unwrap();
    assert!(policy.starts_with("default-src 'none'"), "{policy}");
    assert_eq!(shown.header("referrer-policy"), Some("no-referrer"));
    assert_eq!(shown.header("cache-control"), Some("no-store"));
    let head = ask(&listening, "HEAD", &path);
    assert_eq!((head.status, &*head.body), (200, ""));
    for method in ["PUT", "DELETE", "OPTIONS"] {
        assert_eq!(ask(&listening, method, &path).status, 405);
    }
    assert_eq!(unsubscribed(&mut scene.client), 0);
    for _ in 0..2 {
        let done = one_click(&listening, &path);
        assert_eq!(done.status, 200);
        assert!(done.body.contains("You are unsubscribed"));
        assert_eq!(unsubscribed(&mut scene.client), 1);
    }
    // The form of the page, which has no body.
    let path = link(&mut scene.client, "", "bob@example.com");
    assert_eq!(ask(&listening, "POST", &path).status, 200);
    assert_eq!(unsubscribed(&mut scene.client), 2);
    let log = listening.program.log();
    let token = path.split_once("token=").unwrap().1;
    assert!(!log.contains(&token[..20]) && !scene.cluster.log().contains(&token[..20]));
}

#[test]
fn a_link_is_good_as_long_as_its_key_is_in_the_file() {
    let mut scene = Scene::start();
    let listening = scene.listen(&["app"]);
    let old = link(&mut scene.client, "", "ann@example.com");
    for forged in [
        old.replace("token=", "token=A"),
        format!("{}A", &old[..old.len() - 1]),
        "/unsubscribe".to_owned(),
        "/unsubscribe?token=".to_owned(),
        format!("/unsubscribe?token={}", "A".repeat(5000)),
    ] {
        let answer = one_click(&listening, &forged);
        assert_eq!(answer.status, 404, "{forged}");
        assert!(answer.body.contains("not valid"));
    }
    assert_eq!(unsubscribed(&mut scene.client), 0);
    let rotate = "SELECT mailroom_rotate_key()";
    scene.client.batch_execute(rotate).unwrap();
    let new = link(&mut scene.client, "", "ann@example.com");
    assert_ne!(old, new);
    assert_eq!(one_click(&listening, &old).status, 200);
    assert_eq!(one_click(&listening, &new).status, 200);
    assert_eq!(unsubscribed(&mut scene.client), 1);
    // The old key is taken out.
    let keys = std::fs::read_to_string(scene.cluster.data().join("mailroom.key")).unwrap();
    let first = keys.lines().next().unwrap();
    write_secret(&scene.cluster, "mailroom.key", &format!("{first}\n"));
    assert_eq!(one_click(&listening, &old).status, 404);
    assert_eq!(one_click(&listening, &new).status, 200);
}

#[test]
fn without_its_database_a_click_is_asked_to_come_again() {
    let mut scene = Scene::start();
    let listening = scene.listen(&["app"]);
    let path = link(&mut scene.client, "", "ann@example.com");
    scene.cluster.stop_server(Stop::Fast);
    assert_eq!(ask(&listening, "GET", &path).status, 200);
    let answer = one_click(&listening, &path);
    assert_eq!(answer.status, 503);
    assert_eq!(answer.header("retry-after"), Some("10"));
    scene.cluster.start_server();
    scene.client = scene.cluster.connect("app");
    eventually("the database to be used", || {
        (one_click(&listening, &path).status == 200).then_some(())
    });
    assert_eq!(unsubscribed(&mut scene.client), 1);
}

#[test]
fn of_several_databases_the_path_names_one() {
    let mut scene = Scene::start();
    let mut other = scene.cluster.connect("postgres");
    other.batch_execute("CREATE DATABASE other").unwrap();
    let mut other = scene.cluster.connect("other");
    other.batch_execute("CREATE EXTENSION mailroom").unwrap();
    let listening = scene.listen(&["app", "other"]);
    let path = link(&mut other, "/other", "ann@example.com");
    assert!(path.starts_with("/other/unsubscribe?token="), "{path}");
    assert_eq!(one_click(&listening, &path).status, 200);
    assert_eq!(unsubscribed(&mut other), 1);
    assert_eq!(unsubscribed(&mut scene.client), 0);
    let bare = path.replace("/other", "");
    assert_eq!(one_click(&listening, &bare).status, 404);
    let absent = path.replace("/other", "/absent");
    assert_eq!(one_click(&listening, &absent).status, 404);
}
