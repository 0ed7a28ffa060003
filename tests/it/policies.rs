//! Row-level security that an application enables restricts applications. What mailroom does for them, by the worker, a
//! sender or a SECURITY DEFINER function, works as before.

mod one_path;
mod tenants;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use crate::cluster::another_worker;
use crate::post::Post;
use crate::receiver::{Receiver, status};
use postgres::Client;

const SETTINGS: &[&str] = &[
    "mailroom.batch_timeout = 0",
    "mailroom.link_base_url = 'https://example.com'",
];

/// Sessions of an application, each with one of mailroom's roles, and the requests to the provider.
struct People {
    post: Post,
    web: Client,
    mailer: Client,
    admin: Client,
    monitor: Client,
    support: Client,
    bodies: Arc<Mutex<Vec<String>>>,
    _receiver: Receiver,
}

impl People {
    fn start() -> Self {
        let bodies = Arc::new(Mutex::new(Vec::<String>::new()));
        let log = Arc::clone(&bodies);
        let receiver = Receiver::start(move |request| {
            log.lock().unwrap().push(request.body.clone());
            status(204)
        });
        let mut post = Post::start(&receiver, SETTINGS);
        // Once row-level security is enabled, the application sees accounts only by a policy of its own.
        post.client
            .batch_execute(
                "CREATE ROLE web LOGIN IN ROLE mailroom_app; CREATE ROLE mailer LOGIN IN ROLE mailroom_collector; \
                 CREATE ROLE administrator LOGIN IN ROLE mailroom_admin; CREATE ROLE onlooker LOGIN IN ROLE mailroom_monitor; \
                 CREATE ROLE helper LOGIN IN ROLE mailroom_support; \
                 CREATE POLICY application ON accounts TO mailroom_app USING (true); \
                 INSERT INTO templates (kind, locale, subject, body_text) VALUES ('note', 'en', 'Note', 'Rendered for {{ who }}'); \
                 INSERT INTO budgets (period, amount) VALUES ('month', 1000000); \
                 CREATE TABLE people (mail text, name text); GRANT ALL ON people TO web; \
                 SELECT mailroom_attach('people', 'mail', 'name')",
            )
            .unwrap();
        let session = |user| post.cluster.connect_as("app", user);
        Self {
            web: session("web"),
            mailer: session("mailer"),
            admin: session("administrator"),
            monitor: session("onlooker"),
            support: session("helper"),
            post,
            bodies,
            _receiver: receiver,
        }
    }

    /// The tables of the extension.
    fn tables(&mut self) -> Vec<String> {
        self.post
            .client
            .query(
                "SELECT c.oid::regclass::text FROM pg_depend d JOIN pg_class c ON c.oid = d.objid \
                 WHERE d.classid = 'pg_class'::regclass AND d.refclassid = 'pg_extension'::regclass AND d.deptype = 'e' \
                 AND d.refobjid = (SELECT oid FROM pg_extension WHERE extname = 'mailroom') AND c.relkind = 'r' ORDER BY 1",
                &[],
            )
            .unwrap()
            .iter()
            .map(|row| row.get(0))
            .collect()
    }

    /// Waits until a mail of this kind to this address has ended; returns what the provider got.
    fn mail_to(&mut self, address: &str, kind: &str) -> serde_json::Value {
        let ended =
            format!("ended_at IS NOT NULL AND recipients = '{{{address}}}' AND kind = '{kind}'");
        self.post.wait_for(&ended, 1);
        self.bodies
            .lock()
            .unwrap()
            .iter()
            .map(|body| serde_json::from_str::<serde_json::Value>(body).unwrap()["data"].take())
            .find(|data| data["kind"] == kind && data["recipients"][0] == address)
            .unwrap_or_else(|| panic!("no {kind} for {address}"))
    }

    /// Does all that an application and its senders do, for accounts with this name; returns the result of each step.
    fn day(&mut self, name: &str) -> BTreeMap<&'static str, String> {
        let mut seen = BTreeMap::new();
        let address = format!("{name}@example.com");
        let value = |client: &mut Client, query: &str| -> String {
            client
                .query_one(&format!("SELECT ({query})::text"), &[])
                .unwrap()
                .get::<_, Option<String>>(0)
                .unwrap_or_default()
        };
        let outcome = |client: &mut Client, function: &str, token: &str, code: &str| {
            let code = if code.is_empty() {
                String::new()
            } else {
                format!(", '{code}'")
            };
            value(
                client,
                &format!("SELECT outcome FROM {function}('{token}'{code})"),
            )
        };
        self.web
            .batch_execute(&format!(
                "INSERT INTO accounts (email, login) VALUES ('{address}', '{name}')"
            ))
            .unwrap();
        let mail = self.mail_to(&address, "activation");
        let token = mail["variables"]["token"].as_str().unwrap().to_owned();
        seen.insert("peek", outcome(&mut self.web, "mailroom_peek", &token, ""));
        seen.insert(
            "activation",
            outcome(&mut self.web, "mailroom_redeem", &token, ""),
        );
        let status = format!("SELECT status FROM accounts WHERE login = '{name}'");
        seen.insert("status", value(&mut self.web, &status));

        self.web
            .batch_execute(&format!("SELECT mailroom_request_recovery('{address}')"))
            .unwrap();
        let mail = self.mail_to(&address, "password_recovery");
        let token = mail["variables"]["token"].as_str().unwrap().to_owned();
        let code = mail["variables"]["code"].as_str().unwrap().to_owned();
        let wrong = if code == "11111" { "22222" } else { "11111" };
        seen.insert(
            "wrong code",
            outcome(&mut self.web, "mailroom_redeem", &token, wrong),
        );
        seen.insert(
            "recovery",
            outcome(&mut self.web, "mailroom_redeem", &token, &code),
        );

        self.web
            .batch_execute(&format!(
                "SELECT mailroom_send('note-{address}', kind => 'note', data => '{{\"who\": \"Nia\"}}')"
            ))
            .unwrap();
        let note = self.mail_to(&format!("note-{address}"), "note");
        seen.insert("note", note["text"].to_string());
        let later = format!(
            "SELECT mailroom_send('{address}', 'S', 'T', send_at => '2100-01-01', item_key => '{name}')"
        );
        self.web.batch_execute(&later).unwrap();
        let cancel = format!("SELECT mailroom_cancel_item('{name}')");
        seen.insert("cancelled", value(&mut self.web, &cancel));
        self.web
            .batch_execute(&format!(
                "INSERT INTO people VALUES ('row-{address}', 'row-{name}')"
            ))
            .unwrap();
        self.mail_to(&format!("row-{address}"), "activation");
        self.web
            .batch_execute(&format!("DELETE FROM people WHERE name = 'row-{name}'"))
            .unwrap();
        let row = format!("SELECT count(*) FROM accounts WHERE login = 'row-{name}'");
        seen.insert("account of a row", value(&mut self.web, &row));

        // Delivery by clients.
        self.admin.batch_execute("SELECT mailroom_pause()").unwrap();
        let (paused, pauses) = (
            "SELECT paused FROM mailroom_status()",
            "SELECT count(*) FROM pauses",
        );
        seen.insert("paused", value(&mut self.monitor, paused));
        seen.insert("pauses", value(&mut self.monitor, pauses));
        self.web
            .batch_execute(&format!(
                "INSERT INTO accounts (email, login) VALUES ('1-{address}', '1-{name}'), ('2-{address}', '2-{name}'); \
                 SELECT mailroom_send('group-{address}', 'S', 'T', group_key => 'g')"
            ))
            .unwrap();
        let waiting = "SELECT waiting FROM mailroom_status()";
        seen.insert("waiting", value(&mut self.monitor, waiting));
        seen.insert(
            "dequeued",
            value(&mut self.mailer, "SELECT count(*) FROM mailroom_dequeue(1)"),
        );
        seen.insert(
            "collected",
            value(&mut self.mailer, "SELECT mailroom_collect(10)"),
        );
        let claim = "SELECT string_agg(id::text, ',') FROM mailroom_claim(10, '5 min', 'me', '{main}') WHERE kind = 'message'";
        let id = value(&mut self.mailer, claim);
        let error = format!(
            "SELECT mailroom_mark_error({id}::bigint, 'no', permanent => true, claimant => 'me')"
        );
        seen.insert("error", value(&mut self.mailer, &error));
        let told = format!("SELECT count(*) FROM outbox_attempts WHERE outbox_id = {id}");
        seen.insert("outbox_attempts", value(&mut self.support, &told));
        let rest = "SELECT string_agg(mailroom_mark_sent(id, claimant => 'me')::text, ',') FROM outbox WHERE state = 'claimed'";
        seen.insert("sent", value(&mut self.mailer, rest));
        let again = "SELECT mailroom_retry_failed(since => '-infinity')";
        seen.insert("retried", value(&mut self.support, again));
        self.admin
            .batch_execute("SELECT mailroom_resume()")
            .unwrap();
        self.mail_to(&format!("group-{address}"), "message");

        let budget = "SELECT count(*) FROM mailroom_budgets";
        seen.insert("budgets", value(&mut self.mailer, budget));
        let runs = "SELECT count(*) > 0 FROM job_runs";
        seen.insert("runs", value(&mut self.monitor, runs));
        self.admin
            .batch_execute(&format!(
                "UPDATE accounts SET status = 'suspended' WHERE login = '1-{name}'; \
                 UPDATE outbox SET created_at = '2000-01-01', ended_at = '2000-01-01' WHERE ended_at IS NOT NULL"
            ))
            .unwrap();
        let suspended = "SELECT count(*) FROM accounts WHERE status = 'suspended'";
        seen.insert("suspended", value(&mut self.admin, suspended));
        self.admin
            .batch_execute("UPDATE accounts SET status = 'active' WHERE status = 'suspended'")
            .unwrap();
        self.post.wait_until_ended(0);
        self.mailer
            .batch_execute("SELECT mailroom_purge() FROM generate_series(1, 3)")
            .unwrap();
        let left = "SELECT count(*) FROM outbox WHERE created_at = '2000-01-01'";
        seen.insert("left after a purge", value(&mut self.admin, left));
        self.bodies.lock().unwrap().clear();
        seen
    }
}

#[test]
fn row_level_security_of_any_table_stops_nothing_of_ours() {
    let mut people = People::start();
    let usual = people.day("usual");
    let expected = [
        ("activation", "ok"),
        ("status", "active"),
        ("wrong code", "wrong_code"),
        ("recovery", "ok"),
        ("cancelled", "true"),
        ("paused", "true"),
        ("outbox_attempts", "1"),
        ("left after a purge", "0"),
    ];
    for (step, result) in expected {
        assert_eq!(usual[step], result, "{step}");
    }

    let tables = people.tables();
    assert!(tables.len() >= 12, "{tables:?}");
    for (index, table) in tables.iter().enumerate() {
        for force in ["", "FORCE"] {
            people
                .post
                .client
                .batch_execute(&format!(
                    "ALTER TABLE {table} ENABLE ROW LEVEL SECURITY; ALTER TABLE {table} {} ROW LEVEL SECURITY",
                    if force.is_empty() { "NO FORCE" } else { force }
                ))
                .unwrap();
            let name = format!("n{index}{}", force.to_lowercase());
            assert_eq!(people.day(&name), usual, "with {force} on {table}");
        }
        people
            .post
            .client
            .batch_execute(&format!("ALTER TABLE {table} NO FORCE ROW LEVEL SECURITY; ALTER TABLE {table} DISABLE ROW LEVEL SECURITY"))
            .unwrap();
    }
    for table in &tables {
        people
            .post
            .client
            .batch_execute(&format!("ALTER TABLE {table} FORCE ROW LEVEL SECURITY; ALTER TABLE {table} ENABLE ROW LEVEL SECURITY"))
            .unwrap();
    }
    // A worker that starts with row-level security works as well, and where sessions begin with row_security = off.
    let old = people.post.worker();
    let restart =
        format!("ALTER DATABASE app SET row_security = off; SELECT pg_terminate_backend({old})");
    people.post.client.batch_execute(&restart).unwrap();
    another_worker(&mut people.post.client, old);
    assert_eq!(people.day("all"), usual, "on all tables");

    // Without the extension's policies row-level security does stop applications, so this test would notice.
    people
        .post
        .client
        .batch_execute("DROP POLICY mailroom ON tokens")
        .unwrap();
    let refused = people
        .web
        .batch_execute("INSERT INTO accounts (email, login) VALUES ('x@example.com', 'x')")
        .unwrap_err();
    let refused = refused.as_db_error().unwrap();
    assert_eq!(
        refused.code(),
        &postgres::error::SqlState::INSUFFICIENT_PRIVILEGE
    );
    assert!(
        refused.message().contains("row-level security"),
        "{refused}"
    );
}
