//! How long `mailroom serve` takes for its pages, beside many mails that have ended: p95 of a request, warm.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::time::Instant;

use crate::ground;
use crate::plan::Effort;
use crate::process::Process;
use crate::sender_scene::program;
use crate::table::{Row, Target, Unit, percentile};

/// Milliseconds within which a page is there, and the answer about an address.
const PAGE: f64 = 300.0;
const ADDRESS: f64 = 50.0;
const PASSWORD: &str = "page";

/// One in a thousand has failed, and a hundred mails went to each address.
const ENDED: &str = "INSERT INTO outbox (kind, transport, recipients, subject, body_text, state, claimed_at, ended_at, last_error, failed_attempts) \
    SELECT CASE WHEN i % 10 = 0 THEN 'invoice' ELSE 'digest' END, 'main', ARRAY['user' || i / 100 || '@example.com'], \
        'Hello ' || i, 'Text', CASE WHEN i % 1000 = 0 THEN 'error'::outbox_state ELSE 'sent' END, now(), \
        now() - i * interval '0.1 s', CASE WHEN i % 1000 = 0 THEN 'smtp 550 5.1.1' END, (i % 1000 = 0)::integer \
    FROM generate_series(1, $1::integer) i";
const ATTEMPTS: &str = "INSERT INTO outbox_attempts (outbox_id, attempt, outcome, ended_at, transport, response_code, error) \
    SELECT id, 1, 'failed', ended_at, 'main', 550, 'smtp 550 5.1.1' FROM outbox WHERE state = 'error'";
const WAITING: &str = "INSERT INTO outbox (kind, transport, recipients, subject, body_text) \
    SELECT 'digest', 'main', ARRAY['waits' || i || '@example.com'], 'Hello ' || i, 'Text' FROM generate_series(1, $1::integer) i";

/// The rows of the page.
pub fn measure(effort: Effort) -> Vec<Row> {
    let ended: i32 = effort.of(2_000_000, 20_000);
    let waiting = ended / 10;
    let cluster = ground::without_workers();
    let hba = cluster.data().join("pg_hba.conf");
    let rules = std::fs::read_to_string(&hba).unwrap();
    std::fs::write(&hba, format!("local all ann scram-sha-256\n{rules}")).unwrap();
    cluster.reload();
    let mut client = ground::create_database(&cluster, "app", &["mailroom.retention = '30 d'"]);
    client.execute(ENDED, &[&ended]).unwrap();
    client.execute(WAITING, &[&waiting]).unwrap();
    let role = format!("CREATE ROLE ann LOGIN PASSWORD '{PASSWORD}' IN ROLE mailroom_admin");
    for statement in [ATTEMPTS, role.as_str(), "VACUUM (ANALYZE)"] {
        client.batch_execute(statement).unwrap();
    }
    let port = TcpListener::bind(("127.0.0.1", 0))
        .and_then(|listener| listener.local_addr())
        .unwrap()
        .port();
    let mut command = program();
    let database = format!("host={} dbname=app", cluster.socket().display());
    command.args(["serve", "--database", &database]);
    command.args(["--listen", &format!("127.0.0.1:{port}")]);
    let mut page = Process::start(&command);
    page.printed("the page to listen", |line| {
        line.contains("listens on").then_some(())
    });
    let cookie = log_in(port);
    let middle = ended / 2;
    [
        ("Now", String::new(), PAGE),
        ("Messages", "messages".to_owned(), PAGE),
        ("Messages, a kind", "messages?kind=invoice".to_owned(), PAGE),
        (
            "Messages, a filter without a match",
            "messages?kind=none".to_owned(),
            PAGE,
        ),
        (
            "an address",
            format!("messages?q=user{}%40example.com", middle / 100),
            ADDRESS,
        ),
        (
            "an address of waiting mail",
            "messages?q=waits7%40example.com".to_owned(),
            ADDRESS,
        ),
        ("a message", format!("messages/{middle}"), PAGE),
        ("Failures", "failures?since=30+days".to_owned(), PAGE),
        ("Delivery", "delivery".to_owned(), PAGE),
    ]
    .map(|(name, path, most)| {
        let name =
            format!("page, {ended} ended and {waiting} waiting: p95 of {name} / {most:.0} ms");
        let mut row = Row::new(name, Unit::Millis)
            .against(most)
            .aiming_at(Some(Target::RatioAtMost(1.0)));
        let requests: usize = effort.of(110, 12);
        let took = (0..requests).map(|_| get(port, &path, &cookie));
        // The first ones warm up.
        let mut took: Vec<f64> = took.skip(requests / 11).collect();
        took.sort_by(f64::total_cmp);
        row.add_one(percentile(&took, 0.95));
        row
    })
    .into()
}

/// Logs in; returns the cookie.
fn log_in(port: u16) -> String {
    let form = format!("role=ann&password={PASSWORD}");
    let head = format!(
        "Origin: http://127.0.0.1:{port}\r\nContent-Length: {}\r\n",
        form.len()
    );
    let answer = ask(port, "POST", "login", &head, &form);
    let cookie = answer
        .lines()
        .find_map(|line| line.strip_prefix("set-cookie: "));
    let cookie = cookie.unwrap_or_else(|| panic!("not logged in: {answer}"));
    cookie.split(';').next().unwrap().to_owned()
}

/// The milliseconds that a page takes.
fn get(port: u16, path: &str, cookie: &str) -> f64 {
    let begin = Instant::now();
    let answer = ask(port, "GET", path, &format!("Cookie: {cookie}\r\n"), "");
    assert!(answer.starts_with("HTTP/1.0 200"), "{path}: {answer}");
    begin.elapsed().as_secs_f64() * 1_000.0
}

fn ask(port: u16, method: &str, path: &str, head: &str, body: &str) -> String {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
    let request =
        format!("{method} /app/{path} HTTP/1.0\r\nHost: 127.0.0.1:{port}\r\n{head}\r\n{body}");
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}
