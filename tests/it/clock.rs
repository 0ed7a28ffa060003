//! The wall clock jumps, as when it is set by hand or by a hypervisor, and mail is delivered nevertheless.
//!
//! A library in C, preloaded into the server, shifts its wall clock and leaves the monotonic clock alone, as a real
//! jump does. `mailroom send`, whose path is in MAILROOM_SEND, gets such a clock too.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::time::Duration;

use crate::cluster::{Cluster, Stop, eventually, number};
use crate::sender_scene::{Scene, Sender, program};
use postgres::Client;
use postgres::fallible_iterator::FallibleIterator;

/// A server whose wall clock [`Clock::set`] shifts.
struct Clock {
    cluster: Cluster,
    file: File,
}

impl Clock {
    fn start(settings: &[&str]) -> Self {
        let (cluster, _) = Cluster::start_with_app(settings);
        cluster.stop_server(Stop::Fast);
        let library = cluster.compile_preload("tests/clock/offset.c");
        let path = cluster.scratch().join("clock");
        let clock = Self {
            file: File::create(&path).unwrap(),
            cluster,
        };
        clock.set(0);
        clock.cluster.start_server_under(
            "",
            &[
                ("LD_PRELOAD", library.to_str().unwrap()),
                ("MAILROOM_CLOCK", path.to_str().unwrap()),
            ],
        );
        clock
    }

    /// Sets the server's clock this many hours ahead of the test's, at once.
    fn set(&self, hours: i64) {
        let seconds = hours * 3600;
        self.file.write_all_at(&seconds.to_ne_bytes(), 0).unwrap();
    }
}

fn schedule(client: &mut Client, delay: &str) {
    client
        .batch_execute(&format!(
            "BEGIN; \
             INSERT INTO outbox (kind, recipients, send_at) \
             VALUES ('news', '{{a@example.com}}', clock_timestamp() + '{delay}'); \
             SELECT _mail_due(max(send_at), false, false) FROM outbox; \
             COMMIT"
        ))
        .unwrap();
}

/// Waits for a notification at a time when mail is due.
fn hear_of_due_mail(listener: &mut Client) {
    let due =
        "SELECT count(*) FROM outbox WHERE state = 'scheduled' AND send_at <= clock_timestamp()";
    eventually("a notification while mail is due", || {
        let heard = listener
            .notifications()
            .timeout_iter(Duration::from_millis(100))
            .next()
            .unwrap();
        (heard.is_some() && number(listener, due) > 0).then_some(())
    });
}

#[test]
fn the_clock_is_really_moved() {
    let clock = Clock::start(&[]);
    let mut client = clock.cluster.connect("postgres");
    let mut hours = || {
        let server: std::time::SystemTime = client
            .query_one("SELECT clock_timestamp()", &[])
            .unwrap()
            .get(0);
        server
            .duration_since(std::time::SystemTime::now())
            .map_or(0, |ahead| ahead.as_secs().div_ceil(3600))
    };
    assert_eq!(hours(), 0);
    clock.set(2);
    assert_eq!(hours(), 2);
}

#[test]
fn a_jump_ahead_makes_mail_due_at_the_next_poll_at_the_latest() {
    let clock = Clock::start(&["mailroom.poll_interval = '200ms'"]);
    let mut client = clock.cluster.connect("app");
    clock.cluster.worker("app");
    let mut listener = clock.cluster.connect("app");
    listener.batch_execute("LISTEN outbox_due").unwrap();
    schedule(&mut client, "1 hour");
    clock.set(2);
    hear_of_due_mail(&mut listener);
}

#[test]
fn a_jump_back_delays_mail_and_loses_none() {
    let clock = Clock::start(&["mailroom.poll_interval = '200ms'"]);
    let mut client = clock.cluster.connect("app");
    clock.cluster.worker("app");
    let mut listener = clock.cluster.connect("app");
    listener.batch_execute("LISTEN outbox_due").unwrap();
    schedule(&mut client, "1 hour");
    clock.set(-2);
    // The worker continues to work.
    client
        .batch_execute("INSERT INTO accounts (email, login) VALUES ('b@example.com', 'b')")
        .unwrap();
    eventually("the mail of a new account", || {
        (number(&mut client, "SELECT count(*) FROM outbox") == 2).then_some(())
    });
    // Only that mail is due. It is claimed for a day, so it is not due again after the next jump, and there is nothing
    // left to notify of.
    let claim = "SELECT count(*) FROM mailroom_claim(10, '1 day', 'me') WHERE kind";
    assert_eq!(number(&mut client, &format!("{claim} = 'activation'")), 1);
    let mut polls = 0;
    let mut last = String::new();
    eventually("the worker to have looked a few times", || {
        let next: String = client
            .query_one("SELECT next_wake_at::text FROM mailroom_status()", &[])
            .unwrap()
            .get(0);
        polls += usize::from(next != last);
        last = next;
        // Drops earlier notifications, which may be about the mail that is now claimed.
        if polls == 3 {
            while listener.notifications().iter().next().unwrap().is_some() {}
        }
        (polls >= 8).then_some(())
    });
    let heard = listener.notifications().iter().next().unwrap();
    assert!(heard.is_none(), "heard while nothing is due: {heard:?}");
    assert_eq!(number(&mut client, &format!("{claim} = 'news'")), 0);
    clock.set(2);
    hear_of_due_mail(&mut listener);
}

/// The sender's clock is two hours ahead of the database's, and the mail expires after 15 minutes.
#[test]
fn a_sender_whose_clock_is_ahead_sends_what_the_database_has_not_expired() {
    let mut scene = Scene::start(&[]);
    let library = scene.cluster.compile_preload("tests/clock/offset.c");
    let path = scene.cluster.scratch().join("clock");
    std::fs::write(&path, 7_200_i64.to_ne_bytes()).unwrap();
    scene
        .client
        .batch_execute(
            "SELECT mailroom_send('a@example.com', 'S', 'T', expires_at => now() + interval '15 minutes')",
        )
        .unwrap();
    let mut ahead = program();
    ahead
        .env("LD_PRELOAD", library)
        .env("MAILROOM_CLOCK", &path);
    let log = scene.cluster.scratch().join("ahead");
    let url = scene.url("sender", "app");
    let _sender = Sender::start_program(ahead, log, &scene.transports, &["--database", &url]);
    scene.wait_for("state = 'sent'", 1);
}
