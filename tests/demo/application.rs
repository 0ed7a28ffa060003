//! The page to which the links of the demonstration's mail lead: it stands for the application. GET shows a button, and
//! POST redeems, as docs/guides/sign-up.md says. It connects as a member of `mailroom_app`.

use std::io::{BufRead, BufReader, Read, Result, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread::spawn;
use std::time::Duration;

use postgres::Client;

/// How long it waits for a request.
const PATIENCE: Duration = Duration::from_secs(10);
/// Maximum size of a request.
const LIMIT: u64 = 64 * 1024;

/// A socket that listens.
pub struct Application(TcpListener);

impl Application {
    pub fn new() -> Self {
        Self(TcpListener::bind(("127.0.0.1", 0)).unwrap())
    }

    pub fn url(&self) -> String {
        format!("http://{}", self.0.local_addr().unwrap())
    }

    /// Answers until the program ends.
    pub fn run(self, client: Client) {
        let client = Arc::new(Mutex::new(client));
        spawn(move || {
            for stream in self.0.incoming().flatten() {
                let client = Arc::clone(&client);
                // A browser opens connections that it may never use.
                spawn(move || answer(&stream, &client));
            }
        });
    }
}

/// Answers the request of a connection, and closes it.
fn answer(mut stream: &TcpStream, client: &Mutex<Client>) -> Result<()> {
    stream.set_read_timeout(Some(PATIENCE))?;
    let mut reader = BufReader::new(stream.take(LIMIT));
    let mut first = String::new();
    reader.read_line(&mut first)?;
    let (mut length, mut is_framed) = (0, false);
    loop {
        let mut line = String::new();
        reader.read_line(&mut line)?;
        let Some((name, value)) = line.split_once(':') else {
            break;
        };
        if name.eq_ignore_ascii_case("content-length") {
            length = value.trim().parse().unwrap_or_default();
        }
        is_framed |= name.eq_ignore_ascii_case("sec-fetch-dest") && value.trim() == "iframe";
    }
    let mut form = String::new();
    reader.take(length).read_to_string(&mut form)?;
    let mut words = first.split(' ');
    let (method, target) = (words.next(), words.next().unwrap_or_default());
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    let title = match path {
        "/activate" => Some("Activate your account"),
        "/recover" => Some("Recover your account"),
        _ => None,
    };
    let (status, body) = match (method, title) {
        // MailDev shows a mail in a frame whose sandbox allows no forms.
        (Some("GET"), Some(title)) if is_framed => {
            let token = field(query, "token");
            let body = format!(
                "<h1>{title}</h1><p>Open <a href=\"{path}?token={token}\">this link</a> in a tab of its own: with the middle \
                 button, or Ctrl and a click. In this frame of the mailbox no form works.</p>"
            );
            ("200 OK", body)
        }
        (Some("GET"), Some(title)) => {
            let code = match path {
                "/recover" => "<p><label>Code from the mail <input name=code></label></p>",
                _ => "",
            };
            let token = field(query, "token");
            let form = format!(
                "<h1>{title}</h1><form method=post action={path}>{code}\
                 <input type=hidden name=token value={token}><button>{title}</button></form>"
            );
            ("200 OK", form)
        }
        (Some("POST"), Some(title)) => {
            let outcome = redeem(client, field(&form, "token"), field(&form, "code"));
            (
                "200 OK",
                format!("<h1>{title}</h1><p>mailroom_redeem: <strong>{outcome}</strong></p>"),
            )
        }
        _ => ("404 Not Found", "<h1>No such page</h1>".to_owned()),
    };
    write!(
        stream,
        "HTTP/1.1 {status}\r\nContent-Type: text/html; charset=utf-8\r\nConnection: close\r\n\
         Cache-Control: no-store\r\nReferrer-Policy: no-referrer\r\nX-Content-Type-Options: nosniff\r\n\
         Content-Security-Policy: default-src 'none'; form-action 'self'\r\n\r\n\
         <!doctype html><html lang=en><meta name=viewport content=\"width=device-width\"><title>Example</title>{body}\n"
    )
}

/// Redeems a link; returns the outcome.
fn redeem(client: &Mutex<Client>, token: &str, code: &str) -> String {
    let statement = "SELECT outcome::text FROM mailroom_redeem($1, nullif($2, ''))";
    let mut client = client.lock().unwrap();
    client
        .query_one(statement, &[&token, &code])
        .map_or("an error".to_owned(), |row| row.get(0))
}

/// The value of a field of a form; empty if it has other characters than a token has.
fn field<'a>(form: &'a str, name: &str) -> &'a str {
    let pairs = form.split('&').filter_map(|pair| pair.split_once('='));
    let mut values = pairs.filter_map(|(key, value)| (key == name).then_some(value));
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_".contains(c);
    values
        .next()
        .filter(|value| value.chars().all(is_plain))
        .unwrap_or_default()
}
