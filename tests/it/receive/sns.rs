//! Messages of Amazon SNS, signed by the key of a certificate that the program fetches, from a server that takes the place
//! of Amazon's.

use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use serde_json::Value;

use super::http::Answer;
use super::scene::{Listening, OTHER_PASSWORD, PASSWORD, Scene};
use crate::cluster::eventually;
use crate::process::free_port;

const HOST: &str = "sns.us-east-1.amazonaws.com";
/// A public address; nothing connects to it.
const ADDRESS: &str = "54.239.28.85";

/// The messages, signed by another program.
fn vectors() -> Value {
    let vectors = include_str!("../../vectors/event_signatures.json");
    let mut vectors: Value = serde_json::from_str(vectors).unwrap();
    vectors["sns"].take()
}

/// What follows the host in a URL.
fn path(url: &Value) -> &str {
    let url = url.as_str().unwrap();
    url.strip_prefix(&format!("https://{HOST}/")).unwrap()
}

/// An HTTPS server of files with the name of SNS.
struct Server {
    child: Child,
    port: u16,
    home: PathBuf,
    library: PathBuf,
}

impl Server {
    /// Starts it with a certificate, and an answer for a confirmation.
    fn start(scene: &Scene, vectors: &Value) -> Self {
        let home = scene.cluster.scratch().join("sns");
        std::fs::create_dir(&home).unwrap();
        let ec = "-newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes";
        let script = format!(
            "openssl req -x509 {ec} -keyout ca.key -out ca.pem -days 2 -subj '/CN=Test authority' \
                 -addext 'basicConstraints=critical,CA:TRUE' -addext 'keyUsage=critical,keyCertSign'
             printf 'subjectAltName=DNS:{HOST}\nbasicConstraints=CA:FALSE\n' >extensions
             openssl req {ec} -keyout server.key -out server.csr -subj '/CN={HOST}'
             openssl x509 -req -in server.csr -CA ca.pem -CAkey ca.key -CAcreateserial -days 2 \
                 -extfile extensions -out server.pem
             printf '127.0.0.1 localhost\n{ADDRESS} {HOST}\n' >hosts"
        );
        let mut shell = Command::new("sh");
        let output = shell.args(["-euc", &script]).current_dir(&home).output();
        assert!(output.unwrap().status.success());
        let message: Value = serde_json::from_str(text(&vectors["confirmation"])).unwrap();
        let certificate = home.join(path(&message["SigningCertURL"]));
        std::fs::write(certificate, text(&vectors["certificate"])).unwrap();
        std::fs::write(home.join(path(&message["SubscribeURL"])), "<ok/>").unwrap();
        let library = scene.cluster.compile_preload("tests/names/divert.c");
        let port = free_port();
        let child = Self::spawn(&home, port);
        Self {
            child,
            port,
            home,
            library,
        }
    }

    fn spawn(home: &Path, port: u16) -> Child {
        let child = Command::new("openssl")
            .args(["s_server", "-WWW", "-accept", &port.to_string()])
            .args(["-cert", "server.pem", "-key", "server.key"])
            .current_dir(home)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        eventually("the server", || {
            TcpStream::connect(("127.0.0.1", port)).ok()
        });
        child
    }

    /// Starts the program so that it takes this server for SNS.
    fn listen(&self, scene: &Scene) -> Listening {
        let file = |name| self.home.join(name).to_str().unwrap().to_owned();
        scene.listen_under(
            &["app"],
            &[
                ("LD_PRELOAD", self.library.to_str().unwrap()),
                ("MAILROOM_HOSTS", &file("hosts")),
                ("MAILROOM_PORT", &self.port.to_string()),
                ("SSL_CERT_FILE", &file("ca.pem")),
            ],
        )
    }

    fn stop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop();
    }
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap()
}

fn transports(topic: &str) -> String {
    format!("[transports.main]\nprovider = \"ses\"\nevent_topic = \"{topic}\"\n")
}

#[test]
fn a_signature_is_verified_by_the_certificate_that_is_fetched_once() {
    let vectors = vectors();
    let mut scene = Scene::start();
    // The messages were signed on 2 January 2026.
    scene
        .cluster
        .append("postgresql.auto.conf", "mailroom.retention = '3650d'\n");
    scene.cluster.reload();
    scene.write(&transports(text(&vectors["topic"])));
    let mut server = Server::start(&scene, &vectors);
    let listening = server.listen(&scene);
    let post = |body: &str| listening.post("main", "X-None: x", body.as_bytes());
    let told = |answer: Answer| (answer.status, answer.body);
    let confirmed = (200, "confirmed".to_owned());
    assert_eq!(told(post(text(&vectors["confirmation"]))), confirmed);
    listening.program.wait_for("is confirmed", 1);
    // One message with each version of the signature, with and without a subject. One of two recipients is suppressed.
    let notifications = vectors["notifications"].as_array().unwrap();
    for (index, notification) in notifications.iter().enumerate() {
        let expected = if index == 0 {
            "recorded"
        } else {
            "nothing new"
        };
        assert_eq!(told(post(text(notification))), (200, expected.to_owned()));
        let changed = text(notification).replace("5.1.1", "5.1.2");
        assert_eq!(post(&changed).status, 401);
    }
    assert_eq!(scene.events(), 1);
    for other in ["other_topic", "other_key"] {
        assert_eq!(post(text(&vectors[other])).status, 401, "{other}");
    }
    assert_eq!(
        told(post(text(&vectors["end"]))),
        (200, "ignored".to_owned())
    );
    server.stop();
    // The certificate is known, and the subscription cannot be confirmed now.
    assert_eq!(
        told(post(text(&notifications[0]))),
        (200, "nothing new".to_owned())
    );
    let later = post(text(&vectors["confirmation"]));
    assert_eq!(
        (later.status, later.header("retry-after")),
        (503, Some("10"))
    );
    let log = listening.program.log();
    assert!(!log.contains("2336412f37fb687f"), "no token: {log}");
    drop(listening);
    // Another process does not know it, until the server is there again.
    let listening = server.listen(&scene);
    let ask = || listening.post("main", "X-None: x", text(&notifications[0]).as_bytes());
    assert_eq!(ask().status, 503);
    server.child = Server::spawn(&server.home, server.port);
    assert_eq!(ask().status, 200);
}

#[test]
fn a_message_that_is_older_than_the_memory_of_events_is_refused() {
    let vectors = vectors();
    let mut scene = Scene::start();
    scene.write(&transports(text(&vectors["topic"])));
    let server = Server::start(&scene, &vectors);
    let listening = server.listen(&scene);
    for message in [&vectors["notifications"][0], &vectors["confirmation"]] {
        let answer = listening.post("main", "X-None: x", text(message).as_bytes());
        assert_eq!((answer.status, &*answer.body), (400, "too old"));
    }
    assert_eq!(scene.events(), 0);
}

#[test]
fn a_message_of_sns_needs_its_topic_its_password_and_its_signature() {
    const TOPIC: &str = "arn:aws:sns:xx-nowhere-1:123456789012:ses-events";
    let mut scene = Scene::start();
    scene.write(&format!(
        "[transports.main]\nprovider = \"ses\"\nevent_topic = \"{TOPIC}\"\nevent_secret = \"mailroom:hunter2\"\n"
    ));
    let listening = scene.listen(&["app"]);
    let message = |topic: &str, certificate: &str| {
        format!(
            r#"{{"Type": "Notification", "MessageId": "m", "TopicArn": "{topic}", "Message": "{{}}", "Timestamp": "2026-01-01T00:00:00Z",
                "SignatureVersion": "2", "Signature": "AAAA", "SigningCertURL": "{certificate}"}}"#
        )
    };
    let own = "https://sns.xx-nowhere-1.amazonaws.com/SimpleNotificationService-0a.pem";
    for (password, body, status) in [
        (OTHER_PASSWORD, message(TOPIC, own), 401),
        ("X-None: x", message(TOPIC, own), 401),
        (
            PASSWORD,
            message(&TOPIC.replace("ses-events", "x"), own),
            401,
        ),
        (
            PASSWORD,
            message(
                TOPIC,
                "https://example.com/SimpleNotificationService-0a.pem",
            ),
            401,
        ),
        (PASSWORD, "{}".to_owned(), 400),
        // The region does not exist, so the host has no address.
        (PASSWORD, message(TOPIC, own), 503),
    ] {
        let answer = listening.post("main", password, body.as_bytes());
        assert_eq!(answer.status, status, "{body}");
        let is_challenged = answer.header("www-authenticate").is_some();
        assert_eq!(is_challenged, status == 401, "{body}");
    }
    assert_eq!(scene.events(), 0);
}
