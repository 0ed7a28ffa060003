//! Servers that ask for no password, or for one in clear text, with and without TLS.

// needs: openssl

use std::net::{IpAddr, UdpSocket};
use std::process::Command;

use super::scene::{PASSWORD, Scene};
use crate::cluster::skip;

const OPEN: &str = "in without a password from here.";
const CLEAR: &str =
    "This server wants passwords in clear text, over a connection that others may read.";

/// An address of this machine that is not loopback, if it has one.
fn outer_address() -> Option<IpAddr> {
    // Nothing is sent.
    let socket = UdpSocket::bind("0.0.0.0:0").unwrap();
    socket.connect("192.0.2.1:9").ok()?;
    let address = socket.local_addr().ok()?.ip();
    (!address.is_loopback()).then_some(address)
}

/// The user of the system that this test runs as.
fn user() -> String {
    let output = Command::new("id").arg("-un").output().unwrap();
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

/// A server with TLS, whose certificate is for `localhost`.
struct Secured {
    scene: Scene,
    port: u16,
    outer: Option<IpAddr>,
    verified: String,
}

impl Secured {
    /// `ask` says for an address, for which it has one line, how the server asks.
    fn start(with_tls: bool, ask: &str) -> Self {
        let mut scene = Scene::start();
        scene
            .client
            .batch_execute(&format!(
                "CREATE ROLE clear LOGIN PASSWORD 'hunter2' IN ROLE mailroom_admin; CREATE ROLE trusted LOGIN IN ROLE mailroom_admin; \
                 CREATE ROLE certified LOGIN PASSWORD 'hunter2' IN ROLE mailroom_admin; \
                 CREATE ROLE \"{}\" LOGIN PASSWORD 'hunter2' IN ROLE mailroom_admin",
                user()
            ))
            .unwrap();
        let home = scene.cluster.scratch();
        let script = format!(
            "ec='-newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes'
             ca='-CA {home}/ca.pem -CAkey {home}/ca.key -CAcreateserial'
             openssl req -x509 $ec -keyout {home}/ca.key -out {home}/ca.pem -days 2 -subj '/CN=Test authority'
             printf 'subjectAltName=DNS:localhost\nbasicConstraints=CA:FALSE\n' >{home}/extensions
             openssl req $ec -keyout server.key -out server.csr -subj '/CN=localhost'
             openssl req $ec -keyout {home}/client.key -out client.csr -subj '/CN=certified'
             chmod 600 server.key
             openssl x509 -req -in server.csr $ca -days 2 -extfile {home}/extensions -out server.crt
             printf 'basicConstraints=CA:FALSE\n' >{home}/extensions
             openssl x509 -req -in client.csr $ca -days 2 -extfile {home}/extensions -out {home}/client.crt
             chmod 644 {home}/client.key
             printf \"ssl = {ssl}\nssl_ca_file = '{home}/ca.pem'\n\" >>postgresql.auto.conf",
            home = home.display(),
            ssl = if with_tls { "on" } else { "off" },
        );
        let mut shell = scene.cluster.as_server_user(Command::new("sh"));
        let shell = shell
            .current_dir(scene.cluster.data())
            .args(["-euc", &script]);
        let made = shell.output().unwrap();
        assert!(
            made.status.success(),
            "{}",
            String::from_utf8_lossy(&made.stderr)
        );
        let _ = std::fs::set_permissions(
            home.join("client.key"),
            std::os::unix::fs::PermissionsExt::from_mode(0o600),
        );
        scene.cluster.give_away(&home.join("ca.pem"));
        let outer = outer_address();
        if outer.is_none() {
            skip("this machine has no address but those of loopback");
        }
        let mut addresses = vec![IpAddr::from([127, 0, 0, 1])];
        addresses.extend(outer);
        let addresses: Vec<String> = addresses.iter().map(IpAddr::to_string).collect();
        let port = scene.listen(&addresses.join(","), ask);
        Self {
            scene,
            port,
            outer,
            verified: format!(
                "sslmode=verify-full&sslrootcert={}",
                home.join("ca.pem").display()
            ),
        }
    }

    /// What is said to a role that logs in: empty if it is in.
    fn log_in(&self, host: &str, options: &str, role: &str) -> String {
        let url = match host {
            "" => format!("{} {options}", self.scene.url_at(self.port, "app")),
            _ => format!("postgresql://{host}:{}/app?{options}", self.port),
        };
        let server = self.scene.serve_at(&[url], &[]);
        let browser = server.browser("app");
        let answer = browser.log_in(role, PASSWORD);
        match answer.status {
            303 => String::new(),
            _ => super::scene::notice(&answer.body),
        }
    }
}

#[test]
fn passwords_in_clear_text_go_where_others_cannot_read_them() {
    let ask = "local all all password\nhost all all all password\n";
    let server = Secured::start(true, ask);
    assert_eq!(server.log_in("", "", "clear"), "");
    assert_eq!(server.log_in("127.0.0.1", "sslmode=disable", "clear"), "");
    assert_eq!(server.log_in("localhost", &server.verified, "clear"), "");
    let mut open = vec![
        ("localhost", "sslmode=require"),
        ("localhost", "sslmode=prefer"),
        ("localhost", ""),
    ];
    let outer = server.outer.map(|address| address.to_string());
    if let Some(outer) = &outer {
        open.extend(
            [
                "sslmode=disable",
                "sslmode=prefer",
                "sslmode=require",
                "sslmode=allow",
            ]
            .map(|mode| (outer.as_str(), mode)),
        );
    }
    for (host, mode) in open {
        let told = server.log_in(host, mode, "clear");
        assert!(told.starts_with(CLEAR), "{host} {mode}: {told}");
        assert!(told.contains("sslmode=verify-full"), "{told}");
    }
    let log = server.scene.cluster.log();
    assert!(!log.contains("password authentication failed"), "{log}");
    let Some(outer) = outer else { return };
    let server = Secured::start(false, ask);
    for mode in ["sslmode=disable", "sslmode=prefer"] {
        let told = server.log_in(&outer, mode, "clear");
        assert!(told.starts_with(CLEAR), "{mode}: {told}");
    }
}

#[test]
fn a_server_that_asks_for_no_password_lets_nobody_in() {
    let ask = "local all trusted trust\nhostssl all certified all cert\nhost all trusted all trust\nlocal all all peer\nhost all all all scram-sha-256\n";
    for with_tls in [true, false] {
        let server = Secured::start(with_tls, ask);
        let host = if with_tls { "localhost" } else { "127.0.0.1" };
        let mut open = vec![
            ("", String::new(), "trusted".to_owned()),
            ("", String::new(), user()),
            (host, "sslmode=disable".to_owned(), "trusted".to_owned()),
            (host, "sslmode=prefer".to_owned(), "trusted".to_owned()),
            (host, String::new(), "trusted".to_owned()),
        ];
        let home = server.scene.cluster.scratch();
        let certificate = format!(
            "sslcert={0}/client.crt&sslkey={0}/client.key",
            home.display()
        );
        if with_tls {
            for mode in ["sslmode=require", "sslmode=prefer", &server.verified] {
                open.push((host, mode.to_owned(), "trusted".to_owned()));
                open.push((
                    host,
                    format!("{mode}&{certificate}"),
                    "certified".to_owned(),
                ));
            }
        }
        for (host, options, role) in open {
            let told = server.log_in(host, &options, &role);
            assert!(told.contains(OPEN), "{host} {options} {role}: {told}");
            assert!(told.contains("pg_hba.conf"), "{told}");
        }
        // The others are asked.
        for mode in if with_tls {
            vec!["sslmode=require", "sslmode=prefer", &server.verified]
        } else {
            vec!["sslmode=prefer"]
        } {
            assert_eq!(server.log_in(host, mode, "support"), "", "{host} {mode}");
        }
        if with_tls {
            let mode = format!("channel_binding=require&{}", server.verified);
            assert_eq!(server.log_in(host, &mode, "support"), "");
        }
    }
}

#[test]
fn a_session_ends_where_the_server_no_longer_asks() {
    let mut scene = Scene::start();
    let server = scene.serve();
    let browser = server.of("support");
    scene.ask("local all all trust\n");
    browser.page("messages");
    let ended = "SELECT count(pg_terminate_backend(pid, 10000)) FROM pg_stat_activity WHERE usename = 'support'";
    assert_eq!(scene.number(ended), 1);
    assert_eq!(browser.get("messages").status, 303);
    let told = server.browser("app").refused("support", PASSWORD);
    assert!(told.contains(OPEN), "{told}");
}
