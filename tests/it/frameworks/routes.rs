//! The routes of the book, as they are printed. Those of the page "Events" pass requests of a provider on, the same bytes and
//! headers; those of "Unsubscribing" act on a POST only.

use std::fs;
use std::net::TcpStream;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

use postgres::Client;

use super::file;
use crate::book::block;
use crate::cluster::transports::FILE;
use crate::cluster::{Cluster, eventually};
use crate::counterparts::process::{Process, free_port};
use crate::receive::http::{Answer, request};

/// `webhook:correct-horse-battery`, as the page has it.
const PASSWORD: &str = "Authorization: Basic d2ViaG9vazpjb3JyZWN0LWhvcnNlLWJhdHRlcnk=";

/// A database whose transports file is the block of the page, and a folder for a program.
fn shop() -> (Cluster, Client, PathBuf) {
    let file = block("docs/guides/events.md", "toml events");
    let setting = format!("mailroom.transports_file = '{FILE}'");
    let cluster = Cluster::start_with_file(&["mailroom.collect = off", &setting], FILE, &file);
    // In a schema that the role finds.
    let mut client = cluster.create_database_with_schema("app");
    client
        .batch_execute("CREATE ROLE web LOGIN IN ROLE mailroom_app")
        .unwrap();
    let folder = cluster.scratch();
    (cluster, client, folder)
}

/// Posts to the server on this port.
fn post(port: u16, authorization: &str, body: &[u8]) -> Answer {
    let headers = [authorization, "Content-Type: application/json"];
    request(
        ([127, 0, 0, 1], port).into(),
        "POST",
        "/events/main",
        &headers,
        body,
    )
}

/// Posts what Postmark would post, and what it would not.
fn check(cluster: &Cluster, client: &mut Client, port: u16) {
    client
        .batch_execute("SELECT mailroom_send('c@example.com', 'S', 'T')")
        .unwrap();
    let mail = client
        .query_one("SELECT message_id::text FROM outbox", &[])
        .unwrap();
    let message_id: String = mail.get(0);
    // As large as any, with bytes that conversions would change.
    let padding = "\\\\ é \\u00e9 ".repeat(80_000);
    let body = format!(
        r#"{{"RecordType": "Bounce", "ID": 1, "Type": "HardBounce", "Email": "c@example.com", "BouncedAt": "2026-01-01T00:00:00Z",
            "Details": "550 5.1.1 é \u00e9 \\ '", "Metadata": {{"message_id": "{message_id}"}}, "Content": "{padding}"}}"#
    );
    let answer = post(port, PASSWORD, body.as_bytes());
    assert_eq!(answer.status, 200, "{}", cluster.log());
    let detail: String = client
        .query_one("SELECT detail FROM delivery_events", &[])
        .unwrap()
        .get(0);
    assert_eq!(detail, "550 5.1.1 é é \\ '");
    // Again, and mail of another program.
    assert_eq!(post(port, PASSWORD, body.as_bytes()).status, 200);
    let refused = post(port, "Authorization: Basic eDp5", body.as_bytes());
    assert_eq!(refused.status, 401);
    assert_eq!(refused.header("WWW-Authenticate"), Some("Basic"));
    assert_eq!(post(port, PASSWORD, b"\xff{").status, 400);
    let recorded = client
        .query("SELECT FROM delivery_events", &[])
        .unwrap()
        .len();
    assert_eq!(recorded, 1);
}

/// Serves what this page has for Django.
fn django(cluster: &Cluster, folder: &Path, page: &str, imports: &str) -> Process {
    let package = folder.join("shop");
    fs::create_dir(&package).unwrap();
    fs::write(package.join("__init__.py"), "").unwrap();
    let imports = format!(
        "{imports}from django.db import connection\nfrom django.http import HttpResponse\n\
         from django.views.decorators.csrf import csrf_exempt\n\n\n"
    );
    fs::write(package.join("route.py"), imports + &block(page, "python")).unwrap();
    let mut program = crate::mailbox::python();
    program
        .arg(file("route_django.py"))
        .arg(cluster.socket())
        .env("PYTHONPATH", folder);
    Process::start(&program)
}

/// Serves what this page has for Express.
fn express(cluster: &Cluster, folder: &Path, page: &str) -> Process {
    let packages = crate::counterparts::module("pg");
    symlink(packages.parent().unwrap(), folder.join("node_modules")).unwrap();
    fs::copy(file("route_node.mjs"), folder.join("route_node.mjs")).unwrap();
    let routes = block(page, "js");
    let routes = format!("export default function route(app, express, db) {{\n{routes}}}\n");
    fs::write(folder.join("route.mjs"), routes).unwrap();
    let mut program = crate::counterparts::node();
    program
        .arg(folder.join("route_node.mjs"))
        .arg(cluster.socket());
    Process::start(&program)
}

// needs: aiosmtpd
#[test]
fn the_route_for_django_passes_events_on() {
    let (cluster, mut client, folder) = shop();
    let imports = "import json\n\nfrom django.views.decorators.http import require_POST\n";
    let mut server = django(&cluster, &folder, "docs/guides/events.md", imports);
    let port = server.port("port");
    check(&cluster, &mut client, port);
}

// needs: counterparts
#[test]
fn the_route_for_express_passes_events_on() {
    let (cluster, mut client, folder) = shop();
    let mut server = express(&cluster, &folder, "docs/guides/events.md");
    let port = server.port("port");
    check(&cluster, &mut client, port);
}

/// Follows the link of a mail, and clicks.
fn check_unsubscribing(client: &mut Client, port: u16) {
    let url = "SELECT set_config('mailroom.link_base_url', 'https://shop.example.com', false), \
         mailroom_unsubscribe_url('Ada@example.com', 'weekly')";
    let url: String = client.query_one(url, &[]).unwrap().get(1);
    let path = url.strip_prefix("https://shop.example.com").unwrap();
    let ask = |method, path: &str, body: &[u8]| {
        let form = ["Content-Type: application/x-www-form-urlencoded"];
        request(([127, 0, 0, 1], port).into(), method, path, &form, body)
    };
    let mut rows = || {
        client
            .query(
                "SELECT FROM suppressions WHERE address = 'ada@example.com' AND list = 'weekly'",
                &[],
            )
            .unwrap()
            .len()
    };
    let shown = ask("GET", path, b"");
    assert_eq!(shown.status, 200);
    assert!(shown.body.contains("<button>"), "{shown:?}");
    assert_eq!(rows(), 0);
    assert_eq!(ask("POST", &format!("{path}A"), b"").status, 404);
    assert_eq!(ask("POST", "/unsubscribe", b"").status, 404);
    assert_eq!(rows(), 0);
    for body in [&b"List-Unsubscribe=One-Click"[..], b""] {
        assert_eq!(ask("POST", path, body).status, 200);
        assert_eq!(rows(), 1);
    }
}

// needs: aiosmtpd
#[test]
fn the_route_for_django_unsubscribes() {
    let (cluster, mut client, folder) = shop();
    let imports = "from django.views.decorators.http import require_http_methods\n";
    let mut server = django(&cluster, &folder, "docs/guides/unsubscribing.md", imports);
    let port = server.port("port");
    check_unsubscribing(&mut client, port);
}

// needs: counterparts
#[test]
fn the_route_for_express_unsubscribes() {
    let (cluster, mut client, folder) = shop();
    let mut server = express(&cluster, &folder, "docs/guides/unsubscribing.md");
    let port = server.port("port");
    check_unsubscribing(&mut client, port);
}

#[test]
fn the_route_for_php_passes_events_on() {
    let (cluster, mut client, folder) = shop();
    let route = folder.join("route.php");
    let page = block("docs/guides/events.md", "php");
    fs::write(&route, format!("<?php\n{page}")).unwrap();
    let port = free_port();
    let mut program = Command::new("php");
    program
        .arg("-S")
        .arg(format!("127.0.0.1:{port}"))
        .arg(file("route_php.php"))
        .env("MAILROOM_SOCKET", cluster.socket())
        .env("MAILROOM_ROUTE", &route);
    let _server = Process::start(&program);
    eventually("PHP's server", || {
        TcpStream::connect(("127.0.0.1", port)).ok()
    });
    check(&cluster, &mut client, port);
}
