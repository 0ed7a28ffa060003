//! The demonstration: an account whose activation mail an SMTP server receives, and what happens to that account.
//!
//! All output is what psql prints and what the received mails contain. A step panics if it does not have the result
//! that it is to show.

use std::fs;
use std::io::Write;
use std::time::Instant;

use postgres::Client;

use crate::cluster::{Cluster, eventually, number};
use crate::mailbox::{self, Smtp};

const LINK: &str = "https://example.com/";

/// A cluster that delivers to an SMTP server, and the output about both.
pub struct Demo<'a> {
    pub cluster: Cluster,
    client: Client,
    smtp: Smtp,
    /// The token of the latest mail, which psql knows as `:token`.
    token: String,
    /// When the statement was sent that causes the next mail.
    origin: Instant,
    shown: &'a mut dyn Write,
}

impl<'a> Demo<'a> {
    /// Starts the cluster and the SMTP server.
    pub fn start(shown: &'a mut dyn Write) -> Self {
        let smtp = Smtp::start();
        let transports = format!(
            "[transports.relay]\n\
             provider = \"smtp\"\n\
             host = \"127.0.0.1\"\n\
             port = {}\n\
             tls = \"none\"\n\
             allowed_networks = [\"127.0.0.0/8\"]\n\
             from = \"Example <noreply@example.com>\"\n",
            smtp.port
        );
        let settings = [
            "mailroom.transports_file = 'transports.toml'",
            "mailroom.transport = 'relay'",
            "mailroom.link_base_url = 'https://example.com'",
        ];
        let cluster = Cluster::start_with_file(&settings, "transports.toml", &transports);
        cluster
            .connect("postgres")
            .batch_execute("CREATE DATABASE app")
            .unwrap();
        let mut demo = Self {
            client: cluster.connect("app"),
            cluster,
            smtp,
            token: String::new(),
            origin: Instant::now(),
            shown,
        };
        demo.chapter("A throw-away cluster whose transports file names an SMTP server (aiosmtpd)");
        demo.show(transports.trim_end());
        demo.show("");
        demo
    }

    /// Runs all steps.
    pub fn run(&mut self) {
        self.chapter("A new account: its mail goes out when the transaction commits");
        self.sql(
            "CREATE SCHEMA mailroom; CREATE EXTENSION mailroom SCHEMA mailroom",
            "",
        );
        let client = &mut self.client;
        eventually("a worker that waits", || {
            let waits =
                "SELECT count(*) FROM mailroom._worker_report() WHERE next_wake_at IS NOT NULL";
            (number(client, waits) == 1).then_some(())
        });
        self.sql(
            "INSERT INTO mailroom.accounts (email, login) VALUES ('ada@example.com', 'ada')",
            "",
        );
        let mail = self.mail(1, "activate");
        self.quote(&mail);

        self.chapter("The link is opened: :token is what follows token= in that mail");
        self.sql(
            "SELECT outcome, action FROM mailroom.mailroom_redeem(:'token')",
            "ok | activation",
        );
        self.sql(
            "SELECT email, status FROM mailroom.accounts",
            "ada@example.com | active",
        );

        self.chapter("Suspended, and active again");
        for status in ["suspended", "active"] {
            self.sql(
                &format!(
                    "UPDATE mailroom.accounts SET status = '{status}' WHERE login = 'ada' RETURNING status"
                ),
                status,
            );
        }

        self.chapter("A forgotten password: the link works only with the code");
        self.sql(
            "SELECT mailroom.mailroom_request_recovery('ada@example.com')",
            "",
        );
        let mail = self.mail(2, "recover");
        let (request, code) = mail
            .lines()
            .find_map(|line| Some((line, line.strip_suffix(':')?.split_once("the code ")?.1)))
            .unwrap_or_else(|| panic!("there is no code in the mail:\n{mail}"));
        let subject = mail.lines().find(|line| line.starts_with("Subject: "));
        self.quote(&format!("{}\n\n{request}", subject.unwrap_or_default()));
        self.sql(
            "SELECT outcome FROM mailroom.mailroom_redeem(:'token')",
            "code_required",
        );
        self.sql(
            &format!("SELECT outcome, action FROM mailroom.mailroom_redeem(:'token', '{code}')"),
            "ok | password_recovery",
        );

        self.chapter("A whole message: names, where answers go, and a file");
        self.sql(
            "SELECT mailroom.mailroom_send('Ada Lovelace <ada@example.com>', 'Your order 7', 'Thank you. The invoice is attached.',
           reply_to => 'Orders <orders@example.com>', attachments => jsonb_build_array(jsonb_build_object(
               'filename', 'invoice-7.txt', 'content', encode('1 Analytical Engine: 15000 pounds', 'base64')))) > 0",
            "t",
        );
        let mail = self.arrival(3);
        assert!(mail.contains("[invoice-7.txt, text/plain]\n1 Analytical Engine: 15000 pounds"));
        self.quote(&mail);

        self.chapter("Scheduled for tomorrow, and cancelled today");
        self.sql(
            "SELECT mailroom.mailroom_send('ada@example.com', 'Reminder', 'See you at noon.', \
             send_at => now() + interval '1 day', item_key => 'noon') > 0",
            "t",
        );
        self.sql("SELECT mailroom.mailroom_cancel_item('noon')", "t");
        self.sql(
            "SELECT kind, state FROM mailroom.outbox ORDER BY id",
            "activation | sent\npassword_recovery | sent\nmessage | sent\nmessage | cancelled",
        );
        assert_eq!(self.smtp.files().len(), 3, "mails at the SMTP server");
    }

    fn show(&mut self, line: &str) {
        writeln!(self.shown, "{line}").unwrap();
    }

    fn chapter(&mut self, title: &str) {
        self.show(&format!("── {title} ──\n"));
    }

    fn quote(&mut self, text: &str) {
        for line in text.trim_end().lines() {
            self.show(format!("  │ {line}").trim_end());
        }
        self.show("");
    }

    /// Shows a statement and its rows; panics unless they equal `rows`.
    fn sql(&mut self, statement: &str, rows: &str) {
        self.show(&format!("app=# {statement};"));
        self.origin = Instant::now();
        // psql substitutes variables in a file, but not in the argument of -c.
        let script = self.cluster.scratch().join("statement.sql");
        fs::write(&script, statement).unwrap();
        let output = self
            .cluster
            .program("psql")
            .args(["-XqAt", "-F", " | ", "-v", "ON_ERROR_STOP=1", "-d", "app"])
            .args(["-v", &format!("token={}", self.token), "-f"])
            .arg(&script)
            .output()
            .unwrap();
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{statement}\n{errors}");
        let printed = String::from_utf8_lossy(&output.stdout);
        assert_eq!(printed.trim(), rows, "{statement}");
        if !printed.trim().is_empty() {
            self.show(printed.trim());
        }
        self.show("");
    }

    /// As [`Self::arrival`], of a mail whose link leads to `page`.
    fn mail(&mut self, count: usize, page: &str) -> String {
        let mail = self.arrival(count);
        let link = format!("{LINK}{page}?token=");
        self.token = mail
            .lines()
            .find_map(|line| line.strip_prefix(&link))
            .unwrap_or_else(|| panic!("there is no link in the mail:\n{mail}"))
            .to_owned();
        mail
    }

    /// Waits until the SMTP server has received `count` mails and the worker has settled them; shows how long the first
    /// took. Returns the latest mail.
    fn arrival(&mut self, count: usize) -> String {
        let file = eventually("the mail", || {
            let mut files = self.smtp.files();
            (files.len() >= count).then(|| files.remove(count - 1))
        });
        let seconds = self.origin.elapsed().as_secs_f64();
        let mail = mailbox::as_shown(&file);
        let client = &mut self.client;
        eventually("the mail to be settled", || {
            let sent = "SELECT count(*) FROM mailroom.outbox WHERE state = 'sent'";
            (usize::try_from(number(client, sent)) == Ok(count)).then_some(())
        });
        self.show(&format!(
            "  {seconds:.2} s later the SMTP server has received:\n"
        ));
        mail
    }
}
