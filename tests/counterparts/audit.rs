//! Searches for credentials, signed tokens, links and the bodies of mails where other users may read.
//!
//! A code has five digits, which occur by chance in a time or a port. So the audit searches for the body and the link
//! of its mail instead.

use postgres::Client;

/// Part of the body of every mail that tests schedule, and of nothing else.
pub const CANARY: &str = "canary-7d1f0c9e ";
/// The host of links: part of the body of every token mail, and otherwise only of the setting.
const LINKS: &str = "links.example.com/";

/// The secrets that occurred in a test.
#[derive(Default)]
pub struct Audit {
    credentials: Vec<String>,
    tokens: Vec<String>,
}

impl Audit {
    /// Adds the values of a credentials file to the secrets.
    pub fn remember_credentials(&mut self, content: &str) {
        for line in content.lines() {
            let Some((name, value)) = line.split_once('=') else {
                continue;
            };
            // These values are names, not secrets.
            let public = ["region", "domain", "configuration_set", "message_stream"];
            if !public.contains(&name.trim()) {
                self.credentials.push(value.trim().to_owned());
            }
        }
    }

    /// Adds the signed tokens of a database to the secrets, then searches what its other users may read.
    pub fn search_database(&mut self, app: &mut Client) {
        let tokens = app
            .query(
                "SELECT mailroom_sign(action, secret, code) FROM tokens",
                &[],
            )
            .unwrap();
        self.tokens.extend(tokens.iter().map(|row| row.get(0)));
        for (place, query) in [
            (
                "pg_stat_activity",
                "SELECT a::text FROM pg_stat_activity a WHERE pid <> pg_backend_pid()",
            ),
            ("outbox_history", "SELECT h::text FROM outbox_history h"),
            (
                "outbox.last_error",
                "SELECT coalesce(last_error, '') FROM outbox",
            ),
            ("job_runs", "SELECT r::text FROM job_runs r"),
            (
                "mailroom_status()",
                "SELECT s::text FROM mailroom_status() s",
            ),
        ] {
            for row in app.query(query, &[]).unwrap() {
                self.search(place, row.get(0));
            }
        }
        let kept = "SELECT data::text FROM outbox WHERE state = 'sent' AND token_id IS NOT NULL";
        for row in app.query(kept, &[]).unwrap() {
            self.search("outbox.data of what is sent", row.get(0));
        }
    }

    /// Fails if this text contains a secret.
    pub fn search(&self, place: &str, text: &str) {
        assert!(!self.credentials.is_empty(), "there is nothing to look for");
        let public = [CANARY.trim_end(), LINKS];
        let secrets = self.credentials.iter().chain(&self.tokens);
        for secret in secrets.map(String::as_str).chain(public) {
            if let Some(at) = text.find(secret) {
                let line = text[..at].lines().count();
                panic!("{place} tells something secret in line {line}");
            }
        }
    }
}
