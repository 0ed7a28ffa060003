//! To whom mail goes: a relay refuses some of its recipients, or `mailroom.redirect_to` names another one. By the worker and
//! by `mailroom send`, through a relay in the Python of MAILROOM_PYTHON; the program is in MAILROOM_SEND.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

mod cluster;
mod receiver;
mod sender_scene;
mod smtp;

use std::os::unix::fs::PermissionsExt;

use cluster::transports::{FILE, write_secret};
use cluster::{Cluster, eventually_or_tell};
use postgres::Client;
use sender_scene::{Scene, Sender};
use smtp::Smtp;

/// Mail of a database `app` that goes through a relay.
struct Delivery {
    client: Client,
    relay: Smtp,
    by: By,
}

/// Who delivers it.
enum By {
    Worker(Cluster),
    Send(Box<(Sender, Scene)>),
}

impl Delivery {
    /// One by the worker, and one by `mailroom send` from a server that does not preload the library.
    fn both(settings: &[&str]) -> [Self; 2] {
        [Self::by_worker(settings), Self::by_send(settings)]
    }

    fn by_worker(settings: &[&str]) -> Self {
        let file = format!("mailroom.transports_file = '{FILE}'");
        let mut all = vec![file.as_str(), "mailroom.transport = 'main'"];
        all.extend(settings);
        let cluster = Cluster::start(&all);
        let relay = Smtp::start_refusing(&cluster.scratch());
        write_secret(&cluster, FILE, &relay.transports());
        let client = cluster.create_database("app");
        cluster.worker("app");
        Self {
            client,
            relay,
            by: By::Worker(cluster),
        }
    }

    fn by_send(settings: &[&str]) -> Self {
        let scene = Scene::start(settings);
        let relay = Smtp::start_refusing(&scene.cluster.scratch());
        std::fs::write(&scene.transports, relay.transports()).unwrap();
        let private = std::fs::Permissions::from_mode(0o600);
        std::fs::set_permissions(&scene.transports, private).unwrap();
        let sender = scene.sender("sender", &["--poll", "1"]);
        Self {
            client: scene.cluster.connect("app"),
            relay,
            by: By::Send(Box::new((sender, scene))),
        }
    }

    fn log(&self) -> String {
        match &self.by {
            By::Worker(cluster) => cluster.log(),
            By::Send(both) => both.0.log(),
        }
    }

    fn wait_for_log(&self, text: &str) {
        eventually_or_tell(&format!("the log to tell of {text}"), || {
            let log = self.log();
            if log.contains(text) { Ok(()) } else { Err(log) }
        });
    }

    /// What a query returns, as text.
    fn ask(&mut self, query: &str) -> String {
        let row = self.client.query_one(query, &[]).unwrap();
        row.get::<_, Option<String>>(0).unwrap_or_default()
    }

    fn run(&mut self, statements: &str) {
        self.client.batch_execute(statements).unwrap();
    }

    /// Waits until so many mails were sent.
    fn wait_for_sent(&mut self, count: i64) {
        eventually_or_tell(&format!("{count} mails to be sent"), || {
            let states = self.ask(
                "SELECT string_agg(concat_ws(' ', subject, state, last_error), ', ') FROM outbox",
            );
            let sent = "SELECT count(*)::text FROM outbox WHERE state = 'sent'";
            if self.ask(sent) == count.to_string() {
                Ok(())
            } else {
                Err(states)
            }
        });
    }

    /// The mail with this subject as it arrived, its header lines unfolded.
    fn arrived(&self, subject: &str) -> String {
        let subject = format!("\nSubject: {subject}\n");
        let messages = self.relay.messages();
        let mut found = messages
            .iter()
            .map(|message| message.replace("\r\n", "\n").replace("\n ", " "))
            .filter(|message| message.contains(&subject));
        let one = found.next().unwrap_or_else(|| panic!("{messages:#?}"));
        assert_eq!(found.next(), None, "it arrived more than once");
        one
    }
}

#[test]
fn recipients_that_a_relay_refuses_are_recorded_and_the_others_get_the_mail() {
    for mut delivery in Delivery::both(&[]) {
        delivery.run(
            "SELECT mailroom_send('ann@example.com', 'Three', 'Text', cc => 'refused@example.com', bcc => 'bob@example.com'); \
             SELECT mailroom_send('ann@example.com', 'One', 'Text')",
        );
        delivery.wait_for_sent(2);
        let mail = delivery.arrived("Three");
        assert!(
            mail.contains("\nX-RcptTo: ann@example.com, bob@example.com\n"),
            "{mail}"
        );
        let told = delivery.ask(
            "SELECT string_agg(concat_ws(' ', a.outcome, a.attempt, a.transport, a.response_code, a.error, a.refused_recipients), '; ') \
             FROM outbox_attempts a JOIN outbox o ON o.id = a.outbox_id AND o.subject = 'Three' AND o.claimed_by = a.claimant",
        );
        assert_eq!(
            told,
            "partial 1 main 550 recipients refused: 1 \
             [{\"error\": \"smtp 550 5.1.1\", \"recipient\": \"refused@example.com\", \"response_code\": 550}]"
        );
        let all = "SELECT count(*)::text FROM outbox_attempts";
        assert_eq!(delivery.ask(all), "1");
        let history = "SELECT string_agg(outcome, ', ' ORDER BY outbox_id) FROM outbox_history";
        assert_eq!(delivery.ask(history), "partial, sent");
        delivery.wait_for_log("recipients refused: 1; the first: smtp 550 5.1.1");
        assert!(!delivery.log().contains("refused@"));
    }
}
