//! The commands of the guide about the page, and its proxy.

use std::fs;
use std::process::Command;

use super::path;
use crate::book::{block, blocks, read, run_sql};
use crate::cluster::{Cluster, eventually};
use crate::counterparts::{http, process::Process, tls::Authority};
use crate::process::{directory, free_port};

const PAGE: &str = "docs/guides/page.md";
/// The roles of the guide, as the form of the log-in sends them.
const ANN: &str = "role=ann&password=correct+horse+battery+staple";
const TV: &str = "role=tv&password=another+long+password";

/// Logs a role in to the page; returns the status, and the cookie of the session if there is one.
pub fn log_in(port: u16, host: &str, path: &str, form: &str) -> (u16, Option<String>) {
    let scheme = if host.contains(':') { "http" } else { "https" };
    let headers = format!(
        "Host: {host}\r\nOrigin: {scheme}://{host}\r\nContent-Type: application/x-www-form-urlencoded\r\n"
    );
    let (status, head, _) = http::exchange(port, "POST", path, &headers, form);
    let mut lines = head.lines();
    let cookie = lines.find_map(|line| line.strip_prefix("set-cookie: "));
    let cookie = cookie.and_then(|cookie| Some(cookie.split_once(';')?.0.to_owned()));
    (status, cookie)
}

/// A cluster with the roles of the guide, which asks them for their passwords.
fn start() -> Cluster {
    let cluster = Cluster::start(&[]);
    for database in ["app", "shop"] {
        cluster.create_database(database);
    }
    for block in blocks(&read(PAGE)) {
        if block.language == "sql" {
            run_sql(&cluster, "app", &block.text);
        }
    }
    let hba = cluster.data().join("pg_hba.conf");
    let line = block(PAGE, "text hba").replace("host app ", "local app,shop ");
    let line = line.replace(" 127.0.0.1/32", "");
    let others = fs::read_to_string(&hba).unwrap();
    fs::write(&hba, line + &others).unwrap();
    cluster.reload();
    cluster
}

/// Starts a command of the guide: a socket takes the place of the address of the server, and another port that of the page.
fn serve(cluster: &Cluster, info: &str) -> (Process, u16) {
    let port = free_port();
    let socket = cluster.socket().display().to_string().replace('/', "%2F");
    let script = block(PAGE, info).replace("//127.0.0.1/", &format!("//{socket}/"));
    let script = format!("exec {} --listen 127.0.0.1:{port}", script.trim_end());
    let mut shell = Command::new("sh");
    shell.env("PATH", path(cluster)).args(["-euc", &script]);
    let mut server = Process::start(&shell);
    server.printed("the page", |line| line.contains("listens on").then_some(()));
    (server, port)
}

#[test]
fn the_page_is_served_as_described() {
    let cluster = start();
    for (info, host, root) in [
        ("sh page", None, "/app/"),
        ("sh databases", None, "/shop/"),
        ("sh proxy", Some("ops.example.com"), "/mail/app/"),
    ] {
        let (server, port) = serve(&cluster, info);
        assert_eq!(http::call(port, "GET", "/-/health", None).0, 200);
        let host = host.map_or(format!("127.0.0.1:{port}"), str::to_owned);
        let login = format!("{root}login");
        let wrong = "role=ann&password=correct+horse";
        assert_eq!(log_in(port, &host, &login, wrong), (403, None));
        for (form, sees_log) in [(ANN, true), (TV, false)] {
            let (status, cookie) = log_in(port, &host, &login, form);
            assert_eq!(status, 303, "{info}: {form}\n{}", server.output());
            let headers = format!("Host: {host}\r\nCookie: {}\r\n", cookie.unwrap());
            let path = format!("{root}delivery");
            let (status, _, shown) = http::exchange(port, "GET", &path, &headers, "");
            assert_eq!(status, 200, "{shown}");
            assert_eq!(shown.contains(&format!("{root}log\"")), sees_log, "{shown}");
            assert_eq!(shown.contains("Europe/Berlin"), sees_log, "{shown}");
        }
    }
}

/// Logs in by https, as a browser does: prints the status and where it leads, then the status of that page.
const BROWSER: &str = r#"
import http.client, ssl, sys
port, form = int(sys.argv[1]), sys.argv[2]
page = http.client.HTTPSConnection("127.0.0.1", port, context=ssl._create_unverified_context())
ours = {"Host": "ops.example.com"}
headers = {"Origin": "https://ops.example.com", "Content-Type": "application/x-www-form-urlencoded", **ours}
page.request("POST", "/mail/app/login", form, headers)
answer = page.getresponse()
answer.read()
to, cookie = answer.headers["Location"], answer.headers["Set-Cookie"]
print(answer.status, to)
page.request("GET", to + "messages?q=ann@example.com", headers={"Cookie": cookie.split(";")[0], **ours})
answer = page.getresponse()
print(answer.status)
"#;

// needs: aiosmtpd
#[test]
fn a_proxy_serves_the_page_as_described() {
    let cluster = start();
    let (server, page) = serve(&cluster, "sh proxy");
    let (home, port, authority) = (directory(), free_port(), Authority::shared());
    let site = block(PAGE, "nginx")
        .replace("listen 443 ", &format!("listen 127.0.0.1:{port} "))
        .replace(
            "/etc/ssl/certs/ops.example.com.pem",
            &authority.chain.display().to_string(),
        )
        .replace(
            "/etc/ssl/private/ops.example.com.key",
            &authority.key.display().to_string(),
        )
        .replace("127.0.0.1:8425", &format!("127.0.0.1:{page}"));
    let temporary = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"];
    let temporary = temporary.map(|name| format!("{name}_temp_path {}/{name};\n", home.display()));
    let configuration = format!(
        "daemon off;\nerror_log stderr notice;\npid {home}/pid;\nevents {{}}\n\
         http {{\n{}access_log {home}/access;\n{site}}}\n",
        temporary.concat(),
        home = home.display()
    );
    let file = home.join("nginx.conf");
    fs::write(&file, configuration).unwrap();
    let mut nginx = Command::new("/usr/sbin/nginx");
    nginx.arg("-p").arg(&home).arg("-c").arg(&file);
    let nginx = Process::start(&nginx);
    eventually("nginx", || {
        std::net::TcpStream::connect(("127.0.0.1", port)).ok()
    });
    let output = crate::mailbox::python()
        .args(["-c", BROWSER, &port.to_string(), ANN])
        .output()
        .unwrap();
    let told = String::from_utf8_lossy(&output.stdout);
    let wrong = String::from_utf8_lossy(&output.stderr);
    let logs = [nginx.output(), server.output()].concat();
    assert_eq!(told, "303 /mail/app/\n200\n", "{wrong}\n{logs}");
    let seen = fs::read_to_string(home.join("access")).unwrap_or_default();
    assert_eq!(seen, "", "addresses are in its log");
}
