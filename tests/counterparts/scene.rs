//! A server whose worker delivers, and what its tests have in common.

use std::sync::Mutex;
use std::time::{Duration, Instant};

use postgres::Client;
use serde_json::Value;

use super::audit::Audit;
use crate::cluster::transports::{self, Transports};
use crate::cluster::{Cluster, PATIENCE, Stop, eventually, find_worker, number, signal};

/// A secret of webhooks.
pub const SECRET: &str = "whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD";
/// Another secret of webhooks.
pub const NEW_SECRET: &str = "whsec_AAECAwQFBgcICQoLDA0ODxAREhMUFRYX";

/// A cluster whose database `app` delivers over HTTP.
pub struct Scene {
    pub cluster: Cluster,
    pub transports: Transports,
    audit: Mutex<Audit>,
}

impl Scene {
    /// Starts a server whose workers deliver through this provider with these credentials, lines of `key = value`, and
    /// with additional settings: of the server, or `transport.KEY = VALUE`.
    pub fn start(provider: &str, endpoint: &str, credentials: &str, settings: &[&str]) -> Self {
        let provider = format!("transport.provider = {provider}");
        let mut all = vec![
            provider.as_str(),
            "transport.allowed_networks = 127.0.0.0/8",
            // On a loaded machine Java is slow, and a repeated request is counted twice.
            "transport.timeout = 60 s",
            "transport.connect_timeout = 30 s",
            "mailroom.link_base_url = 'https://links.example.com'",
            "mailroom.batch_timeout = 0",
            "mailroom.max_attempts = 1000",
            // Logs as much as possible, so that a leak into the log is found.
            "log_min_messages = debug1",
            "log_statement = 'ddl'",
            "log_error_verbosity = verbose",
        ];
        if !provider.ends_with("webhook") {
            all.push("transport.from = Example <noreply@example.com>");
        }
        let endpoint = format!("transport.endpoint = {endpoint}");
        if !endpoint.ends_with("= ") {
            all.push(&endpoint);
        }
        all.extend(settings);
        let (transports, others) = Transports::take(&all);
        transports.put_lines(credentials);
        let others: Vec<&str> = others.iter().map(String::as_str).collect();
        let (cluster, _) =
            Cluster::start_with_app_and_file(&others, transports::FILE, &transports.render());
        let mut audit = Audit::default();
        audit.remember_credentials(credentials);
        Self {
            cluster,
            transports,
            audit: Mutex::new(audit),
        }
    }

    /// As [`Self::start`], for webhooks; also returns a connection to the database.
    pub fn webhook(endpoint: &str, settings: &[&str]) -> (Self, Client) {
        let credentials = format!("secret = {SECRET}\n");
        let scene = Self::start("webhook", endpoint, &credentials, settings);
        let app = scene.cluster.connect("app");
        (scene, app)
    }

    /// Restarts the server with a library preloaded, which is compiled from `source`, and with additional variables.
    pub fn restart_under(&self, source: &str, variables: &[(&str, &str)]) {
        let library = self.cluster.compile_preload(source);
        let mut environment = vec![("LD_PRELOAD", library.to_str().unwrap())];
        environment.extend(variables);
        self.cluster.stop_server(Stop::Fast);
        self.cluster.start_server_under("", &environment);
    }

    /// Changes a key of the transport and replaces the worker by one that has read it.
    ///
    /// A running worker would read it with the next reload, but a test cannot tell when.
    pub fn set(&self, app: &mut Client, name: &str, value: &str) {
        self.transports.put(name, value);
        self.transports.write(&self.cluster);
        let old = self.cluster.worker("app");
        signal("TERM", old);
        eventually("another worker", || {
            find_worker(app).filter(|pid| *pid != old)
        });
    }

    /// Writes new credentials, lines of `key = value`, over the old ones, and adds them to the secrets of the audit.
    pub fn write_credentials(&self, content: &str) {
        self.audit.lock().unwrap().remember_credentials(content);
        self.transports.put_lines(content);
        self.transports.write(&self.cluster);
    }

    /// Fails if a secret is where other users may read it. A test calls it at the end, after the mails were sent;
    /// `apps` are connections to the databases.
    pub fn audit(&self, apps: &mut [&mut Client]) {
        let mut audit = self.audit.lock().unwrap();
        for app in apps {
            audit.search_database(app);
        }
        audit.search("the server's log", &self.cluster.log());
    }
}

/// Registers accounts, each of which gets an activation mail.
pub fn register(app: &mut Client, names: &[&str]) {
    for name in names {
        app.execute(
            "INSERT INTO accounts (email, login) VALUES ($1 || '@example.com', $1)",
            &[name],
        )
        .unwrap();
    }
}

/// Schedules mails with these subjects in one transaction; their bodies contain the canary of the audit.
pub fn send(app: &mut Client, subjects: &[String]) {
    app.execute(
        "SELECT mailroom_send('ada@example.com', subject, $2 || subject) FROM unnest($1::text[]) subject",
        &[&subjects, &super::audit::CANARY],
    )
    .unwrap();
}

/// Schedules `mails` mails that together have everything that a mail can have.
pub fn send_rich(app: &mut Client, mails: i32) {
    app.execute(
        "SELECT mailroom_send(CASE WHEN n % 4 = 0 THEN '\"Lovelace, Ada\" <ada' || n || '@example.com>' ELSE 'ada' || n || '@example.com' END, 'Grüße {{n}} \"' || n || '\"', $2 || n || E'\\n{{x}}\\n', \
             body_html => CASE WHEN n % 2 = 0 THEN '<p title=\"a&amp;b\">' || $2 || '</p>' END, \
             cc => CASE WHEN n % 3 = 0 THEN 'carol@example.com' END, \
             bcc => CASE WHEN n % 5 = 0 THEN 'dave@example.com' END, \
             reply_to => CASE WHEN n % 7 = 0 THEN 'Hilfe für alle <help@example.net>' END) \
         FROM generate_series(1, $1) n",
        &[&mails, &super::audit::CANARY],
    )
    .unwrap();
}

/// The number of mails in this state.
pub fn count(app: &mut Client, state: &str) -> i64 {
    number(
        app,
        &format!("SELECT count(*) FROM outbox WHERE state = '{state}'"),
    )
}

/// Waits until no mail is left to send. Failed mail is retried at once, not after its back-off.
pub fn until_delivered(app: &mut Client) {
    let left = "SELECT (SELECT count(*) FROM outbox WHERE state IN ('scheduled', 'claimed')) \
                     + (SELECT count(*) FROM pending)";
    // Delivery may stall more than once, with Java and the server on two cores.
    let deadline = Instant::now() + 4 * PATIENCE;
    while number(app, left) > 0 {
        assert!(Instant::now() < deadline, "gave up waiting for delivery");
        app.batch_execute(
            "SELECT mailroom_reschedule(id, clock_timestamp()) FROM outbox \
             WHERE state = 'scheduled' AND send_at > clock_timestamp() + interval '50 ms'",
        )
        .unwrap();
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Outcome, response code and error of each attempt to send the mail with this subject, the successful one included.
pub fn told(app: &mut Client, subject: &str) -> Vec<(String, Option<i32>, Option<String>)> {
    app.query(
        "SELECT h.outcome, h.response_code, h.error FROM outbox_history h JOIN outbox o ON o.id = h.outbox_id \
         WHERE o.subject = $1 ORDER BY h.ended_at",
        &[&subject],
    )
    .unwrap()
    .iter()
    .map(|row| (row.get(0), row.get(1), row.get(2)))
    .collect()
}

/// The row of `mailroom_status()`.
pub fn status(app: &mut Client) -> Value {
    let row = app
        .query_one("SELECT to_jsonb(s)::text FROM mailroom_status() s", &[])
        .unwrap();
    serde_json::from_str(row.get(0)).unwrap()
}
