//! `mailroom send --once` (in MAILROOM_SEND): what is left, and with which exit code it ends.

use crate::cluster::number;
use crate::receiver::status;
use crate::sender_scene::{Scene, Sender};

/// The exit code of a run, which has to end by itself.
fn once(scene: &Scene, url: &str) -> Option<i32> {
    let mut sender = Sender::start("once", scene, &["--database", url, "--once"]);
    let status = sender.child.wait().unwrap();
    status.code()
}

/// Signs up an account, whose token waits.
fn sign_up(scene: &mut Scene, login: &str) {
    let insert =
        format!("INSERT INTO accounts (email, login) VALUES ('{login}@example.com', '{login}')");
    scene.client.batch_execute(&insert).unwrap();
}

fn pending(scene: &mut Scene) -> i64 {
    number(&mut scene.client, "SELECT count(*) FROM pending")
}

#[test]
fn once_sends_what_is_due_and_ends() {
    let mut scene = Scene::start(&[]);
    let url = scene.url("collector", "app");
    scene.load(200);
    scene
        .client
        .batch_execute(
            "INSERT INTO accounts (email, login) SELECT i || '@example.com', 'p' || i FROM generate_series(1, 250) i; \
             SELECT mailroom_send('a@example.com', 'Later', 'Text', send_at => now() + interval '1 day')",
        )
        .unwrap();
    assert_eq!(once(&scene, &url), Some(0));
    assert_eq!(scene.count("state = 'sent'"), 450);
    assert_eq!(scene.count("state = 'scheduled'"), 1);
    assert_eq!(scene.receiver.count(), 450);
    assert_eq!(once(&scene, &url), Some(0), "there is nothing to do");
    let absent = scene.url("collector", "absent");
    assert_eq!(once(&scene, &absent), Some(1));
    scene.load(1);
    scene
        .client
        .batch_execute("SELECT mailroom_pause()")
        .unwrap();
    assert_eq!(once(&scene, &url), Some(3));
    scene
        .client
        .batch_execute("SELECT mailroom_resume()")
        .unwrap();
    // The receiver refuses all mail: the transport is paused.
    scene.receiver.react(|_| status(410));
    scene.load(1);
    assert_eq!(once(&scene, &url), Some(3));
    assert_eq!(scene.count("state = 'claimed'"), 0, "all is given back");
}

#[test]
fn tokens_that_a_pause_leaves_are_told() {
    let mut scene = Scene::start(&[]);
    let url = scene.url("collector", "app");
    sign_up(&mut scene, "ada");
    scene
        .client
        .batch_execute("SELECT mailroom_pause()")
        .unwrap();
    assert_eq!(once(&scene, &url), Some(3));
    assert_eq!(pending(&mut scene), 1);
    scene
        .client
        .batch_execute("SELECT mailroom_resume()")
        .unwrap();
    assert_eq!(once(&scene, &url), Some(0));
    assert_eq!(pending(&mut scene), 0);
    // What another one collects is not left by this one.
    sign_up(&mut scene, "eve");
    scene
        .client
        .batch_execute("ALTER DATABASE app SET mailroom.collect = off")
        .unwrap();
    assert_eq!(once(&scene, &url), Some(0));
    assert_eq!(pending(&mut scene), 1);
}

#[test]
fn tokens_that_cannot_be_collected_are_told() {
    let mut scene = Scene::start(&[]);
    let url = scene.url("collector", "app");
    sign_up(&mut scene, "ada");
    assert_eq!(once(&scene, &url), Some(0));
    let key = scene.cluster.data().join("mailroom.key");
    let away = key.with_extension("away");
    std::fs::rename(&key, &away).unwrap();
    sign_up(&mut scene, "eve");
    assert_eq!(once(&scene, &url), Some(3));
    assert_eq!(pending(&mut scene), 1);
    std::fs::rename(&away, &key).unwrap();
    assert_eq!(once(&scene, &url), Some(0));
    assert_eq!(pending(&mut scene), 0);
}

#[test]
fn it_ends_if_it_cannot_ask() {
    let mut scene = Scene::start(&[]);
    let url = scene.url("sender", "app");
    scene.load(1);
    let rename = "ALTER FUNCTION mailroom_next_due RENAME TO absent";
    scene.client.batch_execute(rename).unwrap();
    assert_eq!(once(&scene, &url), Some(1));
    assert_eq!(scene.count("state = 'sent'"), 1, "it delivers all the same");
}
