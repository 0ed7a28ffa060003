//! Recipients: a relay refuses some of them, or `mailroom.redirect_to` names another one. With the worker and with
//! `mailroom send` (in MAILROOM_SEND), through a relay in the Python of MAILROOM_PYTHON.
//!
//! needs: aiosmtpd

use std::os::unix::fs::PermissionsExt;

use crate::cluster::transports::FILE;
use crate::cluster::{Cluster, eventually_or_tell};
use crate::mailbox::Smtp;
use crate::sender_scene::{Scene, Sender};
use postgres::Client;

/// Mail of a database `app` that goes through a relay.
struct Delivery {
    client: Client,
    relay: Smtp,
    by: By,
}

/// The deliverer.
enum By {
    Worker(Cluster),
    Send(Box<(Sender, Scene)>),
}

impl Delivery {
    /// Delivery by the worker, and by `mailroom send` from a server that does not preload the library.
    fn both(settings: &[&str]) -> [Self; 2] {
        [Self::by_worker(settings), Self::by_send(settings)]
    }

    fn by_worker(settings: &[&str]) -> Self {
        let file = format!("mailroom.transports_file = '{FILE}'");
        let mut all = vec![file.as_str(), "mailroom.transport = 'main'"];
        all.extend(settings);
        let relay = Smtp::start_refusing();
        let (cluster, client) = Cluster::start_with_app_and_file(&all, FILE, &relay.transports());
        cluster.worker("app");
        Self {
            client,
            relay,
            by: By::Worker(cluster),
        }
    }

    fn by_send(settings: &[&str]) -> Self {
        let scene = Scene::start(settings);
        let relay = Smtp::start_refusing();
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

    /// The result of a query, as text.
    fn ask(&mut self, query: &str) -> String {
        let row = self.client.query_one(query, &[]).unwrap();
        row.get::<_, Option<String>>(0).unwrap_or_default()
    }

    fn run(&mut self, statements: &str) {
        self.client.batch_execute(statements).unwrap();
    }

    /// Waits until `count` mails were sent.
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
             [{\"error\": \"smtp 550 5.1.1\", \"recipient\": \"refused@example.com\", \"is_permanent\": true, \"response_code\": 550}]"
        );
        let all = "SELECT count(*)::text FROM outbox_attempts";
        assert_eq!(delivery.ask(all), "1");
        let history = "SELECT string_agg(outcome, ', ' ORDER BY outbox_id) FROM outbox_history";
        assert_eq!(delivery.ask(history), "partial, rejected, sent");
        delivery.wait_for_log("recipients refused: 1; the first: smtp 550 5.1.1");
        assert!(!delivery.log().contains("refused@"));
    }
}

#[test]
fn redirected_mail_goes_to_one_address_and_to_no_other() {
    for mut delivery in Delivery::both(&["mailroom.redirect_to = 'dev@example.org'"]) {
        delivery.run(
            "SELECT mailroom_send('refused@example.com', 'First', 'Text', cc => 'ann@example.com', bcc => 'bob@example.com', \
                 reply_to => 'help@example.net')",
        );
        delivery.wait_for_sent(1);
        let mail = delivery.arrived("First");
        assert!(mail.contains("\nX-RcptTo: dev@example.org\n"), "{mail}");
        assert!(mail.contains("\nTo: <dev@example.org>\n"), "{mail}");
        let original = "\nX-Original-To: refused@example.com, ann@example.com, bob@example.com\n";
        assert!(mail.contains(original), "{mail}");
        assert!(!mail.contains("\nCc:"), "{mail}");
        assert!(mail.contains("\nReply-To: <help@example.net>\n"), "{mail}");
        delivery.wait_for_log("all mail is redirected to one address");
        let status = "SELECT redirect_to FROM mailroom_status()";
        assert_eq!(delivery.ask(status), "dev@example.org");
        let recipients = "SELECT recipients::text FROM outbox";
        assert_eq!(delivery.ask(recipients), "{refused@example.com}");

        // A setting of the database is in effect at once, also in open sessions.
        delivery.run(
            "ALTER DATABASE app SET mailroom.redirect_to = 'other@example.org'; \
             SELECT mailroom_send('ann@example.com', 'Second', 'Text')",
        );
        delivery.wait_for_sent(2);
        let mail = delivery.arrived("Second");
        assert!(mail.contains("\nX-RcptTo: other@example.org\n"), "{mail}");

        // A value that is not an address holds all mail.
        delivery.run(
            "ALTER DATABASE app SET mailroom.redirect_to = 'Developer'; \
             SELECT mailroom_send('ann@example.com', 'Third', 'Text')",
        );
        delivery.wait_for_log("mailroom.redirect_to is not a mail address");
        assert_eq!(delivery.ask(status), "Developer");
        let held = "SELECT string_agg(concat_ws(' ', subject, state, failed_attempts), '') FROM outbox WHERE state <> 'sent'";
        assert_eq!(delivery.ask(held), "Third scheduled 0");
        delivery.run("ALTER DATABASE app SET mailroom.redirect_to = ''");
        delivery.wait_for_sent(3);
        let mail = delivery.arrived("Third");
        assert!(mail.contains("\nX-RcptTo: ann@example.com\n"), "{mail}");
        assert!(!mail.contains("X-Original-To"), "{mail}");
        assert_eq!(delivery.ask(status), "");
    }
}

#[test]
fn a_reload_ends_and_begins_a_redirection() {
    let mut delivery = Delivery::by_worker(&["mailroom.redirect_to = 'dev@example.org'"]);
    delivery.wait_for_log("all mail is redirected to one address");
    delivery.run("ALTER SYSTEM SET mailroom.redirect_to = ''");
    delivery.run("SELECT pg_reload_conf()");
    delivery.wait_for_log("mailroom worker: mail goes to its recipients again");
    delivery.run("SELECT mailroom_send('ann@example.com', 'First', 'Text')");
    delivery.wait_for_sent(1);
    let mail = delivery.arrived("First");
    assert!(mail.contains("\nX-RcptTo: ann@example.com\n"), "{mail}");
    delivery.run("ALTER SYSTEM SET mailroom.redirect_to = 'new@example.org'");
    delivery.run("SELECT pg_reload_conf()");
    delivery.wait_for_log("\"new@example.org\"");
    delivery.run("SELECT mailroom_send('ann@example.com', 'Second', 'Text')");
    delivery.wait_for_sent(2);
    let mail = delivery.arrived("Second");
    assert!(mail.contains("\nX-RcptTo: new@example.org\n"), "{mail}");
}
