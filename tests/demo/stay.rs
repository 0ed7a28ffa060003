//! The demonstration that stays: a mailbox where the links of the mail can be clicked, and `mailroom serve` beside it.
//!
//! Everything listens on loopback. The database has no port: `mailroom serve` reaches it by its socket, where the server
//! asks the role of the demonstration for its password.

use std::io::{IsTerminal, Write};
use std::os::unix::process::parent_id;
use std::process::Command;
use std::thread::{sleep, spawn};
use std::time::Duration;

use postgres::Client;

use crate::application::Application;
use crate::cluster::{Cluster, eventually, number};
use crate::mailbox::Smtp;
use crate::maildev::MailDev;
use crate::process::{Process, free_port};

/// The role that logs in to the page.
const ROLE: &str = "ann";
/// How often it looks whether the program that started it is still there.
const GLANCE: Duration = Duration::from_millis(500);

/// What runs until the user ends it.
pub struct Stay {
    // In the order in which they end.
    _page: Process,
    page_port: u16,
    password: String,
    mailbox: MailDev,
    _relay: Smtp,
    cluster: Cluster,
}

impl Stay {
    /// Starts everything, and makes mail.
    pub fn start() -> Self {
        let (mailbox, relay, application) =
            (MailDev::start(), Smtp::start_refusing(), Application::new());
        let transport = |name: &str, port: u16| {
            format!(
                "[transports.{name}]\nprovider = \"smtp\"\nhost = \"127.0.0.1\"\nport = {port}\ntls = \"none\"\n\
                 allowed_networks = [\"127.0.0.0/8\"]\nfrom = \"Example <noreply@example.com>\"\n\n"
            )
        };
        let transports = format!(
            "{}{}",
            transport("mailbox", mailbox.smtp_port),
            transport("relay", relay.port)
        );
        let settings = [
            "mailroom.transports_file = 'transports.toml'",
            "mailroom.transport = 'mailbox'",
            &format!("mailroom.link_base_url = '{}'", application.url()),
        ];
        let cluster = Cluster::start_with_file(&settings, "transports.toml", &transports);
        let mut client = cluster.create_database_with_schema("app");
        let password = log_in_by_password(&cluster, &mut client);
        application.run(cluster.connect_as("app", "web"));
        make_mail(&mut client);
        let page_port = free_port();
        Self {
            _page: serve(&cluster, page_port),
            page_port,
            password,
            mailbox,
            _relay: relay,
            cluster,
        }
    }

    /// Says where everything is.
    pub fn tell(&self, shown: &mut dyn Write) {
        let psql = self.cluster.program("psql");
        writeln!(
            shown,
            "The mailbox:  http://127.0.0.1:{}/\n\
             The page:     http://127.0.0.1:{}/app/\n\
             Role:         {ROLE}\n\
             Password:     {}\n\
             psql:         {} -h {} -U postgres -d app\n\n\
             Links in the mail lead to a page that stands for your application's. Open them in a tab: with the middle button, or Ctrl and a click.",
            self.mailbox.web_port,
            self.page_port,
            self.password,
            psql.get_program().to_string_lossy(),
            self.cluster.socket().display()
        )
        .unwrap();
        shown.flush().unwrap();
    }
}

/// Waits until the user presses Enter or ends the input of the terminal, or until the program that started this one has
/// ended. A signal ends this program at once. Then its guards clean up.
pub fn wait() {
    let parent = parent_id();
    spawn(move || {
        while parent_id() == parent {
            sleep(GLANCE);
        }
        std::process::exit(0);
    });
    if std::io::stdin().is_terminal() {
        println!("All of it runs until you press Enter here, or Ctrl-C.");
        let _ = std::io::stdin().read_line(&mut String::new());
    } else {
        println!("All of it runs until this program is ended by a signal.");
        loop {
            sleep(GLANCE);
        }
    }
}

/// Creates the roles, of which one logs in by its password; returns that.
fn log_in_by_password(cluster: &Cluster, client: &mut Client) -> String {
    let hba = cluster.data().join("pg_hba.conf");
    let lines = std::fs::read_to_string(&hba).unwrap();
    let line = format!("local app {ROLE} scram-sha-256\n");
    std::fs::write(hba, line + &lines).unwrap();
    cluster.reload();
    let random = "SELECT left(replace(gen_random_uuid()::text, '-', ''), 12)";
    let password: String = client.query_one(random, &[]).unwrap().get(0);
    client
        .batch_execute(&format!(
            "CREATE ROLE web LOGIN IN ROLE mailroom_app; \
             CREATE ROLE {ROLE} LOGIN PASSWORD '{password}' IN ROLE mailroom_admin"
        ))
        .unwrap();
    password
}

/// Makes mail of several kinds, and waits until it has ended, but for that of tomorrow.
fn make_mail(client: &mut Client) {
    let known = "SELECT count(*) FROM mailroom_transports";
    eventually("the transports", || {
        (number(client, known) == 2).then_some(())
    });
    client.batch_execute(include_str!("stay.sql")).unwrap();
    let left = "SELECT (SELECT count(*) FROM outbox WHERE state IN ('scheduled', 'claimed') AND send_at <= now()) \
                + (SELECT count(*) FROM pending) + (SELECT count(*) FROM link_requests)";
    eventually("the mail to be sent", || {
        (number(client, left) == 0).then_some(())
    });
    client
        .batch_execute(
            "SELECT mailroom_send('refused@example.net', 'Your order 8', 'It is on its way.', transport => 'relay')",
        )
        .unwrap();
    let failed = "SELECT count(*) FROM outbox WHERE state = 'error'";
    eventually("the mail that is refused", || {
        (number(client, failed) == 1).then_some(())
    });
}

/// Starts `mailroom serve`, and waits until it listens.
fn serve(cluster: &Cluster, port: u16) -> Process {
    let program = std::env::var("MAILROOM_SEND").unwrap_or_else(|_| {
        panic!("MAILROOM_SEND is not set: run this with `make`, which builds the program")
    });
    let mut command = Command::new(program);
    command
        .args(["serve", "--database"])
        .arg(format!("host={} dbname=app", cluster.socket().display()))
        .args(["--listen", &format!("127.0.0.1:{port}")]);
    let mut page = Process::start(&command);
    page.printed("mailroom serve", |line| {
        line.contains("listens on").then_some(())
    });
    page
}
